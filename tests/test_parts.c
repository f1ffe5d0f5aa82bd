/* test_parts.c: models from single files. Small models in the layout of diffusers are written as the files that people have, by
 * the tables of tests/data/names and by the rules of each maker; a picture of the files has the bits of the folder's. GGUF files
 * were written by the package gguf (tools/oracle/single_files.py). */
#include <sys/stat.h>

#include "check.h"
#include "folder.h"
#include "models/loader.h"
#include "models/signature.h"

#ifndef LZ_SOURCE_DIR
#define LZ_SOURCE_DIR "."
#endif
#define DATA LZ_SOURCE_DIR "/tests/data/"
#define KLEIN DATA "flux2/A"
#define PARTS DATA "parts/"
#define TURBO DATA "zimage/T"

/* ---- writing files ----------------------------------------------------------------------------------------------- */

enum { MOST = 2000 };
static lz_context *ctx;
static lz_scope *scope;
static struct {
    char name[200];
    lz_array *pieces[3];
    int n;
} entries[MOST];
static int n_entries;

static void put(const char *prefix, const char *name, lz_array *a) {
    char whole[200];
    snprintf(whole, sizeof whole, "%s%s", prefix, name);
    int i = 0;
    while (i < n_entries && strcmp(entries[i].name, whole) != 0) i++;
    if (i == n_entries) {
        snprintf(entries[n_entries].name, sizeof entries[0].name, "%s", whole);
        entries[n_entries++].n = 0;
    }
    entries[i].pieces[entries[i].n++] = a;
}

/* What was put, as a file; pieces of one name follow each other. */
static const char *write_file(const char *name) {
    static lz_named_array arrays[MOST];
    lz_error err = {0};
    for (int i = 0; i < n_entries; i++) {
        lz_array *whole = entries[i].n > 1 ? lz_concat(entries[i].pieces, entries[i].n, 0) : entries[i].pieces[0];
        arrays[i] = (lz_named_array){entries[i].name, lz_contiguous(whole)};
    }
    const char *path = in_folder(name);
    CHECK_OK(lz_weights_save(ctx, path, arrays, n_entries, NULL, &err), &err);
    n_entries = 0;
    return path;
}

static lz_weights *open_weights(const char *path) {
    lz_error err = {0};
    lz_weights *w = lz_weights_open(ctx, path, &err);
    CHECK(w, "%s: %s", path, err.text);
    return w;
}

/* The tensors of a folder under the names of a table; what the table does not have keeps its name. Rows of one tensor are in
 * the order of the table's rows. */
static void put_by_table(const char *prefix, const char *folder_path, const char *table) {
    lz_weights *w = open_weights(folder_path);
    char path[300], line[600], file[128], engine[128], operation[80];
    snprintf(path, sizeof path, DATA "names/%s.tsv", table);
    FILE *f = fopen(path, "r");
    CHECK(f && fgets(line, sizeof line, f));
    while (f && fgets(line, sizeof line, f)) {
        sscanf(line, "%127[^\t]\t%*[^\t]\t%127[^\t]\t%79[^\n]", file, engine, operation);
        if (!lz_weights_has(w, engine)) continue;
        lz_array *a = lz_weights_get(w, engine);
        lz_dims d = lz_shape(a);
        if (!strncmp(operation, "swap", 4)) {
            int64_t half = d.at[0] / 2;
            put(prefix, file, lz_slice(a, 0, half, 2 * half, 1));
            put(prefix, file, lz_slice(a, 0, 0, half, 1));
        } else
            put(prefix, file, strncmp(operation, "drop", 4) ? a : lz_reshape(a, LZ_DIMS(d.at[0], d.at[1], 1, 1)));
    }
    if (f) fclose(f);
    lz_weights_close(w);
}

/* As they are; "model." becomes stem. */
static void put_all(const char *stem, const char *folder_path) {
    lz_weights *w = open_weights(folder_path);
    for (int64_t i = 0, n = lz_weights_count(w); i < n; i++) {
        const char *name = lz_weights_name(w, i);
        bool inside = !strncmp(name, "model.", 6);
        put(inside ? stem : "", inside ? name + 6 : name, lz_weights_get(w, name));
    }
    lz_weights_close(w);
}

/* The same with q, k, v as one matrix, and gate and up. */
static void put_fused(const char *folder_path) {
    static const char *const from[] = {".q_proj.", ".k_proj.", ".v_proj.", ".gate_proj.", ".up_proj."};
    lz_weights *w = open_weights(folder_path);
    for (int part = -1; part < 5; part++)
        for (int64_t i = 0, n = lz_weights_count(w); i < n; i++) {
            const char *name = lz_weights_name(w, i), *at = NULL;
            int found = -1;
            for (int k = 0; k < 5; k++)
                if (strncmp(name, "visual", 6) != 0 && strstr(name, from[k])) at = strstr(name, from[found = k]);
            if (found != part) continue;
            char whole[200];
            if (at)
                snprintf(whole, sizeof whole, "%.*s%s%s", (int)(at - name), name,
                         part < 3 ? ".qkv_proj." : ".gate_up_proj.", at + strlen(from[part]));
            put("", at ? whole : name, lz_weights_get(w, name));
        }
    lz_weights_close(w);
}

/* ---- pictures ---------------------------------------------------------------------------------------------------- */

static void begin(void) {
    enter_folder();
    ctx = lz_open(.threads = 2);
    scope = lz_scope_begin(ctx, "parts");
}

static void end(void) {
    lz_scope_end(scope);
    lz_close(ctx);
    leave_folder();
}

