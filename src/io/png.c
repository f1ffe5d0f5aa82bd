/* png.c: PNG, with libpng, which reports errors by longjmp. So everything that must be freed is in the job, which is
 * owned by the caller of the function that calls setjmp.
 *
 * Text and colour profiles may be compressed by a factor of a thousand. Reading pixels skips them; reading text limits
 * the memory of libpng. Pictures are written with an sRGB chunk, because models produce sRGB; png_pixels.c writes their
 * pixels. */
#include <png.h>
#include <setjmp.h>
#include <stdio.h>
#include <string.h>

#include "io/image_codec.h"

typedef struct job {
    lz_context *ctx;
    png_structp png;
    png_infop info;
    char message[100]; /* of the last error */
    bool no_memory, too_much;
    int64_t allowed; /* bytes that libpng may still allocate */
    lz_error *err;
    /* reading */
    const char *path;
    const uint8_t *data;
    size_t bytes, at;
    /* writing */
    lz_writer *to;
    lz_status status; /* of writing to `to` */
} job;

static void on_error(png_structp png, png_const_charp message) {
    job *j = png_get_error_ptr(png);
    snprintf(j->message, sizeof j->message, "%s", message);
    png_longjmp(png, 1);
}

static void on_warning(png_structp png, png_const_charp message) { (void)png, (void)message; }

static png_voidp allocate(png_structp png, png_alloc_size_t bytes) {
    job *j = png_get_mem_ptr(png);
    j->too_much = j->too_much || bytes > (uint64_t)j->allowed;
    if (j->too_much) return NULL;
    j->allowed -= (int64_t)bytes;
    void *memory = lz_host_alloc(j->ctx, bytes);
    j->no_memory = j->no_memory || !memory;
    return memory;
}

static void release(png_structp png, png_voidp memory) { lz_host_free(((job *)png_get_mem_ptr(png))->ctx, memory); }

/* ---- reading ----------------------------------------------------------------------------------------------------- */

static bool recognise(const uint8_t *data, size_t bytes) { return bytes >= 8 && png_sig_cmp(data, 0, 8) == 0; }

static void read_bytes(png_structp png, png_bytep to, size_t bytes) {
    job *j = png_get_io_ptr(png);
    if (bytes > j->bytes - j->at) png_error(png, "it ends too early");
    memcpy(to, j->data + j->at, bytes);
    j->at += bytes;
}

/* Deflate compresses by at most 1032. A small file that claims a huge picture is refused before memory is allocated. */
static bool can_hold(const job *j, int64_t height) {
    return (int64_t)png_get_rowbytes(j->png, j->info) * height / 1032 <= (int64_t)j->bytes;
}

static lz_status decode(job *j, lz_image *out) {
    if (setjmp(png_jmpbuf(j->png))) {
        if (j->no_memory) return lz_out_of_memory(j->err, 0);
        return lz_fail(j->err, LZ_BAD_FILE, "%s: " LZ_IMAGE_DAMAGED ": %s", LZ_SHOW_TEXT(j->path), j->message);
    }
    png_set_read_fn(j->png, j, read_bytes);
    png_set_user_limits(j->png, PNG_UINT_31_MAX, PNG_UINT_31_MAX);         /* lz_image_make checks the limits */
    png_set_keep_unknown_chunks(j->png, PNG_HANDLE_CHUNK_NEVER, NULL, -1); /* pixels, palette and transparency only */
    png_read_info(j->png, j->info);
    int64_t width = png_get_image_width(j->png, j->info), height = png_get_image_height(j->png, j->info);
    if (width <= LZ_IMAGE_MAX_SIDE && height <= LZ_IMAGE_MAX_SIDE && !can_hold(j, height))
        png_error(j->png, "it is too short for its size");
    bool alpha = png_get_color_type(j->png, j->info) & PNG_COLOR_MASK_ALPHA ||
                 png_get_valid(j->png, j->info, PNG_INFO_tRNS);
    lz_status status = lz_image_make(j->ctx, j->path, (int64_t)j->bytes, width, height, alpha ? 4 : 3, out, j->err);
    if (status != LZ_OK) return status;

    png_set_expand(j->png); /* palettes, few bits, tRNS */
    png_set_scale_16(j->png);
    png_set_gray_to_rgb(j->png);
    int passes = png_set_interlace_handling(j->png);
    png_read_update_info(j->png, j->info);
    int64_t row = width * out->channels;
    if ((int64_t)png_get_rowbytes(j->png, j->info) != row) png_error(j->png, "its channels make no sense");
    for (int pass = 0; pass < passes; pass++)
        for (int64_t y = 0; y < height; y++) png_read_row(j->png, out->pixels + y * row, NULL);
    png_read_end(j->png, NULL); /* checks the checksum after the last pixels */
    return LZ_OK;
}

/* Memory of libpng: rows, the window of inflate, and text, of which it has two copies. */
#define READ_MEMORY (2 * LZ_IMAGE_MAX_TEXT + (8 << 20))

static lz_status read_png(lz_context *ctx, const char *path, const uint8_t *data, size_t bytes, lz_image *out,
                          lz_error *err) {
    job j = {.ctx = ctx, .path = path, .data = data, .bytes = bytes, .err = err, .allowed = READ_MEMORY};
    j.png = png_create_read_struct_2(PNG_LIBPNG_VER_STRING, &j, on_error, on_warning, &j, allocate, release);
    j.info = j.png ? png_create_info_struct(j.png) : NULL;
    lz_status status = j.info ? decode(&j, out) : lz_out_of_memory(err, 0);
    png_destroy_read_struct(&j.png, &j.info, NULL);
    return status;
}

