/* test_quantised.c: a model whose weights are quantised makes the picture of the same model with the dequantised weights. The
 * test quantises the weights of a small model itself, writes files as other programs do, and knows from its own formulas what
 * they stand for. */
#include <math.h>
#include <sys/stat.h>

#include "diffusers.h"
#include "folder.h"

typedef enum form { SCALED_FP8, PLAIN_FP8, INT8_ROTATED, NVFP4, MLX4, GGUF_BLOCKS, FORMS } form;
static const char *const form_names[FORMS] = {"scaled fp8", "plain fp8", "int8 ConvRot", "nvfp4", "MLX 4 bit", "GGUF"};

/* ---- a file in the making ---------------------------------------------------------------------------------------- */

typedef struct file {
    char *header, *data, *keys; /* keys: of GGUF */
    size_t header_bytes, data_bytes, key_bytes;
    int tensors, n_keys;
} file;

enum { HEADER_ROOM = 1 << 18, DATA_ROOM = 1 << 22 };

static file new_file(void) {
    return (file){.header = calloc(1, HEADER_ROOM), .data = calloc(1, DATA_ROOM), .keys = calloc(1, HEADER_ROOM)};
}

static void free_file(file *f) {
    free(f->header);
    free(f->data);
    free(f->keys);
}

/* shape: as JSON. */
static void add_tensor(file *f, const char *name, const char *type, const char *shape, const void *data, size_t bytes) {
    if (f->data_bytes + bytes > DATA_ROOM) abort();
    f->header_bytes += (size_t)snprintf(f->header + f->header_bytes, HEADER_ROOM - f->header_bytes,
                                        "%s\"%s\":{\"dtype\":\"%s\",\"shape\":%s,\"data_offsets\":[%zu,%zu]}",
                                        f->tensors++ ? "," : "{", name, type, shape, f->data_bytes,
                                        f->data_bytes + bytes);
    memcpy(f->data + f->data_bytes, data, bytes);
    f->data_bytes += bytes;
}

static void add_matrix(file *f, const char *module, const char *last, const char *type, int64_t rows, int64_t columns,
                       const void *data, size_t bytes) {
    char name[300], shape[64];
    snprintf(name, sizeof name, "%s%s", module, last);
    snprintf(shape, sizeof shape, "[%lld,%lld]", (long long)rows, (long long)columns);
    add_tensor(f, name, type, shape, data, bytes);
}

static void put(char **to, uint64_t value, int bytes) {
    for (int i = 0; i < bytes; i++) *(*to)++ = (char)(value >> 8 * i);
}

static void write_out(const char *path, const void *a, size_t n, const void *b, size_t m) {
    FILE *out = fopen(path, "wb");
    if (!out || fwrite(a, 1, n, out) != n || fwrite(b, 1, m, out) != m || fclose(out)) abort();
}

static void end_file(file *f, const char *path) {
    char *whole = malloc(HEADER_ROOM + 16), *at = whole;
    f->header[f->header_bytes++] = '}';
    put(&at, f->header_bytes, 8);
    memcpy(at, f->header, f->header_bytes);
    write_out(path, whole, 8 + f->header_bytes, f->data, f->data_bytes);
    free(whole);
    free_file(f);
}

/* GGUF has four axes at most; a key tells the shape of a tensor with more. */
static lz_dims flattened(file *f, const char *name, lz_dims d) {
    if (d.n <= 4) return d;
    char *at = f->keys + f->key_bytes, key[300];
    int n = snprintf(key, sizeof key, "comfy.gguf.orig_shape.%s", name);
    put(&at, (uint64_t)n, 8);
    memcpy(at, key, (size_t)n);
    at += n;
    put(&at, 9, 4); /* a list */
    put(&at, 5, 4); /* of i32 */
    put(&at, (uint64_t)d.n, 8);
    int64_t rest = 1;
    for (int i = 0; i < d.n; i++) put(&at, (uint64_t)d.at[i], 4);
    for (int i = 1; i < d.n; i++) rest *= d.at[i];
    f->key_bytes = (size_t)(at - f->keys);
    f->n_keys++;
    return LZ_DIMS(d.at[0], rest);
}

