/* test_loras.c: the LoRAs of a model: what they bring along, what is refused, and how they come and go. */
#include "loras.h"

static lz_error err;
static lz_context *ctx;
static lz_model *model;

/* Opens a context and a model of tests/data, and enters a folder for files. */
static bool begin(const char *data, const char *name) {
    err = (lz_error){.status = LZ_OK};
    ctx = lz_open();
    enter_folder();
    return (model = open_model(ctx, data, name));
}

static void end(void) {
    leave_folder();
    lz_model_close(model);
    lz_close(ctx);
}

/* Format trap 5: Lightning has an alpha of 8 at rank 64, and a schedule of its own; both are seen in the picture qwen_lightning. The user's
 * own steps and guidance count more, and `ordinary` leaves the schedule alone. */
static void format_trap_5(void) {
    static const char path[] = LORAS "Qwen-Image-Lightning-4steps-V1.0-bf16.safetensors";
    if (!begin("qwen", "Q")) return;
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
    end();
}

/* Format trap 20: FLUX.1 has the names of FLUX.2, with other shapes, more blocks and a few more modules. */
static void format_trap_20(void) {
    if (!begin("flux2", "B")) return; /* a width of 32 */
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
    end();
}

/* ---- what is refused --------------------------------------------------------------------------------------------- */

static void refusals(void) {
    if (!begin("flux2", "B")) return;
    made_file none = {.ctx = ctx}, some = {.ctx = ctx}, rows = {.ctx = ctx}, half = {.ctx = ctx};
    add_pair(&none, "lora_te_odd_one", 8, 2, 8);
    add_tensor(&none, "some.weight", LZ_DIMS(4));
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
    add_tensor(&half, "transformer.transformer_blocks.0.attn.to_q.lora_A.weight", LZ_DIMS(4, 32));
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
        add_tensor(&kind, name, LZ_DIMS(4, 32));
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
    end();
}

/* Each allocation fails in turn: the LoRAs that were there stay, and nothing leaks. */
static void memory_runs_out(void) {
    failing f = {0};
    lz_allocator allocator = {failing_allocate, failing_release, &f};
    ctx = lz_open(.allocator = &allocator, .threads = 1, .cache_limit = -1);
    if (!(model = open_model(ctx, "flux2", "B"))) return;
    const lz_lora first = LZ_LORA(.path = LORAS "klein-few.safetensors", .weight = 1),
                  both[] = {LZ_LORA(.path = LORAS "klein-dora.safetensors", .weight = 1),
                            LZ_LORA(.path = LORAS "klein-peft.safetensors", .weight = 0.5)};
    CHECK_OK(lz_model_set_loras(model, &first, 1, &err), &err);
    long long live = f.live;
    int failures = 0;
    bool reached = true;
    for (long long k = 1; reached && k < 1000000; k += 1 + k / 50) {
        lz_scope *scope = lz_scope_begin(ctx, "try"); /* holds what a scope that could not be had would hold */
        long long at = f.fail_at = f.asked + k;
        lz_status status = lz_model_set_loras(model, both, 2, &err);
        reached = f.asked >= at;
        f.fail_at = 0;
        lz_scope_end(scope);
        failures += status != LZ_OK;
        CHECK(status == LZ_OK || status == LZ_OUT_OF_MEMORY, "allocation %lld: %s", k, err.text);
        CHECK(lz_model_loras(model, NULL, 0) == (status ? 1 : 2));
        if (!status) CHECK_OK(lz_model_set_loras(model, &first, 1, &err), &err);
        CHECK(f.live == live, "allocation %lld: %lld are left", k, f.live - live);
    }
    CHECK(failures > 50 && !reached, "%d failures", failures);
    lz_model_close(model);
    lz_close(ctx);
    CHECK(f.live == 0, "%lld allocations are left", f.live);
}

/* Rows of a table are taken, and not multiplied: a change of them is not to be lost in silence. */
static void embeddings(void) {
    if (!begin("flux2", "B")) return;
    made_file f = {.ctx = ctx};
    add_pair(&f, "transformer.transformer_blocks.0.attn.to_q", 32, 4, 32);
    add_pair(&f, "text_encoder.model.embed_tokens", 640, 4, 32);
    CHECK_STATUS(try_file(model, &f, false, &err), LZ_BAD_FILE, &err);
    CHECK_TEXT(err.text, "embed_tokens");
    end();
}

/* A LoRA of the text encoder changes what the prompt becomes, also that of a prompt which was read before. */
static void text_encoder(void) {
    if (!begin("flux2", "B")) return;
    made_file f = {.ctx = ctx};
    lz_scope *scope = lz_scope_begin(ctx, "text");
    add_pair(&f, "lora_te_model_layers_0_self_attn_q_proj", 32, 4, 32);
    add_pair(&f, "lora_te_layers_1_mlp_up_proj", 80, 4, 32);
    test_case c = {.prompt = "a fox", .width = 32, .height = 32, .steps = 1, .guidance = 1};
    lz_picture before, with, after;
    paint(model, &c, 1, &before);
    CHECK_OK(try_file(model, &f, false, &err), &err);
    lz_lora_facts facts;
    CHECK(lz_model_loras(model, &facts, 1) == 1 && facts.in_text == 2);
    paint(model, &c, 1, &with);
    CHECK(!equal_bits(before.text, with.text));
    CHECK_OK(lz_model_set_loras(model, NULL, 0, &err), &err);
    paint(model, &c, 1, &after);
    CHECK(equal_bits(before.text, after.text) && equal_bits(before.pixels, after.pixels));
    lz_picture_free(&before);
    lz_picture_free(&with);
    lz_picture_free(&after);
    lz_scope_end(scope);
    end();
}

/* While a picture is under way, its model keeps its LoRAs. */
static bool change_under_way(void *user, const lz_progress *now) {
    (void)now;
    CHECK_STATUS(lz_model_set_loras(user, &LZ_LORA(.path = LORAS "klein-few.safetensors", .weight = 1), 1, &err),
                 LZ_BAD_ARGUMENT, &err);
    return true;
}

static void under_way(void) {
    lz_picture p;
    if (!begin("flux2", "B")) return;
    CHECK_OK(lz_generate(model, &p, &err, .prompt = "a fox", .width = 32, .height = 32, .steps = 1,
                         .watch = change_under_way, .user = model),
             &err);
    CHECK(lz_model_loras(model, NULL, 0) == 0);
    lz_picture_free(&p);
    end();
}

TEST_MAIN({"format_trap_5", format_trap_5}, {"format_trap_20", format_trap_20}, {"refusals", refusals},
          {"memory_runs_out", memory_runs_out}, {"embeddings", embeddings}, {"text_encoder", text_encoder},
          {"under_way", under_way})