/* ---- text -------------------------------------------------------------------------------------------------------- */

/* Finds a text chunk before the pixels; if a key occurs twice, the first one. */
static lz_status find_text(job *j, const char *key, char **to) {
    if (setjmp(png_jmpbuf(j->png))) {
        if (j->too_much) return lz_image_too_much_text(j->err, j->path);
        if (j->no_memory) return lz_out_of_memory(j->err, 0);
        return lz_fail(j->err, LZ_BAD_FILE, "%s: " LZ_IMAGE_DAMAGED ": %s", LZ_SHOW_TEXT(j->path), j->message);
    }
    png_set_read_fn(j->png, j, read_bytes);
    png_set_user_limits(j->png, PNG_UINT_31_MAX, PNG_UINT_31_MAX);
    png_set_chunk_malloc_max(j->png, LZ_IMAGE_MAX_TEXT);
    png_read_info(j->png, j->info);
    png_textp texts = NULL;
    int n = 0;
    png_get_text(j->png, j->info, &texts, &n);
    for (int i = 0; i < n && !*to; i++) {
        if (strcmp(texts[i].key, key) != 0) continue;
        bool latin1 = texts[i].compression < PNG_ITXT_COMPRESSION_NONE;
        *to = lz_image_copy_text(j->ctx, texts[i].text, strlen(texts[i].text), latin1);
        j->no_memory = !*to;
    }
    /* libpng skips a text if there is no memory for it, and goes on. */
    if (!*to && j->too_much) return lz_image_too_much_text(j->err, j->path);
    if (!*to && j->no_memory) return lz_out_of_memory(j->err, 0);
    return LZ_OK;
}

static lz_status text_of_png(lz_context *ctx, const char *path, const uint8_t *data, size_t bytes, const char *key,
                             char **to, lz_error *err) {
    job j = {.ctx = ctx, .path = path, .data = data, .bytes = bytes, .err = err, .allowed = READ_MEMORY};
    j.png = png_create_read_struct_2(PNG_LIBPNG_VER_STRING, &j, on_error, on_warning, &j, allocate, release);
    j.info = j.png ? png_create_info_struct(j.png) : NULL;
    lz_status status = j.info ? find_text(&j, key, to) : lz_out_of_memory(err, 0);
    png_destroy_read_struct(&j.png, &j.info, NULL);
    return status;
}

/* ---- writing ----------------------------------------------------------------------------------------------------- */

static void write_bytes(png_structp png, png_bytep data, size_t bytes) {
    job *j = png_get_io_ptr(png);
    j->status = lz_writer_add(j->to, data, (int64_t)bytes, j->err);
    if (j->status != LZ_OK) png_error(png, "");
}

static void flush_nothing(png_structp png) { (void)png; }

/* tEXt is Latin-1, iTXt is UTF-8. ASCII is written as tEXt, which more programs show. */
static void add_text(job *j, const char *const *text) {
    for (; text && text[0]; text += 2) {
        bool ascii = true;
        for (const char *c = text[1]; *c; c++) ascii = ascii && (unsigned char)*c < 128;
        png_text entry = {.compression = ascii ? PNG_TEXT_COMPRESSION_NONE : PNG_ITXT_COMPRESSION_NONE,
                          .key = (char *)text[0],
                          .text = (char *)text[1]};
        png_set_text(j->png, j->info, &entry, 1);
    }
}

/* Writes what comes before the pixels. */
static lz_status write_head(job *j, const lz_image *image, const char *const *text) {
    if (setjmp(png_jmpbuf(j->png))) {
        if (j->status != LZ_OK) return j->status;
        if (j->no_memory) return lz_out_of_memory(j->err, 0);
        return lz_fail(j->err, LZ_BAD_ARGUMENT, "%s: cannot be encoded as PNG: %s", LZ_SHOW_TEXT(j->to->path),
                       j->message);
    }
    png_set_write_fn(j->png, j, write_bytes, flush_nothing);
    png_set_IHDR(j->png, j->info, (png_uint_32)image->width, (png_uint_32)image->height, 8,
                 lz_image_channels(image) == 4 ? PNG_COLOR_TYPE_RGB_ALPHA : PNG_COLOR_TYPE_RGB, PNG_INTERLACE_NONE,
                 PNG_COMPRESSION_TYPE_DEFAULT, PNG_FILTER_TYPE_DEFAULT);
    png_set_sRGB(j->png, j->info, PNG_sRGB_INTENT_PERCEPTUAL);
    add_text(j, text);
    png_write_info(j->png, j->info);
    return LZ_OK;
}

static lz_status write_png(lz_writer *to, const lz_image *image, const char *const *text, lz_error *err) {
    job j = {.ctx = to->ctx, .to = to, .err = err, .allowed = INT64_MAX};
    j.png = png_create_write_struct_2(PNG_LIBPNG_VER_STRING, &j, on_error, on_warning, &j, allocate, release);
    j.info = j.png ? png_create_info_struct(j.png) : NULL;
    lz_status status = j.info ? write_head(&j, image, text) : lz_out_of_memory(err, 0);
    png_destroy_write_struct(&j.png, &j.info);
    return status == LZ_OK ? lz_png_write_pixels(to, image, err) : status;
}

const lz_image_codec lz_png_codec = {{".png"}, LZ_IMAGE_MAX_SIDE, recognise, read_png, write_png, text_of_png};
