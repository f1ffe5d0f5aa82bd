/* confine.h: takes the right to write from the worker process. */
#ifndef LZ_SERVE_CONFINE_H
#define LZ_SERVE_CONFINE_H

#include <stdbool.h>

/* From now on this thread, and those that it starts, can change files only in these folders (ended by NULL). false: the
 * kernel cannot do this, and nothing has changed. */
bool confine_writes(const char *const *folders);

#endif
