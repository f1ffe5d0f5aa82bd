/* generate.cc: generate.c in C++. Build it against an installed library with
 *     c++ -std=c++17 generate.cc $(pkg-config --cflags --libs lazuli) -o generate
 * Objects are closed automatically in reverse order: the picture, the model, and the context last. */
#include <lazuli.h>

#include <cstdio>
#include <memory>

template <auto close> struct closer {
    template <class T> void operator()(T *object) const { close(object); }
};
using context = std::unique_ptr<lz_context, closer<lz_close>>;
using model = std::unique_ptr<lz_model, closer<lz_model_close>>;

static lz_status paint(const char *folder, const char *prompt, const char *file, lz_error &err) {
    auto where = LZ_CONTEXT_OPTIONS(); // the CPU, all its cores
    context ctx(lz_open_with(&where, &err));
    if (!ctx) return err.status;
    model painter(lz_model_open(ctx.get(), folder, &err));
    if (!painter) return err.status;

    auto options = LZ_PICTURE_OPTIONS(); // members that are not set have their defaults
    options.prompt = prompt;
    options.width = options.height = 256;
    options.seed = 42;
    options.watch = [](void *, const lz_progress *now) {
        std::fprintf(stderr, "\r%-7s %3.0f%%", now->stage, now->done * 100);
        return true; // false would cancel the picture
    };
    lz_picture picture;
    lz_status status = lz_generate_with(painter.get(), &options, &picture, &err);
    std::fputc('\n', stderr);
    if (status != LZ_OK) return status; // after a failure there is no picture to free
    const std::unique_ptr<lz_picture, closer<lz_picture_free>> owner(&picture);

    lz_dims shape = lz_shape(picture.latents);
    std::fprintf(stderr, "latents: %lld x %lld\n", (long long)shape.at[2], (long long)shape.at[3]);
    const char *text[] = {"prompt", prompt, nullptr}; // stored in the file
    status = lz_image_write(ctx.get(), file, &picture.image, text, &err);
    if (status == LZ_OK)
        std::printf("%lld x %lld in %.1f s\n", (long long)picture.image.width, (long long)picture.image.height,
                    picture.text_seconds + picture.denoise_seconds + picture.decode_seconds);
    return status;
}

int main(int argc, char **argv) {
    if (argc != 4) {
        std::fprintf(stderr, "usage: generate MODEL PROMPT PICTURE.png\n");
        return 2;
    }
    lz_error err;
    lz_status status = paint(argv[1], argv[2], argv[3], err);
    if (status != LZ_OK) std::fprintf(stderr, "%s\n", err.text); // what failed, where, and what to do
    return status != LZ_OK;
}
