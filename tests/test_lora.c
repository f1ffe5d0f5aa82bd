/* test_lora.c: LoRA files against NumPy (what they do to weights) and against diffusers (what they do to pictures). The files and
 * values are made by tools/oracle/lora.py, which says what tests/data/lora holds. */
#include "base/base.h"
#include "diffusers.h"
#include "folder.h"
#include "io/weights.h"
#include "models/lora.h"
#include "models/lora_keys.h"
#include "models/param.h"

#define DATA LZ_SOURCE_DIR "/tests/data/"
#define LORAS DATA "lora/"

/* ---- models of a few weights ------------------------------------------------------------------------------------- */

enum { PARAMS = 64 };

typedef struct small_model {
    lz_context *ctx;
    lz_weights *archive;
    lz_targets *targets[2]; /* of the transformer, of the text encoder: one of them is empty */
    lz_targets *full;
    lz_param *params[PARAMS];
    int n;
    const char *table;
} small_model;

static bool open_small(small_model *m, lz_context *ctx, const char *table) {
    lz_error err = {0};
    *m = (small_model){.ctx = ctx, .table = table, .archive = lz_weights_open(ctx, LORAS "merges.safetensors", &err)};
    if (!CHECK(m->archive != NULL, "%s", err.text)) return false;
    for (int i = 0; i < 2; i++) m->targets[i] = lz_targets_new(ctx);
    m->full = m->targets[!strcmp(table, "text")];
    char prefix[64];
    snprintf(prefix, sizeof prefix, "base/%s/", table);
    for (int64_t i = 0; i < lz_weights_count(m->archive); i++) {
        const char *name = lz_weights_name(m->archive, i);
        if (strncmp(name, prefix, strlen(prefix)) != 0) continue;
        lz_array *w = lz_weights_get(m->archive, name);
        lz_param *p = lz_param_new(ctx, name + strlen(prefix), NULL, lz_shape(w), LZ_F32, &w, 1, &err);
        lz_target *t = lz_targets_add(m->full, p->name, lz_shape(w));
        p->target = t;
        t->param = p;
        m->params[m->n++] = p;
    }
    return CHECK(m->n > 3, "%d weights of %s", m->n, table);
}

static void close_small(small_model *m) {
    for (int i = 0; i < 2; i++) lz_targets_free(m->targets[i]);
    for (int i = 0; i < m->n; i++) lz_param_free(m->params[i]);
    lz_weights_close(m->archive);
}

/* Reads a LoRA that lies in the archive. */
static lz_status read_lora(small_model *m, const char *name, double weight, bool partial, lz_lora_report *report,
                           lz_error *err) {
    char key[256];
    snprintf(key, sizeof key, "file/%s/%s", m->table, name);
    lz_array *file = lz_weights_get(m->archive, key);
    const void *bytes = lz_data(file, err);
    if (!bytes) return LZ_NOT_FOUND;
    lz_weights *w = lz_weights_open_memory(m->ctx, name, bytes, lz_size(file), err);
    if (!w) return LZ_BAD_FILE;
    lz_status status = lz_lora_read_weights(m->ctx, name, w, weight, partial, m->targets[0], m->targets[1], report,
                                            err);
    lz_weights_close(w);
    return status;
}

static void build_small(small_model *m) {
    lz_error err = {0};
    for (int i = 0; i < m->n; i++)
        CHECK_OK(lz_patch_build((lz_target *)m->params[i]->target, m->params[i]->value, &err), &err);
}

static lz_array *probe(lz_context *ctx, int64_t n) {
    float x[2 * 64];
    for (int row = 0; row < 2; row++)
        for (int64_t i = 0; i < n; i++) x[row * n + i] = (float)sin(1 + 0.7 * (double)i + 2.1 * row);
    return lz_from(ctx, LZ_DIMS(2, n), LZ_F32, x);
}

/* What a weight does now: [2, out], or the vector itself. */
static lz_array *look_at(lz_context *ctx, const lz_param *p) {
    lz_dims d = lz_shape(p->value);
    if (d.n == 1) return lz_dense(p);
    return lz_apply(lz_cast(probe(ctx, d.at[1]), lz_compute_type(ctx)), p, NULL);
}

