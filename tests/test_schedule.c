/* test_schedule.c: configuration files, read as diffusers and transformers read them: schedules, sizes, step counts and
 * pictures of tests/data/schedules.json (tools/oracle/schedules.py), and fields that are refused by name. */
#include <errno.h>
#include <jansson.h>
#include <sys/stat.h>

#include "diffusers.h"
#include "folder.h"
#include "models/qwen25_processor.h"
#include "pipeline/family.h"

#define DATA LZ_SOURCE_DIR "/tests/data"

static json_t *table(const char *key) { /* to be freed */
    json_t *all = json_load_file(DATA "/schedules.json", 0, NULL), *rows = json_incref(json_object_get(all, key));
    CHECK(json_array_size(rows) > 5, "%s", key);
    json_decref(all);
    return rows;
}

static int64_t number(const json_t *row, size_t i) { return json_integer_value(json_array_get(row, i)); }
static const char *text_of(const json_t *row, const char *key) { return json_string_value(json_object_get(row, key)); }
static double real_of(const json_t *row, const char *key) { return json_number_value(json_object_get(row, key)); }

/* ---- a model's folder with some files of its own ------------------------------------------------------------------ */

static void make_folder(const char *path) { CHECK(mkdir(path, 0755) == 0 || errno == EEXIST, "%s", path); }

static void remove_all(const char *path) {
    char inside[600];
    DIR *dir = opendir(path);
    for (struct dirent *e; dir && (e = readdir(dir));) {
        if (!strcmp(e->d_name, ".") || !strcmp(e->d_name, "..")) continue;
        snprintf(inside, sizeof inside, "%s/%s", path, e->d_name);
        if (unlink(inside)) remove_all(inside);
    }
    if (dir) closedir(dir);
    rmdir(path);
}

/* Links to the files of another folder. */
static void link_files(const char *from, const char *to) {
    char source[600], target[600];
    DIR *dir = opendir(from);
    for (struct dirent *e; dir && (e = readdir(dir));) {
        if (*e->d_name == '.') continue;
        snprintf(source, sizeof source, "%s/%s", from, e->d_name);
        snprintf(target, sizeof target, "%s/%s", to, e->d_name);
        CHECK(symlink(source, target) == 0, "%s", target);
    }
    if (dir) closedir(dir);
}

/* A model of tests/data with one file replaced by this JSON; "part/name". Where the part is "processor" nothing else stays
 * in it. */
static void begin_model(const char *model) {
    char from[600];
    enter_folder();
    snprintf(from, sizeof from, DATA "/%s", model);
    link_files(from, folder);
}

static void replace_file(const char *model, const char *path, const json_t *content) {
    char from[600], part[64];
    snprintf(part, sizeof part, "%.*s", (int)strcspn(path, "/"), path);
    struct stat s;
    if (lstat(in_folder(part), &s) == 0 && S_ISLNK(s.st_mode)) {
        unlink(in_folder(part));
        make_folder(in_folder(part));
        snprintf(from, sizeof from, DATA "/%s/%s", model, part);
        if (strcmp(part, "processor") != 0) link_files(from, in_folder(part));
    }
    unlink(in_folder(path));
    CHECK(json_dump_file(content, in_folder(path), JSON_INDENT(1)) == 0, "%s", path);
}

/* ---- schedules --------------------------------------------------------------------------------------------------- */

