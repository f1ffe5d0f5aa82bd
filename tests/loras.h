/* loras.h: what the two tests of LoRAs share: pictures with them, and files of made-up ones. */
#ifndef LZ_TEST_LORAS_H
#define LZ_TEST_LORAS_H

#include "diffusers.h"
#include "folder.h"

#define DATA LZ_SOURCE_DIR "/tests/data/"
#define LORAS DATA "lora/"

/* The picture of a case with LoRAs, or without; steps 0: the model's own. */
static inline bool paint(lz_model *model, const test_case *c, int steps, lz_picture *p) {
    lz_error err = {0};
    return CHECK_OK(lz_generate(model, p, &err, .prompt = c->prompt, .negative = c->negative, .width = c->width,
                                .height = c->height, .steps = steps, .guidance = steps ? c->guidance : 0,
                                .seed = c->seed),
                    &err);
}

static inline lz_model *open_model(lz_context *ctx, const char *data, const char *name) {
    char path[512];
    lz_error err = {0};
    snprintf(path, sizeof path, DATA "%s/%s", data, name);
    lz_model *model = lz_model_open(ctx, path, &err);
    CHECK(model != NULL, "%s", err.text);
    return model;
}

static inline bool equal_bits(lz_array *a, lz_array *b) {
    lz_error err = {0};
    const void *x = lz_data(a, &err), *y = lz_data(b, &err);
    return x && y && lz_size(a) == lz_size(b) && memcmp(x, y, (size_t)lz_size(a) * 4) == 0;
}

/* Tensors of equal numbers, to be saved as a LoRA. */
typedef struct made_file {
    lz_context *ctx;
    lz_named_array list[64];
    char names[64][160];
    int n;
} made_file;

static inline void add_tensor(made_file *f, const char *name, lz_dims dims) {
    snprintf(f->names[f->n], sizeof f->names[0], "%s", name);
    f->list[f->n] = (lz_named_array){f->names[f->n], lz_contiguous(lz_full(f->ctx, dims, LZ_F32, 0.5))};
    f->n++;
}

static inline void add_pair(made_file *f, const char *module, int64_t out, int64_t rank, int64_t in) {
    char name[160];
    snprintf(name, sizeof name, "%s.lora_A.weight", module);
    add_tensor(f, name, LZ_DIMS(rank, in));
    snprintf(name, sizeof name, "%s.lora_B.weight", module);
    add_tensor(f, name, LZ_DIMS(out, rank));
}

/* The status of a model with such a file, and what it says. */
static inline lz_status try_file(lz_model *model, const made_file *f, bool partial, lz_error *err) {
    lz_error saved = {0};
    const char *path = in_folder("made.safetensors");
    CHECK_OK(lz_weights_save(f->ctx, path, f->list, f->n, NULL, &saved), &saved);
    return lz_model_set_loras(model, &LZ_LORA(.path = path, .weight = 1, .partial = partial), 1, err);
}

#endif
