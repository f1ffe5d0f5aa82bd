/* test_image.c: image files: reading those of other programs, writing, resizing against Pillow, and damaged files. The
 * fixtures in tests/data/images and their pixels come from tools/oracle/images.py. */
#include <errno.h>
#include <jansson.h>
#include <png.h>
#include <signal.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/file.h"
#include "check.h"
#include "folder.h"
#include "io/image.h"

/* ---- files ------------------------------------------------------------------------------------------------------- */

static uint8_t *read_whole(const char *path, size_t *n) {
    enum { LIMIT = 1 << 20 };
    FILE *f = fopen(path, "rb");
    if (!f) abort();
    uint8_t *data = malloc(LIMIT);
    *n = fread(data, 1, LIMIT, f);
    fclose(f);
    return data;
}

/* ---- reading ----------------------------------------------------------------------------------------------------- */

static const char *fixture(const char *name) {
    char path[256];
    snprintf(path, sizeof path, "images/%s", name);
    return test_data(path);
}

/* The largest difference to pixels in hex. */
static int hex_distance(const lz_image *image, const char *hex) {
    int worst = 0;
    for (int64_t i = 0; i < image->width * image->height * image->channels; i++) {
        char digits[3] = {hex[2 * i], hex[2 * i + 1], 0};
        int distance = abs((int)strtol(digits, NULL, 16) - image->pixels[i]);
        if (distance > worst) worst = distance;
    }
    return worst;
}

static void check_golden(lz_context *ctx, json_t *entry) {
    const char *file = json_string_value(json_object_get(entry, "file"));
    const char *error = json_string_value(json_object_get(entry, "error"));
    lz_error err = {.status = LZ_OK};
    lz_image image;
    if (error) {
        CHECK_STATUS(lz_image_read(ctx, fixture(file), &image, &err), LZ_BAD_FILE, &err);
        CHECK_TEXT(err.text, file);
        CHECK_TEXT(err.text, error);
        CHECK(!image.pixels);
        return;
    }
    if (!CHECK_OK(lz_image_read(ctx, fixture(file), &image, &err), &err)) return;
    bool size = image.width == json_integer_value(json_object_get(entry, "width")) &&
                image.height == json_integer_value(json_object_get(entry, "height"));
    int64_t tolerance = json_integer_value(json_object_get(entry, "tolerance"));
    if (CHECK(size, "%s", file)) {
        int distance = hex_distance(&image, json_string_value(json_object_get(entry, "rgb")));
        CHECK(distance <= tolerance, "%s: %d levels", file, distance);
    }
    CHECK_I64(image.channels, 3);
    lz_image_free(ctx, &image);

    /* With opacity, if a pixel is not opaque. */
    const char *rgba = json_string_value(json_object_get(entry, "rgba")),
               *rgb = json_string_value(json_object_get(entry, "rgb"));
    if (!CHECK_OK(lz_image_read_alpha(ctx, fixture(file), &image, &err), &err)) return;
    if (CHECK(size && image.channels == (rgba ? 4 : 3), "%s: %d channels", file, image.channels)) {
        int distance = hex_distance(&image, rgba ? rgba : rgb);
        CHECK(distance <= tolerance, "%s: %d levels with opacity", file, distance);
    }
    lz_image_free(ctx, &image);
}

static void golden(void) {
    lz_context *ctx = lz_open(.threads = 1);
    json_t *list = json_load_file(fixture("golden.json"), 0, NULL);
    CHECK(json_array_size(list) > 70);
    int transparent = 0;
    for (size_t i = 0; i < json_array_size(list); i++) {
        check_golden(ctx, json_array_get(list, i));
        transparent += json_object_get(json_array_get(list, i), "rgba") != NULL;
    }
    CHECK(transparent >= 30, "%d pictures have transparency", transparent);
    json_decref(list);
    lz_error err;
    lz_image image;
    CHECK_STATUS(lz_image_read(ctx, fixture("nowhere.png"), &image, &err), LZ_NOT_FOUND, &err);
    CHECK_STATUS(lz_image_read(ctx, "/dev/null", &image, &err), LZ_IO, &err);
    CHECK_STATUS(lz_image_read(ctx, NULL, &image, &err), LZ_BAD_ARGUMENT, &err);
    lz_close(ctx);
}

/* ---- damage ------------------------------------------------------------------------------------------------------ */

/* A picture or one sentence; nothing else. The bytes are in memory of their own, so that a sanitizer sees every step
 * beyond them. */
static bool read_bytes(lz_context *ctx, const uint8_t *data, size_t bytes) {
    uint8_t *exact = malloc(bytes + 1);
    memcpy(exact + 1, data, bytes);
    lz_error err = {.status = LZ_OK};
    lz_image image;
    lz_status status = lz_image_read_memory(ctx, "some picture", exact + 1, (int64_t)bytes, LZ_ALPHA_KEEP, &image,
                                            &err);
    if (status == LZ_OK)
        CHECK(image.pixels && image.width > 0 && image.height > 0);
    else {
        CHECK_STATUS(status, LZ_BAD_FILE, &err);
        CHECK_TEXT(err.text, "some picture: ");
        CHECK(!image.pixels);
    }
    lz_image_free(ctx, &image);
    err.status = LZ_OK;
    char *text = lz_image_text_memory(ctx, "some picture", exact + 1, (int64_t)bytes, "Software", &err);
    CHECK(text ? err.status == LZ_OK : err.status == LZ_BAD_FILE || err.status == LZ_NOT_FOUND, "%s", err.text);
    lz_free_text(ctx, text);
    free(exact);
    return status == LZ_OK;
}

