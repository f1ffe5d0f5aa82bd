/* convert.c: `lazuli convert IN OUT --type TYPE`: weights in another type. IN is a file, the folder of a part, or the
 * folder or name of a model, as for -m. Of a model --part names the part that becomes the file OUT; without it OUT is a
 * new folder, with the transformer and the text encoder converted and everything else copied. OUT must not exist. */
#include <dirent.h>
#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "cache.h"
#include "progress.h"

enum { WORST = 5, KINDS = 16, MOST_MADE = 256 };

typedef struct kind { /* tensors that changed from one type to another */
    char from[16], to[16];
    int64_t tensors, from_bytes, to_bytes;
    double errors; /* their sum */
} kind;

typedef struct layer {
    char name[128];
    double error;
} layer;

typedef struct report {
    const arguments *args;
    const char *part; /* or NULL */
    kind kinds[KINDS];
    int n_kinds;
    layer worst[WORST]; /* largest error first */
    json_t *tensors;    /* with --json: a list of all tensors */
    bool shown;
    double begun, drawn_at;
} report;

/* ---- while it runs ------------------------------------------------------------------------------------------------ */

static void count_tensor(report *r, const lz_converted *t) {
    int i = 0;
    while (i < r->n_kinds && (strcmp(r->kinds[i].from, t->from_type) || strcmp(r->kinds[i].to, t->to_type))) i++;
    if (i == KINDS) return;
    kind *k = &r->kinds[i];
    if (i == r->n_kinds) {
        r->n_kinds++;
        snprintf(k->from, sizeof k->from, "%s", t->from_type);
        snprintf(k->to, sizeof k->to, "%s", t->to_type);
    }
    k->tensors++, k->from_bytes += t->from_bytes, k->to_bytes += t->to_bytes, k->errors += t->error;
}

static void rank_layer(report *r, const lz_converted *t) {
    int at = WORST;
    while (at > 0 && t->error > r->worst[at - 1].error) at--;
    if (at == WORST || t->error == 0) return;
    memmove(&r->worst[at + 1], &r->worst[at], (size_t)(WORST - 1 - at) * sizeof *r->worst);
    snprintf(r->worst[at].name, sizeof r->worst[at].name, "%s", t->name);
    r->worst[at].error = t->error;
}

static bool watch(void *user, const lz_converted *t) {
    report *r = user;
    count_tensor(r, t);
    rank_layer(r, t);
    if (r->tensors)
        json_array_append_new(r->tensors,
                              json_pack("{s:o, s:s, s:s, s:I, s:f}", "name", json_text(t->name), "from", t->from_type,
                                        "to", t->to_type, "bytes", (json_int_t)t->to_bytes, "error", t->error));
    double now = seconds_now(), left = t->done > 0 ? (now - r->begun) * (1 - t->done) / t->done : 0;
    if (r->shown && line_is_due(r->drawn_at)) {
        char after[64] = "";
        r->drawn_at = now;
        if (now - r->begun > 0.5) snprintf(after, sizeof after, " %s left", show_seconds(left).text);
        draw_line(r->part ? r->part : "convert", t->done, after);
    }
    return !stop_wanted();
}

/* ---- one file ------------------------------------------------------------------------------------------------------ */

static int convert_file(report *r, const char *from, const char *to) {
    lz_error err = {.status = LZ_OK};
    lz_context *ctx = lz_open_with(&LZ_CONTEXT_OPTIONS(.threads = (int)r->args->threads), &err);
    if (!ctx) return fail_with(r->args, &err);
    r->begun = r->drawn_at = seconds_now();
    lz_status status = lz_convert(ctx, from, to, &LZ_CONVERT_OPTIONS(.type = r->args->type, .watch = watch, .user = r),
                                  &err);
    if (r->shown) clear_line();
    lz_close(ctx);
    if (status == LZ_CANCELLED) return fail(r->args, stop_code(), "stopped; nothing was written");
    return status ? fail_with(r->args, &err) : DONE;
}

