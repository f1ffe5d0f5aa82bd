/* png_pixels.c: writes the pixels of a PNG and its end. Strips of rows are filtered and compressed by several threads;
 * each strip becomes one IDAT chunk.
 *
 * zlib looks for runs of equal bytes only (Z_RLE). On filtered rows of pictures that takes a quarter of the time of its
 * usual search, and the files are as large (docs/performance.md). A run does not reach back into the strip before, so
 * cutting the rows into strips costs only a few bytes. The strips depend on the size of the picture alone: the file is
 * the same for any number of threads. */
#include <stdlib.h>
#include <string.h>
#include <zlib.h>

#include "io/image_codec.h"

#define STRIP_BYTES 98304 /* filtered bytes of a strip; but a strip has at least one row */
#define STRIPS_AT_ONCE 64 /* strips that are in memory at the same time */
#define MAX_THREADS 16
#define CHUNK_HEAD 8 /* length and type */
#define CHUNK_TAIL 4 /* checksum */
#define FILTERS 5

/* One strip: its IDAT chunk, and what the end of the file needs to know about it. */
typedef struct strip {
    uint8_t *chunk;
    int64_t bytes;     /* of the chunk; 0: no memory for zlib */
    uint32_t checksum; /* Adler-32 of the filtered rows */
    int64_t raw;       /* number of filtered bytes */
} strip;

typedef struct pixels {
    lz_context *ctx;
    const lz_image *image;
    int64_t row, channels; /* bytes of a row of the image; bytes of a pixel */
    int64_t rows, n;       /* rows of a strip; number of strips */
    int64_t room;          /* bytes of a strip's chunk at most */
    int64_t first;         /* the first strip of those that are in memory */
    strip strips[STRIPS_AT_ONCE];
    uint8_t *own; /* of each thread: the filtered rows of a strip, and a row for each filter */
    int64_t own_bytes;
} pixels;

static void store_u32(uint8_t *to, uint32_t value) {
    for (int i = 0; i < 4; i++) to[i] = (uint8_t)(value >> (24 - 8 * i));
}

/* ---- filters ----------------------------------------------------------------------------------------------------- */

/* The filters of PNG: each byte less a prediction from the byte to the left (a), above (b) and above to the left (c).
 * `above` is a row of zeros for the first row. */
static void filter_row(int filter, const uint8_t *row, const uint8_t *above, int64_t n, int64_t channels, uint8_t *to) {
    for (int64_t i = 0; i < channels; i++) {                      /* the first pixel has nothing to its left */
        static const uint8_t of_above[FILTERS] = {0, 0, 2, 1, 2}; /* halves */
        to[i] = (uint8_t)(row[i] - (above[i] * of_above[filter] >> 1));
    }
    const uint8_t *left = row - channels, *corner = above - channels;
    switch (filter) {
    case 0: memcpy(to, row, (size_t)n); break;
    case 1:
        for (int64_t i = channels; i < n; i++) to[i] = (uint8_t)(row[i] - left[i]);
        break;
    case 2:
        for (int64_t i = channels; i < n; i++) to[i] = (uint8_t)(row[i] - above[i]);
        break;
    case 3:
        for (int64_t i = channels; i < n; i++) to[i] = (uint8_t)(row[i] - ((left[i] + above[i]) >> 1));
        break;
    default: /* Paeth: whichever of a, b, c is nearest to a + b - c */
        for (int64_t i = channels; i < n; i++) {
            int16_t a = left[i], b = above[i], c = corner[i];
            int16_t to_a = (int16_t)abs(b - c), to_b = (int16_t)abs(a - c), to_c = (int16_t)abs(a + b - 2 * c);
            int16_t other = to_b <= to_c ? b : c, to_other = to_b <= to_c ? to_b : to_c;
            to[i] = (uint8_t)(row[i] - (to_a <= to_other ? a : other));
        }
    }
}

/* The sum of the sizes of the bytes as signed numbers, by which libpng too chooses the filter of a row. */
static int64_t cost(const uint8_t *bytes, int64_t n) {
    int64_t sum = 0;
    for (int64_t i = 0; i < n;) {
        uint32_t some = 0; /* small enough for 65536 bytes */
        for (int64_t end = n - i > 65536 ? i + 65536 : n; i < end; i++)
            some += bytes[i] < 128 ? bytes[i] : 256U - bytes[i];
        sum += some;
    }
    return sum;
}

/* to: the number of the best filter, then the filtered row. */
static void filter_best(const pixels *p, int64_t y, uint8_t *trial, const uint8_t *zeros, uint8_t *to) {
    const uint8_t *row = p->image->pixels + y * p->row, *above = y > 0 ? row - p->row : zeros;
    int64_t best = INT64_MAX;
    for (int filter = 0; filter < FILTERS; filter++) {
        filter_row(filter, row, above, p->row, p->channels, trial);
        int64_t this = cost(trial, p->row);
        if (this >= best) continue;
        best = this;
        to[0] = (uint8_t)filter;
        memcpy(to + 1, trial, (size_t)p->row);
    }
}

/* ---- strips ------------------------------------------------------------------------------------------------------ */

static voidpf allocate(voidpf ctx, uInt items, uInt size) { return lz_host_alloc(ctx, (size_t)items * size); }
static void release(voidpf ctx, voidpf memory) { lz_host_free(ctx, memory); }