static void sigmas(void) {
    lz_context *ctx = lz_open();
    json_t *rows = table("schedules"), *row;
    size_t i;
    enter_folder();
    make_folder(in_folder("scheduler"));
    json_array_foreach(rows, i, row) {
        float got[LZ_MAX_STEPS + 1];
        lz_error err = {.status = LZ_OK};
        lz_schedule s;
        bool klein = strcmp(text_of(row, "family"), "qwen") !=
                     0; /* Qwen-Image's mu is the line, if it makes no layers */
        int64_t tokens = (int64_t)real_of(row, "tokens");
        int steps = (int)real_of(row, "steps"), wrong = 0;
        json_dump_file(json_object_get(row, "config"), in_folder("scheduler/scheduler_config.json"), 0);
        if (!CHECK_OK(lz_schedule_read(&s, ctx, folder, &err), &err)) continue;
        double mu = klein ? lz_family_flux2_klein.mu(NULL, &s, tokens, steps) : lz_schedule_line(&s, tokens);
        CHECK(lz_schedule_sigmas(&s, mu, steps, got));
        const json_t *want = json_object_get(row, "sigmas");
        CHECK_I64((int64_t)json_array_size(want), steps + 1);
        for (int k = 0; k <= steps; k++) wrong += got[k] != (float)json_number_value(json_array_get(want, (size_t)k));
        char *config = json_dumps(json_object_get(row, "config"), 0);
        CHECK(wrong == 0, "trap 1: %d of %d sigmas are not those of diffusers: %s", wrong, steps, config);
        free(config);
    }
    json_decref(rows);
    remove_all(folder);
    lz_close(ctx);
}

static void refused_schedules(void) {
    static const char *const cases[][2] = {
        /* the file without its braces, and the word in the sentence that refuses it */
        {"\"_class_name\": \"FlowMatchHeunDiscreteScheduler\"", "FlowMatchHeunDiscreteScheduler"},
        {"\"_class_name\": 5", "_class_name"},
        {"\"use_beta_sigmas\": 1", "use_beta_sigmas"},
        {"\"invert_sigmas\": \"yes\"", "invert_sigmas"},
        {"\"stochastic_sampling\": 0.5", "stochastic_sampling"},
        {"\"invert_sigmas\": true, \"stochastic_sampling\": true", "stochastic_sampling"},
        {"\"use_beta_sigmas\": true, \"use_exponential_sigmas\": true", "use_beta_sigmas"},
        {"\"use_karras_sigmas\": true, \"use_exponential_sigmas\": true", "use_karras_sigmas"},
        {"\"use_karras_sigmas\": 1", "use_karras_sigmas"},
        {"\"time_shift_type\": \"cubic\"", "time_shift_type"},
        {"\"time_shift_type\": 1", "time_shift_type"},
        {"\"shift_terminal\": 1", "shift_terminal"},
        {"\"shift_terminal\": true", "shift_terminal"},
        {"\"shift\": 0", "shift"},
        {"\"shift\": \"3\"", "shift"},
        {"\"max_shift\": 1e300", "max_shift"},
        {"\"base_image_seq_len\": 4096", "base_image_seq_len"},
        {"\"num_train_timesteps\": 0", "num_train_timesteps"},
        {"\"flow_map\": true", "flow_map"},
        {"\"use_flow_sigmas\": false", "use_flow_sigmas"},
        {NULL, NULL}};
    lz_context *ctx = lz_open();
    enter_folder();
    make_folder(in_folder("scheduler"));
    for (int i = 0; cases[i][0]; i++) {
        lz_schedule s;
        lz_error err = {.status = LZ_OK};
        FILE *f = fopen(in_folder("scheduler/scheduler_config.json"), "w");
        if (!CHECK(f != NULL)) break;
        fprintf(f, "{%s}", cases[i][0]);
        fclose(f);
        lz_status status = lz_schedule_read(&s, ctx, folder, &err);
        CHECK(status == LZ_BAD_FILE && strstr(err.text, cases[i][1]), "trap 1: %s: %s", cases[i][0], err.text);
    }
    remove_all(folder);
    lz_close(ctx);
}