static lz_image paint(const lz_model_options *options, int n_images) {
    lz_error err = {0};
    lz_picture p = {0};
    unsigned char pixels[64 * 64 * 3];
    for (int i = 0; i < (int)sizeof pixels; i++) pixels[i] = (unsigned char)(i * 7 + i / 64);
    lz_image image = {.width = 64, .height = 64, .pixels = pixels};
    lz_model *model = lz_model_open_with(ctx, options, &err);
    if (CHECK(model, "%s", err.text))
        CHECK_OK(lz_generate(model, &p, &err, .prompt = "a red fox in the snow", .seed = 3, .width = 64, .height = 64,
                             .steps = 2, .images = &image, .n_images = n_images, .guidance = n_images ? 4 : 0),
                 &err);
    lz_image result = p.image;
    p.image = (lz_image){0};
    lz_picture_free(&p);
    lz_model_close(model);
    return result;
}

static void check_same(const lz_image *want, const char *what, const lz_model_options *options, int n_images) {
    lz_image got = paint(options, n_images);
    bool same = got.pixels && want->pixels && got.width == want->width && got.height == want->height &&
                !memcmp(got.pixels, want->pixels, (size_t)(3 * got.width * got.height));
    CHECK(same, "%s: the picture is another one", what);
    lz_image_free(ctx, &got);
}
#define SAME(want, what, n_images, ...) check_same(want, what, &LZ_MODEL_OPTIONS(__VA_ARGS__), n_images)

/* Several files: Black Forest Labs, ComfyUI, everything in one, GGUF, a folder with an autoencoder of another. */
static void klein(void) {
    begin();
    lz_image want = paint(&LZ_MODEL_OPTIONS(.model = KLEIN, .vae = PARTS "klein_vae"), 0);
    put_by_table("", KLEIN "/transformer", "flux2-klein-4b");
    const char *transformer = write_file("flux-2-klein-4b.safetensors");
    put_all("model.", KLEIN "/text_encoder");
    const char *text = write_file("qwen_3_4b.safetensors");
    put_by_table("", PARTS "klein_vae", "flux2-vae");
    const char *vae = write_file("ae.safetensors"), *tokenizer = KLEIN "/tokenizer";
    SAME(&want, "Black Forest Labs", 0, .model = transformer, .text_encoder = text, .vae = vae, .tokenizer = tokenizer);
    SAME(&want, "tokenizer.json", 0, .model = transformer, .text_encoder = text, .vae = vae,
         .tokenizer = KLEIN "/tokenizer/tokenizer.json");
    SAME(&want, "folders as parts", 0, .model = transformer, .text_encoder = KLEIN "/text_encoder",
         .vae = PARTS "klein_vae", .tokenizer = KLEIN);
    /* Trap 13: a file with the names of diffusers. */
    put_all("model.", PARTS "klein_vae");
    const char *named = write_file("flux2-vae.safetensors");
    SAME(&want, "names of diffusers", 0, .model = transformer, .text_encoder = text, .vae = named,
         .tokenizer = tokenizer);
    put_all("model.", KLEIN "/transformer");
    named = write_file("diffusers.sft");
    SAME(&want, "a transformer of diffusers", 0, .model = named, .text_encoder = text, .vae = vae,
         .tokenizer = tokenizer);
    put_fused(KLEIN "/text_encoder");
    named = write_file("fused.safetensors");
    SAME(&want, "fused text encoder", 0, .model = transformer, .text_encoder = named, .vae = vae,
         .tokenizer = tokenizer);
    put_all("", KLEIN "/text_encoder");
    named = write_file("mflux.safetensors");
    SAME(&want, "text encoder of mflux", 0, .model = transformer, .text_encoder = named, .vae = vae,
         .tokenizer = tokenizer);
    /* Cut behind the last layer that is read, without the norm that belongs behind layer 28. */
    lz_weights *w = open_weights(KLEIN "/text_encoder");
    for (int64_t i = 0, n = lz_weights_count(w); i < n; i++) {
        const char *name = lz_weights_name(w, i);
        if (!strstr(name, "layers.27.") && strcmp(name, "model.norm.weight") != 0)
            put("", name, lz_weights_get(w, name));
    }
    lz_weights_close(w);
    named = write_file("cut.safetensors");
    SAME(&want, "cut text encoder", 0, .model = transformer, .text_encoder = named, .vae = vae, .tokenizer = tokenizer);
    /* Trap 16 */
    put_by_table("model.diffusion_model.", KLEIN "/transformer", "flux2-klein-4b");
    put_all("text_encoders.qwen3_4b.transformer.model.", KLEIN "/text_encoder");
    put_by_table("vae.", PARTS "klein_vae", "flux2-vae");
    named = write_file("checkpoint.safetensors");
    SAME(&want, "all in one", 0, .model = named, .tokenizer = tokenizer);
    SAME(&want, "GGUF", 0, .model = PARTS "klein.gguf", .text_encoder = PARTS "qwen3.gguf", .vae = vae);
    SAME(&want, "GGUF as a tokenizer", 0, .model = transformer, .text_encoder = text, .vae = vae,
         .tokenizer = PARTS "qwen3.gguf");
    lz_image_free(ctx, &want);
    end();
}

/* The names of mflux: in each, the first of these words becomes the second; and kernels have their channels last, as MLX has
 * them (trap 10), even those that look the same either way (3 x 3 of 3 colours). */
static void put_mflux(const char *folder_path) {
    static const char *const words[][2] = {
        {"attn.to_out.0", "attn.to_out"}, {"attentions.0.to_out.0", "attentions.0.to_out"}, {"timestep_embedder.", ""}};
    lz_weights *w = open_weights(folder_path);
    for (int64_t i = 0, n = lz_weights_count(w); i < n; i++) {
        const char *name = lz_weights_name(w, i);
        lz_array *a = lz_weights_get(w, name);
        char renamed[200];
        snprintf(renamed, sizeof renamed, "%s", name);
        for (size_t k = 0; k < sizeof words / sizeof *words; k++) {
            const char *at = strstr(name, words[k][0]);
            if (at)
                snprintf(renamed, sizeof renamed, "%.*s%s%s", (int)(at - name), name, words[k][1],
                         at + strlen(words[k][0]));
        }
        put("", renamed, lz_shape(a).n == 4 ? lz_permute(a, LZ_DIMS(0, 2, 3, 1)) : a);
    }
    lz_weights_close(w);
}

