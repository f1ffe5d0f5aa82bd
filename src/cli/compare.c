/* compare.c: `lazuli compare A B`, and /compare in a session: how much two pictures differ, and which of their settings
 * do. The exit codes are those of cmp and diff: 0 the pixels are equal, 1 they differ, 2 the pictures could not be
 * compared. */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "difference.h"
#include "progress.h"
#include "session.h"

enum { DIFFERENT = 1, TROUBLE = 2, SHOWN = 300 }; /* SHOWN: bytes of a setting */

typedef struct comparison {
    const arguments *args;
    lz_context *ctx;
    lz_image images[2], drawn; /* drawn: the difference, of -o */
    json_t *settings[2];       /* owned; NULL: the picture has none */
    json_t *changed;           /* owned: {"steps": [4, 8]}; NULL: not both pictures have settings */
    bool same_size;
    difference d; /* of pictures of the same size */
    int times;    /* factor of the drawn difference; 0: it is not drawn */
} comparison;

static void read_settings_of(comparison *c, int i, const char *path) {
    lz_error none;
    char *text = lz_image_read_text(c->ctx, path, SETTINGS_KEY, &none);
    c->settings[i] = text ? json_loads(text, JSON_REJECT_DUPLICATES, NULL) : NULL;
    lz_free_text(c->ctx, text);
}

static int read_pictures(comparison *c) {
    lz_error err = {.status = LZ_OK};
    for (int i = 0; i < 2; i++) {
        const char *path = c->args->words[i];
        if (lz_image_read_alpha(c->ctx, path, &c->images[i], &err) != LZ_OK) return fail_with(c->args, &err);
        read_settings_of(c, i, path);
    }
    return DONE;
}

/* Lists the settings that differ; null stands for a setting that a picture does not have. */
static void compare_settings(comparison *c) {
    if (!json_is_object(c->settings[0]) || !json_is_object(c->settings[1])) return;
    c->changed = json_object();
    for (int i = 0; i < 2; i++) {
        const char *key;
        json_t *value;
        json_object_foreach(c->settings[i], key, value) {
            json_t *other = json_object_get(c->settings[!i], key);
            if (json_equal(value, other)) continue;
            json_t *one = json_incref(value), *two = other ? json_incref(other) : json_null();
            json_object_set_new(c->changed, key, json_pack("[o, o]", i ? two : one, i ? one : two));
        }
    }
}

/* ---- telling ----------------------------------------------------------------------------------------------------- */

static bool differ(const comparison *c) { return !c->same_size || c->d.differing; }

static json_t *number_or_null(double x) { return isfinite(x) ? json_real(x) : json_null(); }

static int print_comparison_json(const comparison *c) {
    const arguments *a = c->args;
    const difference *d = &c->d;
    json_t *object = json_pack("{s:o, s:o, s:b, s:[I, I], s:[I, I], s:O}", "a", json_text(a->words[0]), "b",
                               json_text(a->words[1]), "equal", !differ(c), "size_a", (json_int_t)c->images[0].width,
                               (json_int_t)c->images[0].height, "size_b", (json_int_t)c->images[1].width,
                               (json_int_t)c->images[1].height, "settings", c->changed ? c->changed : json_null());
    json_t *more = c->same_size
                       ? json_pack("{s:o, s:o, s:I, s:I, s:i, s:o, s:o, s:o, s:o}", "psnr", number_or_null(d->psnr),
                                   "ssim", number_or_null(d->ssim), "pixels", (json_int_t)d->pixels, "differing",
                                   (json_int_t)d->differing, "largest", d->largest, "x",
                                   d->differing ? json_integer(d->x) : json_null(), "y",
                                   d->differing ? json_integer(d->y) : json_null(), "file", json_text(a->output),
                                   "times", c->times ? json_integer(c->times) : json_null())
                       : NULL;
    if (more) json_object_update(object, more);
    json_decref(more);
    return print_json(a, object);
}

static char *show_value(const json_t *value) {
    if (json_is_null(value)) return strdup("none");
    if (json_is_string(value)) return strdup(json_string_value(value));
    return json_dumps(value, JSON_ENCODE_ANY | JSON_REAL_PRECISION(15));
}

static void print_settings(FILE *to, const comparison *c) {
    const char *key;
    json_t *pair;
    const char *title = "settings";
    json_object_foreach(c->changed, key, pair) {
        char *one = show_value(json_array_get(pair, 0)), *two = show_value(json_array_get(pair, 1));
        say(to, "%-10s %s: %.*s and %.*s\n", title, key, SHOWN, one ? one : "", SHOWN, two ? two : "");
        title = "";
        free(one);
        free(two);
    }
    if (c->changed && *title) fputs("settings   the same\n", to);
}

