/* fuzz_safetensors.c: any bytes are a safetensors file or an error, and every listed tensor can be read completely. */
#include <stdlib.h>

#include "io/weights.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
    static lz_context *ctx;
    if (!ctx) ctx = lz_open(.threads = 1, .cache_limit = -1);
    lz_error err = {.status = LZ_OK};
    lz_weights *w = lz_weights_open_memory(ctx, "fuzz", data, (int64_t)size, &err);
    if (!w) {
        if (err.status != LZ_BAD_FILE || !err.text[0]) abort();
        return 0;
    }
    for (int64_t i = 0; i < lz_weights_count(w); i++) {
        lz_scope *scope = lz_scope_begin(ctx, "tensor");
        const char *name = lz_weights_name(w, i);
        lz_array *a = lz_weights_get(w, name);
        if (lz_check(a, &err) == LZ_OK) {
            int64_t bytes = lz_size(a) * lz_dtype_size(lz_type(a));
            const volatile char *p = lz_data(a, &err);
            if (bytes && !p) abort();
            for (int64_t k = 0; k < bytes; k++) (void)p[k];
            if (lz_check(lz_weights_cast(w, name, LZ_F32), &err) != LZ_OK) abort();
        } else if (err.status != LZ_BAD_TYPE && err.status != LZ_BAD_FILE)
            abort();
        lz_scope_end(scope);
    }
    lz_weights_close(w);
    if (lz_memory_info(ctx).active != 0) abort();
    return 0;
}
