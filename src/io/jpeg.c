/* jpeg.c: JPEG, with libjpeg. As in png.c, errors use longjmp, so everything that must be freed is in the job.
 * Pitfalls:
 *
 *   - For libjpeg a truncated file is a warning, and the rest becomes grey; here it is an error.
 *   - CMYK is stored inverted, because Adobe's programs, which write such files, do so.
 *   - A camera held upright stores the picture rotated; the EXIF orientation says how to rotate it back.
 *   - A few bytes can claim a huge picture, or a huge number of scans over it: both are refused.
 *   - libjpeg needs quadratic time to save many markers, so it saves none; comments and EXIF are found in the bytes. */
#include <setjmp.h>
#include <stdio.h> /* jpeglib.h needs it first */
#include <string.h>

#include <jerror.h>
#include <jpeglib.h>

#include "io/image_codec.h"

enum { EXIF = JPEG_APP0 + 1, START_OF_SCAN = 0xda, MAX_PASSES = 200, QUALITY = 95 };

typedef struct job {
    struct jpeg_error_mgr errors; /* must be first: libjpeg passes a pointer to it */
    jmp_buf jump;
    char message[JMSG_LENGTH_MAX];
    lz_context *ctx;
    const char *path;
    lz_error *err;
    struct jpeg_progress_mgr progress;
    int orientation;
    uint8_t *cmyk; /* one row */
    uint8_t *row;  /* one row of a picture with transparency, blended with white; otherwise NULL */
    lz_writer *to;
    lz_status status; /* of writing to `to` */
} job;

static void on_error(j_common_ptr jpeg) {
    job *j = (job *)jpeg->err;
    jpeg->err->format_message(jpeg, j->message);
    longjmp(j->jump, 1);
}

static void on_message(j_common_ptr jpeg, int level) {
    int code = jpeg->err->msg_code;
    if (level < 0 && (code == JWRN_JPEG_EOF || code == JWRN_HIT_MARKER)) on_error(jpeg);
}

static void print_nothing(j_common_ptr jpeg) { (void)jpeg; }

static struct jpeg_error_mgr *quiet_errors(job *j) {
    jpeg_std_error(&j->errors);
    j->errors.error_exit = on_error;
    j->errors.emit_message = on_message;
    j->errors.output_message = print_nothing;
    return &j->errors;
}

/* Makes the error after a longjmp. */
static lz_status failed(job *j, lz_status status, const char *what) {
    if (j->status != LZ_OK) return j->status;
    if (j->errors.msg_code == JERR_OUT_OF_MEMORY) return lz_out_of_memory(j->err, 0);
    return lz_fail(j->err, status, "%s: %s: %s", LZ_SHOW_TEXT(j->path), what, j->message);
}

/* ---- markers ----------------------------------------------------------------------------------------------------- */

/* A marker before the pixels: one or more 0xff, a code, the length (including itself), the body. */
typedef struct marker {
    int code;
    const uint8_t *body;
    size_t bytes;
} marker;

/* *at: offset of the marker, 2 for the first one; advanced. false: there are no more. */
static bool next_marker(const uint8_t *data, size_t bytes, size_t *at, marker *to) {
    if (*at >= bytes || data[*at] != 0xff) return false;
    while (*at < bytes && data[*at] == 0xff) ++*at;
    if (bytes - *at < 3 || data[*at] == START_OF_SCAN) return false;
    size_t length = (size_t)data[*at + 1] << 8 | data[*at + 2];
    if (length < 2 || length > bytes - *at - 1) return false;
    *to = (marker){.code = data[*at], .body = data + *at + 3, .bytes = length - 2};
    *at += 1 + length;
    return true;
}

/* ---- the orientation --------------------------------------------------------------------------------------------- */

static unsigned number(const uint8_t *at, int bytes, bool big_endian) {
    unsigned n = 0;
    for (int i = 0; i < bytes; i++) n = n << 8 | at[big_endian ? i : bytes - 1 - i];
    return n;
}

/* EXIF is a TIFF file: a header with the byte order and the offset of the directory; there, the number of entries, and
 * entries of 12 bytes: tag, type, count, value. Returns 1 (upright) if anything is malformed. */
