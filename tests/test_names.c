/* test_names.c: the names of tensors in files of every maker, against the tables of tests/data/names: a row for each tensor
 * of the engine, with the tensor of the file and what is done with it. The tables were made by reading the programs that write
 * such files. Files are written with their header alone, and a hole for the numbers. */
#include <fcntl.h>
#include <sys/stat.h>

#include "check.h"
#include "folder.h"
#include "models/names.h"

#ifndef LZ_SOURCE_DIR
#define LZ_SOURCE_DIR "."
#endif

/* ---- files without numbers --------------------------------------------------------------------------------------- */

typedef struct entry {
    char name[200];
    lz_dims dims;
} entry;

static entry entries[4096];
static int n_entries;

static void add(const char *prefix, const char *name, lz_dims dims) {
    char whole[200];
    snprintf(whole, sizeof whole, "%s%s", prefix, name);
    for (int i = 0; i < n_entries; i++)
        if (!strcmp(entries[i].name, whole)) return;
    entries[n_entries].dims = dims;
    snprintf(entries[n_entries++].name, sizeof entries[0].name, "%s", whole);
}

static lz_weights *open_entries(lz_context *ctx) {
    lz_error err = {0};
    static char header[1 << 20];
    size_t used = (size_t)snprintf(header, sizeof header, "{");
    int64_t at = 0;
    for (int i = 0; i < n_entries; i++) {
        used += (size_t)snprintf(header + used, sizeof header - used, "%s\"%s\":{\"dtype\":\"BF16\",\"shape\":[",
                                 i ? "," : "", entries[i].name);
        int64_t n = 2;
        for (int k = 0; k < entries[i].dims.n; n *= entries[i].dims.at[k++])
            used += (size_t)snprintf(header + used, sizeof header - used, "%s%lld", k ? "," : "",
                                     (long long)entries[i].dims.at[k]);
        used += (size_t)snprintf(header + used, sizeof header - used, "],\"data_offsets\":[%lld,%lld]}", (long long)at,
                                 (long long)(at + n));
        at += n;
    }
    used += (size_t)snprintf(header + used, sizeof header - used, "}");
    uint64_t length = used;
    const char *path = in_folder("names.safetensors");
    FILE *f = fopen(path, "wb");
    CHECK(f && fwrite(&length, 8, 1, f) == 1 && fwrite(header, used, 1, f) == 1 && fclose(f) == 0);
    CHECK(truncate(path, (off_t)(8 + (int64_t)used + at)) == 0);
    lz_weights *w = lz_weights_open(ctx, path, &err);
    CHECK(w, "%s", err.text);
    n_entries = 0;
    return w;
}

static lz_dims read_dims(const char *text) {
    lz_dims d = {.n = 0};
    for (text += *text == '['; *text && *text != ']'; text += *text == ',')
        d.at[d.n++] = strtoll(text, (char **)&text, 10);
    return d;
}

/* ---- the tables -------------------------------------------------------------------------------------------------- */

typedef struct row {
    char file[128], engine[128], operation[80];
    lz_dims dims;
} row;

static row rows[600];

static int read_table(const char *name) {
    char path[512], line[1024], dims[64];
    snprintf(path, sizeof path, "%s/tests/data/names/%s.tsv", LZ_SOURCE_DIR, name);
    FILE *f = fopen(path, "r");
    int n = 0;
    if (!CHECK(f && fgets(line, sizeof line, f))) return 0;
    for (; fgets(line, sizeof line, f); n++) {
        row *r = &rows[n];
        CHECK(sscanf(line, "%127[^\t]\t%63[^\t]\t%127[^\t]\t%79[^\n]", r->file, dims, r->engine, r->operation) == 4);
        r->dims = read_dims(dims);
    }
    fclose(f);
    return n;
}

static lz_dims engine_dims(const row *r) {
    lz_dims d = r->dims;
    long long first, end;
    if (sscanf(r->operation, "rows [%lld:%lld]", &first, &end) == 2) d.at[0] = end - first;
    if (!strncmp(r->operation, "drop", 4)) d.n -= 2;
    return d;
}

