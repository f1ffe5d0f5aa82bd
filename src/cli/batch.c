/* batch.c: `lazuli batch`: makes the pictures of each line of a file, with a model that stays loaded.
 *
 * A line is a prompt, or a JSON object of settings that override those of the command line; blank lines and lines that
 * begin with # are skipped. All lines of a file are checked before the first picture is made; lines of a pipe are read
 * as they arrive. There is no list of finished pictures: a file is written completely or not at all and contains its
 * settings, so an existing file with the same settings is skipped. Therefore nothing is random: the default seed of a
 * line is its number. */
#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "generate.h"
#include "template.h"

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
            code = fail(args, NOT_UNDERSTOOD, "%s: a name may contain {file}, {line}, {n} and {seed}, and no other {}",
                        pattern);
        else
            at += inner + 2;
    }
    if (!out || fclose(out) != 0) return fail(args, FAILED, "out of memory");
    return code;
}

int expand_name(const arguments *args, const naming *names, const char *pattern, int64_t seed, int number, char **to) {
    int code = expand_fields(args, names, pattern, seed, to);
    if (code != DONE) return code;
    if (number && !strstr(pattern, "{seed}")) {
        char *numbered = numbered_path(*to, number);
        if (!numbered) return fail(args, FAILED, "out of memory");
        free(*to);
        *to = numbered;
    }
    return DONE;
}

/* ---- lines ------------------------------------------------------------------------------------------------------- */

typedef struct reader {
    const arguments *args;
    int fd;     /* of a pipe; -1: text has all lines, and a copy of the reader can read them again */
    char *text; /* owned by batch_command */
    size_t at, end, room;
    int64_t line; /* number of the last line read */
    int code;     /* an exit code: the reason why there are no more lines */
} reader;

static int no_zero(const arguments *args, const char *text, size_t bytes) {
    if (!memchr(text, 0, bytes)) return DONE;
    return fail(args, FAILED, "%s: contains a zero byte, so it is not text", args->words[0]);
}

/* Waits for more bytes of a pipe, or a signal. False: the end; code has the reason. */
static bool read_more(reader *r) {
    if (r->fd < 0) return false;
    if (r->end - r->at > MOST_LINE) r->end = r->at + MOST_LINE + 1; /* the line is too long: the rest is dropped */
    r->end -= r->at;
    memmove(r->text, r->text + r->at, r->end);
    r->at = 0;
    if (!await_input(r->fd)) {
        r->code = fail(r->args, STOPPED, "stopped");
        return false;
    }
    ssize_t n = read(r->fd, r->text + r->end, r->room - r->end);
    if (n < 0) r->code = fail(r->args, FAILED, "%s: cannot be read: %s", r->args->words[0], strerror(errno));
    if (n > 0) r->code = no_zero(r->args, r->text + r->end, (size_t)n);
    if (n > 0) r->end += (size_t)n;
    return n > 0 && r->code == DONE;
}

static bool is_space(char c) { return c == ' ' || c == '\t' || c == '\r'; }

/* The next line that is neither blank nor a comment, without surrounding space. */
static bool next_line(reader *r, const char **text, size_t *length) {
    while (r->code == DONE) {
        size_t size = r->end - r->at;
        const char *begin = r->text + r->at, *stop = size ? memchr(begin, '\n', size) : NULL;
        if (!stop && read_more(r)) continue;
        if (r->code != DONE || (!stop && !size)) return false;
        begin = r->text + r->at; /* read_more moved it */
        if (!stop) stop = begin + size;
        r->at += (size_t)(stop - begin) + (stop < r->text + r->end);
        r->line++;
        if (r->line == 1 && stop - begin >= 3 && memcmp(begin, "\xef\xbb\xbf", 3) == 0)
            begin += 3; /* byte order mark of UTF-8 */
        while (begin < stop && is_space(*begin)) begin++;
        while (begin < stop && is_space(stop[-1])) stop--;
        if (begin == stop || *begin == '#') continue;
        *text = begin;
        *length = (size_t)(stop - begin);
        return true;
    }
    return false;
}