/* A part as a folder of its own, without a configuration. */
static void put_aside(const char *part) {
    char inside[64];
    CHECK(mkdir(in_folder(part), 0700) == 0);
    snprintf(inside, sizeof inside, "%s/0.safetensors", part);
    write_file(inside);
}

/* A folder that mflux wrote: parts without configurations, and no index. */
static void mflux(void) {
    static const char *const parts[] = {"transformer", "vae", "text_encoder"};
    begin();
    lz_image want = paint(&LZ_MODEL_OPTIONS(.model = KLEIN, .vae = PARTS "klein_vae"), 1);
    put_mflux(PARTS "klein_vae");
    put_aside("vae");
    SAME(&want, "an autoencoder of mflux", 1, .model = KLEIN, .vae = in_folder("vae"));
    put_mflux(KLEIN "/transformer");
    put_aside("transformer");
    put_all("", KLEIN "/text_encoder");
    put_aside("text_encoder");
    SAME(&want, "mflux", 1, .model = folder, .tokenizer = KLEIN "/tokenizer");
    for (int i = 0; i < 3; i++) {
        char inside[64];
        snprintf(inside, sizeof inside, "%s/0.safetensors", parts[i]);
        CHECK(unlink(in_folder(inside)) == 0 && rmdir(in_folder(parts[i])) == 0);
    }
    lz_image_free(ctx, &want);
    end();
}

/* With an image, so that the vision encoder and both halves of the autoencoder are used. */
static void qwen_image(void) {
    begin();
    lz_image want = paint(&LZ_MODEL_OPTIONS(.model = PARTS "qwen"), 1);
    put_all("model.", PARTS "qwen/transformer");
    const char *transformer = write_file("qwen_image_edit_2509_bf16.safetensors");
    lz_weights *w = open_weights(PARTS "qwen/transformer");
    for (int64_t i = 0, n = lz_weights_count(w); i < n; i++)
        put("model.diffusion_model.", lz_weights_name(w, i), lz_weights_get(w, lz_weights_name(w, i)));
    lz_weights_close(w);
    const char *prefixed = write_file("qwen.safetensors");
    put_all("model.", PARTS "qwen/text_encoder");
    const char *text = write_file("qwen_2.5_vl_7b.safetensors");
    put_by_table("", PARTS "qwen/vae", "qwen-image-vae");
    const char *vae = write_file("qwen_image_vae.safetensors"), *tokenizer = PARTS "qwen/tokenizer";
    SAME(&want, "ComfyUI", 1, .model = transformer, .text_encoder = text, .vae = vae, .tokenizer = tokenizer);
    put_fused(PARTS "qwen/text_encoder");
    const char *fused = write_file("fused.safetensors");
    SAME(&want, "a prefix, and a fused text encoder", 1, .model = prefixed, .text_encoder = fused, .vae = vae,
         .tokenizer = tokenizer, .variant = "edit-plus");
    SAME(&want, "given images tell", 1, .model = prefixed, .text_encoder = text, .vae = vae, .tokenizer = tokenizer);
    lz_image plain = paint(&LZ_MODEL_OPTIONS(.model = prefixed, .text_encoder = text, .vae = vae,
                                             .tokenizer = tokenizer, .variant = "text"),
                           0);
    SAME(&plain, "no images tell", 0, .model = prefixed, .text_encoder = text, .vae = vae, .tokenizer = tokenizer);
    lz_image_free(ctx, &plain);
    /* Trap 8: the mmproj file beside it has up and down exchanged. */
    SAME(&want, "GGUF", 1, .model = transformer, .text_encoder = PARTS "qwen2.5-vl.gguf", .vae = vae);
    lz_image_free(ctx, &want);
    end();
}

static const char *write_text(const char *name, const char *text) {
    const char *path = in_folder(name);
    FILE *f = fopen(path, "wb");
    CHECK(f && fputs(text, f) >= 0 && fclose(f) == 0);
    return path;
}

/* An autoencoder of FLUX.1: that of FLUX.2 without its statistics and 1x1 convolutions, as a folder and as a file. The folder
 * is the one of this test. */
static const char *write_flux1_vae(void) {
    lz_weights *w = open_weights(PARTS "klein_vae");
    for (int64_t i = 0, n = lz_weights_count(w); i < n; i++) {
        const char *name = lz_weights_name(w, i);
        if (!strncmp(name, "encoder.", 8) || !strncmp(name, "decoder.", 8)) put("", name, lz_weights_get(w, name));
    }
    lz_weights_close(w);
    write_file("diffusion_pytorch_model.safetensors");
    write_text("config.json",
               "{\"block_out_channels\": [32, 32, 64, 64], \"layers_per_block\": 1, \"latent_channels\": 32, "
               "\"norm_num_groups\": 32, \"use_quant_conv\": false, \"use_post_quant_conv\": false, "
               "\"scaling_factor\": 0.3611, \"shift_factor\": 0.1159}");
    put_by_table("", in_folder("diffusion_pytorch_model.safetensors"), "flux1-ae");
    return write_file("ae.safetensors");
}

