/* test_gguf.c: GGUF files: those that the reference implementation wrote (tools/oracle/gguf_files.py), and those that nobody
 * should have written. */
#include "check.h"
#include "folder.h"
#include "io/weights.h"

static lz_context *ctx;
static lz_error err;

static const char *gguf_data(const char *name) {
    char path[80];
    snprintf(path, sizeof path, "gguf/%s", name);
    return test_data(path);
}

/* ---- files of others --------------------------------------------------------------------------------------------- */

/* The numbers of a packed tensor, one after the other. */
static float *unpacked(lz_weights *w, const lz_weights_tensor *t, int64_t n) {
    const lz_packing_info *info = &lz_packing_table[t->packing];
    lz_array *codes = lz_weights_view(w, t, 0, LZ_DIMS(t->end - t->begin), LZ_U8);
    const uint8_t *from = lz_data(codes, &err);
    float *to = malloc((size_t)n * sizeof *to);
    if (!CHECK(from && to && t->end - t->begin == n / info->elements * info->bytes, "%s", err.text)) abort();
    for (int64_t i = 0; i < n; i++) to[i] = lz_unpack_element(t->packing, from, i);
    return to;
}

static void types(void) {
    ctx = lz_open(.threads = 1);
    lz_weights *w = lz_weights_open(ctx, gguf_data("types.gguf"), &err);
    lz_weights *want = lz_weights_open(ctx, gguf_data("types.safetensors"), &err);
    if (!CHECK(w && want, "%s", err.text)) return;
    CHECK_I64(lz_weights_count(w), 20);
    CHECK_I64(lz_weights_count(want), 17);
    int packed = 0;
    for (int64_t i = 0; i < lz_weights_count(want); i++) {
        const char *name = lz_weights_name(want, i);
        const lz_weights_tensor *t = lz_weights_find(w, name);
        lz_array *golden = lz_weights_get(want, name);
        int64_t n = lz_size(golden);
        const float *x = lz_data(golden, &err);
        if (!CHECK(t && x, "%s", name)) continue;
        CHECK(same_dims(t->dims, lz_shape(golden)), "%s %s", name, dims_text(t->dims));
        CHECK(same_dims(lz_weights_shape(w, name), lz_shape(golden)), "%s", name);
        if (t->packed) {
            float *got = unpacked(w, t, n);
            CHECK(same_bits(got, x, n * 4), "%s", name);
            free(got);
            packed++;
            CHECK(!strcasecmp(lz_weights_packing(w, name), strcmp(name, "flattened") ? name : "q8_0"), "%s", name);
            CHECK_STATUS(lz_check(lz_weights_get(w, name), &err), LZ_BAD_TYPE, &err);
            CHECK_TEXT(err.text, "is not plain numbers but packed");
        } else {
            CHECK(!lz_weights_packing(w, name));
            const float *got = lz_data(lz_weights_cast(w, name, LZ_F32), &err);
            CHECK(got && same_bits(got, x, n * 4), "%s", name);
        }
    }
    CHECK_I64(packed, 14);
    CHECK(same_dims(lz_weights_shape(w, "I32"), LZ_DIMS(1, 2, 3)), "trap 7: dimensions are reversed");
    const int32_t *whole = lz_data(lz_weights_get(w, "I32"), &err);
    CHECK(whole && whole[0] == -3 && whole[5] == 2);
    CHECK(same_dims(lz_weights_shape(w, "flattened"), LZ_DIMS(4, 8, 2, 2)), "orig_shape");
    CHECK_STATUS(lz_check(lz_weights_get(w, "IQ3_S"), &err), LZ_BAD_TYPE, &err);
    CHECK_TEXT(err.text, "tensor 'IQ3_S' has the type IQ3_S, which Lazuli does not read");
    CHECK_I64(lz_weights_bytes(w, "Q4_K"), 288);
    CHECK_I64(lz_weights_bytes(w, "nothing"), 0);
    CHECK(!lz_weights_packing(w, "nothing") && lz_weights_shape(w, "nothing").n == 0);
    lz_weights_close(want);
    lz_weights_close(w);
    lz_close(ctx);
}

