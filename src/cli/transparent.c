/* transparent.c: --background, and pictures with transparency in files that have none. */
#include <string.h>
#include <strings.h>

#include "cli.h"

static const char *const names[] = {
    [LZ_BACKGROUND_AUTO] = "auto", [LZ_BACKGROUND_OPAQUE] = "opaque", [LZ_BACKGROUND_TRANSPARENT] = "transparent"};

int take_background(arguments *args, const option *o, const char *value) {
    for (size_t i = 0; i < COUNT(names); i++) {
        if (strcmp(value, names[i]) != 0) continue;
        args->background = (int)i;
        return DONE;
    }
    return fail(args, NOT_UNDERSTOOD, "--%s takes auto, opaque or transparent, not '%s'", o->name, value);
}

const char *background_name(int background) {
    return background > 0 && background < (int)COUNT(names) ? names[background] : NULL;
}

bool is_jpeg(const char *path) {
    const char *dot = strrchr(base_name(path), '.');
    return dot && (strcasecmp(dot, ".jpg") == 0 || strcasecmp(dot, ".jpeg") == 0);
}

int check_background(const arguments *args) {
    if (args->background != LZ_BACKGROUND_TRANSPARENT || !args->output || !is_jpeg(args->output)) return DONE;
    return fail(args, NOT_UNDERSTOOD, "%s: a JPEG has no transparency, so --background transparent needs .png or .webp",
                args->output);
}

void say_on_white(const arguments *args, const char *path, const lz_image *image) {
    if (image->channels == 4 && is_jpeg(path))
        note(args, "%s: a JPEG has no transparency, so the picture is on white; .png and .webp keep it", path);
}