static void z_image(void) {
    begin();
    const char *vae = write_flux1_vae(), *tokenizer = KLEIN "/tokenizer";
    lz_image want = paint(&LZ_MODEL_OPTIONS(.model = TURBO, .vae = folder), 0);
    put_by_table("", TURBO "/transformer", "z-image");
    const char *transformer = write_file("z_image_turbo_bf16.safetensors");
    put_by_table("model.diffusion_model.", TURBO "/transformer", "z-image");
    const char *prefixed = write_file("zimage.safetensors");
    put_all("model.", TURBO "/text_encoder");
    const char *text = write_file("qwen_3_4b.safetensors");
    SAME(&want, "ComfyUI", 0, .model = transformer, .text_encoder = text, .vae = vae, .tokenizer = tokenizer);
    SAME(&want, "a prefix", 0, .model = prefixed, .text_encoder = text, .vae = vae, .tokenizer = tokenizer,
         .variant = "distilled");
    SAME(&want, "GGUF", 0, .model = transformer, .text_encoder = PARTS "qwen3.gguf", .vae = vae);
    SAME(&want, "names of diffusers", 0, .model = TURBO "/transformer", .text_encoder = text, .vae = vae,
         .tokenizer = tokenizer, .variant = "distilled");
    lz_image_free(ctx, &want);
    end();
}

/* ---- what files do not tell -------------------------------------------------------------------------------------- */

static lz_model_facts facts_of(const lz_model_options *options) {
    lz_error err = {0};
    lz_model *model = lz_model_open_with(ctx, options, &err);
    CHECK(model, "%s", err.text);
    lz_model_facts facts = lz_model_about(model);
    lz_model_close(model);
    return facts;
}
#define FACTS(...) facts_of(&LZ_MODEL_OPTIONS(__VA_ARGS__))

static void variants(void) {
    begin();
    static const char *const text = KLEIN "/text_encoder", *const vae = PARTS "klein_vae",
                             *const tokenizer = KLEIN "/tokenizer";
    put_by_table("", KLEIN "/transformer", "flux2-klein-4b");
    const char *distilled = write_file("klein-4b.safetensors");
    put_by_table("", KLEIN "/transformer", "flux2-klein-4b");
    const char *base = write_file("flux-2-klein-BASE-4b.safetensors");
    lz_model_facts f = FACTS(.model = distilled, .text_encoder = text, .vae = vae, .tokenizer = tokenizer);
    CHECK(f.distilled && f.guidance_built_in && f.steps == 4 && f.guidance == 1 && f.width == 1024);
    f = FACTS(.model = base, .text_encoder = text, .vae = vae, .tokenizer = tokenizer);
    CHECK(!f.distilled && f.steps == 50 && f.guidance == 4);
    char far[1024]; /* the name counts, however long the path is */
    const char *slash = strrchr(base, '/');
    int n = snprintf(far, sizeof far, "%.*s", slash ? (int)(slash - base) : 1, slash ? base : ".");
    for (int i = 0; i < 150; i++) n += snprintf(far + n, sizeof far - (size_t)n, "/.");
    snprintf(far + n, sizeof far - (size_t)n, "/%s", slash ? slash + 1 : base);
    f = FACTS(.model = far, .text_encoder = text, .vae = vae, .tokenizer = tokenizer);
    CHECK(!f.distilled && f.steps == 50 && f.guidance == 4, "a long path: %d steps", f.steps);
    f = FACTS(.model = distilled, .text_encoder = text, .vae = vae, .tokenizer = tokenizer, .variant = "base");
    CHECK(!f.distilled && f.steps == 50);
    f = FACTS(.model = base, .text_encoder = text, .vae = vae, .tokenizer = tokenizer, .variant = "distilled");
    CHECK(f.distilled && f.steps == 4);

    /* The model for cached references has the tensors of the others. The name tells, or the variant. */
    static const char *const names[] = {"klein-4b.safetensors", "flux-2-klein-9b-kv.safetensors", "klein_KV_fp8", "mkv",
                                        "klein-kvasir.safetensors"};
    lz_image usual = paint(
                 &LZ_MODEL_OPTIONS(.model = distilled, .text_encoder = text, .vae = vae, .tokenizer = tokenizer), 1),
             cached = {0};
    for (int i = 0; i < 5; i++) {
        put_by_table("", KLEIN "/transformer", "flux2-klein-4b");
        const char *file = write_file(names[i]);
        bool told = i == 1 || i == 2;
        lz_image got = paint(&LZ_MODEL_OPTIONS(.model = file, .text_encoder = text, .vae = vae, .tokenizer = tokenizer,
                                               .variant = i ? NULL : "kv"),
                             1);
        bool same = !memcmp(got.pixels, usual.pixels, (size_t)(3 * got.width * got.height));
        CHECK(same == (i >= 3), "%s: %s references", names[i], same ? "usual" : "cached");
        f = FACTS(.model = file, .text_encoder = text, .vae = vae, .tokenizer = tokenizer, .variant = i ? NULL : "kv");
        CHECK(f.references_once == (i < 3), "%s", names[i]);
        if (i == 0) cached = got;
        if (told) CHECK(!memcmp(got.pixels, cached.pixels, (size_t)(3 * got.width * got.height)), "%s", names[i]);
        if (told)
            SAME(&usual, names[i], 1, .model = file, .text_encoder = text, .vae = vae, .tokenizer = tokenizer,
                 .variant = "distilled");
        if (i) lz_image_free(ctx, &got);
    }
    lz_image_free(ctx, &cached);
    lz_image_free(ctx, &usual);

    static const struct {
        const char *name, *variant;
        int least, most, steps;
        bool marked, distilled;
    } cases[] = {
        {"qwen_image_bf16", NULL, 0, 0, 50, false, false},
        {"qwen_image_edit_bf16", NULL, 1, 1, 50, false, false},
        {"qwen_image_2509", NULL, 1, LZ_MAX_IMAGES, 40, false, false},
        {"Qwen-Image-Edit-2511-Q4", NULL, 1, LZ_MAX_IMAGES, 40, false, false},
        {"marked", NULL, 1, LZ_MAX_IMAGES, 40, true, false},
        {"plain", "edit", 1, 1, 50, false, false},
        {"qwen_image_edit", "text", 0, 0, 50, false, false},
        {"qwen_image_Lightning_8steps", NULL, 0, 0, 8, false, true},
        {"qwen_image_lightning-4steps", NULL, 0, 0, 4, false, true},
        {"renamed", NULL, 0, LZ_MAX_IMAGES, 50, false, false}, /* whether images are given tells */
        {"renamed", "text", 0, 0, 50, false, false},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        put_all("model.", PARTS "qwen/transformer");
        if (cases[i].marked) put("", "__index_timestep_zero__", lz_full(ctx, LZ_DIMS(0), LZ_F32, 0));
        const char *path = write_file(cases[i].name);
        f = FACTS(.model = path, .text_encoder = PARTS "qwen/text_encoder", .vae = PARTS "qwen/vae",
                  .tokenizer = PARTS "qwen/tokenizer", .variant = cases[i].variant);
        CHECK(f.least_images == cases[i].least && f.most_images == cases[i].most && f.steps == cases[i].steps &&
                  f.distilled == cases[i].distilled,
              "%s: %d to %d images, %d steps", cases[i].name, f.least_images, f.most_images, f.steps);
    }
    put_by_table("", TURBO "/transformer", "z-image");
    const char *file = write_file("z_image_bf16.safetensors"), *ae = write_flux1_vae();
    for (int turbo = 0; turbo < 2; turbo++) {
        f = FACTS(.model = file, .text_encoder = PARTS "qwen3.gguf", .vae = ae, .variant = turbo ? "distilled" : NULL);
        CHECK(f.distilled == turbo && f.steps == (turbo ? 8 : 50), "%d steps", f.steps);
    }
    CHECK(FACTS(.model = TURBO).distilled && !FACTS(.model = TURBO, .variant = "base").distilled);
    end();
}