/* Numbers that are fine one by one, and make no schedule together: an error, and no picture of NaN. */
static void impossible_schedule(void) {
    lz_context *ctx = lz_open();
    lz_error err = {.status = LZ_OK};
    lz_picture p;
    json_t *config = json_pack("{s:b, s:f, s:f, s:f}", "use_dynamic_shifting", 1, "base_shift", 90.0, "max_shift", 91.0,
                               "shift_terminal", 0.5);
    begin_model("qwen/Q");
    replace_file("qwen/Q", "scheduler/scheduler_config.json", config);
    lz_model *m = lz_model_open(ctx, folder, &err);
    if (CHECK(m != NULL, "%s", err.text)) {
        CHECK_STATUS(lz_generate(m, &p, &err, .width = 32, .height = 32, .steps = 4), LZ_BAD_FILE, &err);
        CHECK_TEXT(err.text, "give no valid schedule for 32 x 32");
    }
    lz_model_close(m);
    json_decref(config);
    remove_all(folder);
    lz_close(ctx);
}

/* ---- sizes and steps --------------------------------------------------------------------------------------------- */

static void sizes(void) {
    lz_context *ctx = lz_open();
    lz_error err = {.status = LZ_OK};
    json_t *rows = table("sizes"), *row;
    size_t i;
    lz_model *m = lz_model_open(ctx, DATA "/flux2/B", &err);
    uint8_t *pixels = calloc(8000 * 3000, 3);
    if (CHECK(m && pixels, "%s", err.text)) json_array_foreach(rows, i, row) {
            lz_image image = {.width = number(row, 0), .height = number(row, 1), .pixels = pixels};
            for (int start = 0; start < 2; start++) {
                lz_picture_options o = LZ_PICTURE_OPTIONS(.images = &image, .n_images = 1, .strength = start ? 0.5 : 0);
                CHECK_OK(lz_fill_options(m, &o, &err), &err);
                CHECK(o.width == number(row, 2) && o.height == number(row, 3),
                      "trap 3: %lld x %lld gives %lld x %lld, and %lld x %lld in diffusers", (long long)image.width,
                      (long long)image.height, (long long)o.width, (long long)o.height, (long long)number(row, 2),
                      (long long)number(row, 3));
            }
        }
    free(pixels);
    lz_model_close(m);
    json_decref(rows);
    lz_close(ctx);
}

static void strengths(void) {
    lz_context *ctx = lz_open();
    lz_error err = {.status = LZ_OK};
    json_t *rows = table("strengths"), *row;
    size_t i;
    lz_model *m = lz_model_open(ctx, DATA "/flux2/B", &err);
    uint8_t pixels[3 * 16 * 16] = {0};
    lz_image image = {.width = 16, .height = 16, .pixels = pixels};
    lz_picture_plan plan;
    if (CHECK(m != NULL, "%s", err.text)) json_array_foreach(rows, i, row) {
            lz_picture_options o = LZ_PICTURE_OPTIONS(.images = &image, .n_images = 1, .steps = (int)number(row, 0));
            o.strength = json_number_value(json_array_get(row, 1));
            CHECK_OK(lz_plan_picture(m, &o, &plan, &err), &err);
            CHECK(plan.steps == number(row, 2), "trap 3: strength %g runs %d of %d steps, and %lld in diffusers",
                  o.strength, plan.steps, o.steps, (long long)number(row, 2));
        }
    lz_picture_options none = LZ_PICTURE_OPTIONS(.images = &image, .n_images = 1, .steps = 4, .strength = 1e-300);
    CHECK_STATUS(lz_fill_options(m, &none, &err), LZ_BAD_ARGUMENT, &err);
    lz_model_close(m);
    json_decref(rows);
    lz_close(ctx);
}

static void views(void) {
    json_t *rows = table("views"), *row;
    size_t i;
    json_array_foreach(rows, i, row) {
        lz_qwen25_processor p = {.min_pixels = number(row, 2), .max_pixels = number(row, 3), .patch = 14};
        int64_t width = number(row, 0), height = number(row, 1);
        lz_qwen25_fit(&p, &width, &height);
        CHECK(width == number(row, 4) && height == number(row, 5),
              "trap 3: %lld x %lld within %lld to %lld pixels becomes %lld x %lld, and %lld x %lld in transformers",
              (long long)number(row, 0), (long long)number(row, 1), (long long)number(row, 2),
              (long long)number(row, 3), (long long)width, (long long)height, (long long)number(row, 4),
              (long long)number(row, 5));
    }
    json_decref(rows);
}