static void check_case(small_model *m, const char *name, double tolerance) {
    int changed = 0;
    for (int i = 0; i < m->n; i++) {
        lz_scope *scope = lz_scope_begin(m->ctx, name);
        const lz_param *p = m->params[i];
        char key[400];
        snprintf(key, sizeof key, "want/%s/%s/%s", m->table, name, p->name);
        key[strlen(key) - strlen(".weight")] = 0;
        bool there = lz_weights_has(m->archive, key);
        changed += there;
        CHECK(there == (p->target->patch != NULL), "%s: '%s' is %schanged", name, p->name, there ? "not " : "");
        lz_array *y = look_at(m->ctx, p);
        double e = there ? relative_error(y, lz_weights_get(m->archive, key)) : 0;
        CHECK(e < tolerance, "%s: '%s' is off by %g", name, p->name, e);
        int64_t rows = lz_shape(p->value).at[0];
        if (lz_shape(p->value).n == 2 && rows > 3) { /* the same rows alone */
            lz_array *x = lz_cast(probe(m->ctx, lz_shape(p->value).at[1]), lz_compute_type(m->ctx));
            e = relative_error(lz_contiguous(lz_apply_rows(x, p, 2, rows - 3)),
                               lz_contiguous(lz_slice(y, 1, 2, rows - 1, 1)));
            CHECK(e < tolerance, "%s: rows of '%s' are off by %g", name, p->name, e);
        }
        lz_scope_end(scope);
    }
    CHECK(changed > 0, "%s changes nothing", name);
}

static void drop_patches(small_model *m) {
    for (int i = 0; i < 2; i++) lz_targets_drop(m->targets[i], lz_targets_take(m->targets[i]));
}

/* Files whose names are joined by '+' together. */
static void run_merge(small_model *m, const char *cases, double weight, double tolerance) {
    char names[256];
    snprintf(names, sizeof names, "%s", cases);
    for (char *save, *name = strtok_r(names, "+", &save); name; name = strtok_r(NULL, "+", &save)) {
        lz_error err = {0};
        lz_lora_report report;
        lz_scope *scope = lz_scope_begin(m->ctx, name);
        CHECK_OK(read_lora(m, name, weight, false, &report, &err), &err);
        CHECK(report.used == report.modules, "%s: %d of %d modules", name, report.used, report.modules);
        lz_scope_end(scope);
    }
    build_small(m);
    check_case(m, cases, tolerance);
    drop_patches(m);
}

static int run_merges(lz_context *ctx, double tolerance) {
    static const char *const tables[] = {"klein", "qwen", "zimage", "text"};
    int n = 0;
    for (int t = 0; t < 4; t++) {
        small_model m;
        char line[512], table[32], name[256];
        FILE *f = fopen(LORAS "merges.txt", "r");
        if (!CHECK(f != NULL, "no merges") || !open_small(&m, ctx, tables[t])) return n;
        while (fgets(line, sizeof line, f)) {
            double weight = 1;
            if (sscanf(line, "%31s %255s weight=%lf", table, name, &weight) < 2 || strcmp(table, tables[t]) != 0)
                continue;
            run_merge(&m, name, weight, tolerance);
            n++;
        }
        fclose(f);
        close_small(&m);
    }
    return n;
}

static void against_numpy(void) {
    lz_context *ctx = lz_open();
    int n = run_merges(ctx, 3e-6);
    CHECK(n == 214, "%d merges", n);
    CHECK(lz_memory_info(ctx).active == 0, "%lld bytes are left", (long long)lz_memory_info(ctx).active);
    lz_close(ctx);
}

/* In bf16 the branches are rounded, and no more than that. */
static void in_bf16(void) {
    lz_context *ctx = lz_open(.compute = LZ_BF16);
    CHECK(run_merges(ctx, 0.02) == 214);
    lz_close(ctx);
}

/* ---- pictures ---------------------------------------------------------------------------------------------------- */

/* "a.safetensors=0.5,b.safetensors=-0.8" */
static int read_loras(char *list, lz_lora *to, char paths[][400]) {
    int n = 0;
    for (char *save, *each = strtok_r(list, ",", &save); each && n < 4; each = strtok_r(NULL, ",", &save)) {
        char *weight = strrchr(each, '=');
        *weight++ = 0;
        snprintf(paths[n], 400, LORAS "%s", each);
        to[n] = LZ_LORA(.path = paths[n], .weight = atof(weight));
        n++;
    }
    return n;
}