static int orientation(const uint8_t *exif, size_t bytes) {
    enum { ORIENTATION = 0x0112, SHORT = 3 };
    if (bytes < 14 || memcmp(exif, "Exif\0\0", 6) != 0) return 1;
    const uint8_t *tiff = exif + 6;
    bytes -= 6;
    bool big = tiff[0] == 'M';
    if (memcmp(tiff, big ? "MM\0*" : "II*\0", 4) != 0) return 1;
    size_t at = number(tiff + 4, 4, big);
    if (at > bytes - 2) return 1;
    unsigned entries = number(tiff + at, 2, big);
    for (at += 2; entries > 0 && at + 12 <= bytes; entries--, at += 12) {
        if (number(tiff + at, 2, big) != ORIENTATION) continue;
        unsigned value = number(tiff + at + 8, 2, big);
        return number(tiff + at + 2, 2, big) == SHORT && value >= 1 && value <= 8 ? (int)value : 1;
    }
    return 1;
}

static int noted_orientation(const uint8_t *data, size_t bytes) {
    size_t at = 2;
    for (marker m; next_marker(data, bytes, &at, &m);)
        if (m.code == EXIF && m.bytes >= 6 && memcmp(m.body, "Exif\0\0", 6) == 0) return orientation(m.body, m.bytes);
    return 1;
}

/* How to find pixel (x, y) of the upright picture in the stored one: swap x and y, then count from the right or
 * bottom. */
static const struct {
    bool swap, from_right, from_bottom;
} turns[9] = {[2] = {0, 1, 0}, [3] = {0, 1, 1}, [4] = {0, 0, 1}, [5] = {1, 0, 0},
              [6] = {1, 0, 1}, [7] = {1, 1, 1}, [8] = {1, 1, 0}};

static lz_status make_upright(job *j, lz_image *image) {
    int how = j->orientation;
    if (how == 1) return LZ_OK;
    lz_image stored = *image;
    bool swap = turns[how].swap;
    lz_status status = lz_image_make(j->ctx, j->path, INT64_MAX, swap ? stored.height : stored.width,
                                     swap ? stored.width : stored.height, 3, image, j->err);
    uint8_t *to = image->pixels;
    for (int64_t y = 0; y < image->height && to; y++)
        for (int64_t x = 0; x < image->width; x++, to += 3) {
            int64_t column = swap ? y : x, row = swap ? x : y;
            if (turns[how].from_right) column = stored.width - 1 - column;
            if (turns[how].from_bottom) row = stored.height - 1 - row;
            memcpy(to, stored.pixels + (row * stored.width + column) * 3, 3);
        }
    lz_image_free(j->ctx, &stored);
    return status;
}

/* ---- reading ----------------------------------------------------------------------------------------------------- */

static bool recognise(const uint8_t *data, size_t bytes) {
    return bytes >= 3 && data[0] == 0xff && data[1] == 0xd8 && data[2] == 0xff;
}

static void count_passes(j_common_ptr jpeg) {
    job *j = (job *)jpeg->err;
    if (!jpeg->is_decompressor || ((j_decompress_ptr)jpeg)->input_scan_number <= MAX_PASSES) return;
    snprintf(j->message, sizeof j->message, "it has more than %d passes", MAX_PASSES);
    longjmp(j->jump, 1);
}

/* A block of 64 pixels takes at least one bit; with arithmetic coding it may take less. */
static bool can_hold(const struct jpeg_decompress_struct *jpeg, size_t bytes) {
    return jpeg->arith_code || (int64_t)jpeg->image_width * jpeg->image_height / 512 <= (int64_t)bytes;
}

static void cmyk_to_rgb(const uint8_t *cmyk, int64_t n, uint8_t *rgb) {
    for (; n > 0; n--, cmyk += 4, rgb += 3)
        for (int c = 0; c < 3; c++) {
            int product = (255 - cmyk[c]) * cmyk[3] + 128; /* inverted, and rounded as in Pillow */
            rgb[c] = (uint8_t)(cmyk[3] - ((product + (product >> 8)) >> 8));
        }
}

static void read_rows(job *j, struct jpeg_decompress_struct *jpeg, lz_image *out) {
    while (jpeg->output_scanline < jpeg->output_height) {
        uint8_t *rgb = out->pixels + (int64_t)jpeg->output_scanline * out->width * 3;
        uint8_t *row = j->cmyk ? j->cmyk : rgb;
        jpeg_read_scanlines(jpeg, &row, 1);
        if (j->cmyk) cmyk_to_rgb(j->cmyk, out->width, rgb);
    }
    jpeg_finish_decompress(jpeg);
}