static void keys(void) {
    ctx = lz_open(.threads = 1);
    lz_weights *w = lz_weights_open(ctx, gguf_data("types.gguf"), &err);
    if (!CHECK(w, "%s", err.text)) return;
    static const char *const texts[][2] = {{"general.name", "a small file: \u00e9"},
                                           {"general.architecture", "flux"},
                                           {"general.alignment", "64"},
                                           {"test.uint8", "200"},
                                           {"test.int8", "-100"},
                                           {"test.uint16", "60000"},
                                           {"test.int16", "-30000"},
                                           {"test.uint32", "4000000000"},
                                           {"test.int32", "-2000000000"},
                                           {"test.float32", "9.99999997e-07"},
                                           {"test.bool", "true"},
                                           {"test.uint64", "9223372036854775807"},
                                           {"test.int64", "-4611686018427387904"},
                                           {"test.float64", "0.1"},
                                           {"tokenizer.ggml.tokens", "[4 texts]"},
                                           {"test.floats", "[2 numbers]"},
                                           {"tokenizer.ggml.token_type", "[3 numbers]"}};
    for (size_t i = 0; i < sizeof texts / sizeof *texts; i++) {
        const char *got = lz_weights_metadata(w, texts[i][0]);
        CHECK(got && !strcmp(got, texts[i][1]), "%s is %s", texts[i][0], got ? got : "missing");
    }
    CHECK(!lz_weights_value(w, "nothing") && !lz_weights_metadata(w, "nothing"));

    lz_value_item item;
    lz_value_place at = {0, 0};
    const lz_value *tokens = lz_weights_value(w, "tokenizer.ggml.tokens");
    static const char *const words[] = {"a", "", "\u0120the"};
    for (int i = 0; i < 3; i++)
        CHECK(lz_value_next(tokens, &at, &item) && item.length == (int64_t)strlen(words[i]) &&
              !memcmp(item.text, words[i], (size_t)item.length));
    CHECK(lz_value_next(tokens, &at, &item) && item.length == 300 && item.text[299] == 'x');
    CHECK(!lz_value_next(tokens, &at, &item));
    CHECK(!lz_value_first(NULL, &item));

    at = (lz_value_place){0, 0};
    static const int64_t kinds[] = {1, 3, -4};
    for (int i = 0; i < 3; i++) {
        CHECK(lz_value_next(lz_weights_value(w, "tokenizer.ggml.token_type"), &at, &item));
        CHECK_I64(item.integer, kinds[i]);
    }
    at = (lz_value_place){0, 0};
    CHECK(lz_value_next(lz_weights_value(w, "test.floats"), &at, &item) && item.real == 0.5);
    CHECK(lz_value_next(lz_weights_value(w, "test.floats"), &at, &item) && item.real == -1.25 && item.integer == -1);
    CHECK(lz_value_first(lz_weights_value(w, "test.uint64"), &item) && item.real == 0x1p63);
    lz_weights_close(w);
    lz_close(ctx);
}

static void copy_file(const char *from, const char *to) {
    char bytes[8192];
    FILE *in = fopen(from, "rb"), *out = fopen(to, "wb");
    size_t n = in && out ? fread(bytes, 1, sizeof bytes, in) : 0;
    if (!n || fwrite(bytes, 1, n, out) != n || fclose(in) || fclose(out)) abort();
}

static void split_models(void) {
    ctx = lz_open(.threads = 1);
    static const char *const parts[] = {"split-00001-of-00003.gguf", "split-00002-of-00003.gguf",
                                        "split-00003-of-00003.gguf"};
    for (int i = 0; i < 3; i++) { /* any part stands for all */
        lz_weights *w = lz_weights_open(ctx, gguf_data(parts[i]), &err);
        if (!CHECK(w, "%s", err.text)) continue;
        CHECK_I64(lz_weights_count(w), 5);
        const float *x = lz_data(lz_weights_get(w, "blk.4.weight"), &err);
        CHECK(x && x[0] == 4 && x[7] == 4, "%s", err.text);
        CHECK(!strcmp(lz_weights_metadata(w, "general.architecture"), "flux"));
        lz_weights_close(w);
    }
    enter_folder();
    for (int i = 0; i < 3; i++) copy_file(gguf_data(parts[i]), in_folder(parts[i]));
    lz_weights *w = lz_weights_open(ctx, folder, &err);
    CHECK(w && lz_weights_count(w) == 5, "%s", err.text);
    lz_weights_close(w);

    copy_file(gguf_data(parts[1]), in_folder("renamed.gguf"));
    CHECK(!lz_weights_open(ctx, in_folder("renamed.gguf"), &err));
    CHECK_TEXT(err.text, "is part 2 of 3 of a split model");
    copy_file(gguf_data("bare.gguf"), in_folder(parts[1]));
    CHECK(!lz_weights_open(ctx, in_folder(parts[0]), &err));
    CHECK_TEXT(err.text, "is called part 2 of 3, but does not say so itself");
    unlink(in_folder(parts[1]));
    CHECK(!lz_weights_open(ctx, in_folder(parts[2]), &err) && err.status == LZ_NOT_FOUND);
    CHECK_TEXT(err.text, "split-00002-of-00003.gguf");
    leave_folder();
    lz_close(ctx);
}