/* The picture of a case with LoRAs, or without; steps 0: the model's own. */
static bool paint(lz_model *model, const test_case *c, int steps, lz_picture *p) {
    lz_error err = {0};
    return CHECK_OK(lz_generate(model, p, &err, .prompt = c->prompt, .negative = c->negative, .width = c->width,
                                .height = c->height, .steps = steps, .guidance = steps ? c->guidance : 0,
                                .seed = c->seed),
                    &err);
}

static lz_model *open_model(lz_context *ctx, const char *data, const char *name) {
    char path[512];
    lz_error err = {0};
    snprintf(path, sizeof path, DATA "%s/%s", data, name);
    lz_model *model = lz_model_open(ctx, path, &err);
    CHECK(model != NULL, "%s", err.text);
    return model;
}

static bool equal_bits(lz_array *a, lz_array *b) {
    lz_error err = {0};
    const void *x = lz_data(a, &err), *y = lz_data(b, &err);
    return x && y && lz_size(a) == lz_size(b) && memcmp(x, y, (size_t)lz_size(a) * 4) == 0;
}

/* A picture with the case's LoRAs is diffusers'; with a weight of 0, and after they were taken away, it is the base's, bit
 * for bit. */
static void one_picture(lz_context *ctx, char *line) {
    char list[256] = "", data[32] = "", paths[4][400], path[600];
    const char *at = strstr(line, "loras=");
    if (!CHECK(at && sscanf(at, "loras=%255s data=%31s", list, data) == 2, "%s", line)) return;
    test_case c;
    read_case(line, &c);
    /* A LoRA for few steps brings its schedule along: the picture is that of the Lightning model. */
    bool lightning = !strcmp(c.model, "L");
    lz_error err = {0};
    lz_model *model = open_model(ctx, data, lightning ? "Q" : c.model);
    snprintf(path, sizeof path, LORAS "%s.golden.safetensors", c.name);
    lz_weights *golden = lz_weights_open(ctx, path, &err);
    if (!CHECK(model && golden, "%s", err.text)) return;
    lz_lora loras[4];
    int n = read_loras(list, loras, paths), steps = lightning ? 0 : c.steps;
    lz_picture before, with, zero, after;
    paint(model, &c, c.steps, &before);
    CHECK_OK(lz_model_set_loras(model, loras, n, &err), &err);
    if (paint(model, &c, steps, &with)) {
        double latents = relative_error(with.latents, lz_weights_get(golden, "latents")),
               picture = psnr(with.pixels, lz_weights_get(golden, "image"));
        CHECK(latents < 1e-4, "%s: latents %g", c.name, latents);
        CHECK(picture >= 60, "%s: %g dB", c.name, picture);
        CHECK(!equal_bits(before.latents, with.latents), "%s: nothing changed", c.name);
        CHECK(with.steps == c.steps, "%s: %d steps", c.name, with.steps);
        printf("    %-20s latents %.1e  %.1f dB\n", c.name, latents, picture);
        lz_picture_free(&with);
    }
    for (int i = 0; i < n; i++) loras[i].weight = 0;
    CHECK_OK(lz_model_set_loras(model, loras, n, &err), &err);
    CHECK(lz_model_loras(model, NULL, 0) == n);
    if (paint(model, &c, c.steps, &zero)) CHECK(equal_bits(before.latents, zero.latents), "%s: a weight of 0", c.name);
    CHECK_OK(lz_model_set_loras(model, NULL, 0, &err), &err);
    if (paint(model, &c, c.steps, &after)) CHECK(equal_bits(before.pixels, after.pixels), "%s: afterwards", c.name);
    lz_picture_free(&before);
    lz_picture_free(&zero);
    lz_picture_free(&after);
    lz_weights_close(golden);
    lz_model_close(model);
}

static void against_diffusers(void) {
    lz_context *ctx = lz_open();
    FILE *f = fopen(LORAS "pictures.txt", "r");
    char line[1024];
    int n = 0;
    while (f && fgets(line, sizeof line, f)) {
        lz_scope *scope = lz_scope_begin(ctx, "picture");
        one_picture(ctx, line);
        lz_scope_end(scope);
        n++;
    }
    CHECK(n == 7, "%d pictures", n);
    if (f) fclose(f);
    CHECK(lz_memory_info(ctx).active == 0, "%lld bytes are left", (long long)lz_memory_info(ctx).active);
    lz_close(ctx);
}