/* ---- pictures ---------------------------------------------------------------------------------------------------- */

static void run_picture(lz_context *ctx, lz_weights *golden, const json_t *row) {
    lz_error err = {.status = LZ_OK};
    const char *name = text_of(row, "name"), *model = text_of(row, "model"), *path;
    lz_scope *scope = lz_scope_begin(ctx, name);
    json_t *content;
    begin_model(model);
    json_object_foreach(json_object_get(row, "files"), path, content) replace_file(model, path, content);
    lz_model *m = lz_model_open(ctx, folder, &err);
    lz_image images[4] = {{0}};
    lz_picture p;
    const json_t *references = json_object_get(row, "references");
    if (json_array_size(references)) {
        char image[600];
        snprintf(image, sizeof image, DATA "/%.*s/%s", (int)strcspn(model, "/"), model,
                 json_string_value(json_array_get(references, 0)));
        CHECK_OK(lz_image_read(ctx, image, &images[0], &err), &err);
    }
    if (CHECK(m != NULL, "%s: %s", name, err.text) &&
        CHECK_OK(lz_generate(m, &p, &err, .prompt = text_of(row, "prompt"), .negative = text_of(row, "negative"),
                             .width = (int64_t)real_of(row, "width"), .height = (int64_t)real_of(row, "height"),
                             .steps = (int)real_of(row, "steps"), .guidance = real_of(row, "guidance"),
                             .seed = (uint64_t)real_of(row, "seed"), .images = images,
                             .n_images = (int)json_array_size(references)),
                 &err)) {
        double db = psnr(p.pixels, lz_weights_get(golden, name));
        CHECK(db >= 60, "trap 1 (schedule), trap 2 (processor_config.json): %s: %g dB", name, db);
        printf("    %-20s %.1f dB\n", name, db);
        lz_picture_free(&p);
    }
    lz_image_free(ctx, &images[0]);
    lz_model_close(m);
    remove_all(folder);
    lz_scope_end(scope);
}

/* Other schedules; Lightning with guidance; an Edit model with processor_config.json alone, and limits of its own. */
static void pictures(void) {
    lz_context *ctx = lz_open();
    lz_error err = {.status = LZ_OK};
    json_t *rows = table("pictures"), *row;
    size_t i;
    lz_weights *golden = lz_weights_open(ctx, DATA "/schedules.safetensors", &err);
    if (CHECK(golden != NULL, "%s", err.text)) json_array_foreach(rows, i, row) run_picture(ctx, golden, row);
    lz_weights_close(golden);
    json_decref(rows);
    lz_close(ctx);
}

/* ---- fields of the other files ------------------------------------------------------------------------------------ */

/* One field is set in one file: the model opens (words NULL), or is refused with these words. */
typedef struct field {
    const char *model, *path, *key, *value, *words; /* key: a/b is b in the object a */
} field;