/* The same of a GGUF file: type numbers, and the fastest axis first. */
static void add_gguf(file *f, const char *name, uint32_t type, lz_dims d, const void *data, size_t bytes) {
    d = flattened(f, name, d);
    char *at = f->header + f->header_bytes;
    put(&at, strlen(name), 8);
    memcpy(at, name, strlen(name));
    at += strlen(name);
    put(&at, (uint64_t)d.n, 4);
    for (int i = d.n - 1; i >= 0; i--) put(&at, (uint64_t)d.at[i], 8);
    put(&at, type, 4);
    put(&at, f->data_bytes, 8);
    f->header_bytes = (size_t)(at - f->header);
    memcpy(f->data + f->data_bytes, data, bytes);
    f->data_bytes = (f->data_bytes + bytes + 31) / 32 * 32;
    if (f->data_bytes > DATA_ROOM || f->header_bytes > HEADER_ROOM - 1000) abort();
    f->tensors++;
}

static void end_gguf(file *f, const char *path) {
    char *whole = calloc(1, 2 * HEADER_ROOM + 64), *at = whole;
    memcpy(at, "GGUF", 4);
    at += 4;
    put(&at, 3, 4);
    put(&at, (uint64_t)f->tensors, 8);
    put(&at, (uint64_t)f->n_keys, 8);
    memcpy(at, f->keys, f->key_bytes);
    memcpy(at + f->key_bytes, f->header, f->header_bytes);
    size_t n = (24 + f->key_bytes + f->header_bytes + 31) / 32 * 32;
    write_out(path, whole, n, f->data, f->data_bytes);
    free(whole);
    free_file(f);
}

/* ---- quantising: W becomes what the file's bytes stand for -------------------------------------------------------- */

static float largest(const float *x, int64_t n) {
    float most = 1e-12f;
    for (int64_t i = 0; i < n; i++) most = fmaxf(most, fabsf(x[i]));
    return most;
}

static float rounded(float x, float low, float high) { return fminf(fmaxf(roundf(x), low), high); }

static void to_fp8(file *f, const char *module, float *w, int64_t rows, int64_t columns) {
    uint8_t *q = malloc((size_t)(rows * columns));
    float s = largest(w, rows * columns) / 448, unused = 3;
    for (int64_t i = 0; i < rows * columns; i++) {
        q[i] = lz_to_f8(w[i] / s);
        w[i] = lz_from_f8(q[i]) * s;
    }
    char name[300];
    add_matrix(f, module, ".weight", "F8_E4M3", rows, columns, q, (size_t)(rows * columns));
    snprintf(name, sizeof name, "%s.scale_weight", module);
    add_tensor(f, name, "F32", "[]", &s, 4);
    snprintf(name, sizeof name, "%s.scale_input", module);
    add_tensor(f, name, "F32", "[]", &unused, 4);
    free(q);
}

/* H of ConvRot, by its definition: a product of entries of H4, over the digits of both numbers. */
static double hadamard(int i, int j, int g) {
    static const int h4[4][4] = {{1, 1, 1, -1}, {1, 1, -1, 1}, {1, -1, 1, 1}, {-1, 1, 1, 1}};
    double product = 1 / sqrt(g);
    for (; g > 1; g /= 4, i /= 4, j /= 4) product *= h4[i % 4][j % 4];
    return product;
}

static void turn(float *row, int64_t columns, int g) {
    float out[256];
    for (int64_t at = 0; at < columns; at += g) {
        for (int j = 0; j < g; j++) {
            double sum = 0;
            for (int i = 0; i < g; i++) sum += (double)row[at + i] * hadamard(i, j, g);
            out[j] = (float)sum;
        }
        memcpy(row + at, out, sizeof *out * (size_t)g);
    }
}

