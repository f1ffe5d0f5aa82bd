/* generate.c: a picture from text. Build it against an installed library with
 *     cc generate.c $(pkg-config --cflags --libs lazuli) -o generate
 * and run it as
 *     ./generate models/demo "a fox in 3d style" fox.png */
#include <lazuli.h>
#include <stdio.h>
#include <string.h>

/* Called between kernels. If it returned false, the picture would be cancelled. */
static bool watch(void *user, const lz_progress *now) {
    (void)user;
    bool steps = strcmp(now->stage, "denoise") == 0; /* only this stage has steps */
    fprintf(stderr, "\r%-7s %3.0f%%", now->stage, 100 * (steps ? (now->step + now->done) / now->steps : now->done));
    return true;
}

static lz_status paint(lz_context *ctx, const char *folder, const char *prompt, const char *file, lz_error *err) {
    lz_model *model = lz_model_open(ctx, folder, err); /* maps the weights, does not read them */
    if (!model) return err->status;
    lz_model_facts facts = lz_model_about(model);
    fprintf(stderr, "%s, %d steps\n", facts.family, facts.steps);

    /* Options that are not set have their defaults; steps and guidance are then those of the model. */
    lz_picture picture;
    lz_status status = lz_generate(model, &picture, err, .prompt = prompt, .width = 256, .height = 256, .seed = 42,
                                   .watch = watch);
    fputc('\n', stderr);
    if (status == LZ_OK) {
        const char *text[] = {"prompt", prompt, NULL}; /* stored in the file */
        status = lz_image_write(ctx, file, &picture.image, text, err);
        if (status == LZ_OK)
            printf("%lld x %lld in %.1f s\n", (long long)picture.image.width, (long long)picture.image.height,
                   picture.text_seconds + picture.denoise_seconds + picture.decode_seconds);
        lz_picture_free(&picture);
    }
    lz_model_close(model);
    return status;
}

int main(int argc, char **argv) {
    if (argc != 4) {
        fprintf(stderr, "usage: generate MODEL PROMPT PICTURE.png\n");
        return 2;
    }
    lz_error err;
    lz_context *ctx = lz_open(.error = &err); /* the CPU, all its cores */
    lz_status status = ctx ? paint(ctx, argv[1], argv[2], argv[3], &err) : err.status;
    if (status != LZ_OK)
        fprintf(stderr, "%s\n", err.text); /* one sentence that says what failed, where, and what to do */
    lz_close(ctx);
    return status != LZ_OK;
}