/* What a file is, its first bytes say. */
static void names_lie(void) {
    ctx = lz_open(.threads = 1);
    enter_folder();
    copy_file(gguf_data("bare.gguf"), in_folder("a.safetensors"));
    copy_file(test_data("python-shards/model-00002-of-00002.safetensors"), in_folder("b.gguf"));
    lz_weights *w = lz_weights_open(ctx, in_folder("a.safetensors"), &err);
    if (CHECK(w, "%s", err.text)) {
        const float *x = lz_data(lz_weights_get(w, "model.diffusion_model.a"), &err);
        CHECK(x && x[5] == 5 && same_dims(lz_weights_shape(w, "model.diffusion_model.a"), LZ_DIMS(2, 3)));
        CHECK(!lz_weights_metadata_key(w, 0));
    }
    lz_weights_close(w);
    w = lz_weights_open(ctx, in_folder("b.gguf"), &err);
    CHECK(w && lz_weights_has(w, "b.weight"), "%s", err.text);
    lz_weights_close(w);
    FILE *f = fopen(in_folder("model.ckpt"), "wb");
    if (!f || fwrite("PK\x03\x04 and so on, as a zip archive goes", 1, 37, f) != 37 || fclose(f)) abort();
    CHECK(!lz_weights_open(ctx, in_folder("model.ckpt"), &err) && err.status == LZ_BAD_FILE);
    CHECK_TEXT(err.text, "is a PyTorch file (a zip archive)");
    leave_folder();
    lz_close(ctx);
}

/* ---- hostile files ----------------------------------------------------------------------------------------------- */

typedef struct bytes {
    char data[4096];
    size_t n;
} bytes;

static void put(bytes *b, uint64_t value, int size) {
    for (int i = 0; i < size; i++) b->data[b->n++] = (char)(value >> 8 * i);
}
static void put_text(bytes *b, const char *text, size_t n) {
    put(b, n, 8);
    memcpy(b->data + b->n, text, n);
    b->n += n;
}
static bytes start_file(uint32_t version, uint64_t tensors, uint64_t pairs) {
    bytes b = {.n = 4};
    memcpy(b.data, "GGUF", 4);
    put(&b, version, 4);
    put(&b, tensors, 8);
    put(&b, pairs, 8);
    return b;
}
static void put_tensor(bytes *b, const char *name, int axes, const uint64_t *dims, uint32_t type, uint64_t offset) {
    put_text(b, name, strlen(name));
    put(b, (uint64_t)axes, 4);
    for (int i = 0; i < axes; i++) put(b, dims[i], 8);
    put(b, type, 4);
    put(b, offset, 8);
}
static void put_data(bytes *b, size_t n) {
    while (b->n % 32) put(b, 0, 1);
    for (size_t i = 0; i < n; i++) put(b, 1, 1);
}

static void refused(const bytes *b, const char *words) {
    char *exact = malloc(b->n); /* so that a sanitizer sees every byte too far */
    memcpy(exact, b->data, b->n);
    err = (lz_error){.status = LZ_OK};
    CHECK(!lz_weights_open_memory(ctx, "memory", exact, (int64_t)b->n, &err), "%s", words);
    CHECK_I64(err.status, LZ_BAD_FILE);
    CHECK_TEXT(err.text, words);
    free(exact);
}

static void one_tensor(const char *words, int axes, const uint64_t *dims, uint32_t type, uint64_t offset, size_t data) {
    bytes b = start_file(3, 1, 0);
    put_tensor(&b, "t", axes, dims, type, offset);
    put_data(&b, data);
    refused(&b, words);
}

