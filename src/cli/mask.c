/* mask.c: --mask, --extend and the options about them: a part of a picture is repainted. */
#include <string.h>

#include "cli.h"

enum { MOST_SIDE = 8192 };

/* ---- options ----------------------------------------------------------------------------------------------------- */

bool repaints(const arguments *a) { return a->mask || a->extend; }

int take_keep_outside(arguments *args, const option *o, const char *value) {
    args->change_outside = strcmp(value, "off") == 0;
    if (args->change_outside || strcmp(value, "on") == 0) return DONE;
    return fail(args, NOT_UNDERSTOOD, "--%s takes on or off, not '%s'", o->name, value);
}

/* Reads "left=128,top=64", or one number for all sides. False: it is neither. */
static bool read_sides(const char *text, lz_sides *to) {
    const struct {
        const char *name;
        int64_t *to;
    } sides[] = {{"left", &to->left}, {"top", &to->top}, {"right", &to->right}, {"bottom", &to->bottom}};
    int64_t all;
    *to = (lz_sides){0};
    if (whole_number(text, strlen(text), 1, MOST_SIDE, &all)) {
        *to = (lz_sides){all, all, all, all};
        return true;
    }
    for (const char *comma;; text = comma + 1) {
        text += strspn(text, " ");
        size_t name = strcspn(text, "=,"), i = 0;
        comma = strchrnul(text, ',');
        while (i < COUNT(sides) && (strlen(sides[i].name) != name || memcmp(sides[i].name, text, name) != 0)) i++;
        if (i == COUNT(sides) || text[name] != '=' || *sides[i].to) return false;
        const char *number = text + name + 1;
        if (!whole_number(number, (size_t)(comma - number), 1, MOST_SIDE, sides[i].to)) return false;
        if (!*comma) return true;
    }
}

int take_extend(arguments *args, const option *o, const char *value) {
    if (!read_sides(value, &args->sides))
        return fail(args, NOT_UNDERSTOOD,
                    "--%s takes pixels from 1 to %d for sides, as in left=128,right=64,top=32,bottom=32, or one number "
                    "for all four, not '%s'",
                    o->name, MOST_SIDE, value);
    args->extend = value;
    return DONE;
}

int check_repaint(const arguments *a) {
    static const char *const only[] = {"keep-outside", "feather", "crop-to-mask"};
    if (repaints(a) && !a->n_images)
        return fail(a, NOT_UNDERSTOOD, "--%s needs the picture to change; give it with --image",
                    a->mask ? "mask" : "extend");
    for (size_t i = 0; i < COUNT(only); i++)
        if (is_given(a, only[i]) && !repaints(a))
            return fail(a, NOT_UNDERSTOOD, "--%s is about what is repainted, so it needs --mask or --extend", only[i]);
    return DONE;
}

/* ---- the picture ------------------------------------------------------------------------------------------------- */

void forget_mask(job *j) {
    if (j->mask.pixels) lz_image_free(j->ctx, &j->mask);
}

int ask_mask(job *j) {
    const arguments *a = j->args;
    lz_error err = {.status = LZ_OK};
    job_drop(j);
    forget_mask(j);
    if (!repaints(a)) return DONE;
    if (a->mask && lz_image_read_mask(j->ctx, a->mask, &j->mask, &err) != LZ_OK) return fail_file(a, "mask", &err);
    j->picture.mask = a->mask ? &j->mask : NULL;
    j->picture.extend = a->sides;
    j->picture.crop_to_mask = is_given(a, "crop-to-mask");
    j->picture.crop_padding = a->crop;
    j->picture.change_outside = a->change_outside;
    j->picture.feather = !is_given(a, "feather") ? 0 : a->feather ? a->feather : -1;
    return DONE;
}

/* Does the result have the size of the first image, with its added sides? */
static bool keeps_canvas(const job *j) {
    const arguments *a = j->args;
    bool sized = a->width || a->height || a->noise;
    return repaints(a) && (j->picture.crop_to_mask || (!sized && !a->change_outside));
}

bool job_sized_by_image(const job *j) {
    const arguments *a = j->args;
    return job_keeps_image(j) || j->facts.layers || (repaints(a) && !a->width && !a->height && !a->noise);
}

void result_size(const job *j, int64_t *width, int64_t *height) {
    *width = j->picture.width;
    *height = j->picture.height;
    if (!keeps_canvas(j)) return;
    const lz_sides *sides = &lz_job_settled(j->work)->extend;
    *width = j->picture.images[0].width + sides->left + sides->right;
    *height = j->picture.images[0].height + sides->top + sides->bottom;
}

/* Tells the user that the size that was asked for has another shape than the image with its added sides: all of it is
 * stretched, also what is outside of the mask. Shapes that differ by a twentieth or less count as the same, as for
 * masks. */
static void say_stretched(const job *j, const lz_sides *sides) {
    const arguments *a = j->args;
    const lz_image *image = &j->picture.images[0];
    int64_t width = image->width + sides->left + sides->right, height = image->height + sides->top + sides->bottom;
    double wide = (double)width * (double)j->picture.height, high = (double)height * (double)j->picture.width;
    if ((!a->width && !a->height) || j->picture.crop_to_mask || (wide <= 1.05 * high && high <= 1.05 * wide)) return;
    note(a,
         "the %lld x %lld of the image%s are stretched to %lld x %lld, which is another shape; without -W and -H it is "
         "kept",
         (long long)width, (long long)height, a->extend ? " with its new sides" : "", (long long)j->picture.width,
         (long long)j->picture.height);
}

void say_repainted(const job *j) {
    const arguments *a = j->args;
    int64_t width, height;
    result_size(j, &width, &height);
    const lz_sides *asked = &a->sides, *got = &lz_job_settled(j->work)->extend;
    say_stretched(j, got);
    if (memcmp(asked, got, sizeof *asked) != 0)
        note(a, "the picture becomes %lld x %lld, because extended sides are multiples of %lld", (long long)width,
             (long long)height, (long long)j->facts.token_pixels);
    if (keeps_canvas(j) && !j->picture.crop_to_mask &&
        (double)width * (double)height > 1.2 * (double)j->picture.width * (double)j->picture.height)
        note(a,
             "it is painted at %lld x %lld and enlarged to the %lld x %lld of the image; --crop-to-mask 64 paints the "
             "part around the mask alone, which is sharper",
             (long long)j->picture.width, (long long)j->picture.height, (long long)width, (long long)height);
}