static void damage_file(lz_context *ctx, const char *name, test_random *r) {
    size_t bytes;
    uint8_t *data = read_whole(fixture(name), &bytes);
    bool whole = read_bytes(ctx, data, bytes);
    int cut_short_and_read = 0;
    for (size_t cut = 0; cut < bytes; cut += cut < 1500 ? 1 : 37) cut_short_and_read += read_bytes(ctx, data, cut);
    /* WebP pads to an even length, and nobody misses the pad. */
    CHECK(!whole || cut_short_and_read <= (strstr(name, ".webp") ? 1 : 0), "%s: %d short files were read", name,
          cut_short_and_read);
    for (int i = test_scale(200); i > 0; i--) {
        size_t at = (size_t)random_int(r, 0, (int64_t)bytes - 1);
        uint8_t before = data[at];
        data[at] = (uint8_t)random_bits(r);
        read_bytes(ctx, data, bytes);
        data[at] = before;
    }
    free(data);
}

static void damaged(void) {
    lz_context *ctx = lz_open(.threads = 1);
    test_random r = {3};
    DIR *dir = opendir(fixture("."));
    if (!CHECK(dir)) abort();
    for (struct dirent *e; (e = readdir(dir));) {
        struct stat s;
        if (e->d_name[0] != '.' && stat(fixture(e->d_name), &s) == 0 && s.st_size > 0 && !strstr(e->d_name, ".json"))
            damage_file(ctx, e->d_name, &r);
    }
    closedir(dir);
    lz_close(ctx);
}

/* ---- resizing ---------------------------------------------------------------------------------------------------- */

/* Colours are weighted by opacity, as in Pillow. */
static void resizing_alpha(lz_context *ctx) {
    static const int sizes[][2] = {{20, 14}, {50, 40}, {5, 30}, {37, 29}};
    lz_error err;
    lz_image in, out, want;
    if (!CHECK_OK(lz_image_read_alpha(ctx, fixture("resize-alpha.png"), &in, &err), &err)) return;
    for (size_t i = 0; i < sizeof sizes / sizeof *sizes; i++) {
        char name[64];
        snprintf(name, sizeof name, "resize-alpha-%dx%d.png", sizes[i][0], sizes[i][1]);
        if (!CHECK_OK(lz_image_read_alpha(ctx, fixture(name), &want, &err), &err)) continue;
        CHECK_OK(lz_image_resize(ctx, &in, sizes[i][0], sizes[i][1], &out, &err), &err);
        CHECK(out.width == want.width && out.height == want.height && out.channels == 4 && want.channels == 4);
        CHECK(same_bits(out.pixels, want.pixels, want.width * want.height * 4), "%s", name);
        lz_image_free(ctx, &out);
        lz_image_free(ctx, &want);
    }
    CHECK_OK(lz_image_resize(ctx, &in, in.width, in.height, &out, &err), &err);
    CHECK(same_bits(out.pixels, in.pixels, in.width * in.height * 4), "the same size changes nothing");
    lz_image_free(ctx, &out);
    lz_image_free(ctx, &in);
}

static void resizing(void) {
    static const int sizes[][2] = {{1, 1},   {5, 3},  {10, 40}, {37, 10}, {64, 23},
                                   {74, 46}, {13, 7}, {50, 50}, {3, 90},  {64, 10}};
    lz_context *ctx = lz_open(.threads = 1);
    lz_error err;
    lz_image in, out, want;
    CHECK_OK(lz_image_read(ctx, fixture("resize.png"), &in, &err), &err);
    for (size_t i = 0; i < sizeof sizes / sizeof *sizes; i++) {
        char name[64];
        snprintf(name, sizeof name, "resize-%dx%d.png", sizes[i][0], sizes[i][1]);
        if (!CHECK_OK(lz_image_read(ctx, fixture(name), &want, &err), &err)) continue;
        CHECK_OK(lz_image_resize(ctx, &in, sizes[i][0], sizes[i][1], &out, &err), &err);
        CHECK(out.width == want.width && out.height == want.height);
        CHECK(same_bits(out.pixels, want.pixels, want.width * want.height * 3), "%s", name);
        lz_image_free(ctx, &out);
        lz_image_free(ctx, &want);
    }
    CHECK_OK(lz_image_resize(ctx, &in, in.width, in.height, &out, &err), &err);
    CHECK(out.pixels != in.pixels && same_bits(out.pixels, in.pixels, in.width * in.height * 3));
    lz_image_free(ctx, &out);

    resizing_alpha(ctx);

    static const int64_t bad[][2] = {{0, 1}, {1, 0}, {-1, 5}, {65536, 1}, {1, 65536}, {65535, 65535}, {INT64_MAX, 2}};
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
        CHECK_STATUS(lz_image_resize(ctx, &in, bad[i][0], bad[i][1], &out, &err), LZ_BAD_ARGUMENT, &err);
        CHECK_TEXT(err.text, "cannot be resized to");
    }
    lz_image_free(ctx, &in);
    lz_close(ctx);
}

