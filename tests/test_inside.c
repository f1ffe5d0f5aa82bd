/* test_inside.c: values inside the models of FLUX.2 [klein], Qwen-Image 2.1 and FLUX.3 [klein] against those inside
 * diffusers' (*_inside.safetensors; see the README.md of tests/data/flux2, qwen21 and flux3): the first layer of the text
 * encoder, each block of the transformer, the levels of the autoencoder. Models only describe arrays, so every value inside one is a node that its
 * result can reach. One of these nodes must have the golden value; the test does not depend on the functions that make
 * up the model. */
#include "array/internal.h"
#include "diffusers.h"
#include "models/flux2.h"
#include "models/flux2_vae.h"
#include "models/qwen3.h"
#include "pipeline/generate.h"

#define DATA LZ_SOURCE_DIR "/tests/data/flux2"

enum { TEXT = 512, PICTURE = 16, ALL = TEXT + PICTURE, MAX_NODES = 8192 };

typedef struct inner {
    const char *name;
    int rows,
        first; /* the node has so many rows, and the golden value is those from `first` on; 0: it is [1, c, h, w] */
} inner;

/* ---- nodes ------------------------------------------------------------------------------------------------------- */

typedef struct nodes {
    lz_array *at[MAX_NODES];
    int n;
} nodes;

static void gather(nodes *all, lz_array *a) {
    for (int i = 0; i < all->n; i++)
        if (all->at[i] == a) return;
    if (!CHECK(all->n < MAX_NODES)) return;
    all->at[all->n++] = lz_retain(a);
    for (int i = 0; i < a->n_in; i++) gather(all, a->in[i]);
}

/* The golden value as rows, in the order of our arrays: channels last. */
static lz_array *as_rows(lz_array *golden) {
    lz_dims d = lz_shape(golden);
    if (d.n == 4) golden = lz_contiguous(lz_permute(golden, LZ_DIMS(0, 2, 3, 1)));
    return lz_reshape(golden, LZ_DIMS(-1, d.at[d.n == 4 ? 1 : d.n - 1]));
}

/* The smallest relative error of all nodes that have so many rows. */
static double closest(const nodes *all, lz_array *golden, const inner *what) {
    lz_array *want = as_rows(golden);
    lz_dims d = lz_shape(want);
    int64_t rows = what->rows ? what->rows : d.at[0];
    double best = INFINITY;
    for (int i = 0; i < all->n; i++) {
        lz_array *a = all->at[i];
        if (!a->dims.n || a->dims.at[a->dims.n - 1] != d.at[1] || lz_size(a) != rows * d.at[1]) continue;
        lz_array *part = lz_slice(lz_reshape(a, LZ_DIMS(rows, d.at[1])), 0, what->first, what->first + d.at[0], 1);
        best = fmin(best, relative_error(part, want));
    }
    return best;
}

static void check_inside(lz_array *const *results, int n_results, lz_weights *golden, const inner *list, size_t n) {
    static nodes all;
    lz_error err = {0};
    all.n = 0;
    for (int i = 0; i < n_results; i++) gather(&all, results[i]);
    CHECK_OK(lz_eval_all(all.at, all.n, &err), &err);
    for (size_t i = 0; i < n; i++) {
        double error = closest(&all, lz_weights_get(golden, list[i].name), &list[i]);
        CHECK(error < 1e-4, "%s: the closest of %d nodes is off by %g", list[i].name, all.n, error);
        printf("    %-20s %.1e\n", list[i].name, error);
    }
    for (int i = 0; i < all.n; i++) lz_release(all.at[i]);
}

/* ---- the models -------------------------------------------------------------------------------------------------- */

static const inner in_text[] = {{"text_layer0", TEXT, 0}};

static const inner in_time[] = {
    {"time_proj", 1, 0}, {"temb", 1, 0}, {"mod_img", 1, 0}, {"mod_txt", 1, 0}, {"mod_single", 1, 0}};