/* ---- a folder ------------------------------------------------------------------------------------------------------ */

typedef struct folder {
    report *report;
    const char *from, *to;
    /* owned: files and folders that were made; after a failure they are removed, the last one first */
    char *made[MOST_MADE];
    int n_made;
} folder;

static int make_note(folder *f, char *path) { /* takes ownership of path */
    if (f->n_made == MOST_MADE) {
        free(path);
        return fail(f->report->args, FAILED, "%s: holds more than %d files: is it the folder of a model?", f->from,
                    MOST_MADE);
    }
    f->made[f->n_made++] = path;
    return DONE;
}

static int make_folder(folder *f, const char *path) {
    if (mkdir(path, 0777) != 0)
        return fail(f->report->args, FAILED, "%s: the folder cannot be made: %s", path, strerror(errno));
    char *copy = strdup(path);
    return copy ? make_note(f, copy) : fail(f->report->args, FAILED, "out of memory");
}

static int copy_file(folder *f, const char *from, const char *to) {
    enum { PIECE = 1 << 20 };
    FILE *in = fopen(from, "rb"), *out = in ? fopen(to, "wxb") : NULL;
    char *bytes = malloc(PIECE), *copy = strdup(to);
    bool good = in && out && bytes && copy;
    for (size_t n; good && (n = fread(bytes, 1, PIECE, in)) > 0;)
        good = fwrite(bytes, 1, n, out) == n && !stop_wanted();
    int why = errno;
    good = good && !ferror(in);
    if (in) fclose(in);
    if (out && fclose(out) != 0) good = false, why = errno;
    free(bytes);
    if (out && copy)
        make_note(f, copy);
    else
        free(copy);
    if (stop_wanted()) return fail(f->report->args, stop_code(), "stopped; nothing was written");
    return good ? DONE : fail(f->report->args, FAILED, "%s: cannot be copied to %s: %s", from, to, strerror(why));
}

static bool is_weights(const char *name) {
    return ends_in(name, ".safetensors") || ends_in(name, ".gguf") || strstr(name, ".safetensors.index.");
}

static int convert_part(folder *f, const char *part, const char *from, const char *to) {
    const char *type = f->report->args->type,
               *stem = strcmp(part, "text_encoder") ? "diffusion_pytorch_model" : "model";
    char name[64];
    snprintf(name, sizeof name, "%s%s", stem, *type == 'q' ? ".gguf" : ".safetensors");
    char *path = path_of(to, name);
    if (!path) return fail(f->report->args, FAILED, "out of memory");
    f->report->part = part;
    int code = convert_file(f->report, from, path);
    return code == DONE ? make_note(f, path) : (free(path), code);
}

/* part: the part that the folder belongs to; NULL: it is the folder of the model. */
static int walk(folder *f, const char *part, const char *from, const char *to) {
    int code = make_folder(f, to);
    bool converts = part && (!strcmp(part, "transformer") || !strcmp(part, "text_encoder"));
    if (code == DONE && converts) code = convert_part(f, part, from, to);
    DIR *dir = code == DONE ? opendir(from) : NULL;
    if (code == DONE && !dir) return fail(f->report->args, FAILED, "%s: cannot be read: %s", from, strerror(errno));
    for (struct dirent *e; code == DONE && (e = readdir(dir));) {
        struct stat s;
        if (e->d_name[0] == '.' || (converts && is_weights(e->d_name))) continue;
        char *here = path_of(from, e->d_name), *there = path_of(to, e->d_name);
        if (!here || !there)
            code = fail(f->report->args, FAILED, "out of memory");
        else if (stat(here, &s) == 0 && S_ISREG(s.st_mode) && (part || !is_weights(e->d_name)))
            code = copy_file(f, here, there);
        else if (!part && S_ISDIR(s.st_mode))
            code = walk(f, e->d_name, here, there);
        free(here);
        free(there);
    }
    if (dir) closedir(dir);
    return code;
}

