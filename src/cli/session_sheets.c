/* session_sheets.c: commands of a session about several pictures: /grid and /compare. */
#include <ctype.h>
#include <stdlib.h>
#include <string.h>

#include "grid.h"
#include "session.h"

/* ---- /compare ---------------------------------------------------------------------------------------------------- */

void compare_two(session *s, const char *rest) {
    int n = s->album.n, which[2] = {n - 2, n - 1}, found = 0;
    for (size_t length; *rest; rest += length + strspn(rest + length, " \t"), found++) {
        length = strcspn(rest, " \t");
        int at = read_reference(s, rest, length);
        if (at == -2) return;
        if (at < 0 || found == 2) {
            fail(&s->args, NOT_UNDERSTOOD,
                 "/compare takes two pictures, as in /compare $1 $3, or nothing for the last two");
            return;
        }
        which[found] = at;
    }
    if (found == 1) which[1] = n - 1; /* the other is the last */
    if (n < 2) {
        fail(&s->args, NOT_UNDERSTOOD, "/compare needs two pictures, and there %s", n ? "is one" : "are none");
        return;
    }
    const kept *one = &s->album.pictures[which[0]], *two = &s->album.pictures[which[1]];
    const lz_image *const images[] = {&one->image, &two->image};
    const char *const files[] = {one->copy ? one->copy : one->path, two->copy ? two->copy : two->path};
    if (!found || found == 1) printf("$%d and $%d\n", which[0] + 1, which[1] + 1);
    compare_in_session(&s->job, images, files);
}

/* ---- /grid ------------------------------------------------------------------------------------------------------- */

/* Does "NAME=" of an axis begin here? Blanks may be inside of values, such as prompts. */
static bool begins_axis(const char *text) {
    size_t length = 0;
    while (isalpha((unsigned char)text[length]) || text[length] == '-') length++;
    const option *o = length && text[length] == '=' ? find_option(text, length) : NULL;
    return o && is_axis(o);
}

/* Cuts the text into axes, in place. Returns their number, at most 3: one more than there can be. */
static int split_axes(char *text, char *axes[3]) {
    int n = 0;
    axes[n++] = text;
    for (char *at = text; *at && n < 3; at++) {
        if (!isspace((unsigned char)*at) || !begins_axis(at + 1)) continue;
        axes[n++] = at + 1;
        for (char *end = at; end >= text && isspace((unsigned char)*end);) *end-- = 0;
    }
    return n;
}

/* The arguments of the grid: the current settings, with the prompt, the references and the seed of a picture. false: a
 * reference has no file, which was reported. */
static bool fill_arguments(session *s, const wish *w, arguments *args) {
    *args = s->args;
    args->prompt = w->prompt;
    args->elsewhere[find_option("prompt", 6) - options] = true; /* a prompt '-' is not read from stdin */
    args->n_seeds = 1;
    args->seeds[0] = w->seed;
    args->n_images = w->n_references;
    if (!w->n_references) args->strength = 0;
    for (int i = 0; i < w->n_references; i++) {
        const kept *k = &s->album.pictures[w->references[i]];
        args->images[i] = k->copy ? k->copy : k->path;
        if (args->images[i]) continue;
        fail(&s->args, FAILED, "/grid needs $%d as a file; /save it first", w->references[i] + 1);
        return false;
    }
    return true;
}

static void keep_sheet(session *s, grid_sheet *made, double begun) {
    printf("$%d  %lld x %lld, %d x %d pictures, ", s->album.n + 1, (long long)made->image.width,
           (long long)made->image.height, made->columns, made->rows);
    if (made->shrink > 1) printf("shrunk %d times, ", made->shrink);
    puts(show_seconds(seconds_now() - begun).text);
    album_add(&s->album, &s->job, &(kept){.image = made->image, .sheet = made->settings});
}

void make_grid(session *s, const char *rest) {
    const kept *k = last_painted(s);
    char *text = k ? strdup(rest) : NULL, *axes[3];
    arguments *args = calloc(1, sizeof *args);
    grid_sheet made = {.columns = 0};
    double begun = seconds_now();
    int n = text ? split_axes(text, axes) : 0;
    if (k && (!text || !args))
        fail(&s->args, FAILED, "out of memory");
    else if (k && (!*rest || n > 2))
        fail(&s->args, NOT_UNDERSTOOD, "/grid takes one or two axes, as in /grid steps=2,4,8 sampler=euler,unipc");
    else if (k && album_has_place(&s->album, &s->job) && fill_arguments(s, &k->wish, args)) {
        args->x = axes[0];
        args->y = n > 1 ? axes[1] : NULL;
        stop_picture_on_signals();
        int code = grid_in_session(&s->job, args, &made);
        end_signals(s);
        if (code == DONE) keep_sheet(s, &made, begun);
    }
    free(args);
    free(text);
}