static void to_int8(file *f, const char *module, float *w, int64_t rows, int64_t columns) {
    int g = columns % 64 == 0 ? 64 : columns % 16 == 0 ? 16 : 4;
    int8_t *q = malloc((size_t)(rows * columns));
    float *s = malloc((size_t)rows * 4);
    for (int64_t o = 0; o < rows; o++) {
        float *row = w + o * columns;
        turn(row, columns, g);
        s[o] = largest(row, columns) / 127;
        for (int64_t i = 0; i < columns; i++) {
            q[o * columns + i] = (int8_t)rounded(row[i] / s[o], -127, 127);
            row[i] = (float)q[o * columns + i] * s[o];
        }
        turn(row, columns, g);
    }
    char name[300], text[100], shape[20];
    add_matrix(f, module, ".weight", "I8", rows, columns, q, (size_t)(rows * columns));
    add_matrix(f, module, ".weight_scale", "F32", rows, 1, s, (size_t)rows * 4);
    int n = snprintf(text, sizeof text, "{\"format\":\"int8_tensorwise\",\"convrot\":true,\"convrot_groupsize\":%d}",
                     g);
    snprintf(name, sizeof name, "%s.comfy_quant", module);
    snprintf(shape, sizeof shape, "[%d]", n);
    add_tensor(f, name, "U8", shape, text, (size_t)n);
    free(q);
    free(s);
}

static void to_nvfp4(file *f, const char *module, float *w, int64_t rows, int64_t columns) {
    static const float values[8] = {0, 0.5f, 1, 1.5f, 2, 3, 4, 6};
    int64_t across = (columns / 16 + 3) / 4;
    size_t scale_bytes = (size_t)((rows + 127) / 128 * across * 512);
    uint8_t *q = calloc(1, (size_t)(rows * columns / 2)), *s = calloc(1, scale_bytes);
    float whole = largest(w, rows * columns) / (6 * 448);
    for (int64_t b = 0; b < rows * columns / 16; b++) {
        float *x = w + 16 * b;
        int64_t o = b / (columns / 16), c = b % (columns / 16);
        uint8_t scale = lz_to_f8(largest(x, 16) / 6 / whole);
        s[(o / 128 * across + c / 4) * 512 + o % 32 * 16 + o / 32 % 4 * 4 + c % 4] = scale;
        float unit = lz_from_f8(scale) * whole;
        for (int i = 0; i < 16; i++) {
            int best = 0;
            for (int k = 1; k < 8; k++)
                if (fabsf(fabsf(x[i]) - values[k] * unit) < fabsf(fabsf(x[i]) - values[best] * unit)) best = k;
            int code = best | (x[i] < 0 ? 8 : 0);
            q[8 * b + i / 2] |= (uint8_t)(i % 2 ? code : code << 4);
            x[i] = (x[i] < 0 ? -values[best] : values[best]) * unit;
        }
    }
    char name[300];
    add_matrix(f, module, ".weight", "U8", rows, columns / 2, q, (size_t)(rows * columns / 2));
    add_matrix(f, module, ".weight_scale", "F8_E4M3", (rows + 127) / 128 * 128, 4 * across, s, scale_bytes);
    snprintf(name, sizeof name, "%s.weight_scale_2", module);
    add_tensor(f, name, "F32", "[]", &whole, 4);
    snprintf(name, sizeof name, "%s.comfy_quant", module);
    add_tensor(f, name, "U8", "[18]", "{\"format\":\"nvfp4\"}", 18);
    free(q);
    free(s);
}

