/* test_synth.c: the program lazuli-synth. A tiny model that it writes works like any other and is the same on every
 * run; and its list of klein-4B's tensors equals that of the published files. */
#include <ftw.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include "check.h"

#ifndef LZ_SOURCE_DIR
#define LZ_SOURCE_DIR "."
#endif

static char folder[] = "/tmp/lazuli-synth-XXXXXX";

static int remove_entry(const char *path, const struct stat *s, int kind, struct FTW *at) {
    (void)s, (void)kind, (void)at;
    return remove(path);
}
static void remove_folder(void) { nftw(folder, remove_entry, 16, FTW_DEPTH | FTW_PHYS); }

/* Runs a line of shell in a temporary folder, where the program is called $S and one/ is a tiny model. */
__attribute__((format(printf, 1, 2))) static int run(const char *format, ...) {
    char program[1024], command[3000];
    ssize_t n = readlink("/proc/self/exe", program, sizeof program - 1);
    program[n > 0 ? n : 0] = 0;
    char *slash = strrchr(program, '/');
    if (slash) *slash = 0;
    if (strstr(folder, "XXXXXX")) {
        CHECK(mkdtemp(folder) != NULL, "no temporary folder");
        atexit(remove_folder);
    }
    int at = snprintf(command, sizeof command,
                      "cd %s || exit 9; S='%s/lazuli-synth'; test -e one || $S tiny one || exit 8; ", folder, program);
    va_list args;
    va_start(args, format);
    vsnprintf(command + at, sizeof command - (size_t)at, format, args);
    va_end(args);
    int status = system(command);
    return WIFEXITED(status) ? WEXITSTATUS(status) : -1;
}

static void tiny_makes_pictures(void) {
    char path[256];
    lz_error err = {.status = LZ_OK};
    CHECK_I64(run("test -f one/model_index.json"), 0);
    snprintf(path, sizeof path, "%s/one", folder);
    lz_context *ctx = lz_open();
    lz_model *model = lz_model_open(ctx, path, &err);
    if (CHECK(model != NULL, "%s", err.text)) {
        lz_picture p;
        CHECK_I64(lz_model_about(model).steps, 4);
        if (CHECK_OK(lz_generate(model, &p, &err, .prompt = "a red fox", .width = 64, .height = 64, .seed = 1), &err)) {
            double sum = 0, squares = 0, n = 3.0 * 64 * 64;
            for (int i = 0; i < 3 * 64 * 64; i++) {
                sum += p.image.pixels[i];
                squares += (double)p.image.pixels[i] * p.image.pixels[i];
            }
            double deviation = sqrt(squares / n - sum / n * (sum / n));
            CHECK(deviation > 20 && deviation < 110, "levels deviate by %g",
                  deviation); /* neither flat nor all clipped */
            lz_picture_free(&p);
        }
        lz_model_close(model);
    }
    lz_close(ctx);
}

static void variants(void) {
    CHECK_I64(run("$S tiny two && diff -r one two"), 0); /* the same numbers on every run, */
    CHECK_I64(run("$S tiny three --seed 2"), 0);
    CHECK_I64(run("! cmp -s one/vae/diffusion_pytorch_model.safetensors three/vae/diffusion_pytorch_model.safetensors"),
              0);
    CHECK_I64(run("cmp one/vae/config.json three/vae/config.json"), 0);

    CHECK_I64(run("mkdir empty && $S tiny empty --layers 2 --text-layers 4 --tokenizer one/tokenizer"),
              0); /* of fewer layers, */
    CHECK_I64(run("diff -r one/tokenizer empty/tokenizer && grep -q '\"num_single_layers\": 1' "
                  "empty/transformer/config.json"),
              0);
    char path[256];
    lz_error err = {.status = LZ_OK};
    snprintf(path, sizeof path, "%s/empty", folder);
    lz_context *ctx = lz_open();
    lz_model *model = lz_model_open(ctx, path, &err);
    CHECK(model != NULL, "%s", err.text);
    lz_model_close(model);
    lz_close(ctx);

    CHECK_I64(run("$S --list klein-9b >nine && $S --list klein-9b-kv | cmp nine -"), 0);
    CHECK_I64(run("$S --list klein-9b | awk -F '\\t' '{ n[$1]++ } END { exit n[\"transformer\"] != 233 || "
                  "n[\"text_encoder\"] != 399 }'"),
              0);
}

