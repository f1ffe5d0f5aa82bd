/* tables.c: what the models consist of, as tables: kinds and their sizes, and every tensor as a name, a shape made of those sizes,
 * and how its numbers are drawn. */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "array/internal.h"
#include "synth/synth.h"

#define ROWS(table) table, (int)(sizeof(table) / sizeof(table)[0])

/* ---- kinds --------------------------------------------------------------------------------------------------------------- */

static const struct kind {
    const char *name, *help;
    int64_t heads, head, doubles, singles;             /* transformer */
    int64_t hidden, ffn, q_heads, kv_heads, text_head; /* text encoder */
    int64_t layers, base, groups;                      /* ... and autoencoder */
    bool distilled, tied;
    int64_t text_shard, transformer_shard; /* as transformers and diffusers save by default */
} kinds[] = {
    {"klein-4b", "FLUX.2-klein-4B: 4 steps, 16.0 GB", 24, 128, 5, 20, 2560, 9728, 32, 8, 128, 36, 128, 32, true, true, 5000000000, 10000000000},
    {"klein-9b", "FLUX.2-klein-9B: 4 steps, 34.7 GB", 32, 128, 8, 24, 4096, 12288, 32, 8, 128, 36, 128, 32, true, false, 5000000000, 10000000000},
    {"klein-base-4b", "FLUX.2-klein-base-4B: 50 steps with guidance, 16.0 GB", 24, 128, 5, 20, 2560, 9728, 32, 8, 128, 36, 128, 32, false, true, 5000000000, 10000000000},
    {"tiny", "the same architecture in 12 MB, for tests", 2, 32, 1, 2, 32, 64, 4, 2, 16, 28, 8, 4, true, true, 10000000, 400000},
};

const char *synth_kind(int i, const char **help) {
    if (i >= (int)(sizeof kinds / sizeof kinds[0])) return NULL;
    if (help) *help = kinds[i].help;
    return kinds[i].name;
}

static void derive(const struct kind *k, int64_t blocks, int64_t text_layers, synth_model *m) {
    int64_t width = k->heads * k->head, all = k->doubles + k->singles;
    /* Fewer blocks keep the proportion of the two sorts. */
    int64_t doubles = blocks ? (blocks * k->doubles + all - 1) / all : k->doubles;
    int64_t singles = blocks ? blocks - doubles : k->singles;
    *m = (synth_model){
        .distilled = k->distilled, .tied = k->tied, .text_shard = k->text_shard, .transformer_shard = k->transformer_shard,
        .size = {[ONE] = 1, [THREE] = 3, [LATENT] = 32, [MOMENTS] = 64, [CHANNELS] = 128, [BASE] = k->base, [GROUPS] = k->groups,
                 [TIME] = 256, [HEADS] = k->heads, [HEAD] = k->head, [AXIS] = k->head / 4, [WIDTH] = width, [WIDTH2] = 2 * width,
                 [WIDTH3] = 3 * width, [WIDTH6] = 6 * width, [MLP] = 3 * width, [MLP2] = 6 * width, [QKV_MLP] = 9 * width,
                 [OUT_MLP] = 4 * width, [DOUBLES] = doubles, [SINGLES] = singles, [FEATURES] = 3 * k->hidden,
                 [VOCABULARY] = 151936, [HIDDEN] = k->hidden, [FFN] = k->ffn, [Q_HEADS] = k->q_heads, [KV_HEADS] = k->kv_heads,
                 [TEXT_HEAD] = k->text_head, [Q_WIDTH] = k->q_heads * k->text_head, [KV_WIDTH] = k->kv_heads * k->text_head,
                 [LAYERS] = text_layers ? text_layers : k->layers}};
}

