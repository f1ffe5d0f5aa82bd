/* test_inside.c: values inside the models of FLUX.2 [klein] against those inside diffusers'
 * (a_square_inside.safetensors; see tests/data/flux2/README.md): the first layer of the text encoder, each block of the
 * transformer, the levels of the autoencoder. Models only describe arrays, so every value inside one is a node that its
 * result can reach. One of these nodes must have the golden value; the test does not depend on the functions that make
 * up the model. */
#include "array/internal.h"
#include "diffusers.h"
#include "models/flux2.h"
#include "models/flux2_vae.h"
#include "models/qwen3.h"

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

TEST_MAIN({"text_encoder", text_encoder}, {"transformer", transformer}, {"autoencoder", autoencoder},
          {"all_are_compared", all_are_compared})