static const inner in_transformer[] = {
    {"x_in", PICTURE, 0},        {"text_in", TEXT, 0},     {"double0_img", PICTURE, 0}, {"double0_txt", TEXT, 0},
    {"double1_img", PICTURE, 0}, {"double1_txt", TEXT, 0}, {"single0_img", ALL, TEXT},  {"single0_txt", ALL, 0},
    {"single1_img", PICTURE, 0}, {"v", PICTURE, 0},
};

/* dec_latent is what a decoder is given: here after the statistics of the tokens are undone. */
static const inner in_decoder[] = {{"dec_latent", 0, 0},        {"dec_post_quant", 0, 0}, {"dec_conv_in", 0, 0},
                                   {"dec_mid_attention", 0, 0}, {"dec_mid", 0, 0},        {"dec_up0", 0, 0},
                                   {"dec_image", 0, 0}};

static const inner in_encoder[] = {
    {"enc_image", 0, 0}, {"enc_down0", 0, 0}, {"enc_mid", 0, 0}, {"enc_mean", 0, 0}, {"enc_packed", PICTURE, 0}};

/* The last block computes the rows of the picture only: nobody reads those of the text. */
static const char *const not_computed[] = {"single1_txt"};

#define LIST(list) (list), sizeof(list) / sizeof *(list)

typedef struct opened {
    lz_context *ctx;
    lz_weights *inside, *whole; /* values inside the models, and those between them */
} opened;

static bool open_golden(opened *o) {
    lz_error err = {0};
    o->ctx = lz_open();
    o->inside = lz_weights_open(o->ctx, DATA "/cases/a_square_inside.safetensors", &err);
    o->whole = lz_weights_open(o->ctx, DATA "/cases/a_square.safetensors", &err);
    return CHECK(o->inside && o->whole, "%s", err.text);
}

static void close_golden(opened *o) {
    lz_weights_close(o->inside);
    lz_weights_close(o->whole);
    lz_close(o->ctx);
}

static void text_encoder(void) {
    static const int64_t taps[] = {9, 18, 27};
    opened o;
    lz_error err = {0};
    if (!open_golden(&o)) return;
    lz_qwen3 *m = lz_qwen3_open(o.ctx, DATA "/A/text_encoder", taps, 3, NULL, &err);
    if (!CHECK(m, "%s", err.text)) return;
    lz_scope *scope = lz_scope_begin(o.ctx, "text");
    lz_array *ids = lz_reshape(lz_cast(lz_weights_get(o.whole, "ids"), LZ_I64), LZ_DIMS(TEXT));
    const int64_t *id = lz_data(ids, &err);
    bool real[TEXT] = {false}, seen = false; /* the ids end in padding */
    for (int i = TEXT - 1; id && i >= 0; i--) {
        seen = seen || id[i] != id[TEXT - 1];
        real[i] = seen;
    }
    lz_array *features = lz_qwen3_features(m, ids, lz_from(o.ctx, LZ_DIMS(TEXT), LZ_BOOL, real));
    check_inside(&features, 1, o.inside, LIST(in_text));
    lz_scope_end(scope);
    lz_qwen3_close(m);
    close_golden(&o);
}

static void transformer(void) {
    opened o;
    lz_error err = {0};
    if (!open_golden(&o)) return;
    lz_flux2 *m = lz_flux2_open(o.ctx, DATA "/A/transformer", &err);
    if (!CHECK(m, "%s", err.text)) return;
    lz_scope *scope = lz_scope_begin(o.ctx, "step");
    lz_array *sigma = lz_slice(lz_weights_get(o.whole, "sigmas"), 0, 0, 1, 1), *cos, *sin;
    lz_flux2_time time = lz_flux2_modulation(m, sigma);
    lz_array *const of_time[] = {time.image, time.text, time.single, time.out};
    check_inside(of_time, 4, o.inside, LIST(in_time));

    lz_place places[ALL];
    for (int i = 0; i < TEXT; i++) places[i] = (lz_place){{0, 0, 0, i}};
    for (int i = 0; i < PICTURE; i++) places[TEXT + i] = (lz_place){{0, i / 4, i % 4, 0}};
    lz_flux2_rope(m, places, ALL, &cos, &sin);
    lz_array *context = lz_flux2_context(m, lz_reshape(lz_weights_get(o.whole, "text"), LZ_DIMS(TEXT, -1)));
    lz_array *x = as_rows(lz_weights_get(o.whole, "noise"));
    lz_array *v = lz_flux2_velocity(m, x, context, time, cos, sin, PICTURE, NULL);
    check_inside(&v, 1, o.inside, LIST(in_transformer));
    lz_scope_end(scope);
    lz_flux2_close(m);
    close_golden(&o);
}

