/* options.c: option structs that can grow in later versions. `size`, the first member, is the size that the caller was
 * built with. */
#include <string.h>

#include "base/base.h"

enum { MOST_BYTES = 1 << 16 }; /* larger than any option struct: a larger `size` was not initialised */

static bool all_zero(const char *bytes, size_t n) {
    while (n && !*bytes) bytes++, n--;
    return !n;
}

lz_status lz_read_options(void *to, size_t size, const void *options, const char *macro, lz_error *err) {
    size_t given;
    memcpy(&given, options, sizeof given);
    if (given < sizeof given || given > MOST_BYTES)
        return lz_fail(err, LZ_BAD_ARGUMENT, "the options have the size %zu; make them with %s(), which sets the size",
                       given, macro);
    if (given > size && !all_zero((const char *)options + size, given - size))
        return lz_fail(
            err, LZ_BAD_ARGUMENT,
            "the options have members that Lazuli %s does not know; the program was built for a newer version",
            lz_version());
    memset(to, 0, size);
    memcpy(to, options, given < size ? given : size);
    memcpy(to, &size, sizeof size);
    return LZ_OK;
}