lz_status synth_model_of(const char *kind, int64_t blocks, int64_t text_layers, synth_model *m, lz_error *err) {
    char known[200] = "";
    if (blocks < 0 || blocks == 1 || blocks > 1024) return lz_fail(err, LZ_BAD_ARGUMENT, "a transformer has 2 to 1024 blocks, not %lld", (long long)blocks);
    if (text_layers && (text_layers < 3 || text_layers > 1024))
        return lz_fail(err, LZ_BAD_ARGUMENT, "a text encoder has 3 to 1024 layers, not %lld", (long long)text_layers);
    for (size_t i = 0; i < sizeof kinds / sizeof kinds[0]; i++) {
        if (!strcmp(kinds[i].name, kind)) {
            derive(&kinds[i], blocks, text_layers, m);
            return LZ_OK;
        }
        size_t n = strlen(known);
        snprintf(known + n, sizeof known - n, "%s%s", i ? ", " : "", kinds[i].name);
    }
    return lz_fail(err, LZ_NOT_FOUND, "there is no kind '%.60s'; there are %s", kind, known);
}

/* ---- tensors ------------------------------------------------------------------------------------------------------------- */

/* How numbers are drawn. Products get 1/sqrt(what is summed over), so that values stay of order one through the model; the means
 * and variances of the latents are about those of the published autoencoder. */
enum fill { PRODUCT, EMBEDDING, SCALE, BIAS, MEAN, VARIANCE, COUNTER };
static const struct {
    double mean, deviation;
} fills[] = {[PRODUCT] = {0, 0}, [EMBEDDING] = {0, 1}, [SCALE] = {1, 0.1}, [BIAS] = {0, 0.05}, [MEAN] = {0, 0.03}, [VARIANCE] = {2, 0.25}, [COUNTER] = {0, 0}};

typedef struct row {
    const char *name; /* behind a prefix */
    enum fill fill;
    uint8_t dims[4];  /* sizes, ended by END */
} row;

static const row text_first[] = {{"model.embed_tokens.weight", EMBEDDING, {VOCABULARY, HIDDEN}}};
static const row text_layer[] = {
    {"self_attn.q_proj.weight", PRODUCT, {Q_WIDTH, HIDDEN}},
    {"self_attn.k_proj.weight", PRODUCT, {KV_WIDTH, HIDDEN}},
    {"self_attn.v_proj.weight", PRODUCT, {KV_WIDTH, HIDDEN}},
    {"self_attn.o_proj.weight", PRODUCT, {HIDDEN, Q_WIDTH}},
    {"self_attn.q_norm.weight", SCALE, {TEXT_HEAD}},
    {"self_attn.k_norm.weight", SCALE, {TEXT_HEAD}},
    {"mlp.gate_proj.weight", PRODUCT, {FFN, HIDDEN}},
    {"mlp.up_proj.weight", PRODUCT, {FFN, HIDDEN}},
    {"mlp.down_proj.weight", PRODUCT, {HIDDEN, FFN}},
    {"input_layernorm.weight", SCALE, {HIDDEN}},
    {"post_attention_layernorm.weight", SCALE, {HIDDEN}},
};
static const row text_last[] = {{"model.norm.weight", SCALE, {HIDDEN}}};
static const row text_head[] = {{"lm_head.weight", PRODUCT, {VOCABULARY, HIDDEN}}};