/* Groups of 32, so that the size of a group is not taken for granted. */
static void to_mlx(file *f, const char *module, float *w, int64_t rows, int64_t columns) {
    int64_t groups = rows * columns / 32;
    uint8_t *q = calloc(1, (size_t)(rows * columns / 2));
    uint16_t *s = malloc((size_t)groups * 2), *z = malloc((size_t)groups * 2);
    for (int64_t g = 0; g < groups; g++) {
        float *x = w + 32 * g, low = x[0], high = x[0];
        for (int i = 1; i < 32; i++) low = fminf(low, x[i]), high = fmaxf(high, x[i]);
        s[g] = lz_to_bf16((high - low) / 15);
        z[g] = lz_to_bf16(low);
        float scale = lz_from_bf16(s[g]), bias = lz_from_bf16(z[g]);
        for (int i = 0; i < 32; i++) {
            int code = scale > 0 ? (int)rounded((x[i] - bias) / scale, 0, 15) : 0;
            q[16 * g + i / 2] |= (uint8_t)(code << 4 * (i % 2));
            x[i] = scale * (float)code + bias;
        }
    }
    add_matrix(f, module, ".weight", "U32", rows, columns / 8, q, (size_t)(rows * columns / 2));
    add_matrix(f, module, ".scales", "BF16", rows, columns / 32, s, (size_t)groups * 2);
    add_matrix(f, module, ".biases", "BF16", rows, columns / 32, z, (size_t)groups * 2);
    free(q);
    free(s);
    free(z);
}

static void put_half(uint8_t *to, uint16_t half) {
    to[0] = (uint8_t)half;
    to[1] = (uint8_t)(half >> 8);
}

static void to_q8_0(uint8_t *block, float *x) {
    uint16_t d = lz_to_f16(largest(x, 32) / 127);
    put_half(block, d);
    for (int i = 0; i < 32; i++) {
        int8_t q = (int8_t)rounded(x[i] / lz_from_f16(d), -127, 127);
        block[2 + i] = (uint8_t)q;
        x[i] = lz_from_f16(d) * (float)q;
    }
}

static void to_q4_k(uint8_t *block, float *x) {
    float scale[8], low[8], most = 1e-12f, least = 1e-12f;
    for (int j = 0; j < 8; j++) {
        float high = 0;
        low[j] = 0;
        for (int i = 0; i < 32; i++) high = fmaxf(high, x[32 * j + i]), low[j] = fmaxf(low[j], -x[32 * j + i]);
        scale[j] = (high + low[j]) / 15;
        most = fmaxf(most, scale[j]);
        least = fmaxf(least, low[j]);
    }
    uint16_t d = lz_to_f16(most / 63), m = lz_to_f16(least / 63);
    put_half(block, d);
    put_half(block + 2, m);
    for (int j = 0; j < 8; j++) {
        int a = (int)rounded(scale[j] / lz_from_f16(d), 0, 63), b = (int)rounded(low[j] / lz_from_f16(m), 0, 63);
        uint8_t *s = block + 4;
        if (j < 4) {
            s[j] |= (uint8_t)a;
            s[j + 4] |= (uint8_t)b;
        } else {
            s[j + 4] = (uint8_t)((a & 15) | (b & 15) << 4);
            s[j - 4] |= (uint8_t)(a >> 4 << 6);
            s[j] |= (uint8_t)(b >> 4 << 6);
        }
        float step = lz_from_f16(d) * (float)a, floor = lz_from_f16(m) * (float)b;
        for (int i = 0; i < 32; i++) {
            int q = step > 0 ? (int)rounded((x[32 * j + i] + floor) / step, 0, 15) : 0;
            block[16 + 32 * (j / 2) + i] |= (uint8_t)(q << 4 * (j % 2));
            x[32 * j + i] = step * (float)q - floor;
        }
    }
}

/* Q4_K where rows are whole blocks of it, else Q8_0, else F32. */
static void to_gguf(file *f, const char *name, float *w, lz_dims d) {
    int64_t n = 1, columns = d.at[d.n - 1];
    for (int i = 0; i < d.n; i++) n *= d.at[i];
    int size = d.n != 2 ? 0 : columns % 256 == 0 ? 256 : columns % 32 == 0 ? 32 : 0, bytes = size == 256 ? 144 : 34;
    if (!size) {
        add_gguf(f, name, 0, d, w, (size_t)n * 4);
        return;
    }
    uint8_t *q = calloc((size_t)(n / size), (size_t)bytes);
    for (int64_t b = 0; b < n / size; b++) (size == 256 ? to_q4_k : to_q8_0)(q + b * bytes, w + b * size);
    add_gguf(f, name, size == 256 ? 12 : 8, d, q, (size_t)(n / size * bytes));
    free(q);
}

