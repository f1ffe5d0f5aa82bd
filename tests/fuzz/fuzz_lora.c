/* fuzz_lora.c: any bytes are a LoRA file for a small model or an error; what is taken can be built and applied. */
#include <stdlib.h>

#include "io/weights.h"
#include "models/lora.h"
#include "models/param.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static const struct {
    const char *name;
    lz_dims dims;
} shapes[] = {
    {"double_stream_modulation_img.linear.weight", {2, {24, 4}}},
    {"norm_out.linear.weight", {2, {8, 4}}},
    {"transformer_blocks.0.attn.to_q.weight", {2, {4, 4}}},
    {"transformer_blocks.0.attn.to_k.weight", {2, {4, 4}}},
    {"transformer_blocks.0.attn.to_v.weight", {2, {4, 4}}},
    {"transformer_blocks.0.attn.norm_q.weight", {1, {2}}},
    {"single_transformer_blocks.0.attn.to_qkv_mlp_proj.weight", {2, {20, 4}}},
};
enum { PARAMS = sizeof shapes / sizeof *shapes };

static lz_context *ctx;
static lz_targets *targets, *text;
static lz_param *params[PARAMS];

static void open_model(void) {
    lz_error err = {.status = LZ_OK};
    ctx = lz_open(.threads = 1, .cache_limit = -1);
    targets = lz_targets_new(ctx);
    text = lz_targets_new(ctx);
    for (int i = 0; i < PARAMS; i++) {
        lz_array *w = lz_contiguous(lz_full(ctx, shapes[i].dims, LZ_F32, 0.25));
        if (lz_eval(w, &err) != LZ_OK) abort();
        params[i] = lz_param_new(ctx, shapes[i].name, NULL, shapes[i].dims, LZ_F32, &w, 1, &err);
        params[i]->target = lz_targets_add(targets, shapes[i].name, shapes[i].dims);
    }
    lz_targets_add(text, "model.layers.0.mlp.up_proj.weight", LZ_DIMS(4, 4));
}

/* The values may be anything; the memory must be ours. */
static void apply(void) {
    lz_error err = {.status = LZ_OK};
    lz_scope *scope = lz_scope_begin(ctx, "apply");
    for (int i = 0; i < PARAMS; i++) {
        lz_target *target = (lz_target *)params[i]->target;
        if (lz_patch_build(target, params[i]->value, &err) != LZ_OK) continue;
        lz_array *x = lz_full(ctx, LZ_DIMS(3, 4), LZ_F32, 1);
        lz_array *y = shapes[i].dims.n == 1 ? lz_dense(params[i]) : lz_apply(x, params[i], NULL);
        if (!lz_data(y, &err)) abort();
        if (shapes[i].dims.n == 2 && !lz_data(lz_apply_rows(x, params[i], 1, 3), &err)) abort();
    }
    lz_scope_end(scope);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
    if (!ctx) open_model();
    int64_t before = lz_memory_info(ctx).active;
    lz_error err = {.status = LZ_OK};
    lz_scope *scope = lz_scope_begin(ctx, "file");
    lz_weights *w = lz_weights_open_memory(ctx, "fuzz", data, (int64_t)size, &err);
    lz_lora_report report;
    if (w && lz_lora_read_weights(ctx, "fuzz", w, 0.5, true, targets, text, &report, &err) == LZ_OK)
        apply();
    else if (!err.status || !err.text[0])
        abort();
    lz_weights_close(w);
    lz_scope_end(scope);
    lz_targets_drop(targets, lz_targets_take(targets));
    lz_targets_drop(text, lz_targets_take(text));
    if (lz_memory_info(ctx).active != before) abort();
    return 0;
}
