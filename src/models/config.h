/* config.h: reading the JSON files of a model folder. A value that is missing, of the wrong kind or out of range is
 * remembered as the first error; callers read all they need and then look once.
 *
 * A field that no one reads may change the picture. So a configuration remembers which keys were asked for, and
 * lz_config_refuse_rest refuses the others by name. */
#ifndef LZ_CONFIG_H
#define LZ_CONFIG_H

#include <jansson.h>

#include "base/base.h"

typedef struct lz_config {
    lz_context *ctx;
    char *path;
    json_t *root;
    json_t *asked; /* the keys that were asked for; of an object inside another, a member of the outer one's */
    lz_error err;  /* the first one */
} lz_config;

#define LZ_REQUIRED INT64_MIN
#define LZ_CONFIG_MAX_BYTES (16 << 20) /* of a file; published ones have a few thousand */

lz_status lz_config_open(lz_config *c, lz_context *ctx, const char *folder, const char *file, lz_error *err);
/* The same of an object, which it takes over; path stands for the file in errors. NULL: memory ran out. */
lz_status lz_config_of(lz_config *c, lz_context *ctx, const char *path, json_t *root, lz_error *err);
void lz_config_close(lz_config *c);
lz_status lz_config_end(lz_config *c, lz_error *err); /* closes it; the first error */

int64_t lz_config_int(lz_config *c, const char *key, int64_t otherwise, int64_t low,
                      int64_t high); /* null: otherwise */
double lz_config_real(lz_config *c, const char *key, double otherwise);
bool lz_config_bool(lz_config *c, const char *key, bool otherwise);
const char *lz_config_text(lz_config *c, const char *key); /* NULL: not there */
/* Which of these names (ended by NULL) a key has, or holds a list of; 0: not there. Any other value is refused. */
int lz_config_choice(lz_config *c, const char *key, const char *const *names);
int lz_config_ints(lz_config *c, const char *key, int64_t *to, int most, int64_t low,
                   int64_t high);                                         /* how many; 0: not there */
int lz_config_reals(lz_config *c, const char *key, double *to, int most); /* how many; 0: not there */
/* The object under a key, to be read the same way and not to be closed; its root is NULL where there is none. */
lz_config lz_config_inside(lz_config *c, const char *key);

/* Refuses a field that was not asked for, by name: all but null, names that begin with '_', and these harmless ones (ended
 * by NULL, or NULL). */
void lz_config_refuse_rest(lz_config *c, const char *const *harmless);
/* The same for a text encoder or its vision tower, in the format of transformers: knows the harmless fields of any such
 * file, and refuses other kinds of activation, attention and layers than ours. */
void lz_config_refuse_rest_of_transformers(lz_config *c);

/* Says that a key does not fit; the sentence goes on after "<path>: ". */
void lz_config_refuse(lz_config *c, const char *format, ...) __attribute__((format(printf, 2, 3)));

#endif