static void autoencoder(void) {
    opened o;
    lz_error err = {0};
    if (!open_golden(&o)) return;
    lz_flux2_vae *m = lz_flux2_vae_open(o.ctx, DATA "/A/vae", &err);
    lz_weights *file = lz_weights_open(o.ctx, DATA "/A/vae/diffusion_pytorch_model.safetensors", &err);
    if (!CHECK(m && file, "%s", err.text)) return;
    lz_scope *scope = lz_scope_begin(o.ctx, "autoencoder");
    /* Tokens have unit spread; the golden latents are those before that. */
    lz_array *mean = lz_weights_cast(file, "bn.running_mean", LZ_F32),
             *spread = lz_sqrt(lz_add(lz_weights_cast(file, "bn.running_var", LZ_F32), 1e-4));
    lz_array *latent = lz_permute(lz_weights_get(o.inside, "dec_latent"), LZ_DIMS(0, 2, 3, 1));
    lz_array *tokens = lz_contiguous(lz_div(lz_sub(lz_flux2_patch(latent), mean), spread));
    CHECK_OK(lz_eval(tokens, &err), &err);
    lz_array *image = lz_flux2_vae_decode(m, tokens, 4, 4);
    check_inside(&image, 1, o.inside, LIST(in_decoder));

    lz_array *picture = lz_reshape(as_rows(lz_weights_get(o.inside, "enc_image")), LZ_DIMS(64, 64, 3));
    lz_array *packed = lz_flux2_vae_encode(m, picture);
    check_inside(&packed, 1, o.inside, LIST(in_encoder));
    lz_scope_end(scope);
    lz_weights_close(file);
    lz_flux2_vae_close(m);
    close_golden(&o);
}

/* A golden value that is in no list is compared with nothing. */
static int listed(const char *name, const inner *list, size_t n) {
    int found = 0;
    for (size_t i = 0; i < n; i++) found += !strcmp(list[i].name, name);
    return found;
}

static void all_are_compared(void) {
    opened o;
    if (!open_golden(&o)) return;
    CHECK_I64(lz_weights_count(o.inside), 29);
    for (int64_t i = 0; i < lz_weights_count(o.inside); i++) {
        const char *name = lz_weights_name(o.inside, i);
        int found = listed(name, LIST(in_text)) + listed(name, LIST(in_time)) + listed(name, LIST(in_transformer)) +
                    listed(name, LIST(in_decoder)) + listed(name, LIST(in_encoder));
        for (size_t k = 0; k < sizeof not_computed / sizeof *not_computed; k++) found += !strcmp(not_computed[k], name);
        CHECK(found == 1, "%s is in %d lists", name, found);
    }
    close_golden(&o);
}

/* ---- other families ---------------------------------------------------------------------------------------------- */

/* A case whose values inside are known, by the stage in which they are. Each list ends with NULL. */
typedef struct known_case {
    const char *data, *name;
    /* rows: of nodes with a row for each step, the first row */
    const char *text[8], *rows[4], *step[32], *decoder[8], *encoder[8];
} known_case;

