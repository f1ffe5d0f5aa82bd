/* fuzz_image.c: any bytes are a picture (or a mask, or a picture with opacity) or an error; a picture, shrunk, can be written and read again, and so can its
 * text; and reading the text of a key from any bytes gives text or an error. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/file.h"
#include "io/image.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

/* A few bytes may claim a picture of 16 megapixels, rightly; that is no news, and it is slow. */
static void *allocate(void *user, size_t bytes) {
    (void)user;
    return bytes > 16 << 20 ? NULL : aligned_alloc(64, (bytes + 63) / 64 * 64);
}

static void release(void *user, void *memory, size_t bytes) {
    (void)user, (void)bytes;
    free(memory);
}

static void write_and_read(lz_context *ctx, const lz_image *image, uint8_t choice, const char *value) {
    const char *const text[] = {"before", "", "the key", value, NULL};
    static const char *const extensions[] = {"png", "jpg", "webp"};
    static char folder[] = "/tmp/lazuli-fuzz-XXXXXX", path[sizeof folder + 16];
    if (!path[0] && !mkdtemp(folder)) abort();
    snprintf(path, sizeof path, "%s/a.%s", folder, extensions[choice % 3]);
    lz_error err;
    lz_image small, again;
    if (lz_image_resize(ctx, image, 1 + choice % 7, 1 + choice % 5, &small, &err) != LZ_OK) return; /* memory */
    if (lz_image_write(ctx, path, &small, text, &err) != LZ_OK) abort();
    char *found = lz_image_read_text(ctx, path, "the key", &err);
    if (!found || strcmp(found, value) != 0) abort();
    lz_free_text(ctx, found);
    if (lz_image_read_alpha(ctx, path, &again, &err) != LZ_OK) abort();
    if (again.width != small.width || again.height != small.height || again.channels > small.channels) abort();
    lz_image_free(ctx, &small);
    lz_image_free(ctx, &again);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
    static const lz_allocator allocator = {allocate, release, NULL};
    static lz_context *ctx;
    if (!ctx) ctx = lz_open(.threads = 1, .cache_limit = -1, .allocator = &allocator);
    lz_error err = {.status = LZ_OK};
    lz_image image;
    lz_alpha alpha = size ? (lz_alpha)(data[size - 1] % 3) : LZ_ALPHA_OVER_WHITE;
    lz_status status = lz_image_read_memory(ctx, "fuzz", data, (int64_t)size, alpha, &image, &err);
    if (status == LZ_OK) {
        if (!image.pixels || image.width < 1 || image.height < 1) abort();
        char value[65] = ""; /* the last bytes, as printable characters */
        for (size_t i = 0; i < 64 && i < size; i++) value[i] = (char)(' ' + data[size - 1 - i] % 95);
        if (data[size - 1] % 16 == 0)
            write_and_read(ctx, &image, data[size / 2], value); /* seldom: it goes to the disk */
        lz_image_free(ctx, &image);
    } else if ((status != LZ_BAD_FILE && status != LZ_OUT_OF_MEMORY) || err.status != status || !err.text[0] ||
               image.pixels)
        abort();
    static const char *const keys[] = {"prompt", "lazuli", "a key: 1"};
    for (size_t i = 0; i < sizeof keys / sizeof *keys; i++) {
        err = (lz_error){.status = LZ_OK};
        char *text = lz_image_text_memory(ctx, "fuzz", data, (int64_t)size, keys[i], &err);
        if (!text == !err.status || (!text && !err.text[0])) abort();
        lz_free_text(ctx, text);
    }
    return 0;
}
