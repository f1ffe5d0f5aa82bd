/* codec.c: `lazuli encode` and `lazuli decode`: the autoencoder alone. */
#include "progress.h"

static int finish(const job *j, const lz_array *latents) {
    const arguments *a = j->args;
    lz_dims d = lz_shape(latents);
    int64_t width = d.at[3] * j->facts.token_pixels, height = d.at[2] * j->facts.token_pixels;
    if (stop_wanted()) return fail(a, STOPPED, "stopped");
    if (a->json)
        return print_json(a,
                          json_pack("{s:o, s:o, s:I, s:I, s:[I, I, I, I], s:I}", "file", json_text(a->output), "model",
                                    json_text(j->folder), "width", (json_int_t)width, "height", (json_int_t)height,
                                    "latents", (json_int_t)d.at[0], (json_int_t)d.at[1], (json_int_t)d.at[2],
                                    (json_int_t)d.at[3], "peak_bytes", (json_int_t)lz_memory_info(j->ctx).peak));
    if (!a->quiet)
        say(result_stream(a), "%s  %lld x %lld pixels, latents [%lld, %lld, %lld, %lld]\n", a->output, (long long)width,
            (long long)height, (long long)d.at[0], (long long)d.at[1], (long long)d.at[2], (long long)d.at[3]);
    return DONE;
}

static int encode(job *j) {
    lz_error err = {.status = LZ_OK};
    lz_image *image = &j->images[0];
    if (lz_image_read_alpha(j->ctx, j->args->words[0], image, &err) != LZ_OK) return fail_with(j->args, &err);
    lz_named_array latents = {"latents", lz_encode_image(j->model, image)};
    if (lz_eval(latents.array, &err) != LZ_OK) return fail_with(j->args, &err);
    stop_on_signals(); /* until here Ctrl-C may just end it; now a file is being written */
    if (save_tensors(j->ctx, j->args->output, &latents, 1, NULL, &err) != LZ_OK) return fail_with(j->args, &err);
    return finish(j, latents.array);
}

static int decode(job *j) {
    lz_error err = {.status = LZ_OK};
    lz_image *image = &j->images[0];
    lz_weights *file = lz_weights_open(j->ctx, j->args->words[0], &err);
    if (!file) return fail_with(j->args, &err);
    lz_array *latents = lz_weights_get(file, "latents");
    lz_weights_close(file);
    if (lz_decode_latents(j->model, latents, image, &err) != LZ_OK) return fail_with(j->args, &err);
    stop_on_signals();
    if (put_picture(j->ctx, j->args->output, image, NULL, &err) != LZ_OK) return fail_with(j->args, &err);
    say_on_white(j->args, j->args->output, image);
    return finish(j, latents);
}

static int run(const arguments *args, int (*work)(job *)) {
    job j;
    int code = is_stdout(args->output) ? check_stdout(args, 1) : check_output(args, args->output);
    if (code == DONE && !is_stdout(args->output)) code = check_unread(args, args->words[0], args->output);
    if (code != DONE) return code;
    code = job_open(&j, args);
    if (code == DONE) code = work(&j);
    job_close(&j);
    return code;
}

int encode_command(const arguments *args) {
    if (!args->output) return fail(args, NOT_UNDERSTOOD, "encode needs an output file, such as -o latents.safetensors");
    if (!is_tensor_file(args->output))
        return fail(args, NOT_UNDERSTOOD, "%s: encode writes tensors, so the name must end in .safetensors",
                    args->output);
    return run(args, encode);
}

int decode_command(const arguments *args) {
    if (!args->output) return fail(args, NOT_UNDERSTOOD, "decode needs an output file, such as -o picture.png");
    if (!picture_side_limit(args->output) && !is_stdout(args->output))
        return fail(args, NOT_UNDERSTOOD, "%s: the name of a picture must end in .png, .jpg or .webp", args->output);
    return run(args, decode);
}