static void check_row(const lz_names *names, const char *prefix, const row *r) {
    lz_origin from;
    lz_dims want = engine_dims(r);
    if (!CHECK(lz_names_find(names, r->engine, want, &from), "%s", r->engine)) return;
    char whole[300];
    snprintf(whole, sizeof whole, "%s%.127s", prefix, r->file);
    CHECK(!strcmp(from.pieces[0].name, whole), "%s is in %s, not %s", r->engine, from.pieces[0].name, whole);
    long long first = 0, end = -1;
    bool swap = !strncmp(r->operation, "swap", 4);
    if (swap) sscanf(strchr(r->operation, '['), "[%lld:%lld]", &first, &end);
    if (!strncmp(r->operation, "rows", 4)) sscanf(r->operation, "rows [%lld:%lld]", &first, &end);
    CHECK_I64(from.n, swap ? 2 : 1);
    CHECK_I64(from.pieces[0].first, first);
    CHECK_I64(from.pieces[0].rows, end < 0 ? -1 : end - first);
    if (swap) {
        CHECK(!strcmp(from.pieces[1].name, whole));
        CHECK_I64(from.pieces[1].first, 0);
        CHECK_I64(from.pieces[1].rows, first);
    }
}

typedef struct table_case {
    const char *table;
    const lz_component *component;
    int rows;
    const char *prefixes[5];
} table_case;

static const table_case tables[] = {
    {"flux2-klein-4b", &lz_names_flux2, 169, {"", "model.diffusion_model.", "diffusion_model.", "net.", "model."}},
    {"z-image", &lz_names_z_image, 521, {"", "model.diffusion_model.", "diffusion_model."}},
    {"flux2-vae", &lz_names_flux2_vae, 251, {"", "vae.", "first_stage_model."}},
    {"flux1-ae", &lz_names_flux1_vae, 244, {"", "vae."}},
    {"qwen-image-vae", &lz_names_qwen_vae, 194, {"", "vae."}},
};

/* Each row of each table, under each prefix; and the same names of the engine in a file of diffusers. Traps 2 (halves are
 * swapped) and 12 (up blocks are counted from the last one) are rows of these tables. */
static void all_tables(void) {
    lz_context *ctx = lz_open(.threads = 1);
    enter_folder();
    for (size_t t = 0; t < sizeof tables / sizeof *tables; t++) {
        const table_case *c = &tables[t];
        int n = read_table(c->table);
        CHECK_I64(n, c->rows);
        for (int p = 0; p < 5 && c->prefixes[p]; p++) {
            for (int i = 0; i < n; i++) add(c->prefixes[p], rows[i].file, rows[i].dims);
            lz_weights *w = open_entries(ctx);
            lz_names names;
            if (CHECK(lz_names_open(&names, c->component, w), "%s with '%s'", c->table, c->prefixes[p])) {
                CHECK(!strcmp(names.prefix, c->prefixes[p]), "'%s'", names.prefix);
                CHECK(!names.channels_last);
                for (int i = 0; i < n; i++) check_row(&names, c->prefixes[p], &rows[i]);
            }
            lz_weights_close(w);
        }
        for (int i = 0; i < n; i++) add("", rows[i].engine, engine_dims(&rows[i]));
        lz_weights *w = open_entries(ctx);
        lz_names names;
        CHECK(lz_names_open(&names, c->component, w));
        for (int i = 0; i < n; i++) {
            lz_origin from;
            CHECK(lz_names_find(&names, rows[i].engine, engine_dims(&rows[i]), &from) && from.n == 1 &&
                      !strcmp(from.pieces[0].name, rows[i].engine) && from.pieces[0].rows == -1,
                  "%s", rows[i].engine);
        }
        lz_weights_close(w);
    }
    leave_folder();
    lz_close(ctx);
}

/* ---- names that have no table ------------------------------------------------------------------------------------ */

typedef struct name_case {
    const char *file, *dims, *engine, *wanted; /* wanted: dims of the engine */
    int first, rows;                           /* -1: all */
} name_case;