/* ---- writing ----------------------------------------------------------------------------------------------------- */

static lz_image smooth(lz_context *ctx, int64_t width, int64_t height) {
    lz_image image = {.width = width, .height = height, .pixels = lz_host_alloc(ctx, (size_t)(width * height * 3))};
    for (int64_t i = 0; i < width * height * 3; i++) {
        int64_t x = i / 3 % width, y = i / 3 / width;
        image.pixels[i] = (uint8_t)(i % 3 == 0 ? x * 255 / width : i % 3 == 1 ? y * 255 / height : 128);
    }
    return image;
}

static const char *const texts[] = {"prompt", "a cat, 猫, \u00e9", "seed", "42", "Software", "Lazuli", "empty", "",
                                    NULL};

static void round_trips(void) {
    static const struct {
        const char *name;
        int tolerance;
    } kinds[] = {
        {"a.png", 0}, {"b.jpg", 6}, {"c.JPEG", 6}, {"d.webp", 24}}; /* WebP halves the colour of these steep ramps */
    static const int64_t sizes[][2] = {{1, 1}, {7, 5}, {1, 300}, {300, 1}, {97, 61}};
    lz_context *ctx = lz_open(.threads = 1);
    enter_folder();
    for (size_t k = 0; k < sizeof kinds / sizeof *kinds; k++)
        for (size_t i = 0; i < sizeof sizes / sizeof *sizes; i++) {
            lz_image image = smooth(ctx, sizes[i][0], sizes[i][1]), back;
            lz_error err;
            CHECK_OK(lz_image_write(ctx, in_folder(kinds[k].name), &image, texts, &err), &err);
            size_t n, n_again;
            uint8_t *first = read_whole(in_folder(kinds[k].name), &n);
            CHECK_OK(lz_image_write(ctx, in_folder(kinds[k].name), &image, texts, &err), &err);
            uint8_t *again = read_whole(in_folder(kinds[k].name), &n_again);
            CHECK(n == n_again && memcmp(first, again, n) == 0, "%s is not the same every time", kinds[k].name);
            free(first);
            free(again);
            if (CHECK_OK(lz_image_read(ctx, in_folder(kinds[k].name), &back, &err), &err)) {
                int worst = 0;
                CHECK(back.width == image.width && back.height == image.height);
                for (int64_t p = 0; p < image.width * image.height * 3; p++)
                    if (abs(image.pixels[p] - back.pixels[p]) > worst) worst = abs(image.pixels[p] - back.pixels[p]);
                CHECK(worst <= kinds[k].tolerance, "%s: %d levels", kinds[k].name, worst);
                lz_image_free(ctx, &back);
            }
            lz_image_free(ctx, &image);
        }
    CHECK_I64(empty_folder(), 4);
    leave_folder();
    lz_close(ctx);
}

/* Rows of which each suits another filter, and noise: [channels] bytes a pixel. */
static void fill_rows(lz_image *image, test_random *r) {
    int64_t row = image->width * image->channels;
    for (int64_t y = 0; y < image->height; y++)
        for (int64_t i = 0; i < row; i++) {
            uint8_t *at = image->pixels + y * row + i;
            int noise = (int)random_int(r, 0, 4), left = i < image->channels ? 0 : at[-image->channels];
            int above = y ? at[-row] : 0, corner = y && i >= image->channels ? at[-row - image->channels] : 0;
            int of[] = {(int)random_int(r, 0, 255), left + noise, above + noise, (left + above) / 2 + noise,
                        left + above - corner + noise};
            *at = (uint8_t)of[y % 5];
        }
}

/* Strips of a PNG are compressed by several threads: the same bytes with any number of them, which libpng reads back.
 * 32768 pixels: a strip is one row. 70 x 32000: more strips than are in memory at once. */
static void strips(void) {
    static const struct {
        int64_t width, height;
        int channels;
    } sizes[] = {{1, 1, 4}, {257, 130, 3}, {32768, 3, 4}, {1100, 90, 4}, {70, 32000, 3}};
    lz_context *one = lz_open(.threads = 1), *three = lz_open(.threads = 3);
    test_random r = {7};
    for (size_t i = 0; i < sizeof sizes / sizeof *sizes; i++) {
        int64_t bytes = sizes[i].width * sizes[i].height * sizes[i].channels, n = 0, n_three = 0;
        lz_image image = {sizes[i].width, sizes[i].height, calloc((size_t)bytes, 1), sizes[i].channels}, back = {0};
        fill_rows(&image, &r);
        lz_error err;
        char *file = lz_image_encode(one, ".png", &image, NULL, 0, &n, &err);
        char *same = lz_image_encode(three, ".png", &image, NULL, 0, &n_three, &err);
        CHECK(file && same, "%s", err.text);
        if (file && same) {
            CHECK(n == n_three && memcmp(file, same, (size_t)n) == 0, "case %zu", i);
            if (CHECK_OK(lz_image_decode_alpha(one, file, n, &back, &err), &err))
                CHECK(back.channels == image.channels && memcmp(back.pixels, image.pixels, (size_t)bytes) == 0);
        }
        lz_image_free(one, &back);
        lz_free_text(one, file);
        lz_free_text(three, same);
        free(image.pixels);
    }
    lz_close(three);
    lz_close(one);
}