static const row transformer_first[] = {
    {"time_guidance_embed.timestep_embedder.linear_1.weight", PRODUCT, {WIDTH, TIME}},
    {"time_guidance_embed.timestep_embedder.linear_2.weight", PRODUCT, {WIDTH, WIDTH}},
    {"double_stream_modulation_img.linear.weight", PRODUCT, {WIDTH6, WIDTH}},
    {"double_stream_modulation_txt.linear.weight", PRODUCT, {WIDTH6, WIDTH}},
    {"single_stream_modulation.linear.weight", PRODUCT, {WIDTH3, WIDTH}},
    {"x_embedder.weight", PRODUCT, {WIDTH, CHANNELS}},
    {"context_embedder.weight", PRODUCT, {WIDTH, FEATURES}},
};
static const row double_block[] = {
    {"attn.norm_q.weight", SCALE, {HEAD}},
    {"attn.norm_k.weight", SCALE, {HEAD}},
    {"attn.to_q.weight", PRODUCT, {WIDTH, WIDTH}},
    {"attn.to_k.weight", PRODUCT, {WIDTH, WIDTH}},
    {"attn.to_v.weight", PRODUCT, {WIDTH, WIDTH}},
    {"attn.to_out.0.weight", PRODUCT, {WIDTH, WIDTH}},
    {"attn.norm_added_q.weight", SCALE, {HEAD}},
    {"attn.norm_added_k.weight", SCALE, {HEAD}},
    {"attn.add_q_proj.weight", PRODUCT, {WIDTH, WIDTH}},
    {"attn.add_k_proj.weight", PRODUCT, {WIDTH, WIDTH}},
    {"attn.add_v_proj.weight", PRODUCT, {WIDTH, WIDTH}},
    {"attn.to_add_out.weight", PRODUCT, {WIDTH, WIDTH}},
    {"ff.linear_in.weight", PRODUCT, {MLP2, WIDTH}},
    {"ff.linear_out.weight", PRODUCT, {WIDTH, MLP}},
    {"ff_context.linear_in.weight", PRODUCT, {MLP2, WIDTH}},
    {"ff_context.linear_out.weight", PRODUCT, {WIDTH, MLP}},
};
static const row single_block[] = {
    {"attn.to_qkv_mlp_proj.weight", PRODUCT, {QKV_MLP, WIDTH}},
    {"attn.norm_q.weight", SCALE, {HEAD}},
    {"attn.norm_k.weight", SCALE, {HEAD}},
    {"attn.to_out.weight", PRODUCT, {WIDTH, OUT_MLP}},
};
static const row transformer_last[] = {
    {"norm_out.linear.weight", PRODUCT, {WIDTH2, WIDTH}},
    {"proj_out.weight", PRODUCT, {CHANNELS, WIDTH}},
};

/* The counter stands first: it is the one tensor whose place must be a multiple of 8. */
static const row statistics[] = {
    {"bn.num_batches_tracked", COUNTER, {END}}, {"bn.running_mean", MEAN, {CHANNELS}}, {"bn.running_var", VARIANCE, {CHANNELS}}};
static const row convolution[] = {{"weight", PRODUCT, {OUT, IN, THREE, THREE}}, {"bias", BIAS, {OUT}}};
static const row pointwise[] = {{"weight", PRODUCT, {OUT, IN, ONE, ONE}}, {"bias", BIAS, {OUT}}};
static const row linear[] = {{"weight", PRODUCT, {OUT, IN}}, {"bias", BIAS, {OUT}}};
static const row norm[] = {{"weight", SCALE, {OUT}}, {"bias", BIAS, {OUT}}};

typedef struct list {
    int64_t size[SYNTH_SIZES];
    synth_tensor *at; /* NULL: out of memory */
    int n, room;
} list;

static void add_row(list *l, const char *prefix, const row *r) {
    if (l->n == l->room) {
        l->room = l->room ? 2 * l->room : 256;
        synth_tensor *more = realloc(l->at, (size_t)l->room * sizeof *more);
        if (!more) {
            free(l->at);
            l->n = 0;
            l->room = -1; /* never tried again */
        }
        l->at = more;
    }
    if (!l->at) return;
    synth_tensor *t = &l->at[l->n++];
    *t = (synth_tensor){.counter = r->fill == COUNTER, .mean = fills[r->fill].mean, .deviation = fills[r->fill].deviation};
    snprintf(t->name, sizeof t->name, "%s%s", prefix, r->name);
    int64_t summed = 1;
    for (; t->dims.n < 4 && r->dims[t->dims.n] != END; t->dims.n++) {
        t->dims.at[t->dims.n] = l->size[r->dims[t->dims.n]];
        if (t->dims.n) summed *= t->dims.at[t->dims.n];
    }
    if (r->fill == PRODUCT) t->deviation = 1 / sqrt((double)summed);
}

static void add(list *l, const char *prefix, const row *rows, int n) {
    for (int i = 0; i < n; i++) add_row(l, prefix, &rows[i]);
}

