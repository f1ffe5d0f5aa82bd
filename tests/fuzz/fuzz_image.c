/* fuzz_image.c: any bytes are a picture or one sentence; and a picture, made small, can be written and read again. */
#include <stdio.h>
#include <stdlib.h>

#include "io/file.h"
#include "io/image.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

/* A few bytes may claim a picture of 512 MB, rightly; that is no news, and it is slow. */
static void *allocate(void *user, size_t bytes) {
    (void)user;
    return bytes > 16 << 20 ? NULL : aligned_alloc(64, (bytes + 63) / 64 * 64);
}

static void release(void *user, void *memory, size_t bytes) {
    (void)user, (void)bytes;
    free(memory);
}

static void write_and_read(lz_context *ctx, const lz_image *image, uint8_t choice) {
    static const char *const extensions[] = {"png", "jpg", "webp"};
    static char folder[] = "/tmp/lazuli-fuzz-XXXXXX", path[sizeof folder + 16];
    if (!path[0] && !mkdtemp(folder)) abort();
    snprintf(path, sizeof path, "%s/a.%s", folder, extensions[choice % 3]);
    lz_error err;
    lz_image small, again;
    if (lz_image_resize(ctx, image, 1 + choice % 7, 1 + choice % 5, &small, &err) != LZ_OK) return; /* memory */
    if (lz_image_write(ctx, path, &small, NULL, &err) != LZ_OK) abort();
    if (lz_image_read(ctx, path, &again, &err) != LZ_OK) abort();
    if (again.width != small.width || again.height != small.height) abort();
    lz_image_free(ctx, &small);
    lz_image_free(ctx, &again);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
    static const lz_allocator allocator = {allocate, release, NULL};
    static lz_context *ctx;
    if (!ctx) ctx = lz_open(.threads = 1, .cache_limit = -1, .allocator = &allocator);
    lz_error err = {.status = LZ_OK};
    lz_image image;
    lz_status status = lz_image_read_memory(ctx, "fuzz", data, (int64_t)size, &image, &err);
    if (status == LZ_OK) {
        if (!image.pixels || image.width < 1 || image.height < 1) abort();
        if (data[size - 1] % 16 == 0) write_and_read(ctx, &image, data[size / 2]); /* seldom: it goes to the disk */
        lz_image_free(ctx, &image);
    } else if ((status != LZ_BAD_FILE && status != LZ_OUT_OF_MEMORY) || err.status != status || !err.text[0] ||
               image.pixels)
        abort();
    lz_free_text(ctx, lz_image_text_memory(ctx, "fuzz", data, (int64_t)size, "prompt", &err));
    return 0;
}
