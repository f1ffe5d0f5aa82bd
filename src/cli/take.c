/* take.c: see take.h. Numbers must be complete and in range. */
#include "take.h"

#include <ctype.h>
#include <errno.h>
#include <stdlib.h>
#include <string.h>

void *option_place(arguments *args, const option *o) { return (char *)args + o->to; }

int take_flag(arguments *args, const option *o, const char *value) {
    (void)value;
    *(bool *)option_place(args, o) = true;
    return DONE;
}

int take_again(arguments *args, const option *o, const char *value) {
    (void)value;
    ++*(int64_t *)option_place(args, o);
    return DONE;
}

static bool names_path(const option *o) { return !strcmp(o->argument, "FILE") || !strcmp(o->argument, "DIR"); }

static int fail_unnamed(const arguments *args, const option *o) {
    return fail(args, NOT_UNDERSTOOD, "--%s needs the name of a file or folder", o->name);
}

int take_text(arguments *args, const option *o, const char *value) {
    if (!*value && names_path(o)) return fail_unnamed(args, o);
    *(const char **)option_place(args, o) = value;
    return DONE;
}

int take_image(arguments *args, const option *o, const char *value) {
    if (!*value) return fail_unnamed(args, o);
    if (args->n_images == LZ_MAX_IMAGES)
        return fail(args, NOT_UNDERSTOOD, "at most %d images can be given", LZ_MAX_IMAGES);
    args->images[args->n_images++] = value;
    return DONE;
}

int take_lora(arguments *args, const option *o, const char *value) {
    if (!*value) return fail_unnamed(args, o);
    if (args->n_loras == MAX_LORAS)
        return fail(args, NOT_UNDERSTOOD, "at most %d LoRAs can be used at once", MAX_LORAS);
    args->loras[args->n_loras++] = value;
    return DONE;
}

/* Keeps all values; those after the first 16 are refused by the command that uses them. */
static void keep_name(name_list *list, const char *value) {
    if (list->n < MAX_NAMES) list->all[list->n] = value;
    list->n++;
}

int take_model(arguments *args, const option *o, const char *value) {
    if (!*value) return fail_unnamed(args, o);
    args->model = value;
    keep_name(&args->serve.models, value);
    return DONE;
}

int take_names(arguments *args, const option *o, const char *value) {
    name_list *list = option_place(args, o);
    if (!*value || list->n >= MAX_NAMES)
        return fail(args, NOT_UNDERSTOOD, "--%s takes a name, and may be given %d times", o->name, MAX_NAMES);
    keep_name(list, value);
    return DONE;
}

/* Accepts digits only: strtoll alone would accept spaces and signs. */
bool whole_number(const char *text, size_t length, double low, double high, int64_t *to) {
    char digits[24] = "";
    if (length < 1 || length >= sizeof digits) return false;
    for (size_t i = 0; i < length; i++)
        if (!isdigit((unsigned char)text[i])) return false;
    memcpy(digits, text, length);
    errno = 0;
    *to = strtoll(digits, NULL, 10);
    return errno == 0 && (double)*to >= low && (double)*to <= high;
}

int take_integer(arguments *args, const option *o, const char *value) {
    if (whole_number(value, strlen(value), o->low, o->high, option_place(args, o))) return DONE;
    return fail(args, NOT_UNDERSTOOD, "--%s takes a whole number from %.0f to %.0f, not '%s'", o->name, o->low, o->high,
                value);
}

bool read_number(const option *o, const char *text, double *to) {
    char *end = NULL;
    double number = strtod(text, &end);
    bool plain = *text && strspn(text, "0123456789.eE+-") == strlen(text);
    if (!plain || *end || !(number >= o->low && number <= o->high)) return false;
    *to = number;
    return true;
}

int take_number(arguments *args, const option *o, const char *value) {
    if (read_number(o, value, option_place(args, o))) return DONE;
    return fail(args, NOT_UNDERSTOOD, "--%s takes a number from %g to %g, not '%s'", o->name, o->low, o->high, value);
}

static const struct {
    const char *name;
    int type;
} precisions[] = {{"auto", 0}, {"f32", LZ_F32}, {"bf16", LZ_BF16}, {"int8", LZ_I8}, {"fp8", LZ_F8}};

const char *precision_word(int type) {
    for (size_t i = 0; i < COUNT(precisions); i++)
        if (precisions[i].type == type) return precisions[i].name;
    return "auto";
}

int take_precision(arguments *args, const option *o, const char *value) {
    for (size_t i = 0; i < COUNT(precisions); i++) {
        if (strcmp(value, precisions[i].name)) continue;
        args->precision = precisions[i].type;
        return DONE;
    }
    return fail(args, NOT_UNDERSTOOD, "--%s takes auto, f32, bf16, int8 or fp8, not '%s'", o->name, value);
}

