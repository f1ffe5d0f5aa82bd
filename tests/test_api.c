/* test_api.c: the guarantees of include/lazuli.h: versions, option structs of other versions, devices, the log, images
 * in memory, the state after an error, and what a watch function and a compiled function may do. */
#include "check.h"

static const char model_folder[] = LZ_SOURCE_DIR "/tests/data/flux2/A";

static void versions(void) {
    CHECK(strcmp(lz_version(), LZ_VERSION) == 0, "%s", lz_version());
    CHECK_I64(lz_version_number(), LZ_VERSION_NUMBER);
    char text[32];
    snprintf(text, sizeof text, "%d.%d.%d", LZ_VERSION_MAJOR, LZ_VERSION_MINOR, LZ_VERSION_PATCH);
    CHECK(strcmp(text, LZ_VERSION) == 0, "%s", text);
}

/* ---- options ----------------------------------------------------------------------------------------------------- */

/* A program built with a later header, in which the options have one member more. */
typedef struct later_options {
    lz_context_options known;
    int64_t later;
} later_options;

static void options_grow(void) {
    lz_error err = {.status = LZ_OK};
    lz_context_options none = {.threads = 1};
    CHECK(!lz_open_with(&none, &err));
    CHECK_I64(err.status, LZ_BAD_ARGUMENT);
    CHECK_TEXT(err.text, "LZ_CONTEXT_OPTIONS");

    lz_context_options earlier = LZ_CONTEXT_OPTIONS(.threads = 1, .isa = "what an earlier header does not have");
    earlier.size = offsetof(lz_context_options, isa);
    lz_context *ctx = lz_open_with(&earlier, &err);
    CHECK(ctx != NULL, "%s", err.text);
    lz_close(ctx);

    later_options later = {.known = {.size = sizeof later, .threads = 1}};
    ctx = lz_open_with(&later.known, &err);
    CHECK(ctx != NULL, "%s", err.text);
    lz_close(ctx);
    later.later = 1;
    CHECK(!lz_open_with(&later.known, &err));
    CHECK_I64(err.status, LZ_BAD_ARGUMENT);
    CHECK_TEXT(err.text, "built for a newer version");
}

static void picture_options_grow(void) {
    lz_error err = {.status = LZ_OK};
    lz_context *ctx = lz_open(.threads = 1);
    lz_model *model = lz_model_open(ctx, model_folder, &err);
    lz_picture_options none = {.prompt = "a fox"}, all = LZ_PICTURE_OPTIONS(.prompt = "a fox");
    lz_picture_options earlier = LZ_PICTURE_OPTIONS(.width = 64, .height = 64, .steps = -1);
    earlier.size = offsetof(lz_picture_options, steps);
    lz_picture picture;
    lz_picture_plan plan;
    lz_remarks remarks;
    memset(&picture, 0xff, sizeof picture);
    CHECK_STATUS(lz_generate_with(model, &none, &picture, &err), LZ_BAD_ARGUMENT, &err);
    CHECK_TEXT(err.text, "LZ_PICTURE_OPTIONS");
    CHECK(!picture.image.pixels && !picture.text && !picture.ctx); /* a failure leaves nothing to free */
    lz_picture_free(&picture);
    CHECK_STATUS(lz_plan_picture(model, &none, &plan, &err), LZ_BAD_ARGUMENT, &err);
    CHECK_STATUS(lz_remark(model, &none, &remarks, &err), LZ_BAD_ARGUMENT, &err);
    CHECK_STATUS(lz_fill_options(model, &none, &err), LZ_BAD_ARGUMENT, &err);
    CHECK_OK(lz_fill_options(model, &all, &err), &err);
    CHECK_I64(all.size, sizeof all);
    CHECK(all.steps > 0 && all.width > 0);
    CHECK_OK(lz_plan_picture(model, &earlier, &plan, &err), &err); /* steps: not known to it */
    lz_model_close(model);
    lz_close(ctx);
}

/* Each member that lz_fill_options sets is one that the program's header has. */
static void filled_options(void) {
    lz_error err = {.status = LZ_OK};
    lz_context *ctx = lz_open(.threads = 1);
    lz_model *model = lz_model_open(ctx, model_folder, &err);
    lz_picture_options earlier = LZ_PICTURE_OPTIONS(.prompt = "a fox", .steps = 77);
    earlier.size = offsetof(lz_picture_options, steps);
    CHECK_OK(lz_fill_options(model, &earlier, &err), &err);
    CHECK(earlier.width > 0 && earlier.height > 0);
    CHECK_I64(earlier.steps, 77);
    CHECK_I64(earlier.size, offsetof(lz_picture_options, steps));
    lz_model_close(model);
    lz_close(ctx);
}

/* ---- devices ----------------------------------------------------------------------------------------------------- */