static void print_comparison(FILE *to, const comparison *c) {
    const difference *d = &c->d;
    const lz_image *a = &c->images[0], *b = &c->images[1];
    if (!c->same_size)
        fprintf(to, "sizes      %lld x %lld and %lld x %lld; only pictures of one size have pixels to compare\n",
                (long long)a->width, (long long)a->height, (long long)b->width, (long long)b->height);
    else if (!d->differing)
        fprintf(to, "equal      %lld x %lld pixels%s\n", (long long)a->width, (long long)a->height,
                a->channels == 4 ? ", with their opacity" : "");
    else {
        fprintf(to, "PSNR       %.2f dB\n", d->psnr);
        if (isnan(d->ssim))
            fputs("SSIM       none; the pictures are smaller than its window of 11 x 11 pixels\n", to);
        else
            fprintf(to, "SSIM       %.6f\n", d->ssim);
        fprintf(to, "differing  %lld of %lld pixels, %.3g %%\n", (long long)d->differing, (long long)d->pixels,
                100 * (double)d->differing / (double)d->pixels);
        fprintf(to, "largest    %d of 255, at x %lld, y %lld\n", d->largest, (long long)d->x, (long long)d->y);
    }
    print_settings(to, c);
    if (c->times)
        say(to, "%s  %lld x %lld, the differences times %d\n", c->args->output, (long long)a->width,
            (long long)a->height, c->times);
}

/* ---- the command ------------------------------------------------------------------------------------------------- */

static int check_names(const arguments *a) {
    if (!a->output) return DONE;
    if (is_stdout(a->output)) return check_stdout(a, 1);
    if (!picture_side_limit(a->output))
        return fail(a, NOT_UNDERSTOOD, "%s: the name of a picture must end in .png, .jpg or .webp", a->output);
    int code = check_output(a, a->output);
    for (int i = 0; i < 2 && code == DONE; i++) code = check_unread(a, a->words[i], a->output);
    return code;
}

static int write_difference(comparison *c) {
    const lz_image *a = &c->images[0];
    lz_error err = {.status = LZ_OK};
    c->drawn = (lz_image){.width = a->width, .height = a->height};
    c->drawn.pixels = malloc(3 * (size_t)(a->width * a->height));
    if (!c->drawn.pixels) return fail(c->args, FAILED, "out of memory");
    int times = draw_difference(a, &c->images[1], c->d.largest, &c->drawn);
    stop_on_signals(); /* until here Ctrl-C may just end it; now a file is being written */
    if (put_picture(c->ctx, c->args->output, &c->drawn, NULL, &err) != LZ_OK) return fail_with(c->args, &err);
    c->times = times;
    return DONE;
}

/* Compares the pictures and settings that were read. */
static int measure(comparison *c) {
    const lz_image *one = &c->images[0], *two = &c->images[1];
    c->same_size = one->width == two->width && one->height == two->height;
    compare_settings(c);
    if (c->same_size && !measure_difference(one, two, &c->d)) return fail(c->args, FAILED, "out of memory");
    return DONE;
}

static int compare(comparison *c) {
    const arguments *a = c->args;
    int code = check_names(a);
    if (code == DONE) code = read_pictures(c);
    if (code == DONE) code = measure(c);
    if (code != DONE) return code;
    if (c->same_size && a->output) code = write_difference(c);
    if (!c->same_size && a->output) note(a, "%s is not written, because the sizes differ", a->output);
    if (code != DONE) return code;
    if (a->json)
        code = print_comparison_json(c);
    else if (!a->quiet)
        print_comparison(result_stream(a), c);
    return code == DONE ? flush_output(a) : code;
}

static void forget(comparison *c) {
    for (int i = 0; i < 2; i++) json_decref(c->settings[i]);
    json_decref(c->changed);
    free(c->drawn.pixels);
}

void compare_in_session(const job *j, const lz_image *const images[2], const char *const files[2]) {
    comparison c = {.args = j->args, .ctx = j->ctx, .images = {*images[0], *images[1]}};
    for (int i = 0; i < 2; i++)
        if (files[i]) read_settings_of(&c, i, files[i]);
    if (measure(&c) == DONE) print_comparison(stdout, &c);
    forget(&c);
}

int compare_command(const arguments *args) {
    lz_error err = {.status = LZ_OK};
    comparison c = {.args = args, .ctx = lz_open_with(&LZ_CONTEXT_OPTIONS(.threads = 1), &err)};
    int code = c.ctx ? compare(&c) : fail_with(args, &err);
    if (code == FAILED) code = TROUBLE;
    if (code == DONE && differ(&c)) code = DIFFERENT;
    for (int i = 0; i < 2; i++) lz_image_free(c.ctx, &c.images[i]);
    forget(&c);
    lz_close(c.ctx);
    return code;
}
