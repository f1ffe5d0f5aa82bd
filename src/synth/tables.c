/* tables.c: what the models consist of, as tables: kinds and their sizes, tensors and their shapes. */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "array/internal.h"
#include "synth/synth.h"

#define ROWS(table) table, (int)(sizeof(table) / sizeof(table)[0])
#define GB INT64_C(1000000000)

/* ---- kinds ------------------------------------------------------------------------------------------------------- */

static const char size_letters[] = "HdNShfQKeLcg";
static const struct kind {
    const char *name, *help;
    int64_t sizes[sizeof size_letters - 1];
    bool distilled, tied;
    int64_t text_shard, transformer_shard; /* 5 and 10 GB are what transformers and diffusers do by default */
} kinds[] = {
    /*                     H   d    N  S   h     f      Q   K  e    L   c    g */
    {"klein-4b",
     "16.0 GB, 4 steps",
     {24, 128, 5, 20, 2560, 9728, 32, 8, 128, 36, 128, 32},
     true,
     true,
     5 * GB,
     10 * GB},
    {"klein-9b",
     "34.7 GB, 4 steps",
     {32, 128, 8, 24, 4096, 12288, 32, 8, 128, 36, 128, 32},
     true,
     false,
     5 * GB,
     10 * GB},
    {"klein-base-4b",
     "16.0 GB, 50 steps with guidance",
     {24, 128, 5, 20, 2560, 9728, 32, 8, 128, 36, 128, 32},
     false,
     true,
     5 * GB,
     10 * GB},
    {"tiny",
     "12 MB, the same architecture for tests",
     {2, 32, 1, 2, 32, 64, 4, 2, 16, 28, 8, 4},
     true,
     true,
     GB / 100,
     GB / 2500},
};

const char *synth_kind(int i, const char **help) {
    if (i >= (int)(sizeof kinds / sizeof kinds[0])) return NULL;
    if (help) *help = kinds[i].help;
    return kinds[i].name;
}

static void set_sizes(const struct kind *k, int64_t blocks, int64_t layers, synth_model *m) {
    *m = (synth_model){.distilled = k->distilled,
                       .tied = k->tied,
                       .text_shard = k->text_shard,
                       .transformer_shard = k->transformer_shard};
    int64_t *s = m->size, all;
    for (int i = 0; size_letters[i]; i++) s[(int)size_letters[i]] = k->sizes[i];
    all = s['N'] + s['S'];
    if (blocks) s['N'] = (blocks * s['N'] + all - 1) / all; /* of fewer blocks as large a share */
    if (blocks) s['S'] = blocks - s['N'];
    if (layers) s['L'] = layers;
    s['V'] = 151936;
    s['D'] = s['H'] * s['d'];
    s['a'] = s['d'] / 4;
    s['C'] = 3 * s['h'];
    s['q'] = s['Q'] * s['e'];
    s['k'] = s['K'] * s['e'];
}

lz_status synth_model_of(const char *kind, int64_t blocks, int64_t layers, synth_model *m, lz_error *err) {
    char known[200] = "";
    if (blocks == 1 || blocks > 1024) return lz_fail(err, LZ_BAD_ARGUMENT, "a transformer has 2 to 1024 blocks");
    if ((layers && layers < 4) || layers > 1024)
        return lz_fail(err, LZ_BAD_ARGUMENT, "a text encoder has 4 to 1024 layers");
    for (size_t i = 0; i < sizeof kinds / sizeof kinds[0]; i++) {
        if (!strcmp(kinds[i].name, kind)) {
            set_sizes(&kinds[i], blocks, layers, m);
            return LZ_OK;
        }
        size_t n = strlen(known);
        snprintf(known + n, sizeof known - n, "%s%s", i ? ", " : "", kinds[i].name);
    }
    return lz_fail(err, LZ_NOT_FOUND, "there is no kind '%.60s'; there are %s", kind, known);
}

int64_t synth_size(const synth_model *m, const char **text) {
    int64_t n = 0, letter;
    for (; **text >= '0' && **text <= '9'; ++*text) n = 10 * n + **text - '0';
    letter = m->size[**text & 127];
    if (letter) ++*text;
    return (n ? n : 1) * (letter ? letter : 1);
}

/* ---- tensors ----------------------------------------------------------------------------------------------------- */

/* How numbers are drawn. Matrices get 1/sqrt(what is summed over), so that values stay of order one through the model; a
 * single row is a scale near 1, or by its name a bias; the latents' statistics are about those of the real autoencoder. */
enum fill { USUAL, EMBEDDING, MEAN, VARIANCE, COUNTER };

typedef struct row {
    const char *name, *shape; /* name: behind a prefix */
    enum fill fill;
} row;

