/* fuzz_gguf.c: any bytes are a GGUF file or an error, and what is listed can be read to its end. What the file is can be told, and
 * its tokenizer, if it has one, reads text or is an error. */
#include <stdlib.h>
#include <string.h>

#include "io/weights.h"
#include "pipeline/parts.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

/* Also unpacks each number of packed tensors. */
static void read_tensor(lz_weights *w, const char *name) {
    lz_error err = {.status = LZ_OK};
    const lz_weights_tensor *t = lz_weights_find(w, name);
    int64_t bytes = lz_weights_bytes(w, name);
    lz_array *a = t->packed ? lz_weights_view(w, t, 0, LZ_DIMS(bytes), LZ_U8) : lz_weights_get(w, name);
    if (lz_check(a, &err) != LZ_OK) {
        if (err.status != LZ_BAD_TYPE && err.status != LZ_BAD_FILE) abort();
        return;
    }
    const uint8_t *p = lz_data(a, &err);
    if (bytes && !p) abort();
    volatile double sum = 0;
    for (int64_t k = 0; k < bytes; k++) sum = sum + p[k];
    const lz_packing_info *info = &lz_packing_table[t->packing];
    for (int64_t k = 0; t->packed && k < bytes / info->bytes * info->elements; k++)
        sum = sum + (double)lz_unpack_element(t->packing, p, k);
}

static void read_keys(const lz_weights *w) {
    const char *key;
    for (int64_t i = 0; (key = lz_weights_metadata_key(w, i)); i++) {
        if (!lz_weights_metadata(w, key)) abort();
        lz_value_place at = {0, 0};
        lz_value_item item;
        volatile int64_t sum = 0;
        while (lz_value_next(lz_weights_value(w, key), &at, &item))
            for (int64_t k = 0; k < item.length; k++) sum = sum + item.text[k];
    }
}

static void read_tokenizer(lz_context *ctx, const lz_weights *w) {
    lz_error err = {.status = LZ_OK};
    int64_t *ids = NULL, n = 0;
    static const char text[] = "a red fox <|im_start|>\n";
    lz_tokenizer *t = lz_gguf_tokenizer(ctx, w, "fuzz", &err);
    if (!t && (err.status != LZ_BAD_FILE || !err.text[0])) abort();
    if (t && lz_tokenize(t, text, sizeof text - 1, &ids, &n, &err) != LZ_OK) abort();
    lz_free_ids(ctx, ids);
    lz_tokenizer_free(t);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
    static lz_context *ctx;
    if (!ctx) ctx = lz_open(.threads = 1, .cache_limit = -1);
    char *file = malloc(size + 4); /* GGUF files only: fuzz_safetensors has the others */
    memcpy(file, "GGUF", 4);
    if (size) memcpy(file + 4, data, size);
    lz_error err = {.status = LZ_OK};
    int64_t head = lz_weights_head(file, (int64_t)size + 4);
    if (head >= 0 && head <= (int64_t)size + 4 && lz_weights_head(file, head) != head) abort();
    lz_weights *w = lz_weights_open_memory(ctx, "fuzz", file, (int64_t)size + 4, &err);
    if (w && (head < 0 || head > (int64_t)size + 4)) abort(); /* what can be opened has a head */
    if (!w && (err.status != LZ_BAD_FILE || !err.text[0])) abort();
    for (int64_t i = 0; i < lz_weights_count(w); i++) {
        lz_scope *scope = lz_scope_begin(ctx, "tensor");
        read_tensor(w, lz_weights_name(w, i));
        lz_scope_end(scope);
    }
    if (w) {
        lz_signature signature;
        char what[200];
        read_keys(w);
        lz_signature_read(&signature, w);
        lz_signature_describe(&signature, what, sizeof what);
        read_tokenizer(ctx, w);
    }
    lz_weights_close(w);
    free(file);
    if (lz_memory_info(ctx).active != 0) abort();
    return 0;
}