#define TEXT "text_encoder/config.json"
#define VAE "vae/config.json"
#define WORDS "tokenizer/tokenizer_config.json"
#define EYES "processor/preprocessor_config.json"
static const field fields[] = {
    {"flux2/C", TEXT, "hidden_act", "\"gelu\"", "hidden_act"},
    {"flux2/C", TEXT, "rope_parameters/rope_type", "\"yarn\"", "rope_type"},
    {"flux2/C", TEXT, "rope_parameters/rope_type", "\"linear\"", "rope_type"},
    {"flux2/C", TEXT, "rope_parameters/factor", "4", "factor"},
    {"flux2/C", TEXT, "rope_scaling", "{\"type\": \"linear\", \"factor\": 2}", "'type' is 'linear'"},
    {"flux2/C", TEXT, "rope_scaling", "{\"rope_type\": \"yarn\", \"factor\": 2}", "rope_type"},
    {"flux2/C", TEXT, "rope_scaling", "4", "rope_scaling"},
    {"flux2/C", TEXT, "rope_scaling", "null", NULL},
    {"flux2/C", TEXT, "rope_theta", "-5", NULL}, /* rope_parameters has another, which counts */
    {"flux2/C", TEXT, "rope_parameters", "{\"rope_theta\": -5}", "rope_theta"},
    {"flux2/C", TEXT, "use_sliding_window", "true", "use_sliding_window"},
    {"flux2/C", TEXT, "layer_types", "[\"full_attention\", \"sliding_attention\"]", "layer_types"},
    {"flux2/C", TEXT, "attention_bias", "true", "attention_bias"},
    {"flux2/C", TEXT, "quantization_config", "{}", "quantization_config"},
    {"flux2/C", TEXT, "temperature", "0.7", NULL},
    {"flux2/C", TEXT, "torch_dtype", "\"bfloat16\"", NULL},
    {"flux2/C", TEXT, "new_field", "null", NULL},
    {"flux2/C", TEXT, "new_field", "0", "new_field"},
    {"flux2/C", TEXT, "_private", "1", NULL},
    {"flux2/C", VAE, "act_fn", "\"relu\"", "act_fn"},
    {"flux2/C", VAE, "act_fn", "\"swish\"", NULL},
    {"flux2/C", VAE, "force_upcast", "true", NULL},
    {"flux2/C", VAE, "down_block_types", "[\"AttnDownEncoderBlock2D\"]", "down_block_types"},
    {"flux2/C", VAE, "in_channels", "4", "in_channels"},
    {"flux2/C", VAE, "scaling_factor", "0.5", "scaling_factor"},
    {"flux2/C", WORDS, "padding_side", "\"left\"", "padding_side"},
    {"qwen/Q", WORDS, "padding_side", "\"left\"", NULL}, /* a prompt alone is not padded */
    {"flux2/C", WORDS, "add_bos_token", "true", "add_bos_token"},
    {"flux2/C", WORDS, "clean_up_tokenization_spaces", "false", NULL},
    {"flux2/C", "transformer/config.json", "is_tp", "true", "is_tp"},
    {"flux2/C", "scheduler/scheduler_config.json", "use_beta_sigmas", "true", NULL},
    {"flux2/C", "scheduler/scheduler_config.json", "use_beta_sigmas", "2", "use_beta_sigmas"},
    {"qwen/Q", TEXT, "hidden_act", "\"gelu\"", "hidden_act"},
    {"qwen/Q", TEXT, "rope_scaling/type", "\"yarn\"", "'type' is 'yarn'"},
    {"qwen/Q", TEXT, "rope_scaling/type", "\"mrope\"", NULL},
    {"qwen/Q", TEXT, "mlp_bias", "false", "mlp_bias"},
    {"qwen/Q", VAE, "is_residual", "true", "is_residual"},
    {"qwen/Q", "transformer/config.json", "pooled_projection_dim", "768", NULL},
    {"qwen/Q", "transformer/config.json", "use_layer3d_rope", "true", "use_layer3d_rope"},
    {"qwen/P", TEXT, "vision_config/hidden_act", "\"gelu\"", "hidden_act"},
    {"qwen/P", TEXT, "vision_config/deepstack_visual_indexes", "[1]", "deepstack_visual_indexes"},
    {"qwen/P", TEXT, "vision_config/in_chans", "3", NULL},
    /* Beside text_config */
    {"qwen/P", TEXT, "new_field", "1", "new_field"},
    {"qwen/P", TEXT, "use_sliding_window", "true", "use_sliding_window"},
    {"qwen/P", TEXT, "quantization_config", "{}", "quantization_config"},
    {"qwen/P", TEXT, "hidden_size", "77", NULL}, /* a copy, without effect in transformers too */
    {"qwen/P", TEXT, "vision_token_id", "7", NULL},
    {"qwen/P", TEXT, "tie_word_embeddings", "true", NULL},
    {"flux3/D", TEXT, "new_field", "1", "new_field"},
    {"flux3/D", TEXT, "rope_scaling", "null", NULL},
    {"qwen/P", EYES, "do_normalize", "false", "do_normalize"},
    {"qwen/P", EYES, "resample", "2", "resample"},
    {"qwen/P", EYES, "rescale_factor", "1", "rescale_factor"},
    {"qwen/P", EYES, "max_pixels", "100", "pixels"},
    {"qwen/P", EYES, "do_center_crop", "true", "do_center_crop"},
    {"qwen/P", EYES, "do_pad", "null", NULL},
    {"qwen/P", EYES, "sharpen", "true", "sharpen"},
};