static void keep_note(void *user, lz_log_level level, const char *text) {
    (void)level;
    snprintf(user, 600, "%s", text);
}

/* Trap 14: the autoencoder of Wan 2.1 has the names and shapes of Qwen-Image's. Only its file's name tells. */
static void wan(void) {
    char note[600] = "";
    begin();
    lz_scope_end(scope);
    lz_close(ctx);
    ctx = lz_open(.threads = 1, .log = keep_note, .log_user = note);
    scope = lz_scope_begin(ctx, "wan");
    for (int i = 0; i < 2; i++) {
        put_by_table("", PARTS "qwen/vae", "qwen-image-vae");
        const char *vae = write_file(i ? "Wan2.1_VAE.safetensors" : "qwen_image_vae.safetensors");
        FACTS(.model = PARTS "qwen", .vae = vae);
        CHECK(i ? strstr(note, "an autoencoder of Wan") != NULL : !*note, "%s", note);
    }
    end();
}

/* What a beginner gives by mistake, and what is said. */
static void check_refused(const char *words, const lz_model_options *options) {
    lz_error err = {0};
    lz_model *model = lz_model_open_with(ctx, options, &err);
    CHECK(!model && err.status, "was opened, instead of: %s", words);
    if (!model) CHECK_TEXT(err.text, words);
    lz_model_close(model);
}
#define REFUSED(words, ...) check_refused(words, &LZ_MODEL_OPTIONS(__VA_ARGS__))

/* Qwen3-4B that ends after layer 2: its state before the last layer is not that of the complete model. */
static const char *write_cut_encoder(void) {
    static const struct {
        const char *name;
        int64_t dims[2];
    } rows[] = {{"input_layernorm", {2560}},     {"self_attn.q_proj", {8, 2560}},     {"self_attn.k_proj", {8, 2560}},
                {"self_attn.v_proj", {8, 2560}}, {"self_attn.q_norm", {8}},           {"self_attn.k_norm", {8}},
                {"self_attn.o_proj", {2560, 8}}, {"mlp.gate_proj", {4, 2560}},        {"mlp.up_proj", {4, 2560}},
                {"mlp.down_proj", {2560, 4}},    {"post_attention_layernorm", {2560}}};
    put("", "model.embed_tokens.weight", lz_full(ctx, LZ_DIMS(640, 2560), LZ_F32, 0));
    for (int layer = 0; layer < 2; layer++)
        for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
            char name[100];
            snprintf(name, sizeof name, "model.layers.%d.%s.weight", layer, rows[i].name);
            lz_dims d = {.n = rows[i].dims[1] ? 2 : 1, .at = {rows[i].dims[0], rows[i].dims[1]}};
            put("", name, lz_full(ctx, d, LZ_F32, 1));
        }
    return write_file("cut.safetensors");
}

static void refused_z_image(void) {
    begin();
    put_by_table("", TURBO "/transformer", "z-image");
    const char *transformer = write_file("z_image_turbo.safetensors");
    REFUSED("lacks its text encoder, which is given with --text-encoder: Qwen3-4B", .model = transformer);
    REFUSED("a FLUX.1 autoencoder is needed, and this is a FLUX.2 autoencoder", .model = transformer,
            .text_encoder = PARTS "qwen3.gguf", .vae = PARTS "klein_vae/diffusion_pytorch_model.safetensors");
    REFUSED("reads the state after layer 35, but there are 2", .model = transformer,
            .text_encoder = write_cut_encoder(), .tokenizer = KLEIN "/tokenizer", .vae = write_flux1_vae());
    end();
}