/* ---- traps of the formats, by number ------------------------------------------------------------------------------------------------------- */

/* Tensors of zeros, to be saved as a LoRA. */
typedef struct made_file {
    lz_context *ctx;
    lz_named_array list[64];
    char names[64][160];
    int n;
} made_file;

static void add_zeros(made_file *f, const char *name, lz_dims dims) {
    snprintf(f->names[f->n], sizeof f->names[0], "%s", name);
    f->list[f->n] = (lz_named_array){f->names[f->n], lz_contiguous(lz_full(f->ctx, dims, LZ_F32, 0.5))};
    f->n++;
}

static void add_pair(made_file *f, const char *module, int64_t out, int64_t rank, int64_t in) {
    char name[160];
    snprintf(name, sizeof name, "%s.lora_A.weight", module);
    add_zeros(f, name, LZ_DIMS(rank, in));
    snprintf(name, sizeof name, "%s.lora_B.weight", module);
    add_zeros(f, name, LZ_DIMS(out, rank));
}

/* The status of a model with such a file, and what it says. */
static lz_status try_file(lz_model *model, const made_file *f, bool partial, lz_error *err) {
    lz_error saved = {0};
    const char *path = in_folder("made.safetensors");
    CHECK_OK(lz_weights_save(f->ctx, path, f->list, f->n, NULL, &saved), &saved);
    return lz_model_set_loras(model, &LZ_LORA(.path = path, .weight = 1, .partial = partial), 1, err);
}

/* Format trap 4: both factors are whole, so alpha (1e10, infinite in f16) says nothing. */
static void format_trap_4(void) {
    lz_context *ctx = lz_open();
    small_model m;
    if (!open_small(&m, ctx, "klein")) return;
    run_merge(&m, "kohya-lokr-none", 0.75, 3e-6);
    run_merge(&m, "diffusers-lokr-none", 0.75, 3e-6);
    close_small(&m);
    lz_close(ctx);
}

/* Format trap 5: Lightning has an alpha of 8 at rank 64, and a schedule of its own; both are seen in the picture qwen_lightning. The user's
 * own steps and guidance count more, and `ordinary` leaves the schedule alone. */
static void format_trap_5(void) {
    static const char path[] = LORAS "Qwen-Image-Lightning-4steps-V1.0-bf16.safetensors";
    lz_error err = {0};
    lz_context *ctx = lz_open();
    lz_model *model = open_model(ctx, "qwen", "Q");
    if (!model) return;
    CHECK(lz_model_about(model).steps == 50 && lz_model_about(model).guidance == 4);
    CHECK_OK(lz_model_set_loras(model, &LZ_LORA(.path = path, .weight = 1), 1, &err), &err);
    lz_lora_facts facts;
    CHECK(lz_model_loras(model, &facts, 1) == 1);
    CHECK(facts.steps == 4 && facts.shift == 3 && facts.rank == 64 && facts.modules == 24 && facts.used == 24);
    CHECK(lz_model_about(model).steps == 4 && lz_model_about(model).guidance == 1);
    lz_picture_options options = LZ_PICTURE_OPTIONS(.steps = 6, .guidance = 2, .width = 32, .height = 32);
    CHECK_OK(lz_fill_options(model, &options, &err), &err);
    CHECK(options.steps == 6 && options.guidance == 2);
    CHECK_OK(lz_model_set_loras(model, &LZ_LORA(.path = path, .weight = 1, .ordinary = true), 1, &err), &err);
    CHECK(lz_model_about(model).steps == 50 && lz_model_about(model).guidance == 4);
    CHECK_OK(lz_model_set_loras(model, &LZ_LORA(.path = path, .weight = 0), 1, &err), &err);
    CHECK(lz_model_about(model).steps == 50);
    lz_model_close(model);
    lz_close(ctx);
}

/* Format trap 6: `down` of a fused module belongs to all its parts, also where 3 divides the rank. */
static void format_trap_6(void) {
    lz_context *ctx = lz_open();
    small_model m;
    if (!open_small(&m, ctx, "zimage")) return;
    run_merge(&m, "block_diagonal", 1, 3e-6);
    close_small(&m);
    lz_close(ctx);
}

