/* batch.c: `lazuli batch`: many pictures, one line of a file after the other, by one model that stays loaded.
 *
 * A line is a prompt, or a JSON object of settings that overrule those of the command line; blank lines and those that
 * begin with # are skipped. Which pictures are finished nobody writes down: a file appears whole or not at all and holds
 * its settings, so what is there and would be made the same is left alone. Hence nothing is random here: a line without
 * a seed has its number as seed. */
#include <dirent.h>
#include <errno.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "generate.h"

enum { MOST_BYTES = 64 << 20, MOST_LINE = 1 << 20 };

/* ---- names ------------------------------------------------------------------------------------------------------- */

static bool field(FILE *to, const naming *names, const char *name, size_t length, int64_t seed) {
    const struct {
        const char *name;
        int64_t value;
    } numbers[] = {{"line", names->line}, {"n", names->n}, {"seed", seed}};
    for (size_t i = 0; i < COUNT(numbers); i++)
        if (strlen(numbers[i].name) == length && memcmp(numbers[i].name, name, length) == 0)
            return fprintf(to, "%lld", (long long)numbers[i].value) > 0;
    return length == 4 && memcmp(name, "file", 4) == 0 && fputs(names->file, to) >= 0;
}

static int expand_fields(const arguments *args, const naming *names, const char *pattern, int64_t seed, char **to) {
    size_t size = 0;
    FILE *out = open_memstream(to, &size);
    int code = DONE;
    for (const char *at = pattern; out && *at && code == DONE;) {
        size_t plain = strcspn(at, "{"), inner;
        fwrite(at, 1, plain, out);
        at += plain;
        if (!*at) break;
        inner = strcspn(at + 1, "}");
        if (!at[1 + inner] || !field(out, names, at + 1, inner, seed))
            code = fail(args, NOT_UNDERSTOOD, "%s: {file}, {line}, {n} and {seed} can stand in a name, and no other {}",
                        pattern);
        else
            at += inner + 2;
    }
    if (!out || fclose(out) != 0) return fail(args, FAILED, "there is no memory left for a name");
    return code;
}

int expand_name(const arguments *args, const naming *names, const char *pattern, int64_t seed, int number, char **to) {
    int code = expand_fields(args, names, pattern, seed, to);
    if (code != DONE) return code;
    if (number && !strstr(pattern, "{seed}")) {
        char *numbered = numbered_path(*to, number);
        if (!numbered) return fail(args, FAILED, "there is no memory left for a name");
        free(*to);
        *to = numbered;
    }
    json_t *other = json_object_get(names->used, *to);
    if (other)
        return fail(args, FAILED, "%s is the picture of line %lld already: put {line} or {seed} into the name", *to,
                    (long long)json_integer_value(other));
    json_object_set_new(names->used, *to, json_integer(args->line));
    return DONE;
}

/* NAME.PID-NUMBER.part is what lz_image_write writes into before it is whole. */
void remove_parts(const char *path) {
    const char *base = base_name(path);
    char *folder = base > path ? strndup(path, (size_t)(base - path)) : strdup("./");
    DIR *dir = folder ? opendir(folder) : NULL;
    size_t length = strlen(base);
    for (const struct dirent *e; dir && (e = readdir(dir));) {
        long pid;
        unsigned number;
        int end = 0;
        if (strncmp(e->d_name, base, length) != 0) continue;
        if (sscanf(e->d_name + length, ".%ld-%u.part%n", &pid, &number, &end) != 2 || !end ||
            e->d_name[length + (size_t)end] || pid < 1)
            continue;
        if (kill((pid_t)pid, 0) != 0 && errno == ESRCH) unlinkat(dirfd(dir), e->d_name, 0);
    }
    if (dir) closedir(dir);
    free(folder);
}

/* ---- lines ------------------------------------------------------------------------------------------------------- */

typedef struct reader {
    const char *at, *end;
    int64_t line; /* the one before at */
} reader;

static bool is_space(char c) { return c == ' ' || c == '\t' || c == '\r'; }

/* The next line that asks for something, without the space around it. */
static bool next_line(reader *r, const char **text, size_t *length) {
    while (r->at < r->end) {
        const char *begin = r->at, *stop = memchr(begin, '\n', (size_t)(r->end - begin));
        if (!stop) stop = r->end;
        r->at = stop < r->end ? stop + 1 : stop;
        r->line++;
        while (begin < stop && is_space(*begin)) begin++;
        while (begin < stop && is_space(stop[-1])) stop--;
        if (begin == stop || *begin == '#') continue;
        *text = begin;
        *length = (size_t)(stop - begin);
        return true;
    }
    return false;
}

