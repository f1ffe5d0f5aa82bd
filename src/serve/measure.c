/* measure.c: see measure.h. Reads headers and lengths only: pixels are decoded in the worker process. */
#include "measure.h"

#include <string.h>

static int64_t big(const unsigned char *at, int n) {
    int64_t value = 0;
    for (int i = 0; i < n; i++) value = value << 8 | at[i];
    return value;
}

static int64_t little(const unsigned char *at, int n) {
    int64_t value = 0;
    for (int i = n - 1; i >= 0; i--) value = value << 8 | at[i];
    return value;
}

static bool measure_png(const unsigned char *d, size_t size, int64_t *width, int64_t *height) {
    if (size < 33 || memcmp(d, "\x89PNG\r\n\x1a\n", 8) != 0 || memcmp(d + 12, "IHDR", 4) != 0) return false;
    *width = big(d + 16, 4);
    *height = big(d + 20, 4);
    return true;
}

/* Walks over the segments to the frame header (SOF). Returns its offset; 0: there is none. */
static size_t find_frame(const unsigned char *d, size_t size) {
    if (size < 4 || d[0] != 0xff || d[1] != 0xd8) return 0;
    for (size_t at = 2; at + 9 < size;) {
        if (d[at] != 0xff) return 0;
        int code = d[at + 1];
        if (code == 0xff) {
            at++;
            continue;
        }
        bool alone = code == 0x01 || (code >= 0xd0 && code <= 0xd8);
        bool frame = code >= 0xc0 && code <= 0xcf && code != 0xc4 && code != 0xc8 && code != 0xcc;
        if (code == 0xd9 || code == 0xda || code == 0) return 0;
        if (frame) return at;
        at += 2 + (alone ? 0 : (size_t)big(d + at + 2, 2));
    }
    return 0;
}

static bool measure_jpeg(const unsigned char *d, size_t size, int64_t *width, int64_t *height) {
    size_t at = find_frame(d, size);
    if (!at) return false;
    *height = big(d + at + 5, 2);
    *width = big(d + at + 7, 2);
    return true;
}

static bool measure_webp(const unsigned char *d, size_t size, int64_t *width, int64_t *height) {
    if (size < 30 || memcmp(d, "RIFF", 4) != 0 || memcmp(d + 8, "WEBP", 4) != 0) return false;
    if (memcmp(d + 12, "VP8X", 4) == 0) {
        *width = little(d + 24, 3) + 1;
        *height = little(d + 27, 3) + 1;
    } else if (memcmp(d + 12, "VP8L", 4) == 0) {
        int64_t bits = little(d + 21, 4);
        if (d[20] != 0x2f) return false;
        *width = (bits & 0x3fff) + 1;
        *height = (bits >> 14 & 0x3fff) + 1;
    } else if (memcmp(d + 12, "VP8 ", 4) == 0) {
        if (memcmp(d + 23, "\x9d\x01\x2a", 3) != 0) return false;
        *width = little(d + 26, 2) & 0x3fff;
        *height = little(d + 28, 2) & 0x3fff;
    } else
        return false;
    return true;
}

bool measure_image(const void *data, size_t size, int64_t *width, int64_t *height) {
    const unsigned char *d = data;
    *width = *height = 0;
    bool found = measure_png(d, size, width, height) || measure_jpeg(d, size, width, height) ||
                 measure_webp(d, size, width, height);
    return found && *width > 0 && *height > 0;
}

/* Walks over the chunks to the last one. */
static bool png_is_whole(const unsigned char *d, size_t size) {
    for (size_t at = 8; size - at >= 12;) {
        size_t body = (size_t)big(d + at, 4);
        if (body > size - at - 12) return false;
        if (memcmp(d + at + 4, "IEND", 4) == 0) return true;
        at += 12 + body;
    }
    return false;
}

bool image_is_whole(const void *data, size_t size) {
    const unsigned char *d = data;
    int64_t width, height;
    if (measure_png(d, size, &width, &height)) return png_is_whole(d, size);
    if (measure_webp(d, size, &width, &height)) return (size_t)little(d + 4, 4) <= size - 8;
    size_t frame = find_frame(d, size); /* a small picture before it may have an end of its own */
    return frame && memmem(d + frame, size - frame, "\xff\xd9", 2);
}