static const row text_first[] = {{"model.embed_tokens.weight", "V h", EMBEDDING}};
static const row text_layer[] = {
    {"self_attn.q_proj.weight", "q h", USUAL},      {"self_attn.k_proj.weight", "k h", USUAL},
    {"self_attn.v_proj.weight", "k h", USUAL},      {"self_attn.o_proj.weight", "h q", USUAL},
    {"self_attn.q_norm.weight", "e", USUAL},        {"self_attn.k_norm.weight", "e", USUAL},
    {"mlp.gate_proj.weight", "f h", USUAL},         {"mlp.up_proj.weight", "f h", USUAL},
    {"mlp.down_proj.weight", "h f", USUAL},         {"input_layernorm.weight", "h", USUAL},
    {"post_attention_layernorm.weight", "h", USUAL}};
static const row text_last[] = {{"model.norm.weight", "h", USUAL}};
static const row text_head[] = {{"lm_head.weight", "V h", USUAL}};

static const row transformer_first[] = {{"time_guidance_embed.timestep_embedder.linear_1.weight", "D 256", USUAL},
                                        {"time_guidance_embed.timestep_embedder.linear_2.weight", "D D", USUAL},
                                        {"double_stream_modulation_img.linear.weight", "6D D", USUAL},
                                        {"double_stream_modulation_txt.linear.weight", "6D D", USUAL},
                                        {"single_stream_modulation.linear.weight", "3D D", USUAL},
                                        {"x_embedder.weight", "D 128", USUAL},
                                        {"context_embedder.weight", "D C", USUAL}};
static const row double_block[] = {{"attn.norm_q.weight", "d", USUAL},
                                   {"attn.norm_k.weight", "d", USUAL},
                                   {"attn.to_q.weight", "D D", USUAL},
                                   {"attn.to_k.weight", "D D", USUAL},
                                   {"attn.to_v.weight", "D D", USUAL},
                                   {"attn.to_out.0.weight", "D D", USUAL},
                                   {"attn.norm_added_q.weight", "d", USUAL},
                                   {"attn.norm_added_k.weight", "d", USUAL},
                                   {"attn.add_q_proj.weight", "D D", USUAL},
                                   {"attn.add_k_proj.weight", "D D", USUAL},
                                   {"attn.add_v_proj.weight", "D D", USUAL},
                                   {"attn.to_add_out.weight", "D D", USUAL},
                                   {"ff.linear_in.weight", "6D D", USUAL},
                                   {"ff.linear_out.weight", "D 3D", USUAL},
                                   {"ff_context.linear_in.weight", "6D D", USUAL},
                                   {"ff_context.linear_out.weight", "D 3D", USUAL}};
static const row single_block[] = {{"attn.to_qkv_mlp_proj.weight", "9D D", USUAL},
                                   {"attn.norm_q.weight", "d", USUAL},
                                   {"attn.norm_k.weight", "d", USUAL},
                                   {"attn.to_out.weight", "D 4D", USUAL}};
static const row transformer_last[] = {{"norm_out.linear.weight", "2D D", USUAL}, {"proj_out.weight", "128 D", USUAL}};

/* The counter stands first: it is the one tensor whose place must be a multiple of 8. */
static const row statistics[] = {
    {"bn.num_batches_tracked", "", COUNTER}, {"bn.running_mean", "128", MEAN}, {"bn.running_var", "128", VARIANCE}};
static const row convolution[] = {{"weight", "o i 3 3", USUAL}, {"bias", "o", USUAL}};
static const row pointwise[] = {{"weight", "o i 1 1", USUAL}, {"bias", "o", USUAL}};
static const row linear[] = {{"weight", "o i", USUAL}, {"bias", "o", USUAL}};
static const row norm[] = {{"weight", "o", USUAL}, {"bias", "o", USUAL}};

typedef struct list {
    synth_model model;
    synth_tensor *at; /* NULL: out of memory */
    int n, room;
} list;

static void choose_numbers(synth_tensor *t, enum fill fill) {
    static const double moments[][2] = {
        [EMBEDDING] = {0, 1}, [MEAN] = {0, 0.03}, [VARIANCE] = {2, 0.25}, [COUNTER] = {0, 0}};
    double summed = 1;
    for (int i = 1; i < t->dims.n; i++) summed *= (double)t->dims.at[i];
    bool bias = strstr(t->name, ".bias") != NULL, product = t->dims.n > 1;
    t->mean = fill ? moments[fill][0] : product || bias ? 0 : 1;
    t->deviation = fill ? moments[fill][1] : product ? 1 / sqrt(summed) : bias ? 0.05 : 0.1;
    t->counter = fill == COUNTER;
}

static void add(list *l, const char *prefix, const row *rows, int n) {
    if (l->n + n > l->room) {
        l->room = 2 * l->room + 64;
        synth_tensor *more = realloc(l->at, (size_t)l->room * sizeof *more);
        if (!more) {
            free(l->at);
            l->n = 0;
            l->room = INT32_MAX; /* never tried again */
        }
        l->at = more;
    }
    for (const row *r = rows; l->at && r < rows + n; r++) {
        synth_tensor *t = &l->at[l->n++];
        *t = (synth_tensor){.counter = false};
        snprintf(t->name, sizeof t->name, "%s%s", prefix, r->name);
        for (const char *at = r->shape; *at; at += *at == ' ') t->dims.at[t->dims.n++] = synth_size(&l->model, &at);
        choose_numbers(t, r->fill);
    }
}