/* Is it a prompt that begins with a choice, such as "{red|blue} car"? JSON would have a quote after the brace. */
static bool begins_with_choice(const arguments *args, const char *text, size_t length) {
    char *copy = strndup(text, length);
    bool choice = copy && !args->no_templates && copy[1 + strspn(copy + 1, " \t")] != '"' && is_template(copy, false);
    free(copy);
    return choice;
}

/* *settings: of the line. *is_prompt: the line is a prompt, and no JSON. */
static int read_line(const arguments *args, const char *text, size_t length, json_t **settings, bool *is_prompt) {
    json_error_t why;
    if (length > MOST_LINE) return fail(args, FAILED, "is too long; the limit is %s", show_bytes(MOST_LINE).text);
    *is_prompt = *text != '{' || begins_with_choice(args, text, length);
    if (!*is_prompt) {
        *settings = json_loadb(text, length, JSON_REJECT_DUPLICATES, &why);
        return *settings ? DONE : fail(args, FAILED, "is not JSON, though it begins with {: %s", why.text);
    }
    json_t *prompt = json_stringn(text, length);
    if (!prompt) return fail(args, FAILED, "is not valid UTF-8");
    *settings = json_pack("{s:o}", "prompt", prompt);
    return *settings ? DONE : fail(args, FAILED, "out of memory");
}

/* Opens the list: a file is read as a whole; lines of anything else are read as they arrive. */
static int open_list(const arguments *args, reader *r) {
    const char *path = args->words[0];
    bool is_stdin = strcmp(path, "-") == 0;
    struct stat s;
    *r = (reader){.args = args, .fd = -1};
    if ((is_stdin ? fstat(STDIN_FILENO, &s) : stat(path, &s)) == 0 && !S_ISREG(s.st_mode)) {
        r->room = MOST_LINE + (64 << 10);
        r->text = malloc(r->room);
        if (!r->text) return fail(args, FAILED, "out of memory");
        r->fd = is_stdin ? STDIN_FILENO : open(path, O_RDONLY | O_CLOEXEC);
        return r->fd < 0 ? fail(args, FAILED, "%s: cannot be opened: %s", path, strerror(errno)) : DONE;
    }
    int code = read_file(args, path, MOST_BYTES, &r->text, &r->end);
    return code == DONE ? no_zero(args, r->text, r->end) : code;
}

static void close_list(reader *r) {
    if (r->fd > STDIN_FILENO) close(r->fd);
    free(r->text);
}

/* ---- all --------------------------------------------------------------------------------------------------------- */

typedef struct batch {
    const arguments *args;
    making making;
    naming naming;
    overall overall;
    int failed;
    bool *bad; /* owned: for each line of a file (without skipped ones), whether it failed the check. NULL: of a pipe */
    bool over; /* the error affects all lines */
} batch;

static void print_line(const json_t *object) {
    json_dumpf(object, stdout, JSON_ENSURE_ASCII | JSON_REAL_PRECISION(12));
    putchar('\n');
}