static void add_numbered(list *l, const char *prefix, int64_t count, const row *rows, int n) {
    for (int64_t i = 0; i < count; i++) {
        char numbered[64];
        snprintf(numbered, sizeof numbered, "%s.%lld.", prefix, (long long)i);
        add(l, numbered, rows, n);
    }
}

static void text_encoder(list *l, const synth_model *m) {
    add(l, "", ROWS(text_first));
    add_numbered(l, "model.layers", m->size[LAYERS], ROWS(text_layer));
    add(l, "", ROWS(text_last));
    if (!m->tied) add(l, "", ROWS(text_head));
}

static void transformer(list *l, const synth_model *m) {
    add(l, "", ROWS(transformer_first));
    add_numbered(l, "transformer_blocks", m->size[DOUBLES], ROWS(double_block));
    add_numbered(l, "single_transformer_blocks", m->size[SINGLES], ROWS(single_block));
    add(l, "", ROWS(transformer_last));
}

/* ---- the autoencoder ----------------------------------------------------------------------------------------------------- */

/* One layer of it: a name, then rows in these channels. */
static void layer(list *l, const char *prefix, const char *name, int64_t in, int64_t out, const row *rows, int n) {
    char full[96];
    snprintf(full, sizeof full, "%s%s.", prefix, name);
    l->size[IN] = in;
    l->size[OUT] = out;
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
    char name[64];
    resnet(l, prefix, 0, width, width);
    snprintf(name, sizeof name, "%sattentions.0.", prefix);
    layer(l, name, "group_norm", width, width, ROWS(norm));
    static const char *const products[] = {"to_q", "to_k", "to_v", "to_out.0"};
    for (int i = 0; i < 4; i++) layer(l, name, products[i], width, width, ROWS(linear));
    resnet(l, prefix, 1, width, width);
}

static void autoencoder(list *l, const synth_model *m) {
    int64_t c = m->size[BASE], width[] = {c, 2 * c, 4 * c, 4 * c}, moments = m->size[MOMENTS], latent = m->size[LATENT];
    add(l, "", ROWS(statistics));
    layer(l, "encoder.", "conv_in", 3, width[0], ROWS(convolution));
    for (int i = 0; i < 4; i++) level(l, "encoder.down_blocks", i, 2, width[i ? i - 1 : 0], width[i], "downsamplers.0.conv");
    middle(l, "encoder.mid_block.", width[3]);
    layer(l, "encoder.", "conv_norm_out", width[3], width[3], ROWS(norm));
    layer(l, "encoder.", "conv_out", width[3], moments, ROWS(convolution));
    layer(l, "", "quant_conv", moments, moments, ROWS(pointwise));
    layer(l, "", "post_quant_conv", latent, latent, ROWS(pointwise));
    layer(l, "decoder.", "conv_in", latent, width[3], ROWS(convolution));
    middle(l, "decoder.mid_block.", width[3]);
    for (int i = 0; i < 4; i++) level(l, "decoder.up_blocks", i, 3, width[i ? 4 - i : 3], width[3 - i], "upsamplers.0.conv");
    layer(l, "decoder.", "conv_norm_out", c, c, ROWS(norm));
    layer(l, "decoder.", "conv_out", c, 3, ROWS(convolution));
}

const char *const synth_part_names[SYNTH_PARTS] = {"text_encoder", "transformer", "vae"};

synth_tensor *synth_tensors(const synth_model *m, synth_part part, int *n) {
    static void (*const parts[])(list *, const synth_model *) = {text_encoder, transformer, autoencoder};
    list l = {.at = NULL};
    memcpy(l.size, m->size, sizeof l.size);
    parts[part](&l, m);
    *n = l.n;
    return l.at;
}

int64_t synth_bytes(const synth_tensor *t) {
    int64_t bytes = t->counter ? 8 : 2;
    for (int i = 0; i < t->dims.n; i++) bytes *= t->dims.at[i];
    return bytes;
}
