/* shrunk.h: files that become shorter while they are in use. Does not depend on other files of the program, so that a
 * test can use it. */
#ifndef LZ_CLI_SHRUNK_H
#define LZ_CLI_SHRUNK_H

#include "lazuli.h"

/* From now on, if a mapped file becomes shorter while it is read, the program ends: with one sentence on stderr, with
 * json also an object on stdout, without unfinished files, with exit code 1. */
void end_on_shrunk_files(bool json);

/* Like lz_image_write and lz_weights_save; their unfinished file is removed if the program ends that way. */
lz_status save_image(lz_context *ctx, const char *path, const lz_image *image, const char *const *text, lz_error *err);
/* Writes to an empty file that was made to reserve the name; that file is removed too. */
lz_status save_reserved(lz_context *ctx, const char *path, const lz_image *image, const char *const *text,
                        lz_error *err);
lz_status save_tensors(lz_context *ctx, const char *path, const lz_named_array *arrays, int64_t n,
                       const char *const *text, lz_error *err);

#endif