/* The texts of a PNG, as libpng tells them: "key=value;" each, iTXt marked by '*'. */
static void png_texts(const char *path, char *to, size_t room) {
    png_structp png = png_create_read_struct(PNG_LIBPNG_VER_STRING, NULL, NULL, NULL);
    png_infop info = png_create_info_struct(png);
    FILE *f = fopen(path, "rb");
    png_init_io(png, f);
    png_read_info(png, info);
    png_textp text;
    int n = png_get_text(png, info, &text, NULL), intent = -1;
    CHECK(png_get_sRGB(png, info, &intent) && intent == PNG_sRGB_INTENT_PERCEPTUAL, "trap 20: a PNG has a colour tag");
    for (int i = 0, at = 0; i < n; i++)
        at += snprintf(to + at, room - (size_t)at, "%s%s=%s;", text[i].compression > 0 ? "*" : "", text[i].key,
                       text[i].text);
    png_destroy_read_struct(&png, &info, NULL);
    fclose(f);
}

/* Every text comes back as it was; another key is not there. */
static void check_texts(lz_context *ctx, const char *path, const char *const *text) {
    lz_error err;
    for (; text[0]; text += 2) {
        char *found = lz_image_read_text(ctx, path, text[0], &err);
        if (CHECK(found, "%s", err.text)) CHECK(strcmp(found, text[1]) == 0, "%s: %.80s", text[0], found);
        lz_free_text(ctx, found);
    }
    static const char *const others[] = {"pro", "prompt: ", "xxx", "",
                                         "a key that is longer than any that can be there"};
    for (size_t i = 0; i < sizeof others / sizeof *others; i++) {
        CHECK(!lz_image_read_text(ctx, path, others[i], &err));
        CHECK_STATUS(err.status, LZ_NOT_FOUND, &err);
    }
}

/* trap 20: a WebP keeps text as the other formats do, and stays a WebP. */
static void webp_texts(lz_context *ctx, const lz_image *image) {
    static const char *const odd[] = {"a key: 1",  "x",     "1",     "<b>&amp;</b>", "_31", "\"'\t\r\n",
                                      "again",     "first", "again", "two",          "x",   "\1",
                                      "lz:again>", "",      NULL};
    static const char *const read[] = {"a key: 1", "x", "1",      "<b>&amp;</b>", "_31", "\"'\t\r\n", "again",
                                       "first",    "x", "\ufffd", "lz:again>",    "",    NULL};
    lz_error err;
    lz_image plain, back;
    size_t n, n_plain;
    CHECK_OK(lz_image_write(ctx, in_folder("plain.webp"), image, NULL, &err), &err);
    CHECK_OK(lz_image_read(ctx, in_folder("plain.webp"), &plain, &err), &err);
    uint8_t *data = read_whole(in_folder("plain.webp"), &n_plain);
    CHECK(memcmp(data + 12, "VP8 ", 4) == 0); /* as small as it can be */
    free(data);
    unlink(in_folder("plain.webp"));

    CHECK_OK(lz_image_write(ctx, in_folder("a.webp"), image, odd, &err), &err);
    check_texts(ctx, in_folder("a.webp"), read);
    CHECK_OK(lz_image_write(ctx, in_folder("a.webp"), image, texts, &err), &err);
    check_texts(ctx, in_folder("a.webp"), texts);
    CHECK_OK(lz_image_read(ctx, in_folder("a.webp"), &back, &err), &err);
    CHECK(same_bits(back.pixels, plain.pixels, image->width * image->height * 3));
    data = read_whole(in_folder("a.webp"), &n);
    CHECK_I64(data[4] | data[5] << 8 | data[6] << 16, (int64_t)n - 8);
    CHECK(memcmp(data + 12, "VP8X\x0a\0\0\0\4\0\0\0\6\0\0\4\0\0VP8 ", 22) == 0);
    CHECK(memmem(data, n, "<lz:prompt>a cat, 猫, \u00e9</lz:prompt>", 37));
    for (size_t cut = 0; cut < n; cut++) read_bytes(ctx, data, cut);
    test_random r = {5};
    for (int i = test_scale(500); i > 0; i--) {
        uint8_t *byte = &data[random_int(&r, 0, (int64_t)n - 1)], before = *byte;
        *byte = (uint8_t)random_bits(&r);
        read_bytes(ctx, data, n);
        *byte = before;
    }
    free(data);
    lz_image_free(ctx, &plain);
    lz_image_free(ctx, &back);
}

