/* parts.h: the parts of a path, and unfinished files: the library writes into NAME.PID-NUMBER.part beside NAME, or beside
 * the file that NAME leads to as a link, until all of it is there. It stands alone, as shrunk.h does. */
#ifndef LZ_CLI_PARTS_H
#define LZ_CLI_PARTS_H

#include <stdbool.h>
#include <stddef.h>
#include <sys/types.h>

const char *base_name(const char *path); /* what follows the last slash */
char *folder_of(const char *path);       /* what comes before, with the slash; "./" where there is none; free it */

/* The unfinished file that the library would make now. Returns the bytes of its name before ".PID-NUMBER.part"; 0: size is
 * less than 48 bytes more than that. */
size_t name_part(const char *path, char *to, size_t size);
bool is_part_ending(const char *ending, pid_t *pid); /* ".PID-NUMBER.part", and nothing else */
void remove_parts(const char *path);                 /* what processes that are no more left of this file */

#endif
