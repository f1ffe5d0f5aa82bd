/* test_lora.c: LoRA files against NumPy (what they do to weights) and against diffusers (what they do to pictures). The files and
 * values are made by tools/oracle/lora.py, which says what tests/data/lora holds. */
#include "io/weights.h"
#include "loras.h"
#include "models/lora.h"
#include "models/lora_keys.h"
#include "models/param.h"

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
    CHECK(n == 11, "%d pictures", n);
    if (f) fclose(f);
    CHECK(lz_memory_info(ctx).active == 0, "%lld bytes are left", (long long)lz_memory_info(ctx).active);
    lz_close(ctx);
}

/* ---- traps of the formats, by number ------------------------------------------------------------------------------------------------------- */

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

/* Format trap 6: `down` of a fused module belongs to all its parts, also where 3 divides the rank. */
static void format_trap_6(void) {
    lz_context *ctx = lz_open();
    small_model m;
    if (!open_small(&m, ctx, "zimage")) return;
    run_merge(&m, "block_diagonal", 1, 3e-6);
    close_small(&m);
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
          {"against_diffusers", against_diffusers}, {"format_trap_4", format_trap_4}, {"format_trap_6", format_trap_6},
          {"both_forms", both_forms})