static const known_case qwen21_case = {
    .data = LZ_SOURCE_DIR "/tests/data/qwen21",
    .name = "b_one",
    .text = {"vision_block0", "vision_deep0", "vision", "text_layer0", "text"},
    .rows = {"time", "mod"},
    .step = {"time_zero", "mod_zero", "x_in", "text_in", "block0", "block0_prefix", "block1", "block1_prefix", "block2",
             "v"},
    .decoder = {"dec_latent", "dec_post_quant", "dec_conv_in", "dec_mid", "dec_up0"},
    .encoder = {"enc_image", "enc_conv_in", "enc_down0", "enc_mid", "enc_latents"},
};

/* Its autoencoder is that of FLUX.2. */
static const known_case flux3_case = {
    .data = LZ_SOURCE_DIR "/tests/data/flux3",
    .name = "d_one_sized",
    .text = {"text_layer0", "text"},
    .rows = {"time", "time_target"},
    .step = {"time_zero", "text_in", "x_in", "references_in", "own0_text", "own0", "own0_references", "own1_text",
             "own1", "own1_references", "single0", "single0_text", "single0_references", "single1", "v"},
};

static const known_case *looked_for;

/* Nodes have as many rows as the golden values. In those of `first_rows` (or NULL) the golden value is the first of
 * `rows`. */
static void check_named(lz_array *const *results, int n_results, lz_weights *golden, const char *const *names,
                        const char *const *first_rows, int rows) {
    inner list[40];
    size_t n = 0;
    for (; *names; names++) list[n++] = (inner){*names, 0, 0};
    for (; first_rows && *first_rows; first_rows++) list[n++] = (inner){*first_rows, rows, 0};
    if (n) check_inside(results, n_results, golden, list, n);
}

static void check_encoder(lz_model *model, const test_case *c, const lz_image *images, int n, lz_weights *golden) {
    const lz_family *f = model->family;
    lz_error err = {0};
    lz_prompt read = {.n = 0};
    CHECK_OK(f->tokens(model->state, c->prompt, images, n, &read, &err), &err);
    void *text = f->open_text(model->state, f->look && n, &err);
    if (!CHECK(text, "%s", err.text)) return;
    if (f->look) {
        lz_image view = {0};
        CHECK_OK(f->view(model->state, &images[0], &view, &err), &err);
        lz_array *pixels = lz_from(model->ctx, LZ_DIMS(view.height, view.width, 3), LZ_U8, view.pixels);
        read.in[read.n++] = f->look(text, pixels);
        lz_image_free(model->ctx, &view);
    }
    lz_array *features = f->features(text, read);
    check_named(&features, 1, golden, looked_for->text, NULL, 0);
    f->close_text(text);
}

/* The first step, from diffusers' features and references. */
static void check_step(lz_model *model, const test_case *c, const lz_image *image, lz_weights *golden,
                       lz_weights *whole) {
    const lz_family *f = model->family;
    lz_array *text = lz_weights_get(golden, "text"), *noise = lz_weights_get(whole, "noise");
    lz_array *references = lz_weights_get(golden, "references");
    lz_reference_size size = lz_size_reference(model, image, 1);
    int64_t unit = f->token_pixels(model->state), patch = f->patch, channels = lz_shape(references).at[2];
    lz_layout l = {.h = lz_shape(noise).at[2] / patch,
                   .w = lz_shape(noise).at[3] / patch,
                   .text_tokens = {lz_shape(text).at[1]},
                   .n_references = 1,
                   .reference_sizes = {{size.height / unit, size.width / unit}}};
    const int64_t *r = l.reference_sizes[0];

    references = lz_reshape(references, LZ_DIMS(1, patch * r[0], patch * r[1], channels));
    references = lz_contiguous(lz_to_tokens(lz_permute(references, LZ_DIMS(0, 3, 1, 2)), patch));
    lz_error err = {0};
    lz_image prepared = {0};
    CHECK_OK(lz_crop_image(model->ctx, image, size, &prepared, &err), &err);
    double error = relative_error(f->encode(model->state, lz_picture_array(model->ctx, &prepared)), references);
    CHECK(error < 1e-4, "references: %g", error);
    lz_image_free(model->ctx, &prepared);

    lz_slots s = {.features = {lz_reshape(text, LZ_DIMS(l.text_tokens[0], -1))}, .references = references};
    lz_array *sigmas = lz_slice(lz_weights_get(whole, "sigmas"), 0, 0, c->steps, 1), *rows[LZ_MAX_ROWS] = {NULL};
    f->tables(model->state, &l, &s);
    f->rows(model->state, lz_mul(sigmas, model->schedule.time_scale), &s);
    for (int i = 0; i < LZ_MAX_ROWS && s.rows[i]; i++) rows[i] = lz_slice(s.rows[i], 0, 0, 1, 1);
    s.context[0] = f->prefix ? f->prefix(model->state, &l, &s, 0) : f->context(model->state, s.features[0]);
    lz_array *v = f->velocity(model->state, &l, &s, 0, lz_contiguous(lz_to_tokens(noise, patch)), rows);
    check_named((lz_array *[]){v, s.context[0]}, 2, golden, looked_for->step, looked_for->rows, c->steps);
}