static int convert_folder(report *r, const char *from, const char *to) {
    folder f = {.report = r, .from = from, .to = to};
    int code = walk(&f, NULL, from, to);
    while (f.n_made) {
        char *last = f.made[--f.n_made];
        if (code != DONE) remove(last);
        free(last);
    }
    return code;
}

/* ---- the command --------------------------------------------------------------------------------------------------- */

static void print_report(const report *r, const char *to) {
    int64_t bytes = 0;
    printf("%-6s %-6s %8s %12s %12s %12s\n", "from", "to", "tensors", "from bytes", "to bytes", "mean error");
    for (int i = 0; i < r->n_kinds; i++) {
        const kind *k = &r->kinds[i];
        bytes += k->to_bytes;
        printf("%-6s %-6s %8lld %12s %12s %11.3f%%\n", k->from, k->to, (long long)k->tensors,
               show_bytes(k->from_bytes).text, show_bytes(k->to_bytes).text,
               100 * k->errors / (double)(k->tensors ? k->tensors : 1));
    }
    if (r->worst[0].error > 0) printf("largest errors (root mean square, of the weights):\n");
    for (int i = 0; i < WORST && r->worst[i].error > 0; i++)
        say(stdout, "  %7.3f%%  %s\n", 100 * r->worst[i].error, r->worst[i].name);
    say(stdout, "%s  %s\n", to, show_bytes(bytes).text);
}

static int check_arguments(const arguments *args, const char *from, const char *to, bool model) {
    bool file = ends_in(to, ".gguf") || ends_in(to, ".safetensors");
    if (!args->type) return fail(args, NOT_UNDERSTOOD, "convert needs a type: --type q8_0, q4_k, bf16, fp8, int8, ...");
    bool known = false;
    for (int i = 0; lz_convert_type(i); i++) known = known || !strcmp(lz_convert_type(i), args->type);
    if (!known)
        return fail(args, NOT_UNDERSTOOD, "there is no type '%s'; %s", args->type,
                    option_help(find_option("type", 4), 0));
    if (access(from, R_OK) != 0) return fail(args, FAILED, "%s: cannot be read: %s", from, strerror(errno));
    if (args->part && !model)
        return fail(args, NOT_UNDERSTOOD, "%s: --part is for the folder of a model, which holds model_index.json",
                    from);
    if (model && file && !args->part)
        return fail(args, NOT_UNDERSTOOD,
                    "%s is a whole model: name the part with --part transformer, or a folder in "
                    "the place of %s",
                    from, to);
    if ((!model || args->part) && !file)
        return fail(args, NOT_UNDERSTOOD, "%s: the name of a file of weights must end in .safetensors or .gguf", to);
    if (access(to, F_OK) == 0) return fail(args, FAILED, "%s: is there already: choose another name", to);
    return file ? check_output(args, to) : DONE;
}

static int convert_from(const arguments *args, const char *from, const char *to) {
    bool model = have_model(from);
    int code = check_arguments(args, from, to, model);
    if (code != DONE) return code;
    report r = {
        .args = args, .shown = !args->quiet && isatty(STDERR_FILENO), .tensors = args->json ? json_array() : NULL};
    stop_on_signals();
    if (args->part) {
        char *path = path_of(from, args->part);
        code = !path ? fail(args, FAILED, "out of memory") : convert_file(&r, path, to);
        free(path);
    } else
        code = model ? convert_folder(&r, from, to) : convert_file(&r, from, to);
    if (code == DONE && args->json)
        return print_json(
            args, json_pack("{s:o, s:s, s:o}", "file", json_text(to), "type", args->type, "tensors", r.tensors));
    json_decref(r.tensors);
    if (code == DONE && !args->quiet) print_report(&r, to);
    return code;
}

int convert_command(const arguments *args) {
    arguments named = *args; /* IN is a path, or a model's name as of -m */
    named.model = args->words[0];
    model_choice choice;
    int code = choose_model(&named, &choice);
    if (code == DONE) code = convert_from(args, choice.folder, args->words[1]);
    free(choice.owned);
    return code;
}
