/* test_lora_packed.c: LoRAs on weights of few bits. The base stays packed and a LoRA is computed beside it; the picture is that of
 * the LoRA merged into the unpacked weights, by sums in double here. */
#include "loras.h"
#include "models/flux2.h"
#include "models/param.h"

enum { MOST = 256 };

/* A copy of a small model whose transformer is this file. */
static void copy_model(const char *model, const char *name) {
    char line[1600];
    snprintf(line, sizeof line, "cp -r " DATA "flux2/%s %s && chmod -R u+w %s && rm %s/transformer/*.safetensors*",
             model, in_folder(name), in_folder(name), in_folder(name));
    CHECK_I64(system(line), 0);
}

static const char *weights_in(const char *name, const char *file) {
    char path[100];
    snprintf(path, sizeof path, "%.40s/transformer/%.40s", name, file);
    return in_folder(path);
}

/* W + weight (W' - W) in place, where the LoRA has this module: W' = W + k up down, with rows of the length that DoRA says. */
static void merge(lz_weights *lora, const char *tensor, float *w, int64_t out, int64_t in, double k, double weight) {
    char module[200], key[3][300];
    lz_error err = {0};
    snprintf(module, sizeof module, "%.*s", (int)(strlen(tensor) - strlen(".weight")), tensor);
    static const char *const ends[] = {"lora_A.weight", "lora_B.weight", "lora_magnitude_vector"};
    for (int i = 0; i < 3; i++) snprintf(key[i], sizeof key[i], "transformer.%s.%s", module, ends[i]);
    if (!lz_weights_has(lora, key[0])) return;
    lz_array *down = lz_weights_get(lora, key[0]);
    int64_t rank = lz_shape(down).at[0];
    const float *a = lz_data(down, &err), *b = lz_data(lz_weights_get(lora, key[1]), &err);
    const float *m = lz_weights_has(lora, key[2]) ? lz_data(lz_weights_get(lora, key[2]), &err) : NULL;
    for (int64_t o = 0; o < out; o++) {
        double row[512], length = 0;
        for (int64_t i = 0; i < in; i++) {
            row[i] = (double)w[o * in + i];
            for (int64_t r = 0; r < rank; r++) row[i] += k * (double)b[o * rank + r] * (double)a[r * in + i];
            length += row[i] * row[i];
        }
        for (int64_t i = 0; i < in; i++) {
            if (m) row[i] *= (double)m[o] / sqrt(length);
            w[o * in + i] += (float)(weight * (row[i] - (double)w[o * in + i]));
        }
    }
}

/* Unpacks the weights in a folder, and merges the LoRA into them. */
static void write_merged(lz_context *ctx, const char *packed, const char *to, const char *path, double k,
                         double weight) {
    static lz_named_array all[MOST];
    lz_error err = {0};
    lz_flux2 *model = lz_flux2_open(ctx, packed, &err);
    lz_weights *lora = lz_weights_open(ctx, path, &err);
    const lz_targets *targets = model ? lz_flux2_targets(model) : NULL;
    if (!CHECK(model && lora && targets->n < MOST, "%s", err.text)) return;
    for (int64_t i = 0; i < targets->n; i++) {
        const lz_target *t = targets->list[i];
        lz_array *w = lz_contiguous(lz_cast(lz_param_base(t->param), LZ_F32));
        float *copy = malloc((size_t)lz_size(w) * sizeof *copy);
        CHECK_OK(lz_copy(w, copy, lz_size(w) * 4, &err), &err);
        if (t->dims.n == 2) merge(lora, t->name, copy, t->dims.at[0], t->dims.at[1], k, weight);
        all[i] = (lz_named_array){t->name, lz_from(ctx, t->dims, LZ_F32, copy)};
        free(copy);
    }
    CHECK_OK(lz_weights_save(ctx, to, all, targets->n, NULL, &err), &err);
    lz_flux2_close(model);
    lz_weights_close(lora);
}

/* model: B with a LoRA of tests/data/lora, or A with one that is made here (lora NULL). */
static void one_type(lz_context *ctx, const char *model, const char *type, const char *file, const char *lora,
                     double k) {
    lz_error err = {0};
    char path[300], from[300];
    enter_folder();
    lz_scope *scope = lz_scope_begin(ctx, type);
    snprintf(path, sizeof path, LORAS "%s", lora ? lora : "");
    if (!lora) {
        made_file f = {.ctx = ctx};
        add_pair(&f, "transformer.single_transformer_blocks.0.attn.to_out", 64, 1, 256);
        snprintf(path, sizeof path, "%s", in_folder("made.safetensors"));
        CHECK_OK(lz_weights_save(ctx, path, f.list, f.n, NULL, &err), &err);
        lora = "made";
    }
    copy_model(model, "packed");
    copy_model(model, "merged");
    snprintf(from, sizeof from, DATA "flux2/%s/transformer", model);
    CHECK_OK(lz_convert(ctx, from, weights_in("packed", file), &LZ_CONVERT_OPTIONS(.type = type), &err), &err);
    write_merged(ctx, weights_in("packed", ""), weights_in("merged", "w.safetensors"), path, k, 0.7);
    lz_model *packed = lz_model_open(ctx, in_folder("packed"), &err),
             *merged = lz_model_open(ctx, in_folder("merged"), &err);
    if (CHECK(packed && merged, "%s", err.text)) {
        test_case c = {.prompt = "a fox", .width = 48, .height = 32, .steps = 2, .guidance = 1, .seed = 3};
        lz_picture base, with, want;
        paint(packed, &c, 2, &base);
        CHECK_OK(lz_model_set_loras(packed, &LZ_LORA(.path = path, .weight = 0.7), 1, &err), &err);
        paint(packed, &c, 2, &with);
        paint(merged, &c, 2, &want);
        double e = relative_error(with.latents, want.latents), change = relative_error(base.latents, want.latents);
        CHECK(e < 1e-3 && change > 0.05, "%s, %s: %g, of a change by %g", type, lora, e, change);
        printf("    %-6s %-24s latents %.1e, changed by %.2f\n", type, lora, e, change);
        lz_picture_free(&base);
        lz_picture_free(&with);
        lz_picture_free(&want);
    }
    lz_model_close(packed);
    lz_model_close(merged);
    lz_scope_end(scope);
    char line[400];
    snprintf(line, sizeof line, "rm -r %s", folder);
    CHECK_I64(system(line), 0);
}

static void packed_bases(void) {
    static const char *const types[][2] = {{"q8_0", "w.gguf"},
                                           {"q5_1", "w.gguf"},
                                           {"q4_0", "w.gguf"},
                                           {"fp8", "w.safetensors"},
                                           {"int8", "w.safetensors"}};
    lz_context *ctx = lz_open();
    for (int i = 0; i < 5; i++) {
        one_type(ctx, "B", types[i][0], types[i][1], "klein-few.safetensors", 1);
        one_type(ctx, "B", types[i][0], types[i][1], "klein-dora.safetensors", 1.5);
    }
    /* A matrix of 256 columns is turned by ConvRot: the LoRA reads what is not turned. */
    one_type(ctx, "A", "int8", "w.safetensors", NULL, 1);
    lz_close(ctx);
}

TEST_MAIN({"packed_bases", packed_bases})