int take_offload(arguments *args, const option *o, const char *value) {
    static const char *const names[] = {
        [LZ_OFFLOAD_AUTO] = "auto", [LZ_OFFLOAD_NONE] = "none", [LZ_OFFLOAD_STREAM] = "stream"};
    for (size_t i = 0; i < COUNT(names); i++) {
        if (strcmp(value, names[i])) continue;
        args->offload = (int)i;
        return DONE;
    }
    return fail(args, NOT_UNDERSTOOD, "--%s takes auto, none or stream, not '%s'", o->name, value);
}

int take_lora_schedule(arguments *args, const option *o, const char *value) {
    args->lora_ordinary = strcmp(value, "model") == 0;
    if (args->lora_ordinary || strcmp(value, "lora") == 0) return DONE;
    return fail(args, NOT_UNDERSTOOD, "--%s takes lora or model, not '%s'", o->name, value);
}

const char *name_in_library(const option *o, const char *value) {
    static const char *const others[][2] = {
        {"dpmpp_2m", "dpm++2m"}, {"uni_pc", "unipc"}, {"euler_ancestral", "euler_a"}};
    const char *(*name)(int i) = o->to == offsetof(arguments, sampler) ? lz_sampler_name : lz_schedule_name;
    for (size_t i = 0; i < COUNT(others); i++)
        if (strcmp(value, others[i][0]) == 0) value = others[i][1];
    for (int i = 0; name(i); i++)
        if (strcmp(name(i), value) == 0) return name(i);
    return NULL;
}

int take_name(arguments *args, const option *o, const char *value) {
    const char **to = option_place(args, o);
    if ((*to = name_in_library(o, value))) return DONE;
    return fail(args, NOT_UNDERSTOOD, "there is no %s '%s'; there are %s", o->name, value, option_choices(o));
}

bool read_cache(const option *o, const char *value, double *to) {
    bool automatic = strcmp(value, "auto") == 0, off = strcmp(value, "off") == 0;
    if (automatic || off) *to = automatic ? LZ_CACHE_AUTO : 0;
    return automatic || off || read_number(o, value, to);
}

int take_cache(arguments *args, const option *o, const char *value) {
    if (read_cache(o, value, option_place(args, o))) return DONE;
    return fail(args, NOT_UNDERSTOOD, "--%s takes auto, off or a share of the passes from %g to %g, not '%s'", o->name,
                o->low, o->high, value);
}

int take_batch(arguments *args, const option *o, const char *value) {
    bool automatic = strcmp(value, "auto") == 0, off = strcmp(value, "off") == 0;
    if (automatic || off) args->batch = off;
    if (automatic || off || whole_number(value, strlen(value), o->low, o->high, &args->batch)) return DONE;
    return fail(args, NOT_UNDERSTOOD, "--%s takes auto, off or a number of pictures from %.0f to %.0f, not '%s'",
                o->name, o->low, o->high, value);
}

/* A..B, both shares of the steps. */
int take_range(arguments *args, const option *o, const char *value) {
    double *to = option_place(args, o);
    char from[32];
    const char *dots = strstr(value, "..");
    size_t n = dots ? (size_t)(dots - value) : 0;
    if (n < sizeof from) snprintf(from, sizeof from, "%.*s", (int)n, value);
    if (dots && n < sizeof from && read_number(o, from, &to[0]) && read_number(o, dots + 2, &to[1]) && to[0] < to[1])
        return DONE;
    return fail(args, NOT_UNDERSTOOD,
                "--%s takes two shares of the steps from %g to %g, such as 0.1..0.8, the smaller first, not '%s'",
                o->name, o->low, o->high, value);
}

/* Checks the form only; whether the device exists is checked later. */
int take_device(arguments *args, const option *o, const char *value) {
    static const char *const names[] = {"auto", "cpu", "cuda", "ref"};
    int64_t number;
    bool good = strncmp(value, "cuda:", 5) == 0 && whole_number(value + 5, strlen(value + 5), 0, 1023, &number);
    for (size_t i = 0; i < COUNT(names); i++) good = good || strcmp(value, names[i]) == 0;
    if (good) return take_text(args, o, value);
    return fail(args, NOT_UNDERSTOOD,
                "--%s takes auto, cpu, cuda, cuda:0, cuda:1 ... or ref, not '%s'; 'lazuli devices' lists what is here",
                o->name, value);
}

int take_seeds(arguments *args, const option *o, const char *value) {
    for (const char *at = value, *comma;; at = comma + 1) {
        comma = strchrnul(at, ',');
        if (args->n_seeds == MAX_PICTURES)
            return fail(args, NOT_UNDERSTOOD, "at most %d seeds can be given", MAX_PICTURES);
        if (!whole_number(at, (size_t)(comma - at), o->low, o->high, &args->seeds[args->n_seeds++]))
            return fail(args, NOT_UNDERSTOOD,
                        "--seed takes whole numbers from 0 to 9223372036854775807, with commas "
                        "between them, not '%s'",
                        value);
        if (!*comma) return DONE;
    }
}

/* --settings and --from themselves are not settings. */
int take_settings_file(arguments *args, const option *o, const char *value) { return take_text(args, o, value); }