/* ---- a component ------------------------------------------------------------------------------------------------- */

static const int64_t multiple[FORMS] = {1, 1, 4, 16, 32, 1}; /* of columns */

static bool quantise(form how, file *f, const char *name, float *w, lz_dims d) {
    char module[300];
    size_t n = strlen(name);
    if (n < 8 || strcmp(name + n - 7, ".weight") || d.n != 2 || d.at[1] % multiple[how]) return false;
    snprintf(module, sizeof module, "%.*s", (int)n - 7, name);
    static void (*const to[])(file *, const char *, float *, int64_t, int64_t) = {
        [SCALED_FP8] = to_fp8, [INT8_ROTATED] = to_int8, [NVFP4] = to_nvfp4, [MLX4] = to_mlx};
    to[how](f, module, w, d.at[0], d.at[1]);
    return true;
}

static const char *extra; /* a tensor that is added to the quantised file; NULL: none */

/* Writes the tensors of `from` quantised to one file, and what they stand for to another. Returns how many were quantised. */
static int convert(lz_context *ctx, form how, const char *from, const char *quantised, const char *plain) {
    lz_error err = {0};
    lz_weights *w = lz_weights_open(ctx, from, &err);
    if (!CHECK(w, "%s", err.text)) return 0;
    file q = new_file(), p = new_file();
    int changed = 0;
    for (int64_t k = 0; k < lz_weights_count(w); k++) {
        lz_scope *scope = lz_scope_begin(ctx, "convert");
        const char *name = lz_weights_name(w, k);
        lz_array *a = lz_weights_get(w, name);
        lz_dims d = lz_shape(a);
        char shape[100] = "[";
        for (int i = 0; i < d.n; i++)
            snprintf(shape + strlen(shape), sizeof shape - strlen(shape), "%s%lld", i ? "," : "", (long long)d.at[i]);
        snprintf(shape + strlen(shape), sizeof shape - strlen(shape), "]");
        int64_t size = lz_size(a);
        float *x = malloc((size_t)size * 4 + 4);
        memcpy(x, lz_data(lz_cast(a, LZ_F32), &err), (size_t)size * 4);
        if (how == GGUF_BLOCKS) {
            to_gguf(&q, name, x, d);
            changed += d.n == 2 && d.at[1] % 32 == 0;
        } else if (how == PLAIN_FP8) { /* all of it, norms and biases too (trap 11) */
            uint8_t *codes = malloc((size_t)size + 1);
            for (int64_t i = 0; i < size; i++) {
                codes[i] = lz_to_f8(x[i]);
                x[i] = lz_from_f8(codes[i]);
            }
            add_tensor(&q, name, "F8_E4M3", shape, codes, (size_t)size);
            free(codes);
            changed++;
        } else if (quantise(how, &q, name, x, d))
            changed++;
        else
            add_tensor(&q, name, "F32", shape, x, (size_t)size * 4);
        add_tensor(&p, name, "F32", shape, x, (size_t)size * 4);
        free(x);
        lz_scope_end(scope);
    }
    if (extra) add_tensor(&q, extra, "F32", "[]", "1234", 4);
    if (how == SCALED_FP8) add_tensor(&q, "scaled_fp8", "F8_E4M3", "[0]", "", 0);
    how == GGUF_BLOCKS ? end_gguf(&q, quantised) : end_file(&q, quantised);
    end_file(&p, plain);
    lz_weights_close(w);
    return changed;
}

/* ---- fused names --------------------------------------------------------------------------------------------------- */

enum { MOST_PIECES = 3, MOST_GROUPS = 200 };

/* A tensor of Black Forest Labs' files, and the tensors of diffusers that are rows of it. */
typedef struct group {
    char name[128], pieces[MOST_PIECES][128];
    int n;
    bool swapped; /* halves */
} group;