static int read_line(const arguments *args, const char *text, size_t length, json_t **settings) {
    json_error_t why;
    if (length > MOST_LINE) return fail(args, FAILED, "is too long: at most %s are read", show_bytes(MOST_LINE).text);
    if (*text == '{') {
        *settings = json_loadb(text, length, JSON_REJECT_DUPLICATES, &why);
        return *settings ? DONE : fail(args, FAILED, "is not JSON, though it begins with {: %s", why.text);
    }
    json_t *prompt = json_stringn(text, length);
    if (!prompt) return fail(args, FAILED, "is not valid UTF-8");
    *settings = json_pack("{s:o}", "prompt", prompt);
    return *settings ? DONE : fail(args, FAILED, "there is no memory left for the prompt");
}

/* ---- all --------------------------------------------------------------------------------------------------------- */

typedef struct batch {
    const arguments *args;
    making making;
    naming naming;
    overall overall;
    int failed;
} batch;

static void print_line(const json_t *object) {
    json_dumpf(object, stdout, JSON_REAL_PRECISION(12));
    putchar('\n');
}

/* For programs: a line for each picture, as it is there. */
static int tell_pictures(const batch *b, const arguments *args, int there) {
    size_t i;
    json_t *picture;
    json_array_foreach(b->making.pictures, i, picture) {
        json_object_set_new(picture, "line", json_integer(args->line));
        if (args->json) print_line(picture);
    }
    json_array_clear(b->making.pictures);
    if (there && args->json) {
        json_t *object = json_pack("{s:I, s:i}", "line", (json_int_t)args->line, "there", there);
        print_line(object);
        json_decref(object);
    }
    return flush_output(args);
}

static int make_line(batch *b, const char *text, size_t length) {
    arguments args = *b->args;
    args.line = b->naming.line;
    args.n_words = 0;
    json_t *settings = NULL;
    int there = b->making.there, made = b->making.made;
    int code = read_line(&args, text, length, &settings);
    if (code == DONE) code = apply_settings(&args, settings, true);
    if (code == DONE && !args.prompt) code = fail(&args, NOT_UNDERSTOOD, "has no \"prompt\"");
    if (code == DONE) code = make_pictures(&b->making, &args);
    if (b->making.pictures) { /* those before one that failed, too */
        int told = tell_pictures(b, &args, b->making.there - there);
        if (code == DONE) code = told;
    }
    b->overall.painted += b->making.made > made;
    json_decref(settings);
    return code;
}

static int make_lines(batch *b, reader lines) {
    reader ahead = lines;
    const char *text;
    size_t length;
    while (next_line(&ahead, &text, &length)) b->overall.all++;
    for (; next_line(&lines, &text, &length); b->overall.before++) {
        b->naming.line = lines.line;
        b->naming.n++;
        int code = stop_wanted() ? fail(b->args, STOPPED, "stopped") : make_line(b, text, length);
        b->failed += code != DONE;
        if (code == STOPPED || ferror(stdout)) return code;
    }
    return DONE;
}

static int tell_end(const batch *b) {
    const making *m = &b->making;
    const arguments *a = b->args;
    if (a->json) {
        json_t *object = json_pack("{s:i, s:i, s:i}", "made", m->made, "there", m->there, "failed", b->failed);
        print_line(object);
        json_decref(object);
    }
    note(a, "%d picture%s made, %d there already", m->made, m->made == 1 ? "" : "s", m->there);
    if (b->failed) return fail(a, FAILED, "%d of %d lines failed", b->failed, b->overall.all);
    return DONE;
}

/* {file}: prompts of lists/prompts.txt */
static char *stem(const char *path) {
    if (strcmp(path, "-") == 0) return strdup("lazuli");
    const char *base = base_name(path), *dot = strrchr(base, '.');
    return dot > base ? strndup(base, (size_t)(dot - base)) : strdup(base);
}

int batch_command(const arguments *args) {
    char *text = NULL, *name = stem(args->words[0]);
    size_t bytes = 0;
    int code = read_file(args, args->words[0], MOST_BYTES, &text, &bytes);
    if (code == DONE && memchr(text, 0, bytes))
        code = fail(args, FAILED, "%s: holds a zero byte: it is not text", args->words[0]);
    if (code == DONE && !name) code = fail(args, FAILED, "there is no memory left for a name");
    batch b = {.args = args, .naming = {.file = name, .used = json_object()}, .overall = {.begun = seconds_now()}};
    b.making.naming = &b.naming;
    b.making.overall = &b.overall;
    bool marked = bytes >= 3 && memcmp(text, "\xef\xbb\xbf", 3) == 0; /* as some editors begin UTF-8 */
    reader lines = {.at = text ? text + (marked ? 3 : 0) : NULL, .end = text ? text + bytes : NULL};
    if (code == DONE) {
        stop_on_signals();
        code = make_lines(&b, lines);
        if (code == STOPPED) note(args, "the same command goes on from here");
    }
    if (code == DONE) code = tell_end(&b);
    making_end(&b.making);
    json_decref(b.naming.used);
    free(text);
    free(name);
    return code;
}