static void one_pair(const char *words, const char *key, uint32_t type, uint64_t value, int size) {
    bytes b = start_file(3, 0, 1);
    put_text(&b, key, strlen(key));
    put(&b, type, 4);
    put(&b, value, size);
    refused(&b, words);
}

#define SIZES(...)                                                                                                     \
    (int)(sizeof((uint64_t[]){__VA_ARGS__}) / 8), (const uint64_t[]) { __VA_ARGS__ }

static void hostile(void) {
    ctx = lz_open(.threads = 1);
    bytes b = start_file(1, 0, 0);
    refused(&b, "of version 1, and Lazuli reads 2 and 3: convert it with a newer tool");
    b = start_file(4, 0, 0);
    refused(&b, "of version 4, and Lazuli reads 2 and 3: it is newer");
    b = start_file(0x03000000, 0, 0);
    refused(&b, "for big-endian machines");
    b = start_file(3, 1, 0);
    refused(&b, "claims 1 tensors and 0 keys, more than its 24 bytes can hold");
    b = start_file(3, UINT64_MAX / 32, 2);
    refused(&b, "more than its 24 bytes can hold");
    b = start_file(3, 0, UINT64_MAX);
    refused(&b, "more than its 24 bytes can hold");

    one_tensor("has 0 axes", 0, NULL, 0, 0, 4);
    one_tensor("has 5 axes", SIZES(1, 1, 1, 1, 1), 0, 0, 4);
    one_tensor("has the type number 4, which is unknown", SIZES(1), 4, 0, 4);
    one_tensor("has the type number 4294967295", SIZES(1), UINT32_MAX, 0, 4);
    one_tensor("ends at byte 68 but the file holds 67: the file is truncated", SIZES(1), 0, 0, 3);
    one_tensor("ends at byte", SIZES(1), 0, 32, 32);
    one_tensor("no multiple of the alignment 32", SIZES(1), 0, 8, 32);
    one_tensor("larger than any memory", SIZES(1u << 31, 1u << 31, 4), 0, 0, 4);
    one_tensor("larger than any memory", SIZES(UINT64_MAX), 0, 0, 4);
    one_tensor("larger than any memory", SIZES((uint64_t)1 << 61), 0, 0, 4);
    one_tensor("ends at byte", SIZES((uint64_t)1 << 40), 0, 0, 4);
    one_tensor("ends at byte 9223372036854775807", SIZES(1), 0, (uint64_t)INT64_MAX - 31, 4);
    one_tensor("has rows of 33 numbers, not of blocks of 32", SIZES(33, 32), 2, 0, 64);
    b = start_file(3, 2, 0);
    put_tensor(&b, "twin", SIZES(1), 0, 0);
    put_tensor(&b, "twin", SIZES(1), 0, 0);
    put_data(&b, 4);
    refused(&b, "tensor 'twin' is also in");
    char name[200];
    memset(name, 'n', sizeof name);
    name[128] = 0;
    b = start_file(3, 1, 0);
    put_tensor(&b, name, SIZES(1), 0, 0);
    put_data(&b, 4);
    refused(&b, "has the name of a tensor of 128 bytes, more than the 127 allowed");

    one_pair("unknown type 13", "k", 13, 0, 8);
    one_pair("the file is truncated", "k", LZ_VALUE_TEXT, 1000, 8);
    one_pair("the file is truncated", "k", LZ_VALUE_TEXT, UINT64_MAX, 8);
    one_pair("alignment 24, which is not a power of two", "general.alignment", LZ_VALUE_U32, 24, 4);
    one_pair("alignment 0", "general.alignment", LZ_VALUE_U32, 0, 4);
    one_pair("is part 1 of 2", "split.count", LZ_VALUE_U16, 2, 2);
    b = start_file(3, 0, 2);
    for (int i = 0; i < 2; i++) {
        put_text(&b, "same", 4);
        put(&b, LZ_VALUE_U8, 4);
        put(&b, 1, 1);
    }
    refused(&b, "has the key 'same' twice");
    b = start_file(3, 0, 1);
    put_text(&b, "a\0b", 3);
    put(&b, LZ_VALUE_U8, 4);
    put(&b, 1, 1);
    refused(&b, "has a key with a 0 in it");
    b = start_file(3, 0, 1); /* a list that claims more than there is */
    put_text(&b, "k", 1);
    put(&b, LZ_VALUE_LIST, 4);
    put(&b, LZ_VALUE_TEXT, 4);
    put(&b, (uint64_t)1 << 60, 8);
    refused(&b, "the file is truncated");
    b = start_file(3, 0, 1); /* lists in lists in lists */
    put_text(&b, "k", 1);
    put(&b, LZ_VALUE_LIST, 4);
    for (int i = 0; i < 20; i++) {
        put(&b, LZ_VALUE_LIST, 4);
        put(&b, 1, 8);
    }
    put(&b, LZ_VALUE_U8, 4);
    put(&b, 0, 8);
    refused(&b, "lists in lists, more than 4 deep");
    lz_close(ctx);
}

