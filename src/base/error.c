/* error.c: errors: a status for programs, one sentence for people. */
#include <stdio.h>

#include "base/base.h"

const char *lz_version(void) { return LZ_VERSION; }
int lz_version_number(void) { return LZ_VERSION_NUMBER; }

const char *lz_status_name(lz_status status) {
    static const char *const names[LZ_STATUS_COUNT] = {
        [LZ_OK] = "ok",
        [LZ_BAD_ARGUMENT] = "bad argument",
        [LZ_BAD_SHAPE] = "bad shape",
        [LZ_BAD_TYPE] = "bad type",
        [LZ_BAD_INDEX] = "bad index",
        [LZ_OUT_OF_MEMORY] = "out of memory",
        [LZ_BAD_FILE] = "bad file",
        [LZ_IO] = "input/output",
        [LZ_NOT_FOUND] = "not found",
        [LZ_CANCELLED] = "cancelled",
        [LZ_DEVICE_FAILED] = "device failed",
    };
    return status >= 0 && status < LZ_STATUS_COUNT ? names[status] : "unknown status";
}

lz_status lz_fail(lz_error *err, lz_status status, const char *format, ...) {
    if (!err) return status;
    va_list args;
    va_start(args, format);
    err->status = status;
    vsnprintf(err->text, sizeof err->text, format, args);
    va_end(args);
    return status;
}