static lz_status decode(job *j, struct jpeg_decompress_struct *jpeg, const uint8_t *data, size_t bytes, lz_image *out) {
    if (setjmp(j->jump)) return failed(j, LZ_BAD_FILE, LZ_IMAGE_DAMAGED);
    jpeg_create_decompress(jpeg);
    jpeg->progress = &j->progress;
    jpeg_mem_src(jpeg, data, (unsigned long)bytes);
    jpeg_read_header(jpeg, TRUE);
    if (!can_hold(jpeg, bytes)) {
        snprintf(j->message, sizeof j->message, "it is too short for its size");
        return failed(j, LZ_BAD_FILE, LZ_IMAGE_DAMAGED);
    }
    j->orientation = noted_orientation(data, bytes);
    lz_status status = lz_image_make(j->ctx, j->path, (int64_t)bytes, jpeg->image_width, jpeg->image_height, 3, out,
                                     j->err);
    if (status != LZ_OK) return status;

    bool cmyk = jpeg->jpeg_color_space == JCS_CMYK || jpeg->jpeg_color_space == JCS_YCCK;
    jpeg->out_color_space = cmyk ? JCS_CMYK : JCS_RGB;
    if (cmyk && !(j->cmyk = lz_host_alloc(j->ctx, (size_t)out->width * 4)))
        return lz_out_of_memory(j->err, out->width * 4);
    jpeg_start_decompress(jpeg);
    read_rows(j, jpeg, out);
    return make_upright(j, out);
}

static lz_status read_jpeg(lz_context *ctx, const char *path, const uint8_t *data, size_t bytes, lz_image *out,
                           lz_error *err) {
    job j = {.ctx = ctx, .path = path, .err = err, .progress = {.progress_monitor = count_passes}};
    struct jpeg_decompress_struct jpeg = {.err = quiet_errors(&j)};
    lz_status status = decode(&j, &jpeg, data, bytes, out);
    jpeg_destroy_decompress(&jpeg);
    lz_host_free(ctx, j.cmyk);
    return status;
}

/* ---- writing ----------------------------------------------------------------------------------------------------- */

typedef struct sink {
    struct jpeg_destination_mgr pub;
    JOCTET buffer[16384];
} sink;

static void sink_rewind(j_compress_ptr jpeg) {
    sink *s = (sink *)jpeg->dest;
    s->pub.next_output_byte = s->buffer;
    s->pub.free_in_buffer = sizeof s->buffer;
}

static void sink_write(j_compress_ptr jpeg, size_t bytes) {
    job *j = (job *)jpeg->err;
    j->status = lz_writer_add(j->to, ((sink *)jpeg->dest)->buffer, (int64_t)bytes, j->err);
    if (j->status != LZ_OK) longjmp(j->jump, 1);
    sink_rewind(jpeg);
}

static boolean sink_full(j_compress_ptr jpeg) {
    sink_write(jpeg, sizeof((sink *)jpeg->dest)->buffer); /* the whole buffer: free_in_buffer is not up to date */
    return TRUE;
}

static void sink_end(j_compress_ptr jpeg) {
    sink_write(jpeg, sizeof((sink *)jpeg->dest)->buffer - jpeg->dest->free_in_buffer);
}

/* Writes "key: value" as comments. A marker can have 65533 bytes; longer text continues in the next one. */
static void write_comment(struct jpeg_compress_struct *jpeg, const char *key, const char *value) {
    enum { ROOM = 65533 };
    size_t begin = strlen(key) + 2, left = strlen(value);
    do {
        size_t n = left < ROOM - begin ? left : ROOM - begin;
        jpeg_write_m_header(jpeg, JPEG_COM, (unsigned)(begin + n));
        for (const char *c = key; begin && *c; c++) jpeg_write_m_byte(jpeg, *c);
        for (const char *c = ": "; begin && *c; c++) jpeg_write_m_byte(jpeg, *c);
        for (size_t i = 0; i < n; i++) jpeg_write_m_byte(jpeg, (unsigned char)value[i]);
        value += n;
        left -= n;
        begin = 0;
    } while (left > 0);
}