/* Format trap 20: FLUX.1 has the names of FLUX.2, with other shapes, more blocks and a few more modules. */
static void format_trap_20(void) {
    lz_error err = {0};
    lz_context *ctx = lz_open();
    lz_model *model = open_model(ctx, "flux2", "B"); /* a width of 32 */
    if (!model) return;
    enter_folder();
    made_file blocks = {.ctx = ctx}, modules = {.ctx = ctx}, shapes = {.ctx = ctx};
    add_pair(&blocks, "lora_unet_double_blocks_0_img_attn_qkv", 96, 4, 32);
    add_pair(&blocks, "lora_unet_double_blocks_18_img_attn_qkv", 96, 4, 32);
    CHECK_STATUS(try_file(model, &blocks, true, &err), LZ_BAD_FILE, &err);
    CHECK_TEXT(err.text, "made for FLUX.1");
    add_pair(&modules, "transformer.transformer_blocks.0.attn.to_q", 32, 4, 32);
    add_pair(&modules, "transformer.transformer_blocks.0.norm1.linear", 192, 4, 32);
    CHECK_STATUS(try_file(model, &modules, true, &err), LZ_BAD_FILE, &err);
    CHECK_TEXT(err.text, "made for FLUX.1");
    add_pair(&shapes, "diffusion_model.double_blocks.0.img_attn.qkv", 3 * 4096, 4, 4096); /* klein 9B */
    CHECK_STATUS(try_file(model, &shapes, true, &err), LZ_BAD_FILE, &err);
    CHECK_TEXT(err.text, "4096 features (FLUX.2 [klein] 9B)");
    leave_folder();
    lz_model_close(model);
    lz_close(ctx);
}

/* ---- what is refused --------------------------------------------------------------------------------------------- */

static void refusals(void) {
    lz_error err = {0};
    lz_context *ctx = lz_open();
    lz_model *model = open_model(ctx, "flux2", "B");
    if (!model) return;
    enter_folder();
    made_file none = {.ctx = ctx}, some = {.ctx = ctx}, rows = {.ctx = ctx}, half = {.ctx = ctx};
    add_pair(&none, "lora_te_odd_one", 8, 2, 8);
    add_zeros(&none, "some.weight", LZ_DIMS(4));
    for (int partial = 0; partial < 2; partial++) {
        CHECK_STATUS(try_file(model, &none, partial, &err), LZ_BAD_FILE, &err);
        CHECK_TEXT(err.text, "none of its 2 modules belongs to this model");
        CHECK_TEXT(err.text, "'lora_te_odd_one.lora_A.weight'");
        CHECK_TEXT(err.text, "'some.weight'");
    }
    add_pair(&some, "transformer.transformer_blocks.0.attn.to_q", 32, 4, 32);
    add_pair(&some, "transformer.transformer_blocks.0.attn.to_nothing", 32, 4, 32);
    CHECK_STATUS(try_file(model, &some, false, &err), LZ_BAD_FILE, &err);
    CHECK_TEXT(err.text, "1 of its 2 modules belong to nothing");
    CHECK_TEXT(err.text, "to_nothing");
    CHECK_OK(try_file(model, &some, true, &err), &err);
    lz_lora_facts facts;
    CHECK(lz_model_loras(model, &facts, 1) == 1 && facts.modules == 2 && facts.used == 1);
    CHECK_TEXT(facts.unused[0], "to_nothing");
    add_pair(&rows, "transformer.transformer_blocks.0.attn.to_q", 31, 4, 32);
    CHECK_STATUS(try_file(model, &rows, true, &err), LZ_BAD_FILE, &err);
    CHECK_TEXT(err.text, "needs 32 x 4");
    CHECK(lz_model_loras(model, NULL, 0) == 1, "a failure changes nothing");
    add_zeros(&half, "transformer.transformer_blocks.0.attn.to_q.lora_A.weight", LZ_DIMS(4, 32));
    CHECK_STATUS(try_file(model, &half, true, &err), LZ_BAD_FILE, &err);
    CHECK_TEXT(err.text, "a tensor is missing");
    static const char *const kinds[][2] = {{"oft_blocks", "OFT"},
                                           {"a1.weight", "GLoRA"},
                                           {"lora_mid.weight", "middle"},
                                           {"hada_t1", "Tucker"},
                                           {"lokr_t2", "Tucker"}};
    for (size_t i = 0; i < sizeof kinds / sizeof *kinds; i++) {
        made_file kind = {.ctx = ctx};
        char name[160];
        snprintf(name, sizeof name, "transformer.transformer_blocks.0.attn.to_q.%s", kinds[i][0]);
        add_zeros(&kind, name, LZ_DIMS(4, 32));
        CHECK_STATUS(try_file(model, &kind, true, &err), LZ_BAD_FILE, &err);
        CHECK_TEXT(err.text, kinds[i][1]);
    }
    made_file twice = {.ctx = ctx};
    add_pair(&twice, "transformer.transformer_blocks.0.attn.to_q", 32, 4, 32);
    add_pair(&twice, "lora_unet_transformer_blocks_0_attn_to_q", 32, 4, 32);
    CHECK_STATUS(try_file(model, &twice, true, &err), LZ_BAD_FILE, &err);
    CHECK_TEXT(err.text, "given once");
    CHECK_STATUS(lz_model_set_loras(model, &LZ_LORA(.path = in_folder("nowhere"), .weight = 1), 1, &err), LZ_NOT_FOUND,
                 &err);
    CHECK_STATUS(lz_model_set_loras(model, &LZ_LORA(.path = in_folder("made.safetensors"), .weight = NAN), 1, &err),
                 LZ_BAD_ARGUMENT, &err);
    leave_folder();
    lz_model_close(model);
    lz_close(ctx);
}