static int read_groups(lz_weights *w, group *groups) {
    char line[600], name[128], engine[128], operation[80];
    int n = 0;
    FILE *f = fopen(LZ_SOURCE_DIR "/tests/data/names/flux2-klein-4b.tsv", "r");
    while (f && fgets(line, sizeof line, f)) {
        if (sscanf(line, "%127[^\t]\t%*[^\t]\t%127[^\t]\t%79[^\n]", name, engine, operation) != 3) continue;
        if (!lz_weights_has(w, engine)) continue;
        int i = 0;
        while (i < n && strcmp(groups[i].name, name)) i++;
        if (i == n) snprintf(groups[n++].name, sizeof groups[0].name, "%s", name);
        groups[i].swapped = !strncmp(operation, "swap", 4);
        snprintf(groups[i].pieces[groups[i].n++], sizeof groups[0].pieces[0], "%s", engine);
    }
    if (f) fclose(f);
    return n;
}

/* convert for a transformer of FLUX.2, where the quantised file has fused tensors and halves that are swapped. */
static int convert_fused(lz_context *ctx, form how, const char *from, const char *quantised, const char *plain) {
    lz_error err = {0};
    lz_weights *w = lz_weights_open(ctx, from, &err);
    if (!CHECK(w, "%s", err.text)) return 0;
    static group groups[MOST_GROUPS];
    memset(groups, 0, sizeof groups);
    file q = new_file(), p = new_file();
    int fused = 0;
    for (group *g = groups, *end = groups + read_groups(w, groups); g < end; g++) {
        lz_scope *scope = lz_scope_begin(ctx, "convert");
        lz_array *pieces[MOST_PIECES] = {NULL};
        for (int i = 0; i < g->n; i++) pieces[i] = lz_weights_get(w, g->pieces[i]);
        int64_t rows = lz_shape(pieces[0]).at[0], half = rows / 2;
        lz_array *all = lz_concat(pieces, g->n, 0);
        if (g->swapped)
            all = lz_concat((lz_array *[]){lz_slice(all, 0, half, rows, 1), lz_slice(all, 0, 0, half, 1)}, 2, 0);
        all = lz_contiguous(lz_cast(all, LZ_F32));
        lz_dims d = lz_shape(all);
        float *x = malloc((size_t)lz_size(all) * 4);
        memcpy(x, lz_data(all, &err), (size_t)lz_size(all) * 4);
        char shape[100];
        snprintf(shape, sizeof shape, d.n == 2 ? "[%lld,%lld]" : "[%lld]", (long long)d.at[0],
                 (long long)d.at[d.n - 1]);
        if (how == GGUF_BLOCKS)
            to_gguf(&q, g->name, x, d);
        else if (!quantise(how, &q, g->name, x, d))
            add_tensor(&q, g->name, "F32", shape, x, (size_t)lz_size(all) * 4);
        fused += g->n > 1;
        int64_t columns = d.n == 2 ? d.at[1] : 1;
        if (g->swapped) { /* back */
            float *copy = malloc((size_t)lz_size(all) * 4);
            memcpy(copy, x + half * columns, (size_t)((rows - half) * columns) * 4);
            memcpy(copy + (rows - half) * columns, x, (size_t)(half * columns) * 4);
            free(x);
            x = copy;
        }
        snprintf(shape, sizeof shape, d.n == 2 ? "[%lld,%lld]" : "[%lld]", (long long)rows, (long long)columns);
        for (int i = 0; i < g->n; i++)
            add_tensor(&p, g->pieces[i], "F32", shape, x + i * rows * columns, (size_t)(rows * columns) * 4);
        free(x);
        lz_scope_end(scope);
    }
    how == GGUF_BLOCKS ? end_gguf(&q, quantised) : end_file(&q, quantised);
    end_file(&p, plain);
    lz_weights_close(w);
    return fused;
}

/* ---- pictures ---------------------------------------------------------------------------------------------------- */

static void run(const char *format, ...) {
    char command[2000];
    va_list args;
    va_start(args, format);
    vsnprintf(command, sizeof command, format, args);
    va_end(args);
    if (system(command) != 0) abort();
}