static void check_field(lz_context *ctx, const field *f) {
    char from[600], outer[64] = "";
    lz_error err = {.status = LZ_OK};
    const char *slash = strchr(f->key, '/');
    snprintf(from, sizeof from, DATA "/%s/%s", f->model, f->path);
    json_t *config = json_load_file(from, 0, NULL), *value = json_loads(f->value, JSON_DECODE_ANY, NULL), *at = config;
    if (!CHECK(config && value, "%s", from)) return;
    if (slash) {
        snprintf(outer, sizeof outer, "%.*s", (int)(slash - f->key), f->key);
        at = json_object_get(config, outer);
    }
    json_object_set_new(at, slash ? slash + 1 : f->key, value);
    begin_model(f->model);
    replace_file(f->model, f->path, config);
    lz_model *m = lz_model_open(ctx, folder, &err);
    if (f->words)
        CHECK(!m && err.status == LZ_BAD_FILE && strstr(err.text, f->words), "trap 3: %s: %s = %s: %s", f->path, f->key,
              f->value, m ? "opened" : err.text);
    else
        CHECK(m != NULL, "trap 3: %s: %s = %s: %s", f->path, f->key, f->value, err.text);
    lz_model_close(m);
    json_decref(config);
    remove_all(folder);
}

static void other_fields(void) {
    lz_context *ctx = lz_open();
    for (size_t i = 0; i < sizeof fields / sizeof *fields; i++) check_field(ctx, &fields[i]);
    lz_close(ctx);
}

/* Guidance that is asked for: a Lightning model gives it, a distilled FLUX.2 does not. */
static void guidance(void) {
    lz_context *ctx = lz_open();
    lz_error err = {.status = LZ_OK};
    lz_model *lightning = lz_model_open(ctx, DATA "/qwen/L", &err), *klein = lz_model_open(ctx, DATA "/flux2/B", &err);
    lz_picture_options plain = LZ_PICTURE_OPTIONS(.prompt = "a"), asked = LZ_PICTURE_OPTIONS(.guidance = 4),
                       ignored = LZ_PICTURE_OPTIONS(.guidance = 4);
    if (!CHECK(lightning && klein, "%s", err.text)) return;
    CHECK_OK(lz_fill_options(lightning, &plain, &err), &err);
    CHECK(plain.guidance == 1 && plain.steps == 8);
    CHECK_OK(lz_fill_options(lightning, &asked, &err), &err);
    CHECK(asked.guidance == 4, "trap 3: guidance of a Lightning model became %g", asked.guidance);
    CHECK(!lz_model_about(lightning).guidance_built_in && lz_model_about(klein).guidance_built_in);
    CHECK_OK(lz_fill_options(klein, &ignored, &err), &err);
    CHECK(ignored.guidance == 1);
    lz_model_close(lightning);
    lz_model_close(klein);
    lz_close(ctx);
}

TEST_MAIN({"sigmas", sigmas}, {"refused_schedules", refused_schedules}, {"impossible_schedule", impossible_schedule},
          {"sizes", sizes}, {"strengths", strengths}, {"views", views}, {"pictures", pictures},
          {"other_fields", other_fields}, {"guidance", guidance})
