/* shrunk.h: files that change while they are in use. It stands alone, so that a test can have it without the program. */
#ifndef LZ_CLI_SHRUNK_H
#define LZ_CLI_SHRUNK_H

#include "lazuli.h"

/* From now on a mapped file that becomes shorter while it is read ends the program: one sentence on stderr, with json also
 * an object on stdout, nothing half-written, exit code 1. */
void end_on_shrunk_files(bool json);

/* As lz_image_write and lz_weights_save. The file they write to until it is complete goes when the program ends so. */
lz_status save_image(lz_context *ctx, const char *path, const lz_image *image, const char *const *text, lz_error *err);
/* To an empty file that was made to reserve the name: it goes too. */
lz_status save_reserved(lz_context *ctx, const char *path, const lz_image *image, const char *const *text,
                        lz_error *err);
lz_status save_tensors(lz_context *ctx, const char *path, const lz_named_array *arrays, int64_t n,
                       const char *const *text, lz_error *err);

#endif