static void check_autoencoder(lz_model *model, lz_weights *golden) {
    const lz_family *f = model->family;
    if (!looked_for->decoder[0]) return;
    lz_array *latent = lz_weights_get(golden, "dec_latent"), *image = lz_weights_get(golden, "enc_image");
    lz_dims d = lz_shape(latent), e = lz_shape(image);
    lz_array *made = f->decode(model->state, lz_contiguous(lz_to_tokens(latent, f->patch)), d.at[2] / f->patch,
                               d.at[3] / f->patch);
    check_named(&made, 1, golden, looked_for->decoder, NULL, 0);
    lz_array *tokens = f->encode(model->state, lz_reshape(as_rows(image), LZ_DIMS(e.at[2], e.at[3], 3)));
    check_named(&tokens, 1, golden, looked_for->encoder, NULL, 0);
}

static int count_names(const char *const *names) {
    int n = 0;
    while (names[n]) n++;
    return n;
}

static void check_known(lz_context *ctx, const char *data, const test_case *c) {
    char path[512];
    lz_error err = {0};
    if (strcmp(c->name, looked_for->name) != 0) return;
    lz_scope *scope = lz_scope_begin(ctx, c->name);
    snprintf(path, sizeof path, "%s/%s", data, c->model);
    lz_model *model = lz_model_open(ctx, path, &err);
    snprintf(path, sizeof path, "%s/cases/%s_inside.safetensors", data, c->name);
    lz_weights *golden = lz_weights_open(ctx, path, &err);
    snprintf(path, sizeof path, "%s/cases/%s.safetensors", data, c->name);
    lz_weights *whole = lz_weights_open(ctx, path, &err);
    lz_image images[4] = {{0}};
    int n = read_references(ctx, data, c->references, images);
    if (CHECK(model && golden && whole && n == 1, "%s", err.text)) {
        check_encoder(model, c, images, n, golden);
        check_step(model, c, &images[0], golden, whole);
        check_autoencoder(model, golden);
        const known_case *k = looked_for; /* every golden value is in a list, except the references */
        CHECK_I64(lz_weights_count(golden), 1 + count_names(k->text) + count_names(k->rows) + count_names(k->step) +
                                                count_names(k->decoder) + count_names(k->encoder));
    }
    for (int i = 0; i < 4; i++) lz_image_free(ctx, &images[i]);
    lz_weights_close(golden);
    lz_weights_close(whole);
    lz_model_close(model);
    lz_scope_end(scope);
}

static void qwen_image21(void) {
    looked_for = &qwen21_case;
    each_case(looked_for->data, 11, check_known);
}

static void flux3(void) {
    looked_for = &flux3_case;
    each_case(looked_for->data, 14, check_known);
}

TEST_MAIN({"text_encoder", text_encoder}, {"transformer", transformer}, {"autoencoder", autoencoder},
          {"all_are_compared", all_are_compared}, {"qwen_image21", qwen_image21}, {"flux3", flux3})
