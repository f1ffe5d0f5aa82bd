/* axis.h: an axis of a grid: an option of the table, and the values that it takes. */
#ifndef LZ_CLI_AXIS_H
#define LZ_CLI_AXIS_H

#include "cli.h"

typedef struct axis {
    const option *option; /* NULL: there is no such axis, and n is 1 */
    char **values;        /* owned */
    int n;
} axis;

/* Reads NAME=VALUES, such as steps=2,4,8 or seed=1..5 or "prompt=a fox|a dog"; NULL gives an axis without an option.
 * typed: what the user typed before it, for errors: "--x", "--y" or "/grid". Each value is checked by the option itself.
 * Returns an exit code; call axis_free after an error too. */
int axis_read(axis *a, const arguments *args, const char *typed, const char *text);
void axis_free(axis *a);
/* Sets the option to value i. Returns an exit code. */
int axis_apply(const axis *a, int i, arguments *args);
/* "steps 4", or the value alone if it is a text; files by their names. Owned; NULL: out of memory. */
char *axis_label(const axis *a, int i);
/* The axis as text that axis_read takes; files by their names, or as they were given. Owned; NULL: no axis, or out of
 * memory. */
char *axis_text(const axis *a, bool full_paths);

#endif