static void write_comments(struct jpeg_compress_struct *jpeg, const char *const *text) {
    for (; text && text[0]; text += 2) write_comment(jpeg, text[0], text[1]);
}

static lz_status encode(job *j, struct jpeg_compress_struct *jpeg, sink *s, const lz_image *image,
                        const char *const *text) {
    if (setjmp(j->jump)) return failed(j, LZ_BAD_ARGUMENT, "cannot be encoded as JPEG");
    jpeg_create_compress(jpeg);
    jpeg->dest = &s->pub;
    jpeg->image_width = (JDIMENSION)image->width;
    jpeg->image_height = (JDIMENSION)image->height;
    jpeg->input_components = 3;
    jpeg->in_color_space = JCS_RGB;
    jpeg_set_defaults(jpeg);
    jpeg_set_quality(jpeg, j->to->quality ? j->to->quality : QUALITY, TRUE);
    jpeg->comp_info[0].h_samp_factor = jpeg->comp_info[0].v_samp_factor = 1; /* 4:4:4 */
    jpeg->optimize_coding = TRUE;
    jpeg_start_compress(jpeg, TRUE);
    write_comments(jpeg, text);
    while (jpeg->next_scanline < jpeg->image_height) {
        JSAMPROW row = image->pixels + (int64_t)jpeg->next_scanline * image->width * lz_image_channels(image);
        if (j->row) lz_image_flatten(row, image->width, j->row);
        jpeg_write_scanlines(jpeg, j->row ? &j->row : &row, 1);
    }
    jpeg_finish_compress(jpeg);
    return LZ_OK;
}

static lz_status write_jpeg(lz_writer *to, const lz_image *image, const char *const *text, lz_error *err) {
    job j = {.ctx = to->ctx, .path = to->path, .err = err, .to = to};
    sink s = {.pub = {.init_destination = sink_rewind, .empty_output_buffer = sink_full, .term_destination = sink_end}};
    struct jpeg_compress_struct jpeg = {.err = quiet_errors(&j)};
    bool blends = lz_image_channels(image) == 4;
    if (blends && !(j.row = lz_host_alloc(to->ctx, (size_t)image->width * 3)))
        return lz_out_of_memory(err, image->width * 3);
    lz_status status = encode(&j, &jpeg, &s, image, text);
    jpeg_destroy_compress(&jpeg);
    lz_host_free(to->ctx, j.row);
    return status;
}

/* ---- text -------------------------------------------------------------------------------------------------------- */

static bool is_comment_of(const marker *m, const char *key) {
    size_t n = strlen(key);
    return m->code == JPEG_COM && m->bytes >= n + 2 && memcmp(m->body, key, n) == 0 &&
           memcmp(m->body + n, ": ", 2) == 0;
}

/* Finds the comment "key: value" that write_comment wrote, by parsing the markers, without decoding pixels. The first
 * pass measures, the second copies. */
static lz_status text_of_jpeg(lz_context *ctx, const char *path, const uint8_t *data, size_t bytes, const char *key,
                              char **to, lz_error *err) {
    enum { FULL = 65533 }; /* a marker of this size continues in the next */
    size_t at = 2, begin, bytes_left, skip = strlen(key) + 2;
    marker m;
    do {
        begin = at;
        if (!next_marker(data, bytes, &at, &m)) return LZ_OK;
    } while (!is_comment_of(&m, key));
    bytes_left = m.bytes;
    while (m.bytes == FULL && next_marker(data, bytes, &at, &m) && m.code == JPEG_COM) bytes_left += m.bytes;
    if (bytes_left - skip > (size_t)LZ_IMAGE_MAX_TEXT) return lz_image_too_much_text(err, path);

    char *end = *to = lz_host_alloc(ctx, bytes_left - skip + 1);
    if (!end) return lz_out_of_memory(err, (int64_t)bytes_left);
    for (at = begin; bytes_left && next_marker(data, bytes, &at, &m); skip = 0) {
        end = mempcpy(end, m.body + skip, m.bytes - skip);
        bytes_left -= m.bytes;
    }
    return LZ_OK;
}

const lz_image_codec lz_jpeg_codec = {{".jpg", ".jpeg"}, JPEG_MAX_DIMENSION, recognise,
                                      read_jpeg,         write_jpeg,         text_of_jpeg};