static void refused(void) {
    begin();
    put_by_table("", KLEIN "/transformer", "flux2-klein-4b");
    const char *transformer = write_file("klein.safetensors"), *text = KLEIN "/text_encoder", *vae = PARTS "klein_vae",
               *tokenizer = KLEIN "/tokenizer";
    REFUSED("lacks its text encoder, which is given with --text-encoder: Qwen3-4B", .model = transformer);
    REFUSED("lacks its autoencoder, which is given with --vae: flux2-vae.safetensors", .model = transformer,
            .text_encoder = text, .tokenizer = tokenizer);
    put_all("model.", KLEIN "/text_encoder");
    const char *alone = write_file("text.safetensors");
    REFUSED("lacks its tokenizer, which is given with --tokenizer", .model = transformer, .text_encoder = alone,
            .vae = vae);
    REFUSED("a FLUX.2 autoencoder is needed, and this is a Qwen-Image autoencoder", .model = transformer,
            .text_encoder = text, .tokenizer = tokenizer, .vae = PARTS "qwen/vae/diffusion_pytorch_model.safetensors");
    REFUSED("a Qwen3 text encoder is needed, and this is a Qwen2.5-VL text encoder", .model = transformer,
            .text_encoder = PARTS "qwen2.5-vl.gguf", .tokenizer = tokenizer, .vae = vae);
    REFUSED("this is a FLUX.2 autoencoder, a part of a model: name the transformer with -m, and this file with --vae",
            .model = PARTS "klein_vae/diffusion_pytorch_model.safetensors");
    REFUSED("this is a Qwen3 text encoder, a part of a model", .model = PARTS "qwen3.gguf");
    /* Trap of the parts: C is three times the hidden size of the text encoder. */
    put_all("model.", DATA "flux2/B/text_encoder");
    const char *other = write_file("other.safetensors");
    lz_weights *w = open_weights(KLEIN "/text_encoder");
    for (int64_t i = 0, n = lz_weights_count(w); i < n; i++) { /* wider by half: three times 36 features */
        lz_array *a = lz_weights_get(w, lz_weights_name(w, i));
        lz_dims d = lz_shape(a), before = LZ_NONE, behind = LZ_NONE;
        before.n = behind.n = d.n;
        for (int k = 0; k < d.n; k++) behind.at[k] = d.at[k] == 24 ? 12 : 0;
        put("", lz_weights_name(w, i), lz_pad(a, before, behind, 0));
    }
    lz_weights_close(w);
    const char *wide = write_file("wide.safetensors");
    REFUSED("wide.safetensors: the text encoder gives 108 features and the transformer reads 72", .model = transformer,
            .text_encoder = wide, .vae = vae, .tokenizer = tokenizer);
    REFUSED("reads the state after layer 27, but there are 4", .model = transformer, .text_encoder = other, .vae = vae,
            .tokenizer = tokenizer);
    lz_array *one = lz_full(ctx, LZ_DIMS(2, 2), LZ_F32, 1);
    static const struct {
        const char *tensor, *words;
    } files[] = {
        {"diffusion_model.double_blocks.0.img_attn.qkv.lora_A.weight", "it is a LoRA"},
        {"lora_unet_double_blocks_0_img_attn_qkv.lora_down.weight", "it is a LoRA"},
        {"lycoris_blocks_0.lokr_w1", "it is a LoRA"},
        {"transformer_blocks.0.attn.to_qkv.wscales", "it is a Nunchaku file"},
        {"guidance_in.in_layer.weight", "FLUX.2 [dev]"},
        {"double_blocks.0.img_mod.lin.weight", "FLUX.1"},
        {"siglip_embedder.1.weight", "Z-Image-Omni"},
        {"something.else", "no model that is known here"},
    };
    for (size_t i = 0; i < sizeof files / sizeof *files; i++) {
        put("", files[i].tensor, one);
        REFUSED(files[i].words, .model = write_file("odd.safetensors"));
    }
    put("", "cap_embedder.1.weight", lz_full(ctx, LZ_DIMS(2304, 2), LZ_F32, 1));
    put("", "noise_refiner.0.attention.k_norm.weight", one);
    REFUSED("it is Lumina 2", .model = write_file("lumina.safetensors"));
    REFUSED("PyTorch", .model = write_text("model.ckpt", "PK\3\4 and so on, a zip file of pickles"));
    REFUSED("not a model folder", .model = in_folder("nothing"));
    REFUSED("a variant of a model is", .model = KLEIN, .variant = "fast");
    REFUSED("holds no tokenizer", .model = transformer, .text_encoder = text, .vae = vae, .tokenizer = transformer);
    end();
}

/* ---- what is said of a file -------------------------------------------------------------------------------------- */

static void about(void) {
    begin();
    lz_error err = {0};
    lz_file_facts f;
    CHECK_OK(lz_file_about(ctx, PARTS "klein.gguf", &f, &err), &err);
    CHECK_TEXT(f.what, "a FLUX.2 [klein] transformer");
    CHECK_TEXT(f.needs, "a text encoder (--text-encoder), an autoencoder (--vae), a tokenizer (--tokenizer)");
    CHECK(f.transformer && !f.text_encoder && !f.vae && !f.vision && !f.tokenizer && !*f.refused);
    CHECK_OK(lz_file_about(ctx, PARTS "qwen3.gguf", &f, &err), &err);
    CHECK(!f.transformer && f.text_encoder && f.tokenizer && !f.vision && !*f.needs);
    CHECK_OK(lz_file_about(ctx, TURBO "/transformer", &f, &err), &err);
    CHECK_TEXT(f.what, "a Z-Image transformer");
    CHECK(f.transformer && !*f.refused && *f.needs);
    CHECK_OK(lz_file_about(ctx, PARTS "mmproj-qwen2.5-vl.gguf", &f, &err), &err);
    CHECK(f.vision && !f.text_encoder);
    CHECK_OK(lz_file_about(ctx, PARTS "qwen/text_encoder", &f, &err), &err);
    CHECK(f.vision && f.text_encoder && !f.vae);
    CHECK(!f.lora);
    put("", "a.lora_A.weight", lz_full(ctx, LZ_DIMS(1), LZ_F32, 0));
    CHECK_OK(lz_file_about(ctx, write_file("lora.safetensors"), &f, &err), &err);
    CHECK_TEXT(f.refused, "LoRA");
    CHECK(f.lora && strcmp(f.what, "a LoRA") == 0, "%s", f.what);
    end();
}