static void metadata(void) {
    lz_context *ctx = lz_open(.threads = 1);
    enter_folder();
    lz_error err;
    lz_image image = smooth(ctx, 7, 5), back;
    CHECK_OK(lz_image_write(ctx, in_folder("a.png"), &image, texts, &err), &err);
    char found[400] = "";
    png_texts(in_folder("a.png"), found, sizeof found);
    CHECK(strcmp(found, "*prompt=a cat, 猫, \u00e9;seed=42;Software=Lazuli;empty=;") == 0, "%s", found);

    check_texts(ctx, in_folder("a.png"), texts);

    /* A JPEG comment longer than a marker has room for goes on in the next. */
    char *novel = malloc(200001);
    memset(novel, 'x', 200000);
    novel[200000] = 0;
    const char *long_texts[] = {"before", "", "prompt", novel, "seed", "42", NULL};
    CHECK_OK(lz_image_write(ctx, in_folder("a.jpg"), &image, long_texts, &err), &err);
    check_texts(ctx, in_folder("a.jpg"), long_texts);
    CHECK_OK(lz_image_read(ctx, in_folder("a.jpg"), &back, &err), &err);
    lz_image_free(ctx, &back);
    size_t n;
    uint8_t *data = read_whole(in_folder("a.jpg"), &n);
    CHECK(memmem(data, n, "\xff\xfe\xff\xffprompt: xxx", 15));
    CHECK(memmem(data, n, "\xff\xfe\0\x0aseed: 42", 12));
    free(data);
    free(novel);
    CHECK(!lz_image_read_text(ctx, in_folder("nowhere.png"), "prompt", &err));
    CHECK_STATUS(err.status, LZ_NOT_FOUND, &err);
    CHECK(!lz_image_read_text(ctx, NULL, "prompt", &err));
    CHECK_STATUS(err.status, LZ_BAD_ARGUMENT, &err);

    /* Latin-1, as tEXt is by its rules. */
    static const uint8_t latin1[] = "\x89PNG\r\n\x1a\n\0\0\0\rIHDR\0\0\0\1\0\0\0\1\x08\0\0\0\0\x3a\x7e\x9b\x55"
                                    "\0\0\0\6tEXtkey\0\xe9!\xf0\xca\xa7\xde"
                                    "\0\0\0\0IDAT\x35\xaf\x06\x1e";
    char *key = lz_image_text_memory(ctx, "latin1", latin1, sizeof latin1 - 1, "key", &err);
    if (CHECK(key, "%s", err.text)) CHECK(strcmp(key, "\u00e9!") == 0, "%s", key);
    lz_free_text(ctx, key);
    webp_texts(ctx, &image);

    static const char *const bad[][3] = {
        {"", "x", NULL},
        {"k\n", "x", NULL},
        {"\u00e9", "x", NULL},
        {"key", NULL, NULL},
        {"a key that is longer than the seventy-nine characters that a PNG can take in its tEXt", "x", NULL}};
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
        CHECK_STATUS(lz_image_write(ctx, in_folder("b.png"), &image, bad[i], &err), LZ_BAD_ARGUMENT, &err);
        CHECK_TEXT(err.text, "key");
    }
    CHECK_I64(empty_folder(), 3);
    lz_image_free(ctx, &image);
    leave_folder();
    lz_close(ctx);
}

/* A picture with transparency, whose colours under transparent pixels differ from white. */
static lz_image see_through(lz_context *ctx, int64_t width, int64_t height) {
    lz_image opaque = smooth(ctx, width, height), image = {.width = width, .height = height, .channels = 4};
    image.pixels = lz_host_alloc(ctx, (size_t)(width * height * 4));
    for (int64_t i = 0; i < width * height; i++) {
        memcpy(image.pixels + 4 * i, opaque.pixels + 3 * i, 3);
        image.pixels[4 * i + 3] = (uint8_t)(i % width * 255 / width);
    }
    lz_image_free(ctx, &opaque);
    return image;
}

/* PNG and WebP keep opacity, with texts and without; a JPEG is on white. */
static void transparent(void) {
    lz_context *ctx = lz_open(.threads = 1);
    lz_error err;
    lz_image image = see_through(ctx, 60, 40), back, opaque;
    int64_t n = image.width * image.height;
    size_t bytes;
    enter_folder();
    for (int k = 0; k < 2; k++) {
        const char *const *with = k ? texts : NULL;
        CHECK_OK(lz_image_write(ctx, in_folder("a.png"), &image, with, &err), &err);
        CHECK_OK(lz_image_read_alpha(ctx, in_folder("a.png"), &back, &err), &err);
        CHECK(back.channels == 4 && same_bits(back.pixels, image.pixels, 4 * n), "a PNG keeps all");
        lz_image_free(ctx, &back);

        CHECK_OK(lz_image_write(ctx, in_folder("a.webp"), &image, with, &err), &err);
        CHECK_OK(lz_image_read_alpha(ctx, in_folder("a.webp"), &back, &err), &err);
        int worst = 0, alpha = 0;
        CHECK_I64(back.channels, 4);
        for (int64_t i = 0; i < 4 * n; i++) {
            int apart = abs(image.pixels[i] - back.pixels[i]);
            if (i % 4 == 3 && apart > alpha) alpha = apart;
            if (i % 4 != 3 && image.pixels[i | 3] && apart > worst) worst = apart; /* what nobody sees may change */
        }
        CHECK(alpha == 0 && worst <= 24, "WebP: %d levels of colour, %d of opacity", worst, alpha);
        lz_image_free(ctx, &back);
        uint8_t *data = read_whole(in_folder("a.webp"), &bytes);
        CHECK_I64(data[4] | data[5] << 8 | data[6] << 16, (int64_t)bytes - 8);
        CHECK(memcmp(data + 12, "VP8X\x0a\0\0\0", 8) == 0 && data[20] == (k ? 0x14 : 0x10), "flags %02x", data[20]);
        CHECK(!memmem(data + 16, bytes - 16, "VP8X", 4), "one VP8X is enough");
        free(data);
        if (k) check_texts(ctx, in_folder("a.png"), texts);
        if (k) check_texts(ctx, in_folder("a.webp"), texts);

        CHECK_OK(lz_image_write(ctx, in_folder("a.jpg"), &image, with, &err), &err);
        CHECK_OK(lz_image_read_alpha(ctx, in_folder("a.jpg"), &back, &err), &err);
        CHECK_OK(lz_image_read(ctx, in_folder("a.png"), &opaque, &err), &err); /* on white */
        CHECK(back.channels == 3 && opaque.channels == 3);
        for (int64_t i = worst = 0; i < 3 * n; i++)
            if (abs(opaque.pixels[i] - back.pixels[i]) > worst) worst = abs(opaque.pixels[i] - back.pixels[i]);
        CHECK(worst <= 6, "JPEG: %d levels", worst);
        lz_image_free(ctx, &back);
        lz_image_free(ctx, &opaque);
    }
    /* A picture of four channels that is opaque is read as one of three. */
    for (int64_t i = 0; i < n; i++) image.pixels[4 * i + 3] = 255;
    CHECK_OK(lz_image_write(ctx, in_folder("a.png"), &image, NULL, &err), &err);
    CHECK_OK(lz_image_read_alpha(ctx, in_folder("a.png"), &back, &err), &err);
    CHECK(back.channels == 3 && !memcmp(back.pixels + 3 * (n - 1), image.pixels + 4 * (n - 1), 3));
    lz_image_free(ctx, &back);
    image.channels = 2;
    CHECK_STATUS(lz_image_write(ctx, in_folder("a.png"), &image, NULL, &err), LZ_BAD_ARGUMENT, &err);
    image.channels = 4;
    CHECK_I64(empty_folder(), 3);
    lz_image_free(ctx, &image);
    leave_folder();
    lz_close(ctx);
}