static void refusals(void) {
    CHECK_I64(run("$S tiny one 2>said"), 1); /* one is not empty */
    CHECK_I64(run("grep -q 'is not empty' said && test -f one/model_index.json"), 0);
    CHECK_I64(run("$S tiny lost --tokenizer nowhere 2>said"), 1); /* what was written is removed */
    CHECK_I64(run("grep -q 'no tokenizer.json' said && test ! -e lost"), 0);
    CHECK_I64(run("$S klein-4b stopped 2>said & for i in 1 2 3 4 5 6 7 8 9; do test -s stopped/vae/config.json || "
                  "sleep 0.2; done; "
                  "kill $!; ! wait $!"),
              0);
    CHECK_I64(run("grep -q 'what was written is removed\\|GB free' said && test ! -e stopped"),
              0); /* if there was room at all */
    static const char *const wrong[] = {"",
                                        "tiny",
                                        "huge there",
                                        "tiny there more",
                                        "tiny there --seed",
                                        "tiny there --seed x",
                                        "tiny there --layer 3"};
    for (size_t i = 0; i < sizeof wrong / sizeof *wrong; i++) CHECK(run("$S %s 2>said", wrong[i]) == 2, "%s", wrong[i]);
    CHECK_I64(run("$S tiny there --layers 1 2>said"), 1);
    CHECK_I64(run("$S tiny there --text-layers 3 2>said"), 1);
    CHECK_I64(run("$S --help | grep -q klein-base-4b && test ! -e there"), 0);
}

/* The list in tests/data/published, where {0-24} stands for 25 numbers, is the one that lazuli-synth prints. */
static void check_published(const char *preset, const char *file) {
    CHECK_I64(run("$S --list %s | sort >ours && awk -F '\\t' -v OFS='\\t' 'match($2, /\\{[0-9]+-[0-9]+\\}/) {"
                  "    before = substr($2, 1, RSTART - 1); after = substr($2, RSTART + RLENGTH);"
                  "    split(substr($2, RSTART + 1, RLENGTH - 2), ends, \"-\");"
                  "    for (i = ends[1] + 0; i <= ends[2] + 0; i++) { $2 = before i after; print }"
                  "    next"
                  "} { print }' " LZ_SOURCE_DIR "/tests/data/published/%s.tsv | sort >theirs && cmp theirs ours",
                  preset, file),
              0);
}

static void klein_4b_as_published(void) { check_published("klein-4b", "flux2-klein-4b"); }
static void qwen_image_as_published(void) { check_published("qwen-image", "qwen-image"); }
static void qwen_image21_as_published(void) { check_published("qwen-image-2.1", "qwen-image-2.1"); }

/* Qwen-Image with a vector for kinds of pictures, and an autoencoder of four channels. */
static void layered_as_published(void) {
    check_published("qwen-image", "qwen-image");
    CHECK_I64(run("$S --list qwen-image-layered | sort >layered && { sed -E 's/(encoder.conv_in.weight\t96x)3x/\\14x/; "
                  "s/(decoder.conv_out.weight\t)3x/\\14x/; s/(decoder.conv_out.bias\t)3\t/\\14\t/' ours; "
                  "grep addition_t_embedding layered; } | sort | cmp - layered"),
              0);
    CHECK_I64(run("test $(grep -c 'addition_t_embedding.weight.2x3072' layered) = 1"), 0);
}

static void flux3_as_published(void) {
    check_published("flux3-klein", "flux3-klein");
    CHECK_I64(run("$S --list flux3-klein-base | sort >base && grep -v target_timestep ours | cmp base -"), 0);
}

static void z_image_as_published(void) {
    check_published("z-image-turbo", "z-image-turbo");
    CHECK_I64(run("$S --list z-image | sort >base && sed 's/F32$/BF16/' ours | cmp base -"), 0); /* the same in BF16 */
}

static void makes_pictures(const char *kind) {
    char path[256];
    lz_error err = {.status = LZ_OK};
    CHECK_I64(run("$S %s %s-made --layers 2", kind, kind), 0);
    snprintf(path, sizeof path, "%s/%s-made", folder, kind);
    lz_context *ctx = lz_open();
    lz_model *model = lz_model_open(ctx, path, &err);
    if (CHECK(model != NULL, "%s", err.text)) {
        lz_picture p;
        lz_status status = lz_generate(model, &p, &err, .prompt = "a red fox", .width = 64, .height = 48, .steps = 2);
        CHECK_OK(status, &err);
        if (!status) lz_picture_free(&p);
        lz_model_close(model);
    }
    lz_close(ctx);
}

static void qwen_makes_pictures(void) { makes_pictures("qwen-tiny"); }
static void qwen21_makes_pictures(void) { makes_pictures("qwen-2.1-tiny"); }
static void flux3_makes_pictures(void) { makes_pictures("flux3-tiny"); }
static void z_image_makes_pictures(void) { makes_pictures("z-image-tiny"); }

/* ---- single files ------------------------------------------------------------------------------------------------ */

