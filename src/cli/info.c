/* info.c: `lazuli info`: what a model's folder holds, and what will run. */
#include <stdlib.h>

#include "cli.h"

typedef struct component {
    const char *name;
    int64_t tensors, bytes;
    int64_t of_type[LZ_DTYPE_COUNT];
} component;

/* Headers only: no tensor is touched. */
static lz_status look_into(const job *j, component *c, lz_error *err) {
    char *path = NULL;
    if (asprintf(&path, "%s/%s", j->folder, c->name) < 0) path = NULL;
    lz_weights *weights = lz_weights_open(j->ctx, path, err);
    free(path);
    if (!weights) return err->status;
    lz_scope *scope = lz_scope_begin(j->ctx, "info");
    c->tensors = lz_weights_count(weights);
    for (int64_t i = 0; i < c->tensors; i++) {
        lz_array *a = lz_weights_get(weights, lz_weights_name(weights, i));
        if (lz_check(a, NULL) != LZ_OK) continue;
        c->bytes += bytes_of(a);
        c->of_type[lz_type(a)]++;
    }
    lz_scope_end(scope);
    lz_weights_close(weights);
    return LZ_OK;
}

static json_t *info_json(const job *j, const component *parts, size_t n) {
    json_t *list = json_array();
    for (size_t i = 0; i < n; i++) {
        json_t *types = json_object();
        for (int t = 0; t < LZ_DTYPE_COUNT; t++)
            if (parts[i].of_type[t])
                json_object_set_new(types, lz_dtype_name((lz_dtype)t), json_integer(parts[i].of_type[t]));
        json_array_append_new(list, json_pack("{s:s, s:I, s:I, s:o}", "name", parts[i].name, "tensors",
                                              (json_int_t)parts[i].tensors, "bytes", (json_int_t)parts[i].bytes,
                                              "types", types));
    }
    return json_pack("{s:o, s:s, s:b, s:I, s:I, s:i, s:f, s:I, s:I, s:s, s:o, s:{s:I, s:I, s:I, s:I}}", "model",
                     json_text(j->folder), "family", j->facts.family, "distilled", j->facts.distilled, "width",
                     (json_int_t)j->facts.width, "height", (json_int_t)j->facts.height, "steps", j->facts.steps,
                     "guidance", j->facts.guidance, "token_pixels", (json_int_t)j->facts.token_pixels, "channels",
                     (json_int_t)j->facts.channels, "device", lz_device_name(j->ctx), "components", list, "plan",
                     "width", (json_int_t)j->facts.width, "height", (json_int_t)j->facts.height, "peak_bytes",
                     (json_int_t)j->plan.peak_bytes, "flops", (json_int_t)j->plan.flops);
}

static void print_info(const job *j, const component *parts, size_t n) {
    int64_t tensors = 0, bytes = 0;
    printf("model      %s\nfamily     %s%s\ndefaults   %lld x %lld pixels, %s, ", j->folder, j->facts.family,
           j->facts.distilled ? ", distilled" : "", (long long)j->facts.width, (long long)j->facts.height,
           show_steps(j->facts.steps, j->facts.steps).text);
    if (j->facts.guidance <= 1)
        puts(j->facts.guidance_built_in ? "guidance is built in" : "no guidance");
    else
        printf("guidance %g: two passes a step\n", j->facts.guidance);
    printf("latents    %lld channels, one token for %lld x %lld pixels\n\n", (long long)j->facts.channels,
           (long long)j->facts.token_pixels, (long long)j->facts.token_pixels);

    printf("%-14s %7s %14s  %s\n", "component", "tensors", "memory", "types");
    for (size_t i = 0; i < n; i++) {
        tensors += parts[i].tensors;
        bytes += parts[i].bytes;
        printf("%-14s %7lld %14s ", parts[i].name, (long long)parts[i].tensors, show_bytes(parts[i].bytes).text);
        for (int t = 0; t < LZ_DTYPE_COUNT; t++)
            if (parts[i].of_type[t]) printf(" %lld %s", (long long)parts[i].of_type[t], lz_dtype_name((lz_dtype)t));
        putchar('\n');
    }
    printf("%-14s %7lld %14s\n\n", "together", (long long)tensors, show_bytes(bytes).text);
    printf("A picture of %lld x %lld takes %s beside the weights and %s, ", (long long)j->facts.width,
           (long long)j->facts.height, show_bytes(j->plan.peak_bytes).text, show_flops(j->plan.flops).text);
    printf("on %s.\n", lz_device_name(j->ctx));
}

/* A picture of the model's own size; if it must look at an image, at one of that size. */
static lz_status plan_default(job *j, lz_error *err) {
    lz_image image = {.width = j->facts.width, .height = j->facts.height};
    int n = j->facts.least_images > 0;
    if (n) image.pixels = calloc((size_t)image.width, 3 * (size_t)image.height);
    lz_picture_options o = {
        .prompt = "a picture", .width = image.width, .height = image.height, .images = &image, .n_images = n};
    lz_status status = lz_plan_picture(j->model, &o, &j->plan, err);
    free(image.pixels);
    return status;
}

static int print_words(const job *j) {
    const char *text = lz_model_words(j->model);
    if (!text) return fail(j->args, FAILED, "%s has no list of words: it is not limited to some", j->folder);
    if (j->args->json) return print_json(j->args, json_pack("{s:o}", "words", json_text(text)));
    fputs(text, stdout);
    return flush_output(j->args);
}

int info_command(const arguments *args) {
    component parts[] = {{.name = "text_encoder"}, {.name = "transformer"}, {.name = "vae"}};
    lz_error err = {.status = LZ_OK};
    job j;
    int code = job_open(&j, args);
    if (args->list_words) {
        if (code == DONE) code = print_words(&j);
        job_close(&j);
        return code;
    }
    for (size_t i = 0; i < COUNT(parts) && code == DONE; i++)
        if (look_into(&j, &parts[i], &err) != LZ_OK) code = fail_with(args, &err);
    if (code == DONE && plan_default(&j, &err) != LZ_OK) code = fail_with(args, &err);
    if (code == DONE && args->json) code = print_json(args, info_json(&j, parts, COUNT(parts)));
    if (code == DONE && !args->json) print_info(&j, parts, COUNT(parts));
    job_close(&j);
    return code;
}
