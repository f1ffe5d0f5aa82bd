/* fuzz_quantised.c: any tensors, companions and quantisation metadata of a safetensors file are weights or an error. The input
 * is the header, a 0, and the data. */
#include <stdlib.h>
#include <string.h>

#include "models/storage.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static void read_weight(lz_context *ctx, lz_weights *w, const char *name, lz_dims want) {
    lz_error err = {.status = LZ_OK};
    lz_stored s;
    lz_packed p;
    if (lz_stored_find(w, name, want, &s, &err)) {
        if (!err.text[0]) abort();
        return;
    }
    if (!s.packed || lz_dims_size(s.dims) > 1 << 16) return;
    for (int i = 0; i < 2; i++) { /* all rows, then the last ones */
        int64_t first = i ? s.layout.rows / 2 : 0, rows = s.layout.rows - first;
        if (lz_stored_take(w, &s, first, rows, &p, &err)) continue;
        lz_array *a = lz_packed_dense(ctx, &p, LZ_DIMS(rows, s.layout.columns), LZ_F32, &err);
        const float *numbers = a ? lz_data(a, &err) : NULL;
        if (!numbers && rows * s.layout.columns) abort();
        volatile double sum = 0;
        for (int64_t k = 0; k < rows * s.layout.columns; k++) sum = sum + (double)numbers[k];
    }
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
    static lz_context *ctx;
    if (!ctx) ctx = lz_open(.threads = 1, .cache_limit = -1);
    const uint8_t *zero = size ? memchr(data, 0, size) : NULL;
    if (!zero) return 0;
    size_t header = (size_t)(zero - data), rest = size - header - 1;
    char *file = malloc(8 + header + rest);
    for (int i = 0; i < 8; i++) file[i] = (char)((uint64_t)header >> 8 * i);
    memcpy(file + 8, data, header);
    memcpy(file + 8 + header, zero + 1, rest);
    lz_error err = {.status = LZ_OK};
    lz_weights *w = lz_weights_open_memory(ctx, "fuzz", file, (int64_t)(8 + header + rest), &err);
    for (int64_t i = 0; i < lz_weights_count(w); i++) {
        char name[400];
        snprintf(name, sizeof name, "%s", lz_weights_name(w, i));
        size_t n = strlen(name), m = strlen("_packed");
        if (n > m && !strcmp(name + n - m, "_packed")) name[n - m] = 0;
        lz_scope *scope = lz_scope_begin(ctx, "tensor");
        read_weight(ctx, w, name, LZ_NONE);
        read_weight(ctx, w, name, LZ_DIMS(3, 32));
        lz_scope_end(scope);
    }
    lz_weights_close(w);
    free(file);
    if (lz_memory_info(ctx).active != 0) abort();
    return 0;
}