static void devices(void) {
    lz_error err = {.status = LZ_OK};
    lz_device_info found[64];
    int n = lz_find_devices(NULL, found, 64, &err);
    if (!CHECK(n >= 1 && n <= 64, "%d: %s", n, err.text)) return;
    CHECK_I64(lz_find_devices(NULL, NULL, 0, &err), n);
    CHECK(strcmp(found[0].device, "cpu") == 0 && !*found[0].problem && found[0].memory > 1 << 20);
    for (int i = 0; i < n; i++) {
        lz_context *ctx = lz_open(.device = found[i].device, .threads = 1, .error = &err);
        CHECK(*found[i].problem ? !ctx : ctx && strstr(lz_device_name(ctx), found[i].name), "%s: %s: %s",
              found[i].device, found[i].name, found[i].problem);
        lz_close(ctx);
    }
    n = lz_find_devices(&LZ_CONTEXT_OPTIONS(.cuda_path = "/nowhere"), found, 64, &err);
    CHECK_I64(n, 1);
    CHECK_I64(lz_find_devices(NULL, NULL, 1, &err), -1);
    CHECK_I64(err.status, LZ_BAD_ARGUMENT);
    CHECK_I64(lz_find_devices(&LZ_CONTEXT_OPTIONS(.isa = "abacus"), found, 64, &err), -1);
}

/* ---- images in memory -------------------------------------------------------------------------------------------- */

static void images(void) {
    enum { W = 5, H = 3 };
    uint8_t pixels[4 * W * H];
    for (int i = 0; i < 4 * W * H; i++) pixels[i] = (uint8_t)(17 * i);
    lz_error err = {.status = LZ_OK};
    lz_context *ctx = lz_open(.threads = 1);
    const char *text[] = {"prompt", "a fox", NULL};
    for (int channels = 0; channels < 6; channels++) {
        lz_image image = {.width = W, .height = H, .pixels = pixels, .channels = channels}, back = {.width = 0};
        int64_t n = 0;
        char *bytes = lz_image_encode(ctx, ".png", &image, text, 0, &n, &err);
        if (!CHECK(!bytes == (channels != 0 && channels != 3 && channels != 4), "%d channels", channels)) continue;
        if (!bytes) CHECK_TEXT(err.text, "channels");
        if (!bytes) continue;
        int stored = channels == 4 ? 4 : 3;
        CHECK_OK(lz_image_decode_alpha(ctx, bytes, n, &back, &err), &err);
        CHECK(back.width == W && back.height == H && back.channels == stored);
        CHECK(back.pixels && memcmp(back.pixels, pixels, (size_t)(stored * W * H)) == 0);
        lz_image_free(ctx, &back);
        CHECK_OK(lz_image_decode(ctx, bytes, n, &back, &err), &err);
        CHECK(back.width == W && back.height == H && back.channels == 3);
        CHECK(back.pixels && (channels == 4 || memcmp(back.pixels, pixels, 3 * W * H) == 0));
        char *found = lz_image_decode_text(ctx, bytes, n, "prompt", &err);
        CHECK(found && strcmp(found, "a fox") == 0);
        CHECK(!lz_image_decode_text(ctx, bytes, n, "seed", &err));
        CHECK_I64(err.status, LZ_NOT_FOUND);
        lz_free_text(ctx, found);
        lz_image_free(ctx, &back);
        CHECK_STATUS(lz_image_decode(ctx, bytes, n / 2, &back, &err), LZ_BAD_FILE, &err);
        CHECK_STATUS(lz_image_decode(ctx, bytes, 0, &back, &err), LZ_BAD_FILE, &err);
        CHECK(!back.pixels);
        lz_free_text(ctx, bytes);
    }
    lz_close(ctx);
}

/* ---- making a picture -------------------------------------------------------------------------------------------- */

typedef struct listener {
    int notes, details;
    char last[200];
} listener;

static void listen_to(void *user, lz_log_level level, const char *text) {
    listener *l = user;
    level == LZ_LOG_NOTE ? l->notes++ : l->details++;
    snprintf(l->last, sizeof l->last, "%s", text);
}

typedef struct watcher {
    lz_context *ctx;
    lz_picture_plan plan;
    double overall;
    int calls, wrong;
} watcher;

/* Progress as the header describes it never falls; and watch may evaluate arrays. */
static bool watch(void *user, const lz_progress *now) {
    watcher *w = user;
    bool steps = strcmp(now->stage, "denoise") == 0;
    double before = 0, share = steps ? (now->step + now->done) / now->steps : now->done;
    int i = 0;
    for (; i < w->plan.n_stages && strcmp(w->plan.stages[i].stage, now->stage) != 0; i++)
        before += w->plan.stages[i].flops;
    double overall = i < w->plan.n_stages ? (before + share * w->plan.stages[i].flops) / w->plan.flops : -1;
    w->wrong += overall < w->overall || overall > 1.0001 || now->steps != w->plan.steps || (!steps && now->step);
    w->overall = overall;
    w->calls++;
    lz_scope *scope = lz_scope_begin(w->ctx, "watch");
    w->wrong += lz_item(lz_add(lz_full(w->ctx, LZ_NONE, LZ_F32, 1), 1.0), NULL) != 2;
    lz_scope_end(scope);
    return true;
}