/* A failed write leaves what was there before, and nothing else. */
static void failing_writes(void) {
    static const char *const names[] = {"a.png", "a.jpg", "a.webp"};
    lz_context *ctx = lz_open(.threads = 1);
    enter_folder();
    lz_error err;
    lz_image image = smooth(ctx, 200, 200), wide = smooth(ctx, 65535, 1), none = {.height = 5, .pixels = image.pixels};

    CHECK_STATUS(lz_image_write(ctx, in_folder("a.gif"), &image, NULL, &err), LZ_BAD_ARGUMENT, &err);
    CHECK_TEXT(err.text, ".png, .jpg or .webp");
    CHECK_STATUS(lz_image_write(ctx, in_folder("png"), &image, NULL, &err), LZ_BAD_ARGUMENT, &err);
    CHECK_STATUS(lz_image_write(ctx, "/dev/full", &image, NULL, &err), LZ_BAD_ARGUMENT, &err);
    CHECK_STATUS(lz_image_write(ctx, in_folder("a.png"), &none, NULL, &err), LZ_BAD_ARGUMENT, &err);
    CHECK_STATUS(lz_image_write(ctx, in_folder("a.webp"), &wide, NULL, &err), LZ_BAD_ARGUMENT, &err);
    CHECK_STATUS(lz_image_write(ctx, in_folder("a.jpg"), &wide, NULL, &err), LZ_BAD_ARGUMENT, &err);
    CHECK_OK(lz_image_write(ctx, in_folder("a.png"), &wide, NULL, &err), &err);
    CHECK_I64(empty_folder(), 1);

    for (int i = 0; i < 3; i++) {
        char path[400];
        snprintf(path, sizeof path, "%s/nowhere/%s", folder, names[i]);
        CHECK_STATUS(lz_image_write(ctx, path, &image, NULL, &err), LZ_IO, &err);
        snprintf(path, sizeof path, "/proc/%s", names[i]); /* where not even root may */
        CHECK_STATUS(lz_image_write(ctx, path, &image, NULL, &err), LZ_IO, &err);
    }

    /* As a full disk would: the file may not grow beyond 300 bytes. */
    struct rlimit before, small = {.rlim_cur = 300};
    getrlimit(RLIMIT_FSIZE, &before);
    small.rlim_max = before.rlim_max;
    signal(SIGXFSZ, SIG_IGN);
    for (int i = 0; i < 3; i++) {
        FILE *f = fopen(in_folder(names[i]), "w");
        if (!f || fputs("old", f) < 0 || fclose(f) != 0) abort();
        setrlimit(RLIMIT_FSIZE, &small);
        lz_status status = lz_image_write(ctx, in_folder(names[i]), &image, NULL, &err);
        setrlimit(RLIMIT_FSIZE, &before);
        CHECK_STATUS(status, LZ_IO, &err);
        CHECK_TEXT(err.text, "cannot be written");
        size_t n;
        uint8_t *data = read_whole(in_folder(names[i]), &n);
        CHECK(n == 3 && memcmp(data, "old", 3) == 0);
        free(data);
        CHECK_I64(empty_folder(), 1);
    }
    lz_image_free(ctx, &image);
    lz_image_free(ctx, &wide);
    leave_folder();
    lz_close(ctx);
}

/* ---- memory runs out --------------------------------------------------------------------------------------------- */

