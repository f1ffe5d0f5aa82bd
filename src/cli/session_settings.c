/* session_settings.c: commands of a session that change settings of the next pictures: /size, /seed, /lora, /mask ... Without
 * a value they return to the default. */
#include "session.h"

#include <stdlib.h>
#include <string.h>

/* Reads a whole number within the limits of an option. */
static bool read_whole(const option *o, const char *text, size_t length, int64_t *to) {
    return whole_number(text, length, o->low, o->high, to);
}

void set_size(session *s, const char *rest) {
    const option *o = find_option("width", 5);
    size_t width = strcspn(rest, "x");
    int64_t w = 0, h = 0; /* 0: the model's default */
    if (*rest && (!rest[width] || !read_whole(o, rest, width, &w) ||
                  !read_whole(o, rest + width + 1, strlen(rest + width + 1), &h))) {
        fail(&s->args, NOT_UNDERSTOOD, "/size takes sides from %.0f to %.0f pixels, such as 512x768, not '%s'", o->low,
             o->high, rest);
        return;
    }
    s->args.width = w;
    s->args.height = h;
}

void set_seed(session *s, const char *rest) {
    int64_t seed;
    if (*rest && !read_whole(find_option("seed", 4), rest, strlen(rest), &seed)) {
        fail(&s->args, NOT_UNDERSTOOD, "/seed takes a whole number, or nothing for random ones, not '%s'", rest);
        return;
    }
    s->args.n_seeds = *rest ? 1 : 0;
    if (*rest) s->args.seeds[0] = seed;
}

void set_steps(session *s, const char *rest) {
    const option *o = find_option("steps", 5);
    int64_t steps = 0;
    if (*rest && !read_whole(o, rest, strlen(rest), &steps))
        fail(&s->args, NOT_UNDERSTOOD, "/steps takes a whole number from %.0f to %.0f, not '%s'", o->low, o->high,
             rest);
    else
        s->args.steps = steps;
}

static void set_real(session *s, const char *name, const char *rest, double *to) {
    const option *o = find_option(name, strlen(name));
    double value = 0;
    if (*rest && !read_number(o, rest, &value))
        fail(&s->args, NOT_UNDERSTOOD, "/%s takes a number from %g to %g, not '%s'", name, o->low, o->high, rest);
    else
        *to = value;
}

void set_guidance(session *s, const char *rest) { set_real(s, "guidance", rest, &s->args.guidance); }
void set_shift(session *s, const char *rest) { set_real(s, "shift", rest, &s->args.shift); }

static void set_name(session *s, const char *name, const char *rest, const char **to) {
    const option *o = find_option(name, strlen(name));
    const char *found = *rest ? name_in_library(o, rest) : NULL;
    if (*rest && !found)
        fail(&s->args, NOT_UNDERSTOOD, "there is no %s '%s'; there are %s", name, rest, option_choices(o));
    else
        *to = found;
}

void set_sampler(session *s, const char *rest) { set_name(s, "sampler", rest, &s->args.sampler); }
void set_schedule(session *s, const char *rest) { set_name(s, "schedule", rest, &s->args.schedule); }

void set_fast(session *s, const char *rest) {
    if (*rest && strcmp(rest, "off") != 0)
        fail(&s->args, NOT_UNDERSTOOD, "/fast takes nothing, or off, not '%s'", rest);
    else
        s->args.fast = !*rest;
}

void set_strength(session *s, const char *rest) { set_real(s, "strength", rest, &s->args.strength); }

void set_cache(session *s, const char *rest) {
    const option *o = find_option("cache", 5);
    double share = 0;
    if (*rest && !read_cache(o, rest, &share))
        fail(&s->args, NOT_UNDERSTOOD, "/cache takes auto, off or a share of the passes from %g to %g, not '%s'",
             o->low, o->high, rest);
    else
        s->args.cache = share;
}

char *typed_path(const char *text) {
    const char *home = getenv("HOME");
    size_t length = strlen(text);
    bool quoted = length > 1 && strchr("'\"", *text) && text[length - 1] == *text;
    char *path = quoted ? strndup(text + 1, length - 2) : strdup(text), *full = NULL;
    if (!path || !home || strncmp(path, "~/", 2) != 0) return path;
    full = file_in(home, path + 2);
    free(path);
    return full;
}

/* /lora adds a LoRA, or removes all of them. If a LoRA cannot be used, the others stay. */
void set_lora(session *s, const char *rest) {
    char *text = *rest ? typed_path(rest) : NULL;
    if (!*rest) {
        s->args.n_loras = 0;
        s->job.picture = LZ_PICTURE_OPTIONS();
        use_loras(&s->job);
        for (int i = 0; i < MAX_LORAS; i++) {
            free(s->loras[i]);
            s->loras[i] = NULL;
        }
        return;
    }
    if (!text || s->args.n_loras == MAX_LORAS) {
        fail(&s->args, NOT_UNDERSTOOD, "at most %d LoRAs can be used at once: /lora alone drops them", MAX_LORAS);
        free(text);
        return;
    }
    int at = s->args.n_loras++;
    s->args.loras[at] = text;
    s->job.picture = LZ_PICTURE_OPTIONS();
    if (use_loras(&s->job) == DONE) {
        free(s->loras[at]);
        s->loras[at] = text;
        return;
    }
    s->args.n_loras--;
    free(text);
}

/* Replaces an owned text of the session. */
static void keep_text(char **owned, const char **to, char *text) {
    free(*owned);
    *to = *owned = text;
}

/* The value of /mask or /extend. "off" becomes an empty value, which ends the repainting. */
static const char *unless_off(const char *rest) { return strcmp(rest, "off") == 0 ? "" : rest; }

void set_mask(session *s, const char *rest) {
    rest = unless_off(rest);
    char *path = *rest ? typed_path(rest) : NULL;
    lz_image mask = {0};
    lz_error err = {.text = "out of memory"};
    if (*rest && (!path || lz_image_read_mask(s->job.ctx, path, &mask, &err) != LZ_OK)) {
        fail(&s->args, FAILED, "%s", err.text);
        free(path);
        return;
    }
    lz_image_free(s->job.ctx, &mask);
    keep_text(&s->mask, &s->args.mask, path);
}

void set_extend(session *s, const char *rest) {
    char *text = strdup(unless_off(rest));
    arguments args = s->args; /* so that a mistake changes nothing */
    if (!text || (*text && take_extend(&args, find_option("extend", 6), text) != DONE)) {
        free(text);
        return;
    }
    s->args.sides = *text ? args.sides : (lz_sides){0};
    if (!*text) {
        free(text);
        text = NULL;
    }
    keep_text(&s->extend, &s->args.extend, text);
}
