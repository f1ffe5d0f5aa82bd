/* parts.h: the parts of a path, and unfinished files: until a file is complete, the library writes to
 * NAME.PID-NUMBER.part in the folder of NAME (or of the target if NAME is a link). Does not depend on other files of
 * the program, like shrunk.h. */
#ifndef LZ_CLI_PARTS_H
#define LZ_CLI_PARTS_H

#include <stdbool.h>
#include <stddef.h>
#include <sys/types.h>

const char *base_name(const char *path); /* the part after the last slash */
char *folder_of(const char *path);       /* the part before, with the slash; "./" if there is none; owned */

/* Writes the name of the unfinished file that the library would use now. Returns the length before ".PID-NUMBER.part";
 * 0: size is too small (48 bytes more are needed). */
size_t name_part(const char *path, char *to, size_t size);
bool is_part_ending(const char *ending, pid_t *pid); /* ".PID-NUMBER.part", and nothing else */
void remove_parts(const char *path);                 /* removes unfinished files of processes that no longer exist */

#endif