static void add_numbered(list *l, const char *prefix, int64_t count, const row *rows, int n) {
    for (int64_t i = 0; i < count; i++) {
        char numbered[64];
        snprintf(numbered, sizeof numbered, "%s.%lld.", prefix, (long long)i);
        add(l, numbered, rows, n);
    }
}

static void text_encoder(list *l) {
    add(l, "", ROWS(text_first));
    add_numbered(l, "model.layers", l->model.size['L'], ROWS(text_layer));
    add(l, "", ROWS(text_last));
    if (!l->model.tied) add(l, "", ROWS(text_head));
}

static void transformer(list *l) {
    add(l, "", ROWS(transformer_first));
    add_numbered(l, "transformer_blocks", l->model.size['N'], ROWS(double_block));
    add_numbered(l, "single_transformer_blocks", l->model.size['S'], ROWS(single_block));
    add(l, "", ROWS(transformer_last));
}

/* ---- the autoencoder --------------------------------------------------------------------------------------------- */

static void layer(list *l, const char *prefix, const char *name, int64_t in, int64_t out, const row *rows, int n) {
    char full[96];
    snprintf(full, sizeof full, "%s%s.", prefix, name);
    l->model.size['i'] = in;
    l->model.size['o'] = out;
    add(l, full, rows, n);
}

static void resnet(list *l, const char *prefix, int i, int64_t in, int64_t out) {
    char name[64];
    snprintf(name, sizeof name, "%sresnets.%d.", prefix, i);
    layer(l, name, "norm1", in, in, ROWS(norm));
    layer(l, name, "conv1", in, out, ROWS(convolution));
    layer(l, name, "norm2", out, out, ROWS(norm));
    layer(l, name, "conv2", out, out, ROWS(convolution));
    if (in != out) layer(l, name, "conv_shortcut", in, out, ROWS(pointwise));
}

static void level(list *l, const char *prefix, int i, int resnets, int64_t in, int64_t out, const char *resample) {
    char name[64];
    snprintf(name, sizeof name, "%s.%d.", prefix, i);
    for (int r = 0; r < resnets; r++) resnet(l, name, r, r ? out : in, out);
    if (i < 3) layer(l, name, resample, out, out, ROWS(convolution));
}

static void middle(list *l, const char *prefix, int64_t width) {
    static const char *const products[] = {"to_q", "to_k", "to_v", "to_out.0"};
    char name[64];
    resnet(l, prefix, 0, width, width);
    snprintf(name, sizeof name, "%sattentions.0.", prefix);
    layer(l, name, "group_norm", width, width, ROWS(norm));
    for (int i = 0; i < 4; i++) layer(l, name, products[i], width, width, ROWS(linear));
    resnet(l, prefix, 1, width, width);
}

static void autoencoder(list *l) {
    int64_t c = l->model.size['c'], width[] = {c, 2 * c, 4 * c, 4 * c};
    add(l, "", ROWS(statistics));
    layer(l, "encoder.", "conv_in", 3, c, ROWS(convolution));
    for (int i = 0; i < 4; i++)
        level(l, "encoder.down_blocks", i, 2, width[i ? i - 1 : 0], width[i], "downsamplers.0.conv");
    middle(l, "encoder.mid_block.", 4 * c);
    layer(l, "encoder.", "conv_norm_out", 4 * c, 4 * c, ROWS(norm));
    layer(l, "encoder.", "conv_out", 4 * c, 64, ROWS(convolution));
    layer(l, "", "quant_conv", 64, 64, ROWS(pointwise));
    layer(l, "", "post_quant_conv", 32, 32, ROWS(pointwise));
    layer(l, "decoder.", "conv_in", 32, 4 * c, ROWS(convolution));
    middle(l, "decoder.mid_block.", 4 * c);
    for (int i = 0; i < 4; i++)
        level(l, "decoder.up_blocks", i, 3, width[i ? 4 - i : 3], width[3 - i], "upsamplers.0.conv");
    layer(l, "decoder.", "conv_norm_out", c, c, ROWS(norm));
    layer(l, "decoder.", "conv_out", c, 3, ROWS(convolution));
}

const char *const synth_part_names[SYNTH_PARTS] = {"text_encoder", "transformer", "vae"};

synth_tensor *synth_tensors(const synth_model *m, synth_part part, int *n) {
    static void (*const parts[])(list *) = {text_encoder, transformer, autoencoder};
    list l = {.model = *m};
    parts[part](&l);
    *n = l.n;
    return l.at;
}

int64_t synth_bytes(const synth_tensor *t) {
    int64_t bytes = t->counter ? 8 : 2;
    for (int i = 0; i < t->dims.n; i++) bytes *= t->dims.at[i];
    return bytes;
}