/* With --json: prints a line for each finished picture. */
static int tell_pictures(const batch *b, const arguments *args, int there) {
    size_t i;
    json_t *picture;
    json_array_foreach(b->making.pictures, i, picture) {
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

/* Fills in the arguments of a line. *sheet_name: owned; args->sheet points to it. */
static int ask_line(batch *b, const char *text, size_t length, arguments *args, json_t **settings, char **sheet_name) {
    bool is_prompt = false;
    int code = read_line(args, text, length, settings, &is_prompt);
    if (code == DONE && is_prompt && is_given(args, "prompt") && !is_elsewhere(args, "prompt")) {
        b->over = true;
        return fail(args, NOT_UNDERSTOOD,
                    "is a prompt itself, so --prompt cannot be used; it is for JSON lines without a \"prompt\"");
    }
    if (code == DONE) code = apply_settings(args, *settings, true);
    if (code == DONE && !args->prompt) code = fail(args, NOT_UNDERSTOOD, "has no \"prompt\"");
    if (code != DONE || !args->sheet) return code;
    code = expand_name(args, &b->naming, args->sheet, args->n_seeds ? args->seeds[0] : args->line, 0, sheet_name);
    args->sheet = *sheet_name;
    return code;
}

/* Is it a picture with settings, as Lazuli writes them? */
static bool has_settings(const char *path) {
    lz_error err;
    lz_context *ctx = lz_open_with(&LZ_CONTEXT_OPTIONS(.threads = 1), &err);
    char *text = ctx ? lz_image_read_text(ctx, path, SETTINGS_KEY, &err) : NULL;
    bool found = text;
    if (ctx) lz_free_text(ctx, text);
    lz_close(ctx);
    return found;
}

/* A line may read the picture that an earlier line makes, as an image or a mask. But if the file is there and is no
 * picture by Lazuli, the earlier line would overwrite it. No line is run then. */
static int check_kept(batch *b, const arguments *args) {
    for (int i = args->mask ? -1 : 0; i < args->n_images; i++) {
        const char *image = i < 0 ? args->mask : args->images[i];
        if (!is_claimed(b->making.claimed, image) || access(image, F_OK) != 0 || has_settings(image)) continue;
        b->over = true;
        return fail(args, NOT_UNDERSTOOD,
                    "%s is an input, and an earlier line would overwrite it; choose another name for that output, or "
                    "remove the file if the batch makes it",
                    image);
    }
    return DONE;
}

/* Makes the pictures of a line; with only_check, checks what can be checked without the model. */
static int take_line(batch *b, const char *text, size_t length, bool only_check) {
    making *m = &b->making;
    arguments args = *b->args;
    args.line = b->naming.line;
    args.n_words = 0;
    json_t *settings = NULL;
    char *sheet_name = NULL;
    int there = m->there, painted = m->painted;
    int code = ask_line(b, text, length, &args, &settings, &sheet_name);
    if (code == DONE && only_check) {
        code = job_check(&args, m->claimed);
        if (code == DONE) code = check_kept(b, &args);
        if (code == DONE) code = check_pictures(m, &args);
    } else if (code == DONE)
        code = make_pictures(m, &args);
    if (m->pictures) { /* also those before a failed one */
        int told = tell_pictures(b, &args, m->there - there);
        if (code == DONE) code = told;
    }
    b->overall.painted += m->painted > painted;
    b->failed += m->late;
    m->late = 0;
    json_decref(settings);
    free(sheet_name);
    return code;
}

/* The pictures of the last line may still be written. */
static int finish_last(batch *b) {
    making *m = &b->making;
    int code = finish_pictures(m);
    b->failed += m->late + (code != DONE);
    m->late = 0;
    if (!m->pictures) return DONE;
    int told = tell_pictures(b, b->args, 0);
    return told;
}

static int take_lines(batch *b, reader *lines, bool only_check) {
    const char *text;
    size_t length;
    b->naming.n = 0;
    json_object_clear(b->making.claimed);
    json_object_clear(b->making.inputs);
    while (next_line(lines, &text, &length)) {
        bool unchecked = false, *bad = b->bad ? &b->bad[b->naming.n] : &unchecked;
        b->naming.line = lines->line;
        b->naming.n++;
        if (stop_wanted()) {
            finish_last(b);
            return fail(b->args, STOPPED, "stopped");
        }
        /* Errors of bad lines were reported by check_lines. */
        int code = *bad ? DONE : take_line(b, text, length, only_check);
        if (code == STOPPED || b->over || ferror(stdout)) return code;
        if (code != DONE) {
            *bad = true;
            b->failed++;
        }
        b->overall.before += !only_check;
    }
    return lines->code;
}

/* Reports the errors of all lines of a file before the first picture. */
static int check_lines(batch *b, reader lines) {
    reader ahead = lines;
    const char *text;
    size_t length;
    while (next_line(&ahead, &text, &length)) b->overall.all++;
    b->bad = calloc((size_t)b->overall.all + 1, sizeof *b->bad);
    if (!b->bad) return fail(b->args, FAILED, "out of memory");
    int code = take_lines(b, &lines, true);
    if (code == DONE && b->failed && b->failed < b->overall.all)
        note(b->args, "%d of %d lines have errors; the others will be made", b->failed, b->overall.all);
    return code;
}

/* Prints the summary, also after errors. */
static int tell_end(const batch *b, int code) {
    const making *m = &b->making;
    const arguments *a = b->args;
    if (code == STOPPED)
        note(a, "run the same command again to continue");
    else
        note(a, "%d picture%s made, %d there already", m->made, m->made == 1 ? "" : "s", m->there);
    if (code == DONE && b->failed) {
        arguments plain = *a; /* with --json the summary says it */
        plain.json = false;
        code = fail(&plain, FAILED, "%d of %lld line%s failed", b->failed, (long long)b->naming.n,
                    b->naming.n == 1 ? "" : "s");
    }
    if (a->json) {
        json_t *object = json_pack("{s:i, s:i, s:i}", "made", m->made, "there", m->there, "failed", b->failed);
        print_line(object);
        json_decref(object);
    }
    return code;
}

/* {file}: "prompts" for lists/prompts.txt */
static char *stem(const char *path) {
    if (strcmp(path, "-") == 0) return strdup("lazuli");
    const char *base = base_name(path), *dot = strrchr(base, '.');
    return dot > base ? strndup(base, (size_t)(dot - base)) : strdup(base);
}

static int run_batch(batch *b) {
    reader lines;
    int code = open_list(b->args, &lines);
    stop_on_signals();
    bool begun = code == DONE;
    if (begun && lines.fd < 0) code = check_lines(b, lines);
    b->making.leaves = lines.fd < 0; /* lines of a pipe may come late */
    if (code == DONE) code = take_lines(b, &lines, false);
    int last = finish_last(b);
    if (code == DONE) code = last;
    if (begun && !b->over) code = tell_end(b, code);
    close_list(&lines);
    return code;
}

static bool is_fixed(const char *path) { return !path || !memchr(path, '{', (size_t)(base_name(path) - path)); }

/* An error in -o or --dump is the same for every line, so it is reported once, with the names of line 1. Folders whose
 * names depend on the line are checked with the lines. */
static int check_own_names(batch *b) {
    const arguments *a = b->args;
    if (is_stdout(a->output))
        return fail(
            a, NOT_UNDERSTOOD,
            "-o - writes one picture to stdout, but a batch writes files; name them, as in -o 'out/{line}-{seed}.png'");
    if (a->output && is_folder(a->output) && access(a->output, W_OK | X_OK) != 0)
        return fail(a, NOT_UNDERSTOOD, "%s: is not a folder that can be written into%s%s", a->output,
                    errno == ENOENT ? "" : ": ", errno == ENOENT ? "; create it first" : strerror(errno));
    if ((!a->output && !a->dump) || !is_fixed(a->output) || !is_fixed(a->dump)) return DONE;
    arguments one = *a;
    one.n_seeds = 1;
    one.seeds[0] = b->naming.line = b->naming.n = 1;
    one.n_words = 0; /* the list is no prompt */
    one.count = 0;
    one.sheet = one.steps_dir = NULL;
    return check_pictures(&b->making, &one) == DONE ? DONE : NOT_UNDERSTOOD;
}

int batch_command(const arguments *args) {
    if (args->prompt && strcmp(args->prompt, "-") == 0 && !is_elsewhere(args, "prompt"))
        return fail(args, NOT_UNDERSTOOD, "--prompt - cannot be used with a batch, which has many prompts");
    char *name = stem(args->words[0]);
    if (!name) return fail(args, FAILED, "out of memory");
    batch b = {.args = args,
               .naming = {.file = name, .list = is_stdout(args->words[0]) ? "/dev/stdin" : args->words[0]},
               .overall = {.begun = seconds_now()}};
    b.making.naming = &b.naming;
    b.making.claimed = json_object();
    b.making.inputs = json_object();
    b.making.overall = &b.overall;
    int code = check_own_names(&b);
    if (code == DONE) code = run_batch(&b);
    making_end(&b.making);
    free(b.bad);
    free(name);
    return code;
}
