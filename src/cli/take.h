/* take.h: functions of the table of options (options.c), which store the value of an option in the arguments. Each
 * returns an exit code, and reports a value that the option does not take. take_axis, take_keep_outside and take_extend
 * are in axis.c and mask.c. */
#ifndef LZ_CLI_TAKE_H
#define LZ_CLI_TAKE_H

#include "cli.h"

void *option_place(arguments *args, const option *o); /* the member of the arguments that the option sets */

int take_flag(arguments *args, const option *o, const char *value);
int take_again(arguments *args, const option *o, const char *value);
int take_text(arguments *args, const option *o, const char *value);
int take_image(arguments *args, const option *o, const char *value);
int take_lora(arguments *args, const option *o, const char *value);
int take_model(arguments *args, const option *o, const char *value);
int take_names(arguments *args, const option *o, const char *value);
int take_integer(arguments *args, const option *o, const char *value);
int take_number(arguments *args, const option *o, const char *value);
int take_precision(arguments *args, const option *o, const char *value);
const char *precision_word(int type); /* the word that take_precision reads as this type */
int take_offload(arguments *args, const option *o, const char *value);
int take_lora_schedule(arguments *args, const option *o, const char *value);
int take_name(arguments *args, const option *o, const char *value);
int take_cache(arguments *args, const option *o, const char *value);
int take_batch(arguments *args, const option *o, const char *value);
int take_range(arguments *args, const option *o, const char *value);
int take_device(arguments *args, const option *o, const char *value);
int take_seeds(arguments *args, const option *o, const char *value);
int take_settings_file(arguments *args, const option *o, const char *value);

#endif