static lz_image paint(lz_context *ctx, const lz_model_options *options) {
    lz_error err = {.status = LZ_OK};
    lz_picture p = {0};
    unsigned char pixels[64 * 48 * 3];
    for (int i = 0; i < (int)sizeof pixels; i++) pixels[i] = (unsigned char)(i * 7 + i / 64);
    lz_image image = {.width = 64, .height = 48, .pixels = pixels}, made = {0};
    lz_model *model = lz_model_open_with(ctx, options, &err);
    if (!CHECK(model != NULL, "%s", err.text)) return made;
    CHECK_I64(lz_model_about(model).steps, 8);
    lz_status status = lz_generate(model, &p, &err, .prompt = "a red fox", .width = 64, .height = 32, .images = &image,
                                   .n_images = 1);
    CHECK_OK(status, &err);
    if (!status) {
        made = p.image;
        p.image.pixels = NULL;
        lz_picture_free(&p);
    }
    lz_model_close(model);
    return made;
}

/* The configurations of Qwen-Image 2.1 that are derived from the shapes of its tensors are those of the folder. */
static void qwen21_from_files(void) {
    static const char *const files[] = {"transformer/diffusion_pytorch_model.safetensors",
                                        "text_encoder/model.safetensors", "vae/diffusion_pytorch_model.safetensors",
                                        "processor", ""};
    char path[5][300];
    CHECK_I64(run("$S qwen-2.1-tiny files --layers 2 --whole"), 0);
    for (int i = 0; i < 5; i++) snprintf(path[i], sizeof path[i], "%s/files/%s", folder, files[i]);
    lz_context *ctx = lz_open();
    lz_image want = paint(ctx, &LZ_MODEL_OPTIONS(.model = path[4]));
    lz_image got = paint(ctx, &LZ_MODEL_OPTIONS(.model = path[0], .text_encoder = path[1], .vae = path[2],
                                                .tokenizer = path[3], .variant = "distilled"));
    CHECK(want.pixels && got.pixels && !memcmp(want.pixels, got.pixels, (size_t)(64 * 32 * 3)), "the pictures differ");
    lz_image_free(ctx, &want);
    lz_image_free(ctx, &got);
    lz_close(ctx);
}

/* Qwen-Image-Layered is known by its tensors; an autoencoder without opacity does not fit. */
static void layered_from_files(void) {
    static const char *const files[] = {"layers/transformer/diffusion_pytorch_model.safetensors", "layers/text_encoder",
                                        "layers/vae/diffusion_pytorch_model.safetensors",         "layers/tokenizer",
                                        "plain/vae/diffusion_pytorch_model.safetensors",          "layers"};
    char path[6][300];
    lz_error err = {.status = LZ_OK};
    CHECK_I64(run("$S qwen-layered-tiny layers --layers 2 --whole && $S qwen-tiny plain --layers 2 --whole"), 0);
    for (int i = 0; i < 6; i++) snprintf(path[i], sizeof path[i], "%s/%s", folder, files[i]);
    lz_context *ctx = lz_open();
    lz_model_options o = LZ_MODEL_OPTIONS(.model = path[0], .text_encoder = path[1], .vae = path[2],
                                          .tokenizer = path[3]);
    lz_model *model = lz_model_open_with(ctx, &o, &err), *whole = lz_model_open(ctx, path[5], &err);
    if (CHECK(model && whole, "%s", err.text)) {
        lz_model_facts got = lz_model_about(model), want = lz_model_about(whole);
        CHECK(got.layers == 4 && got.transparent && got.width == 640 && got.least_images == 1);
        CHECK(want.layers == 4 && want.transparent && want.width == 640 && want.least_images == 1);
    }
    lz_model_close(model);
    lz_model_close(whole);
    o.vae = path[4];
    CHECK(!lz_model_open_with(ctx, &o, &err));
    CHECK_TEXT(err.text, "layers have opacity");
    lz_close(ctx);
}

TEST_MAIN({"tiny_makes_pictures", tiny_makes_pictures}, {"variants", variants}, {"refusals", refusals},
          {"klein_4b_as_published", klein_4b_as_published}, {"qwen_image_as_published", qwen_image_as_published},
          {"qwen_image21_as_published", qwen_image21_as_published}, {"z_image_as_published", z_image_as_published},
          {"layered_as_published", layered_as_published}, {"qwen_makes_pictures", qwen_makes_pictures},
          {"qwen21_makes_pictures", qwen21_makes_pictures}, {"flux3_as_published", flux3_as_published},
          {"flux3_makes_pictures", flux3_makes_pictures}, {"z_image_makes_pictures", z_image_makes_pictures},
          {"qwen21_from_files", qwen21_from_files}, {"layered_from_files", layered_from_files})