static lz_array *picture_of(lz_context *ctx, const char *model_folder, lz_picture *picture) {
    lz_error err = {0};
    lz_model *model = lz_model_open(ctx, model_folder, &err);
    *picture = (lz_picture){0};
    if (!CHECK(model, "%s", err.text)) return NULL;
    CHECK_OK(lz_generate(model, picture, &err, .prompt = "a red fox", .width = 64, .height = 48, .steps = 2, .seed = 5),
             &err);
    lz_model_close(model);
    return picture->pixels;
}

typedef int converter(lz_context *ctx, form how, const char *from, const char *quantised, const char *plain);

static void same_pictures(const char *model, converter *change, int n_parts) {
    static const char *const parts[] = {"transformer", "text_encoder"};
    lz_context *ctx = lz_open(.threads = 2, .compute = LZ_F32);
    enter_folder();
    for (form how = 0; how < FORMS; how++) {
        if (how == PLAIN_FP8 && change == convert_fused) continue; /* nothing to cut */
        run("for k in q p; do mkdir -p %s/$k && cp -RL " LZ_SOURCE_DIR "/tests/data/%s/. %s/$k; done", folder, model,
            folder);
        for (int i = 0; i < n_parts; i++) {
            char old[600], quantised[600], plain[600];
            snprintf(old, sizeof old, LZ_SOURCE_DIR "/tests/data/%s/%s", model, parts[i]);
            run("rm -f %s/[pq]/%s/*safetensors*", folder, parts[i]);
            snprintf(quantised, sizeof quantised, "%s/q/%s/any.%s", folder, parts[i],
                     how == GGUF_BLOCKS ? "gguf" : "safetensors");
            snprintf(plain, sizeof plain, "%s/p/%s/model.safetensors", folder, parts[i]);
            int changed = change(ctx, how, old, quantised, plain);
            CHECK(changed >= 4, "%s: %s: %d tensors", model, form_names[how], changed);
        }
        lz_picture a, b;
        lz_array *x = picture_of(ctx, in_folder("q"), &a), *y = picture_of(ctx, in_folder("p"), &b);
        double quality = x && y ? psnr(x, y) : 0;
        CHECK(quality >= 60, "%s: %s: %g dB", model, form_names[how], quality);
        lz_picture_free(&a);
        lz_picture_free(&b);
        run("rm -rf %s/q %s/p", folder, folder);
    }
    lz_close(ctx);
    leave_folder();
}

/* A scale that nothing uses is an error, and no picture (trap 1). */
static void unused_scale(void) {
    lz_context *ctx = lz_open(.threads = 1, .compute = LZ_F32);
    lz_error err = {0};
    enter_folder();
    run("mkdir %s/q && cp -RL " LZ_SOURCE_DIR "/tests/data/flux2/C/. %s/q && rm %s/q/transformer/*safetensors*", folder,
        folder, folder);
    extra = "x_embedder.weight_scale_2";
    convert(ctx, SCALED_FP8, LZ_SOURCE_DIR "/tests/data/flux2/C/transformer",
            in_folder("q/transformer/model.safetensors"), in_folder("plain.safetensors"));
    extra = NULL;
    lz_model *model = lz_model_open(ctx, in_folder("q"), &err);
    lz_picture picture;
    if (model) lz_generate(model, &picture, &err, .prompt = "a", .width = 64, .height = 64, .steps = 1);
    CHECK_I64(err.status, LZ_BAD_FILE);
    CHECK_TEXT(err.text, "nothing uses 'x_embedder.weight_scale_2', so the weight of 'x_embedder' would be wrong");
    lz_model_close(model);
    run("rm -rf %s/q", folder);
    leave_folder();
    lz_close(ctx);
}

static void klein(void) { same_pictures("flux2/A", convert, 2); }
static void qwen_image(void) { same_pictures("qwen/Q", convert, 2); }
/* One scale for three parts, scales of rows that are cut with them, and tiles (trap 15). */
static void fused(void) { same_pictures("flux2/A", convert_fused, 1); }

TEST_MAIN({"klein", klein}, {"qwen_image", qwen_image}, {"fused", fused}, {"unused_scale", unused_scale})