static char *read_whole(const char *path, int64_t *bytes) {
    FILE *file = fopen(path, "rb");
    CHECK(file && fseek(file, 0, SEEK_END) == 0);
    *bytes = file ? ftell(file) : 0;
    char *data = malloc((size_t)*bytes + 1);
    CHECK(data && file && fseek(file, 0, SEEK_SET) == 0 && fread(data, 1, (size_t)*bytes, file) == (size_t)*bytes);
    if (file) fclose(file);
    return data;
}

/* The start of the data, from the sizes of all tensors: they end with the file. */
static int64_t start_of_data(const char *path, int64_t file, int64_t alignment) {
    int64_t sum = 0;
    lz_weights *w = open_weights(path);
    for (int64_t i = 0, n = lz_weights_count(w); i < n; i++)
        sum += (lz_weights_bytes(w, lz_weights_name(w, i)) + alignment - 1) / alignment * alignment;
    lz_weights_close(w);
    return file - sum;
}

/* The first bytes of a file tell what it is, and how many of them are needed. */
static void head(void) {
    static const struct {
        const char *path;
        int64_t alignment;
    } cases[] = {{PARTS "klein.gguf", 32},
                 {PARTS "qwen3.gguf", 32},
                 {PARTS "klein_vae/diffusion_pytorch_model.safetensors", 1},
                 {PARTS "qwen/text_encoder/model.safetensors", 1}};
    begin();
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        int64_t bytes, a = cases[i].alignment;
        lz_error err = {0};
        lz_file_facts whole, hollow;
        char *data = read_whole(cases[i].path, &bytes);
        int64_t n = lz_weights_head(data, bytes);
        CHECK_I64((n + a - 1) / a * a, start_of_data(cases[i].path, bytes, a));
        for (int64_t k = 0; k < n; k += k < 2000 ? 1 : 997)
            CHECK(lz_weights_head(data, k) > k, "%s: %lld bytes are enough", cases[i].path, (long long)k);
        CHECK_I64(lz_weights_head(data, n), n);
        memset(data + n, 0, (size_t)(bytes - n));
        FILE *file = fopen(in_folder("hollow"), "wb");
        CHECK(file && fwrite(data, 1, (size_t)bytes, file) == (size_t)bytes && fclose(file) == 0);
        CHECK_OK(lz_file_about(ctx, cases[i].path, &whole, &err), &err);
        CHECK_OK(lz_file_about(ctx, in_folder("hollow"), &hollow, &err), &err);
        CHECK(memcmp(&whole, &hollow, sizeof whole) == 0 && *whole.what, "%s: %s", whole.what, hollow.what);
        if (i == 0) { /* a damaged header is no header, however long */
            data[8] = data[9] = data[10] = (char)0xff;
            CHECK_I64(lz_weights_head(data, n), -1);
        }
        free(data);
    }
    CHECK_I64(lz_weights_head(NULL, 5), -1);
    CHECK_I64(lz_weights_head("PK\003\004 a zip file", 20), -1);
    end();
}

/* ---- traps of formats -------------------------------------------------------------------------------------------- */

/* Trap 7: pad tokens are [1, D] in safetensors and [D] in GGUF. */
static void pad_tokens(void) {
    enum { D = 8 };
    typedef struct model {
        lz_param *pad, *caption;
    } model;
    static const lz_weight rows[] = {{"x_pad_token", offsetof(model, pad), {1, 2}},
                                     {"cap_pad_token", offsetof(model, caption), {1, 2}}};
    static const int64_t sizes[] = {0, 1, D};
    begin();
    lz_error err = {0};
    char paths[3][300];
    for (int i = 0; i < 2; i++) {
        lz_array *numbers = lz_arange(ctx, 1, D + 1, 1, LZ_F32);
        put("", "cap_embedder.1.weight", lz_full(ctx, LZ_DIMS(D, 4), LZ_F32, 0));
        put("", "noise_refiner.0.attention.k_norm.weight", lz_full(ctx, LZ_DIMS(2), LZ_F32, 0));
        put("", "x_pad_token", i ? numbers : lz_reshape(numbers, LZ_DIMS(1, D)));
        put("", "cap_pad_token", lz_mul(i ? numbers : lz_reshape(numbers, LZ_DIMS(1, D)), -1.0));
        snprintf(paths[i], sizeof paths[i], "%s", write_file(i ? "flat.safetensors" : "rows.safetensors"));
    }
    snprintf(paths[2], sizeof paths[2], "%s", in_folder("flat.gguf"));
    CHECK_OK(lz_convert(ctx, paths[1], paths[2], &LZ_CONVERT_OPTIONS(.type = "f32"), &err), &err);
    for (int i = 0; i < 3; i++) {
        lz_loader l;
        model m = {.pad = NULL};
        if (!CHECK_OK(lz_loader_open(&l, ctx, paths[i], &lz_names_z_image, sizes, &err), &err)) continue;
        CHECK(lz_weights_shape(l.weights, "x_pad_token").n == (i ? 1 : 2), "trap 7: %s", paths[i]);
        lz_loader_take(&l, "", LZ_ROWS(rows), &m);
        if (CHECK_OK(lz_loader_close(&l, &err), &err)) {
            const float *x = lz_data(lz_dense(m.pad), &err), *y = lz_data(lz_dense(m.caption), &err);
            lz_dims d = lz_shape(lz_dense(m.pad));
            CHECK(x && y && d.n == 2 && d.at[0] == 1 && d.at[1] == D, "trap 7: %s", paths[i]);
            for (int k = 0; k < D && x && y; k++)
                CHECK(x[k] == (float)(k + 1) && y[k] == (float)(-k - 1), "trap 7: %s", paths[i]);
        }
        lz_loader_release(LZ_ROWS(rows), &m);
    }
    end();
}