/* Compresses the filtered rows into the chunk, after the bytes that are there. Returns its size, or 0. */
static int64_t compress_strip(const pixels *p, uint8_t *raw, int64_t bytes, bool last, uint8_t *chunk, int64_t at) {
    z_stream z = {.zalloc = allocate, .zfree = release, .opaque = p->ctx};
    if (deflateInit2(&z, 6, Z_DEFLATED, -15, 8, Z_RLE) != Z_OK) return 0;
    z.next_in = raw, z.avail_in = (uInt)bytes;
    z.next_out = chunk + at, z.avail_out = (uInt)(p->room - at - CHUNK_TAIL);
    int result = deflate(&z, last ? Z_FINISH : Z_FULL_FLUSH);
    bool whole = last ? result == Z_STREAM_END : result == Z_OK && z.avail_in == 0 && z.avail_out > 0;
    int64_t size = z.next_out - chunk;
    deflateEnd(&z);
    return whole ? size : 0;
}

static int64_t end_chunk(uint8_t *chunk, int64_t size) {
    store_u32(chunk, (uint32_t)(size - CHUNK_HEAD));
    memcpy(chunk + 4, "IDAT", 4);
    store_u32(chunk + size, (uint32_t)crc32(0, chunk + 4, (uInt)(size - 4)));
    return size + CHUNK_TAIL;
}

static void make_strip(void *arg, int64_t i, int thread) {
    pixels *p = arg;
    strip *s = &p->strips[i];
    int64_t first = (p->first + i) * p->rows, end = first + p->rows, filtered = p->row + 1;
    if (end > p->image->height) end = p->image->height;
    uint8_t *raw = p->own + thread * p->own_bytes, *trial = raw + p->rows * filtered, *zeros = trial + p->row;
    for (int64_t y = first; y < end; y++) filter_best(p, y, trial, zeros, raw + (y - first) * filtered);

    s->raw = (end - first) * filtered;
    s->checksum = (uint32_t)adler32(1, raw, (uInt)s->raw);
    int64_t at = CHUNK_HEAD;
    if (first == 0) s->chunk[at++] = 0x78, s->chunk[at++] = 0x01; /* zlib: deflate, 32 KiB */
    int64_t size = compress_strip(p, raw, s->raw, end == p->image->height, s->chunk, at);
    s->bytes = size ? end_chunk(s->chunk, size) : 0;
}

static lz_status write_strips(pixels *p, lz_pool *pool, lz_writer *to, lz_error *err) {
    uint32_t checksum = 1;
    for (p->first = 0; p->first < p->n; p->first += STRIPS_AT_ONCE) {
        int64_t some = p->n - p->first < STRIPS_AT_ONCE ? p->n - p->first : STRIPS_AT_ONCE;
        lz_parallel(pool, some, make_strip, p);
        for (int64_t i = 0; i < some; i++) {
            const strip *s = &p->strips[i];
            if (!s->bytes) return lz_out_of_memory(err, 0);
            lz_status status = lz_writer_add(to, s->chunk, s->bytes, err);
            if (status != LZ_OK) return status;
            checksum = (uint32_t)adler32_combine(checksum, s->checksum, (z_off_t)s->raw);
        }
    }
    uint8_t tail[CHUNK_HEAD + 4 + CHUNK_TAIL];
    store_u32(tail + CHUNK_HEAD, checksum);
    lz_status status = lz_writer_add(to, tail, end_chunk(tail, CHUNK_HEAD + 4), err);
    static const uint8_t end[] = {0, 0, 0, 0, 'I', 'E', 'N', 'D', 0xAE, 0x42, 0x60, 0x82};
    return status == LZ_OK ? lz_writer_add(to, end, sizeof end, err) : status;
}

lz_status lz_png_write_pixels(lz_writer *to, const lz_image *image, lz_error *err) {
    pixels p = {.ctx = to->ctx, .image = image, .channels = lz_image_channels(image)};
    p.row = image->width * p.channels;
    p.rows = STRIP_BYTES / (p.row + 1) > 0 ? STRIP_BYTES / (p.row + 1) : 1;
    p.n = (image->height + p.rows - 1) / p.rows;
    int64_t raw = p.rows * (p.row + 1), held = p.n < STRIPS_AT_ONCE ? p.n : STRIPS_AT_ONCE;
    p.room = CHUNK_HEAD + 2 + (int64_t)compressBound((uLong)raw) + 64 + CHUNK_TAIL; /* 64: the end of a flushed strip */
    p.own_bytes = raw + 2 * p.row;

    int threads = lz_pool_threads(lz_base_of(to->ctx)->pool);
    if (threads > MAX_THREADS) threads = MAX_THREADS;
    if (threads > held) threads = (int)held;
    p.own = lz_host_alloc(p.ctx, (size_t)(threads * p.own_bytes));
    uint8_t *chunks = lz_host_alloc(p.ctx, (size_t)(held * p.room));
    /* A pool of its own: the context's pool may be making the next picture. */
    lz_pool *pool = lz_pool_new(p.ctx, threads);
    if (!pool) pool = lz_pool_new(p.ctx, 1); /* the system starts no more threads */
    lz_status status = p.own && chunks && pool ? LZ_OK : lz_out_of_memory(err, held * p.room);
    for (int64_t i = 0; i < held && chunks; i++) p.strips[i].chunk = chunks + i * p.room;
    if (status == LZ_OK) status = write_strips(&p, pool, to, err);
    if (pool) lz_pool_free(p.ctx, pool);
    lz_host_free(p.ctx, chunks);
    lz_host_free(p.ctx, p.own);
    return status;
}