/* Reads, resizes, writes, and reads the text. */
static lz_status use_everything(lz_context *ctx, const char *from, const char *to, lz_error *err) {
    lz_image image, resized = {.width = 0};
    lz_status status = lz_image_read(ctx, from, &image, err);
    if (status == LZ_OK) status = lz_image_resize(ctx, &image, 9, 4, &resized, err);
    if (status == LZ_OK) status = lz_image_write(ctx, to, &resized, texts, err);
    lz_image_free(ctx, &image);
    lz_image_free(ctx, &resized);
    if (status != LZ_OK) return status;
    char *text = lz_image_read_text(ctx, to, texts[0], err);
    lz_free_text(ctx, text);
    if (text) return LZ_OK;
    unlink(to); /* what is there after a failure is counted */
    return err->status;
}

static void failing_memory(void) {
    static const char *const files[][2] = {{"palette-4-trns-interlaced.png", "a.png"},
                                           {"cmyk.jpg", "a.jpg"},
                                           {"turned-6.jpg", "a.jpg"},
                                           {"alpha.webp", "a.webp"}};
    failing f = {.fail_at = 0};
    const lz_allocator allocator = {failing_allocate, failing_release, &f};
    lz_context *ctx = lz_open(.threads = 1, .allocator = &allocator);
    enter_folder();
    for (size_t k = 0; k < sizeof files / sizeof *files; k++) {
        char from[512];
        snprintf(from, sizeof from, "%s", fixture(files[k][0]));
        long long before = f.live;
        bool done = false;
        for (int i = 1; !done && i < 1000; i++) {
            f.asked = 0;
            f.fail_at = i;
            lz_error err = {.status = LZ_OK};
            lz_status status = use_everything(ctx, from, in_folder(files[k][1]), &err);
            done = status == LZ_OK && f.asked < i;
            if (status != LZ_OK) CHECK_STATUS(status, LZ_OUT_OF_MEMORY, &err);
            CHECK_I64(f.live, before);
            CHECK_I64(empty_folder(), status == LZ_OK);
        }
        CHECK(done);
    }
    f.fail_at = 0;
    leave_folder();
    lz_close(ctx);
}

/* ---- little that claims much ------------------------------------------------------------------------------------- */

typedef struct counted {
    int64_t live, peak, all; /* bytes */
} counted;

static void *count_allocate(void *user, size_t bytes) {
    counted *c = user;
    c->all += (int64_t)bytes;
    c->live += (int64_t)bytes;
    if (c->live > c->peak) c->peak = c->live;
    return aligned_alloc(64, (bytes + 63) / 64 * 64);
}

static void count_release(void *user, void *memory, size_t bytes) {
    ((counted *)user)->live -= memory ? (int64_t)bytes : 0;
    free(memory);
}

/* A small PNG with the same compressed text many times, each of nearly 8 MB. */
static uint8_t *make_text_bomb(int times, size_t *n) {
    enum { EACH = 7900000 };
    char *text = calloc(1, EACH + 1), *file = NULL;
    size_t size = 0;
    memset(text, 'x', EACH);
    png_text entry = {.compression = PNG_TEXT_COMPRESSION_zTXt, .key = "key", .text = text, .text_length = EACH};
    FILE *to = open_memstream(&file, &size);
    png_structp png = png_create_write_struct(PNG_LIBPNG_VER_STRING, NULL, NULL, NULL);
    png_infop info = png_create_info_struct(png);
    png_init_io(png, to);
    png_set_IHDR(png, info, 1, 1, 8, PNG_COLOR_TYPE_GRAY, PNG_INTERLACE_NONE, 0, 0);
    png_set_text(png, info, &entry, 1);
    png_write_info(png, info);
    png_write_row(png, (png_const_bytep) "x");
    png_write_end(png, NULL);
    png_destroy_write_struct(&png, &info);
    fclose(to);
    free(text);

    size_t head = 8 + 25, chunk = 12 + png_get_uint_32((png_const_bytep)file + head);
    uint8_t *bomb = malloc(size + (size_t)(times - 1) * chunk), *at = mempcpy(bomb, file, head);
    for (int i = 0; i < times; i++) at = mempcpy(at, file + head, chunk);
    at = mempcpy(at, file + head + chunk, size - head - chunk);
    free(file);
    *n = (size_t)(at - bomb);
    return bomb;
}

static void text_bomb(lz_context *ctx, counted *c) {
    size_t n;
    uint8_t *bomb = make_text_bomb(100, &n);
    lz_error err;
    lz_image image;
    CHECK(n < 1000000);
    c->peak = c->live;
    CHECK_OK(lz_image_read_memory(ctx, "bomb", bomb, (int64_t)n, LZ_ALPHA_OVER_WHITE, &image, &err), &err);
    CHECK(c->peak < 1 << 20, "trap 8: text was unpacked to read pixels: %lld bytes", (long long)c->peak);
    lz_image_free(ctx, &image);
    CHECK(!lz_image_text_memory(ctx, "bomb", bomb, (int64_t)n, "prompt", &err));
    CHECK_STATUS(err.status, LZ_BAD_FILE, &err);
    CHECK_TEXT(err.text, "bomb: the text of the picture takes more than the 33554432 bytes that are allowed");
    CHECK(c->peak < 3 * LZ_IMAGE_MAX_TEXT, "trap 8: %lld bytes for text", (long long)c->peak);
    free(bomb);
}