/* Trap 9: rope.freq_base of a GGUF file counts. That of Qwen3-4B is 1e6; Qwen3-4B-Instruct-2507, which people use
 * in the place of Qwen3-4B, has 5e6. */
static void rope_base(void) {
    static const char key[] = "qwen3.rope.freq_base";
    begin();
    lz_error err = {0};
    int64_t bytes;
    char *data = read_whole(PARTS "qwen3.gguf", &bytes), *at = data;
    while (at < data + bytes - (int64_t)sizeof key && memcmp(at, key, sizeof key - 1) != 0) at++;
    char *value = at + sizeof key - 1 + 4; /* after the type */
    const float other = 5e6F;
    const char *const vae = PARTS "klein_vae";
    lz_image usual = paint(
        &LZ_MODEL_OPTIONS(.model = PARTS "klein.gguf", .text_encoder = PARTS "qwen3.gguf", .vae = vae), 0);
    for (int i = 0; i < 2; i++) {
        lz_config c;
        if (i) memcpy(value, &other, sizeof other);
        FILE *file = fopen(in_folder("qwen3.gguf"), "wb");
        CHECK(file && fwrite(data, 1, (size_t)bytes, file) == (size_t)bytes && fclose(file) == 0);
        if (!CHECK_OK(lz_component_config(&c, ctx, in_folder("qwen3.gguf"), &lz_names_qwen3, &err), &err)) continue;
        CHECK(json_number_value(json_object_get(c.root, "rope_theta")) == (i ? 5e6 : 1e6), "trap 9");
        lz_config_close(&c);
    }
    lz_image changed = paint(
        &LZ_MODEL_OPTIONS(.model = PARTS "klein.gguf", .text_encoder = in_folder("qwen3.gguf"), .vae = vae), 0);
    CHECK(usual.pixels && changed.pixels && memcmp(usual.pixels, changed.pixels, 3 * 64 * 64) != 0, "trap 9");
    lz_image_free(ctx, &usual);
    lz_image_free(ctx, &changed);
    free(data);
    end();
}

static char remarks[4][600];
static int n_remarks;
static void keep_remark(void *user, lz_log_level level, const char *text) {
    (void)user;
    if (level == LZ_LOG_REMARK && n_remarks < 4) snprintf(remarks[n_remarks++], sizeof remarks[0], "%s", text);
}

/* Tensors that belong to nothing are ignored with one remark for each file, also if the text encoder is opened for
 * several pictures. Those of other parts, of blocks that are not needed, and markers are no such tensors. */
static void ignored(void) {
    static const char *const tokenizer = KLEIN "/tokenizer", *const vae = PARTS "klein_vae";
    begin();
    lz_image want = paint(&LZ_MODEL_OPTIONS(.model = KLEIN, .vae = vae), 0);
    lz_scope_end(scope);
    lz_close(ctx);
    ctx = lz_open(.threads = 2, .log = keep_remark);
    scope = lz_scope_begin(ctx, "ignored");
    lz_array *one = lz_full(ctx, LZ_DIMS(1), LZ_F32, 0);
    n_remarks = 0;
    put_by_table("model.diffusion_model.", KLEIN "/transformer", "flux2-klein-4b");
    put_all("text_encoders.qwen3_4b.transformer.model.", KLEIN "/text_encoder");
    put_by_table("vae.", PARTS "klein_vae", "flux2-vae");
    put("", "text_encoders.qwen3_4b.logit_scale", one);
    put("model.diffusion_model.", "scaled_fp8", one);
    SAME(&want, "all in one", 0, .model = write_file("checkpoint.safetensors"), .tokenizer = tokenizer);
    CHECK(n_remarks == 0, "%s", remarks[0]);
    SAME(&want, "GGUF", 0, .model = PARTS "klein.gguf", .text_encoder = PARTS "qwen3.gguf", .vae = vae);
    CHECK(n_remarks == 0, "%s", remarks[0]);

    put_by_table("", KLEIN "/transformer", "flux2-klein-4b");
    put("", "norm_final.weight", one);
    put("", "ema.decay", one);
    const char *transformer = write_file("klein.safetensors");
    put_all("", KLEIN "/text_encoder");
    put("", "model.surplus", one);
    const char *text = write_file("qwen_3_4b.safetensors");
    for (int i = 0; i < 2; i++)
        SAME(&want, "more tensors", 0, .model = transformer, .text_encoder = text, .vae = vae, .tokenizer = tokenizer);
    CHECK_I64(n_remarks, 2);
    const char *first = strstr(remarks[0], "klein.safetensors") ? remarks[0] : remarks[1],
               *second = first == remarks[0] ? remarks[1] : remarks[0];
    CHECK(strstr(first, "klein.safetensors: 2 tensors are no part of the model and are ignored, such as 'ema.decay'"),
          "%s", first);
    CHECK(strstr(second, "qwen_3_4b.safetensors: 1 tensor is no part of the model and is ignored, such as"), "%s",
          second);
    lz_image_free(ctx, &want);
    end();
}

TEST_MAIN({"klein", klein}, {"mflux", mflux}, {"qwen_image", qwen_image}, {"z_image", z_image}, {"variants", variants},
          {"wan", wan}, {"refused", refused}, {"refused_z_image", refused_z_image}, {"about", about}, {"head", head},
          {"pad_tokens", pad_tokens}, {"rope_base", rope_base}, {"ignored", ignored})