static void watched(void) {
    lz_error err = {.status = LZ_OK};
    listener said = {.notes = 0};
    lz_context *ctx = lz_open(.threads = 1, .log = listen_to, .log_user = &said);
    lz_model *model = lz_model_open(ctx, model_folder, &err);
    watcher w = {.ctx = ctx};
    lz_picture_options o = LZ_PICTURE_OPTIONS(.prompt = "a fox", .width = 32, .height = 32, .steps = 2, .watch = watch,
                                              .user = &w);
    lz_picture p;
    CHECK_OK(lz_plan_picture(model, &o, &w.plan, &err), &err);
    if (CHECK_OK(lz_generate_with(model, &o, &p, &err), &err)) lz_picture_free(&p);
    CHECK(w.calls > 10 && w.wrong == 0 && w.overall > 0.99, "%d calls, %d wrong, %g", w.calls, w.wrong, w.overall);
    CHECK_I64(said.notes, 0);

    static char prompt[8000];
    for (size_t i = 0; i + 2 < sizeof prompt; i += 2) memcpy(prompt + i, "a ", 2);
    o = LZ_PICTURE_OPTIONS(.prompt = prompt, .width = 32, .height = 32, .steps = 1);
    if (CHECK_OK(lz_generate_with(model, &o, &p, &err), &err)) {
        CHECK(p.prompt_cut && said.notes == 1, "%d notes", said.notes);
        CHECK_TEXT(said.last, "more tokens");
        lz_picture_free(&p);
    }
    lz_model_close(model);
    lz_close(ctx);
}

/* ---- quality ----------------------------------------------------------------------------------------------------- */

/* The first number of a JPEG's table for brightness is 16, scaled by 5000 / q below a quality of 50 and by 200 - 2q percent
 * above (libjpeg's rule): 80 for 10, 16 for 50, 3 for 90, 2 for 95. */
static void qualities(void) {
    static const struct { int quality, first; } all[] = {{10, 80}, {50, 16}, {90, 3}, {95, 2}, {0, 2}};
    enum { SIDE = 64 };
    static uint8_t pixels[3 * SIDE * SIDE];
    lz_error err = {.status = LZ_OK};
    lz_context *ctx = lz_open(.threads = 1);
    lz_image image = {.width = SIDE, .height = SIDE, .pixels = pixels, .channels = 3};
    int64_t bytes, last = 0;
    for (int i = 0; i < 3 * SIDE * SIDE; i++) pixels[i] = (uint8_t)(i * i / 7);
    for (size_t i = 0; i < sizeof all / sizeof *all; i++) {
        char *jpeg = lz_image_encode(ctx, ".jpg", &image, NULL, all[i].quality, &bytes, &err);
        const char *table = jpeg ? memmem(jpeg, (size_t)bytes, "\xff\xdb", 2) : NULL;
        if (CHECK(table, "quality %d", all[i].quality)) CHECK_I64(table[5], all[i].first);
        lz_free_text(ctx, jpeg);
        char *webp = lz_image_encode(ctx, ".webp", &image, NULL, all[i].quality, &bytes, &err);
        CHECK(webp && bytes >= last, "quality %d: %lld bytes", all[i].quality, (long long)bytes);
        last = bytes;
        lz_free_text(ctx, webp);
    }
    CHECK(!lz_image_encode(ctx, ".jpg", &image, NULL, 101, &bytes, &err) && err.status == LZ_BAD_ARGUMENT);
    CHECK(!lz_image_encode(ctx, ".jpg", &image, NULL, -1, &bytes, &err) && err.status == LZ_BAD_ARGUMENT);
    lz_close(ctx);
}

/* ---- compiled functions ------------------------------------------------------------------------------------------ */

/* Its inputs have no values; an array from outside has. */
static void looks(lz_context *ctx, lz_array *const *in, lz_array **out, void *user) {
    (void)ctx;
    lz_error err = {.status = LZ_OK};
    CHECK(!lz_data(in[0], &err));
    CHECK_I64(err.status, LZ_BAD_ARGUMENT);
    out[0] = lz_add(in[0], lz_item(user, NULL));
}

static void compiled(void) {
    lz_error err = {.status = LZ_OK};
    lz_context *ctx = lz_open(.threads = 1);
    lz_array *two = lz_full(ctx, LZ_NONE, LZ_F32, 2), *x = lz_full(ctx, LZ_DIMS(3), LZ_F32, 1), *y = NULL;
    lz_compiled *f = lz_compile(ctx, looks, two, 1, 1, 0, &err);
    lz_scope *scope = lz_scope_begin(ctx, "call");
    CHECK_OK(lz_run(f, &x, &y, &err), &err);
    lz_retain(y); /* else it would go with the scope */
    lz_scope_end(scope);
    lz_compiled_free(f); /* what it computed stays */
    const float *data = lz_data(y, &err);
    CHECK(data && data[2] == 3);
    lz_release(y);
    lz_close(ctx);
}

TEST_MAIN({"versions", versions}, {"options_grow", options_grow}, {"picture_options_grow", picture_options_grow},
          {"filled_options", filled_options}, {"devices", devices}, {"images", images}, {"watched", watched},
          {"qualities", qualities}, {"compiled", compiled})