/* A tensor may have no numbers, and a list no items. */
static void empty_things(void) {
    ctx = lz_open(.threads = 1);
    bytes b = start_file(2, 1, 1);
    put_text(&b, "list", 4);
    put(&b, LZ_VALUE_LIST, 4);
    put(&b, LZ_VALUE_TEXT, 4);
    put(&b, 0, 8);
    put_tensor(&b, "t", SIZES(0, 3), 0, 0);
    lz_weights *w = lz_weights_open_memory(ctx, "memory", b.data, (int64_t)b.n, &err);
    if (CHECK(w, "%s", err.text)) {
        lz_value_item item;
        CHECK(same_dims(lz_shape(lz_weights_get(w, "t")), LZ_DIMS(3, 0)));
        CHECK(!lz_value_first(lz_weights_value(w, "list"), &item));
    }
    lz_weights_close(w);
    lz_close(ctx);
}

static void shapes_of_others(void) {
    ctx = lz_open(.threads = 1);
    static const int32_t shapes[][3] = {{2, 2, 2}, {-2, -2, 2}, {4, 1, 1}};
    for (int i = 0; i < 3; i++) {
        bytes b = start_file(3, 1, 1);
        put_text(&b, "comfy.gguf.orig_shape.t", 23);
        put(&b, LZ_VALUE_LIST, 4);
        put(&b, LZ_VALUE_I32, 4);
        put(&b, 3, 8);
        for (int d = 0; d < 3; d++) put(&b, (uint32_t)shapes[i][d], 4);
        put_tensor(&b, "t", SIZES(4), 0, 0);
        put_data(&b, 16);
        if (i < 2) {
            refused(&b, "does not tell a shape of its 4 numbers");
            continue;
        }
        lz_weights *w = lz_weights_open_memory(ctx, "memory", b.data, (int64_t)b.n, &err);
        CHECK(w && same_dims(lz_weights_shape(w, "t"), LZ_DIMS(4, 1, 1)), "%s", err.text);
        lz_weights_close(w);
    }
    lz_close(ctx);
}

static void truncated_anywhere(void) {
    ctx = lz_open(.threads = 1);
    FILE *f = fopen(gguf_data("types.gguf"), "rb");
    static char file[16384];
    size_t n = f ? fread(file, 1, sizeof file, f) : 0;
    if (f) fclose(f);
    CHECK(n > 3000 && n < sizeof file);
    for (size_t cut = 0; cut + 64 < n; cut++) { /* the last bytes may be padding */
        char *copy = malloc(cut + 1);
        memcpy(copy, file, cut);
        copy = realloc(copy, cut ? cut : 1);
        err = (lz_error){.status = LZ_OK};
        CHECK(!lz_weights_open_memory(ctx, "memory", copy, (int64_t)cut, &err) && err.status == LZ_BAD_FILE,
              "cut at %zu", cut);
        free(copy);
    }
    lz_close(ctx);
}

static void open_split(lz_context *failing_ctx, long long number) {
    err = (lz_error){.status = LZ_OK};
    lz_weights *w = lz_weights_open(failing_ctx, gguf_data("split-00001-of-00003.gguf"), &err);
    CHECK(w || err.status == LZ_OUT_OF_MEMORY, "allocation %lld: %s", number, err.text);
    lz_weights_close(w);
}

static void failing_allocations(void) { fail_each_allocation(open_split, 0); }

TEST_MAIN({"types", types}, {"keys", keys}, {"split_models", split_models}, {"names_lie", names_lie},
          {"hostile", hostile}, {"empty_things", empty_things}, {"shapes_of_others", shapes_of_others},
          {"truncated_anywhere", truncated_anywhere}, {"failing_allocations", failing_allocations})