/* A file that holds a matrix fused and in parts: the parts are used, and this is reported. */
static void both_forms(void) {
    lz_error err = {0};
    lz_context *ctx = lz_open();
    small_model m;
    lz_lora_report report;
    if (!open_small(&m, ctx, "zimage")) return;
    CHECK_OK(read_lora(&m, "both", 1, false, &report, &err), &err);
    CHECK(report.double_given == 1 && report.used == report.modules, "%d", report.double_given);
    close_small(&m);
    lz_close(ctx);
}

static void keys(void) {
    static const struct {
        const char *name, *module;
        lz_lora_role role;
        bool text;
    } cases[] = {
        {"base_model.model.transformer.diffusion_model.double_blocks.0.img_attn.qkv.lora_A.weight",
         "double_blocks_0_img_attn_qkv", LZ_LORA_DOWN, false},
        {"lora_unet__layers_0_attention_to_k.lora_up.weight", "layers_0_attention_to_k", LZ_LORA_UP, false},
        {"layers.6.attention.to.k.lora.down.weight", "layers_6_attention_to_k", LZ_LORA_DOWN, false},
        {"text_encoders.qwen3_4b.transformer.model.layers.1.mlp.up_proj.alpha", "layers_1_mlp_up_proj", LZ_LORA_ALPHA,
         true},
        {"lora_te_model_layers_1_mlp_up_proj.lokr_w2_a", "layers_1_mlp_up_proj", LZ_LORA_LOKR_W2_A, true},
        {"sformer_blocks.0.attn.to_q.lora_B", "transformer_blocks_0_attn_to_q", LZ_LORA_UP, false},
        {"transformer.", "transformer", LZ_LORA_UNKNOWN, false},
        {".alpha", "alpha", LZ_LORA_UNKNOWN, false},
        {"", "", LZ_LORA_UNKNOWN, false},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        lz_lora_key key = lz_lora_read_key(cases[i].name);
        const char *module = key.module[0] == '_' ? key.module + 1 : key.module;
        CHECK(!strcmp(module, cases[i].module) && key.role == cases[i].role && key.text == cases[i].text,
              "'%s' is '%s', %d, %d", cases[i].name, key.module, key.role, key.text);
    }
}

TEST_MAIN({"keys", keys}, {"against_numpy", against_numpy}, {"in_bf16", in_bf16},
          {"against_diffusers", against_diffusers}, {"format_trap_4", format_trap_4}, {"format_trap_5", format_trap_5},
          {"format_trap_6", format_trap_6}, {"format_trap_20", format_trap_20}, {"refusals", refusals},
          {"both_forms", both_forms})