static void check_names(lz_context *ctx, const lz_component *component, const char *file_prefix, const name_case *cases,
                        int n) {
    for (int i = 0; i < n; i++) add(file_prefix, cases[i].file, read_dims(cases[i].dims));
    lz_weights *w = open_entries(ctx);
    lz_names names;
    if (CHECK(lz_names_open(&names, component, w), "%s", component->name)) {
        CHECK(!strcmp(names.prefix, file_prefix), "'%s', not '%s'", names.prefix, file_prefix);
        for (int i = 0; i < n; i++) {
            const name_case *c = &cases[i];
            lz_origin from;
            char whole[300];
            snprintf(whole, sizeof whole, "%s%s", file_prefix, c->file);
            if (!CHECK(lz_names_find(&names, c->engine, read_dims(c->wanted), &from), "%s", c->engine)) continue;
            CHECK(!strcmp(from.pieces[0].name, whole), "%s, not %s", from.pieces[0].name, whole);
            CHECK_I64(from.pieces[0].first, c->first);
            CHECK_I64(from.pieces[0].rows, c->rows);
        }
    }
    lz_weights_close(w);
}
#define CHECK_NAMES(component, prefix, cases)                                                                          \
    check_names(ctx, &lz_names_##component, prefix, cases, (int)(sizeof(cases) / sizeof(cases)[0]))

#define LAYER "model.layers.3."
/* Qwen3-4B in the names of llama.cpp, whole and fused as ComfyUI can save it. */
static const name_case llama[] = {
    {"token_embd.weight", "151936,2560", "model.embed_tokens.weight", "151936,2560", 0, -1},
    {"output_norm.weight", "2560", "model.norm.weight", "2560", 0, -1},
    {"blk.0.attn_q_norm.weight", "128", "model.layers.0.self_attn.q_norm.weight", "128", 0, -1},
    {"blk.3.attn_norm.weight", "2560", LAYER "input_layernorm.weight", "2560", 0, -1},
    {"blk.3.ffn_norm.weight", "2560", LAYER "post_attention_layernorm.weight", "2560", 0, -1},
    {"blk.3.attn_q.weight", "4096,2560", LAYER "self_attn.q_proj.weight", "4096,2560", 0, -1},
    {"blk.3.attn_k.weight", "1024,2560", LAYER "self_attn.k_proj.weight", "1024,2560", 0, -1},
    {"blk.3.attn_v.weight", "1024,2560", LAYER "self_attn.v_proj.weight", "1024,2560", 0, -1},
    {"blk.3.attn_output.weight", "2560,4096", LAYER "self_attn.o_proj.weight", "2560,4096", 0, -1},
    {"blk.3.attn_q_norm.weight", "128", LAYER "self_attn.q_norm.weight", "128", 0, -1},
    {"blk.3.attn_k_norm.weight", "128", LAYER "self_attn.k_norm.weight", "128", 0, -1},
    {"blk.3.ffn_gate.weight", "9728,2560", LAYER "mlp.gate_proj.weight", "9728,2560", 0, -1},
    {"blk.3.ffn_up.weight", "9728,2560", LAYER "mlp.up_proj.weight", "9728,2560", 0, -1},
    {"blk.3.ffn_down.weight", "2560,9728", LAYER "mlp.down_proj.weight", "2560,9728", 0, -1},
};
static const name_case fused[] = {
    {"embed_tokens.weight", "151936,2560", "model.embed_tokens.weight", "151936,2560", 0, -1},
    {"layers.0.self_attn.q_norm.weight", "128", "model.layers.0.self_attn.q_norm.weight", "128", 0, -1},
    {"layers.3.self_attn.qkv_proj.weight", "6144,2560", LAYER "self_attn.q_proj.weight", "4096,2560", 0, 4096},
    {"layers.3.self_attn.qkv_proj.weight", "6144,2560", LAYER "self_attn.k_proj.weight", "1024,2560", 4096, 1024},
    {"layers.3.self_attn.qkv_proj.weight", "6144,2560", LAYER "self_attn.v_proj.weight", "1024,2560", 5120, 1024},
    {"layers.3.mlp.gate_up_proj.weight", "19456,2560", LAYER "mlp.gate_proj.weight", "9728,2560", 0, 9728},
    {"layers.3.mlp.gate_up_proj.weight", "19456,2560", LAYER "mlp.up_proj.weight", "9728,2560", 9728, 9728},
};
/* Qwen2.5-VL-7B: biases too. */
static const name_case fused25[] = {
    {"embed_tokens.weight", "152064,3584", "model.embed_tokens.weight", "152064,3584", 0, -1},
    {"layers.0.self_attn.qkv_proj.bias", "4608", "model.layers.0.self_attn.q_proj.bias", "3584", 0, 3584},
    {"layers.0.self_attn.qkv_proj.bias", "4608", "model.layers.0.self_attn.k_proj.bias", "512", 3584, 512},
    {"layers.0.self_attn.qkv_proj.bias", "4608", "model.layers.0.self_attn.v_proj.bias", "512", 4096, 512},
};
static const name_case llama25[] = {
    {"token_embd.weight", "152064,3584", "model.embed_tokens.weight", "152064,3584", 0, -1},
    {"blk.0.attn_k.bias", "512", "model.layers.0.self_attn.k_proj.bias", "512", 0, -1},
    {"blk.3.attn_q.bias", "3584", LAYER "self_attn.q_proj.bias", "3584", 0, -1},
};

/* Trap 17: what is stripped is decided by what then fits, so the "model." of a text encoder stays. */
static void text_encoders(void) {
    static const char *const prefixes[] = {"model.", "model.language_model.", "encoder.",
                                           "text_encoders.qwen3_4b.transformer.model.",
                                           "text_encoders.qwen25_7b.transformer.model."};
    lz_context *ctx = lz_open(.threads = 1);
    enter_folder();
    CHECK_NAMES(qwen3, "", llama);
    CHECK_NAMES(qwen25, "", llama25);
    for (size_t i = 0; i < sizeof prefixes / sizeof *prefixes; i++) {
        add("text_encoders.", "a.logit_scale", LZ_DIMS(1));
        CHECK_NAMES(qwen3, prefixes[i], fused);
        CHECK_NAMES(qwen25, prefixes[i], fused25);
    }
    /* A text encoder is not a transformer with the prefix "model.". */
    for (size_t i = 0; i < sizeof fused / sizeof *fused; i++) add("model.", fused[i].file, read_dims(fused[i].dims));
    lz_weights *w = open_entries(ctx);
    lz_names names;
    CHECK(!lz_names_open(&names, &lz_names_flux2, w) && !lz_names_open(&names, &lz_names_qwen_image, w));
    CHECK(!lz_names_open(&names, &lz_names_qwen25, w) && lz_names_open(&names, &lz_names_qwen3, w));
    lz_weights_close(w);
    leave_folder();
    lz_close(ctx);
}

#define BLOCK "visual.blocks.5."
static const name_case mmproj[] = {
    {"v.patch_embd.weight", "1280,3,14,14", "visual.patch_embed.proj.weight", "1280,3,2,14,14", 0, -1},
    {"v.patch_embd.weight.1", "1280,3,14,14", "visual.blocks.0.norm1.weight", "1280", 0, -1}, /* see vision_tower */
    {"v.blk.0.ln1.weight", "1280", "visual.blocks.0.norm1.weight", "1280", 0, -1},
    {"v.blk.5.ln2.weight", "1280", BLOCK "norm2.weight", "1280", 0, -1},
    {"v.blk.5.attn_q.weight", "1280,1280", BLOCK "attn.qkv.weight", "3840,1280", 0, -1},
    {"v.blk.5.attn_k.weight", "1280,1280", BLOCK "attn.qkv.weight", "3840,1280", 0, -1},
    {"v.blk.5.attn_v.weight", "1280,1280", BLOCK "attn.qkv.weight", "3840,1280", 0, -1},
    {"v.blk.5.attn_out.bias", "1280", BLOCK "attn.proj.bias", "1280", 0, -1},
    {"v.blk.5.ffn_gate.weight", "3420,1280", BLOCK "mlp.gate_proj.weight", "3420,1280", 0, -1},
    {"v.blk.5.ffn_up.weight", "3420,1280", BLOCK "mlp.up_proj.weight", "3420,1280", 0, -1},
    {"v.blk.5.ffn_down.weight", "1280,3420", BLOCK "mlp.down_proj.weight", "1280,3420", 0, -1},
    {"v.blk.5.ffn_up.bias", "3420", BLOCK "mlp.up_proj.bias", "3420", 0, -1},
    {"v.blk.5.ffn_down.bias", "1280", BLOCK "mlp.down_proj.bias", "1280", 0, -1},
    {"v.post_ln.weight", "1280", "visual.merger.ln_q.weight", "1280", 0, -1},
    {"mm.0.weight", "5120,5120", "visual.merger.mlp.0.weight", "5120,5120", 0, -1},
    {"mm.2.bias", "3584", "visual.merger.mlp.2.bias", "3584", 0, -1},
};

static bool has_piece(const lz_origin *from, int i, const char *name) {
    return i < from->n && !strcmp(from->pieces[i].name, name);
}

/* The mmproj file of llama.cpp. Trap 8: older files have up and down exchanged. */
static void vision_tower(void) {
    lz_context *ctx = lz_open(.threads = 1);
    enter_folder();
    for (int old = 0; old < 2; old++) {
        int n = (int)(sizeof mmproj / sizeof *mmproj);
        for (int i = 0; i < n; i++) {
            bool up = strstr(mmproj[i].file, "ffn_up"), down = strstr(mmproj[i].file, "ffn_down");
            char name[64];
            snprintf(name, sizeof name, "v.blk.5.ffn_%s", up ? "down" : "up");
            bool weight = strstr(mmproj[i].file, "weight");
            if (old && (up || down)) snprintf(name + strlen(name), 16, weight ? ".weight" : ".bias");
            add("", old && (up || down) ? name : mmproj[i].file, read_dims(mmproj[i].dims));
        }
        lz_weights *w = open_entries(ctx);
        lz_names names;
        lz_origin from;
        CHECK(lz_names_open(&names, &lz_names_qwen25_vision, w));
        CHECK(lz_names_find(&names, "visual.patch_embed.proj.weight", LZ_DIMS(1280, 3, 2, 14, 14), &from));
        CHECK(from.frames && has_piece(&from, 0, "v.patch_embd.weight") &&
              has_piece(&from, 1, "v.patch_embd.weight.1"));
        CHECK(lz_names_find(&names, BLOCK "attn.qkv.weight", LZ_DIMS(3840, 1280), &from) && !from.frames);
        CHECK(from.n == 3 && has_piece(&from, 0, "v.blk.5.attn_q.weight") &&
              has_piece(&from, 1, "v.blk.5.attn_k.weight") && has_piece(&from, 2, "v.blk.5.attn_v.weight"));
        for (int i = 0; i < n; i++) {
            const name_case *c = &mmproj[i];
            bool up = strstr(c->file, "ffn_up"), down = strstr(c->file, "ffn_down");
            if (strstr(c->file, "patch") || strstr(c->file, "attn_q") || strstr(c->file, "attn_k") ||
                strstr(c->file, "attn_v"))
                continue;
            CHECK(lz_names_find(&names, c->engine, read_dims(c->wanted), &from), "%s", c->engine);
            bool swapped = strstr(from.pieces[0].name, up ? "ffn_down" : "ffn_up");
            if (up || down) CHECK(swapped == old, "%s is in %s", c->engine, from.pieces[0].name);
            if (!up && !down) CHECK(has_piece(&from, 0, c->file), "%s is in %s", c->engine, from.pieces[0].name);
        }
        lz_weights_close(w);
    }
    leave_folder();
    lz_close(ctx);
}

/* mflux's module trees. */
static const name_case mflux_klein[] = {
    {"double_stream_modulation_img.linear.weight", "18432,3072", "double_stream_modulation_img.linear.weight",
     "18432,3072", 0, -1},
    {"x_embedder.weight", "3072,128", "x_embedder.weight", "3072,128", 0, -1},
    {"time_guidance_embed.linear_1.weight", "3072,256", "time_guidance_embed.timestep_embedder.linear_1.weight",
     "3072,256", 0, -1},
    {"time_guidance_embed.linear_2.weight", "3072,3072", "time_guidance_embed.timestep_embedder.linear_2.weight",
     "3072,3072", 0, -1},
    {"transformer_blocks.4.attn.to_out.weight", "3072,3072", "transformer_blocks.4.attn.to_out.0.weight", "3072,3072",
     0, -1},
};
static const name_case mflux_qwen[] = {
    {"txt_norm.weight", "3584", "txt_norm.weight", "3584", 0, -1},
    {"img_in.weight", "3072,64", "img_in.weight", "3072,64", 0, -1},
    {"transformer_blocks.0.attn.add_k_proj.weight", "3072,3072", "transformer_blocks.0.attn.add_k_proj.weight",
     "3072,3072", 0, -1},
    {"transformer_blocks.7.attn.attn_to_out.0.bias", "3072", "transformer_blocks.7.attn.to_out.0.bias", "3072", 0, -1},
    {"transformer_blocks.7.img_mod_linear.weight", "18432,3072", "transformer_blocks.7.img_mod.1.weight", "18432,3072",
     0, -1},
    {"transformer_blocks.7.txt_mod_linear.bias", "18432", "transformer_blocks.7.txt_mod.1.bias", "18432", 0, -1},
    {"transformer_blocks.7.img_ff.mlp_in.weight", "12288,3072", "transformer_blocks.7.img_mlp.net.0.proj.weight",
     "12288,3072", 0, -1},
    {"transformer_blocks.7.txt_ff.mlp_out.weight", "3072,12288", "transformer_blocks.7.txt_mlp.net.2.weight",
     "3072,12288", 0, -1},
};
static const name_case mflux_vae[] = {
    {"decoder.mid_block.resnets.0.norm1.weight", "384", "decoder.mid_block.resnets.0.norm1.gamma", "384,1,1,1", 0, -1},
    {"decoder.mid_block.attentions.0.to_qkv.weight", "1152,1,1,384", "decoder.mid_block.attentions.0.to_qkv.weight",
     "1152,384,1,1", 0, -1},
    {"decoder.norm_out.weight", "96", "decoder.norm_out.gamma", "96,1,1,1", 0, -1},
    {"decoder.conv_in.conv3d.weight", "384,3,3,3,16", "decoder.conv_in.weight", "384,16,3,3,3", 0, -1},
    {"quant_conv.conv3d.bias", "32", "quant_conv.bias", "32", 0, -1},
    {"decoder.mid_block.resnets.1.conv2.conv3d.weight", "384,3,3,3,384", "decoder.mid_block.resnets.1.conv2.weight",
     "384,384,3,3,3", 0, -1},
    {"decoder.up_block1.resnets.0.skip_conv.conv3d.weight", "384,1,1,1,192",
     "decoder.up_blocks.1.resnets.0.conv_shortcut.weight", "384,192,1,1,1", 0, -1},
    {"decoder.up_block2.upsamplers.0.resample_conv.weight", "96,3,3,192",
     "decoder.up_blocks.2.upsamplers.0.resample.1.weight", "96,192,3,3", 0, -1},
    {"encoder.down_blocks.1.resnets.0.skip_conv.conv3d.weight", "192,1,1,1,96",
     "encoder.down_blocks.3.conv_shortcut.weight", "192,96,1,1,1", 0, -1},
    {"encoder.down_blocks.3.resnets.1.conv1.conv3d.weight", "384,3,3,3,384", "encoder.down_blocks.10.conv1.weight",
     "384,384,3,3,3", 0, -1},
    {"encoder.down_blocks.2.downsamplers.0.resample_conv.bias", "384", "encoder.down_blocks.8.resample.1.bias", "384",
     0, -1},
};

static void mflux(void) {
    lz_context *ctx = lz_open(.threads = 1);
    enter_folder();
    CHECK_NAMES(flux2, "", mflux_klein);
    CHECK_NAMES(qwen_image, "", mflux_qwen);
    CHECK_NAMES(qwen_vae, "", mflux_vae);
    int n = (int)(sizeof mflux_vae / sizeof *mflux_vae);
    for (int i = 0; i < n; i++) add("", mflux_vae[i].file, read_dims(mflux_vae[i].dims));
    lz_weights *w = open_entries(ctx);
    lz_names names;
    CHECK(lz_names_open(&names, &lz_names_qwen_vae, w) && names.channels_last);
    lz_weights_close(w);
    leave_folder();
    lz_close(ctx);
}

/* Trap 16: in a checkpoint with everything each component has its own prefix. Trap 13: the file flux2-vae.safetensors has the
 * names of diffusers; that both are found is in all_tables. FLUX.2's norms end in scale or weight. */
static void all_in_one(void) {
    lz_context *ctx = lz_open(.threads = 1);
    enter_folder();
    int n = read_table("flux2-klein-4b");
    for (int i = 0; i < n; i++) {
        char name[128];
        snprintf(name, sizeof name, "%.127s", rows[i].file);
        char *scale = strstr(name, ".scale");
        if (scale) memcpy(scale, ".weight", 8);
        add("model.diffusion_model.", name, rows[i].dims);
    }
    row norm = rows[0];
    n = read_table("flux2-vae");
    for (int i = 0; i < n; i++) add("vae.", rows[i].file, rows[i].dims);
    for (size_t i = 0; i < sizeof fused / sizeof *fused; i++)
        add("text_encoders.qwen3_4b.transformer.model.", fused[i].file, read_dims(fused[i].dims));
    add("", "text_encoders.qwen3_4b.logit_scale", LZ_DIMS(1));
    lz_weights *w = open_entries(ctx);
    lz_names names;
    lz_origin from;
    CHECK(lz_names_open(&names, &lz_names_flux2, w) && !strcmp(names.prefix, "model.diffusion_model."));
    CHECK(lz_names_find(&names, norm.engine, norm.dims, &from) && strstr(from.pieces[0].name, "_norm.weight"));
    CHECK(lz_names_open(&names, &lz_names_flux2_vae, w) && !strcmp(names.prefix, "vae.") && names.levels == 4);
    CHECK(lz_names_open(&names, &lz_names_qwen3, w) &&
          !strcmp(names.prefix, "text_encoders.qwen3_4b.transformer.model."));
    CHECK(!lz_names_open(&names, &lz_names_qwen_image, w) && !lz_names_open(&names, &lz_names_qwen_vae, w) &&
          !lz_names_open(&names, &lz_names_qwen25, w) && !lz_names_open(&names, &lz_names_z_image, w));
    lz_weights_close(w);
    leave_folder();
    lz_close(ctx);
}

/* All names of a module, for those who look the other way round. */
static void spellings(void) {
    lz_spelling s;
    const char *module = "transformer_blocks.12.attn.to_k";
    CHECK(lz_names_spell(&lz_names_flux2, module, 0, 0, &s) && !strcmp(s.name, module) && s.kind == LZ_ALIAS_COPY);
    CHECK(lz_names_spell(&lz_names_flux2, module, 0, 1, &s) && !strcmp(s.name, "double_blocks.12.img_attn.qkv"));
    CHECK(s.kind == LZ_ALIAS_ROWS && s.at == 1);
    CHECK(!lz_names_spell(&lz_names_flux2, module, 0, 2, &s));
    char longest[400];
    memset(longest, 'a', sizeof longest);
    longest[sizeof longest - 1] = 0;
    CHECK(!lz_names_spell(&lz_names_flux2, longest, 0, 0, &s));
}

TEST_MAIN({"all_tables", all_tables}, {"text_encoders", text_encoders}, {"vision_tower", vision_tower},
          {"mflux", mflux}, {"all_in_one", all_in_one}, {"spellings", spellings})