/* A header of a lossless WebP, and zeros. */
static void make_header_bomb(uint8_t to[128], unsigned width, unsigned height) {
    static const uint8_t head[] = "RIFF\170\0\0\0WEBPVP8L\154\0\0\0\x2f";
    uint32_t size = (width - 1) | (height - 1) << 14 | 1u << 28; /* with alpha */
    memset(to, 0, 128);
    memcpy(to, head, sizeof head - 1);
    for (int i = 0; i < 4; i++) to[21 + i] = (uint8_t)(size >> 8 * i);
}

static void header_bombs(lz_context *ctx, counted *c) {
    static const uint8_t arithmetic[] = "\xff\xd8\xff\xc9\0\x11\x08\x32\xc8\x32\xc8\3\1\x11\0\2\x11\0\3\x11\0"
                                        "\xff\xda\0\x0c\3\1\0\2\0\3\0\0\x3f\0\0\0\0\0";
    uint8_t bomb[128];
    lz_error err;
    lz_image image;
    c->peak = c->live;
    make_header_bomb(bomb, 13000, 13000);
    CHECK_STATUS(lz_image_read_memory(ctx, "bomb", bomb, sizeof bomb, LZ_ALPHA_OVER_WHITE, &image, &err), LZ_BAD_FILE,
                 &err);
    CHECK_TEXT(err.text, "claims 13000 x 13000 pixels in 128 bytes; a picture of more than 16777216 pixels must have");
    CHECK_STATUS(lz_image_read_memory(ctx, "bomb", arithmetic, sizeof arithmetic, LZ_ALPHA_OVER_WHITE, &image, &err),
                 LZ_BAD_FILE, &err);
    CHECK_TEXT(err.text, "claims 13000 x 13000 pixels in");
    CHECK(c->peak < 1 << 20, "trap 8: memory was taken for what a header claims: %lld bytes", (long long)c->peak);
    make_header_bomb(bomb, 4096, 4096); /* which a file of this size can hold */
    CHECK_STATUS(lz_image_read_memory(ctx, "bomb", bomb, sizeof bomb, LZ_ALPHA_OVER_WHITE, &image, &err), LZ_BAD_FILE,
                 &err);
    CHECK_TEXT(err.text, "the picture is damaged");
}

/* A JPEG whose comment goes on and on. */
static void long_comment(lz_context *ctx, counted *c, int markers) {
    enum { ROOM = 65533 };
    size_t n = 2 + (size_t)markers * (4 + ROOM);
    uint8_t *data = calloc(1, n), *at = mempcpy(data, "\xff\xd8", 2);
    for (int i = 0; i < markers; i++, at += ROOM) {
        at = mempcpy(at, "\xff\xfe\xff\xff", 4);
        memset(at, 'x', ROOM);
        if (i == 0) memcpy(at, "prompt: ", 8);
    }
    lz_error err;
    int64_t before = c->all, text = (int64_t)markers * ROOM - 8;
    char *found = lz_image_text_memory(ctx, "long", data, (int64_t)n, "prompt", &err);
    if (text <= LZ_IMAGE_MAX_TEXT) {
        if (CHECK(found, "%s", err.text)) CHECK_I64((int64_t)strlen(found), text);
        CHECK(c->all - before < 2 * text, "trap 8: %lld bytes for a comment of %lld", (long long)(c->all - before),
              (long long)text);
    } else {
        CHECK(!found && c->all == before);
        CHECK_TEXT(err.text, "long: the text of the picture takes more than the 33554432 bytes");
    }
    lz_free_text(ctx, found);
    free(data);
}

static void limits(void) {
    counted c = {0};
    const lz_allocator allocator = {count_allocate, count_release, &c};
    lz_context *ctx = lz_open(.threads = 1, .allocator = &allocator);
    text_bomb(ctx, &c);
    header_bombs(ctx, &c);
    long_comment(ctx, &c, 1);
    long_comment(ctx, &c, 200);
    long_comment(ctx, &c, 600);

    enter_folder(); /* what could not be read is not written */
    char *novel = malloc((size_t)LZ_IMAGE_MAX_TEXT + 1);
    memset(novel, 'x', (size_t)LZ_IMAGE_MAX_TEXT);
    novel[LZ_IMAGE_MAX_TEXT] = 0;
    lz_image image = smooth(ctx, 7, 5);
    lz_error err;
    const char *text[] = {"key", novel, NULL};
    CHECK_STATUS(lz_image_write(ctx, in_folder("a.png"), &image, text, &err), LZ_BAD_FILE, &err);
    text[1] = novel + 3;
    const char *const names[] = {"a.png", "a.jpg", "a.webp"};
    for (int i = 0; i < 3; i++) {
        CHECK_OK(lz_image_write(ctx, in_folder(names[i]), &image, text, &err), &err);
        char *found = lz_image_read_text(ctx, in_folder(names[i]), "key", &err);
        if (CHECK(found, "%s", err.text)) CHECK(strcmp(found, text[1]) == 0);
        lz_free_text(ctx, found);
    }
    leave_folder();
    free(novel);
    lz_image_free(ctx, &image);
    lz_close(ctx);
}

TEST_MAIN({"image: golden", golden}, {"image: limits", limits}, {"image: damaged", damaged},
          {"image: resizing", resizing}, {"image: round trips", round_trips}, {"image: strips", strips},
          {"image: metadata", metadata}, {"image: transparent", transparent}, {"image: failing writes", failing_writes},
          {"image: failing memory", failing_memory})
