/* interactive.c: `lazuli` alone on a terminal: a line is a prompt, or a command that begins with a slash. The model stays
 * open, pictures stay in memory until they are saved, and every error is a sentence after which the session goes on. */
#include <ctype.h>
#include <errno.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "progress.h"
#include "see.h"
#include "terminal.h"

enum { MAX_KEPT = 256 }; /* pictures; a megapixel takes 3 MB */

/* What was asked for, beside the settings. */
typedef struct wish {
    char *prompt;                  /* owned */
    int references[LZ_MAX_IMAGES]; /* earlier pictures, from 0 */
    int n_references;
    int64_t seed;
} wish;

typedef struct kept {
    lz_image image;
    wish wish;
    int steps, schedule_steps;
    double guidance;
    char *path; /* owned: where it was saved last; or NULL */
} kept;

typedef struct session {
    arguments args; /* the settings */
    job job;
    seeing see;
    progress line;
    kept pictures[MAX_KEPT];
    int n;
    bool over;
    int ended_by; /* a signal, or 0 */
} session;

/* ---- painting ---------------------------------------------------------------------------------------------------- */

static bool watch(void *user, const lz_progress *now) {
    session *s = user;
    return see_watch(&s->see, now) && progress_watch(&s->line, now);
}

/* Takes the image. */
static void keep(session *s, const wish *w, const lz_picture *p) {
    kept *k = &s->pictures[s->n++];
    *k = (kept){.image = p->image,
                .wish = *w,
                .steps = p->steps,
                .schedule_steps = s->job.picture.steps,
                .guidance = p->guidance};
    k->wish.prompt = strdup(w->prompt);
}

static int ask(session *s, const wish *w, lz_image images[LZ_MAX_IMAGES]) {
    job *j = &s->job;
    if (s->n == MAX_KEPT)
        return fail(&s->args, FAILED, "%d pictures are kept, and there is no place for more: /undo drops the last",
                    s->n);
    for (int i = 0; i < w->n_references; i++) images[i] = s->pictures[w->references[i]].image;
    j->picture = (lz_picture_options){.prompt = w->prompt,
                                      .negative = s->args.negative,
                                      .images = images,
                                      .n_images = w->n_references,
                                      .seed = (uint64_t)w->seed,
                                      .watch = watch,
                                      .user = s};
    int code = job_settle(j);
    return code == DONE ? job_plan(j) : code;
}

/* An exit code; it has been said what is wrong. */
static int paint(session *s, const wish *w) {
    job *j = &s->job;
    lz_image images[LZ_MAX_IMAGES];
    lz_error err = {.status = LZ_OK};
    lz_picture p;
    int code = ask(s, w, images);
    if (code == DONE) code = see_begin(&s->see, j, 1);
    if (code != DONE) return code;
    double begun = seconds_now();
    j->picture.preview = see_kind(&s->see);
    j->picture.preview_pause = see_pause(&s->see);
    progress_begin(&s->line, j, 0, 1, NULL);
    stop_picture_on_signals();
    lz_status status = lz_generate_with(j->model, &j->picture, &p, &err);
    progress_clear(&s->line);
    see_leave(&s->see);
    int signal = forget_signals();
    if (signal && signal != SIGINT) s->ended_by = signal; /* Ctrl-C stops a picture, the others end the session */
    s->over = s->ended_by;
    if (status == LZ_CANCELLED) return fail(&s->args, STOPPED, "stopped");
    if (status != LZ_OK) return fail_with(&s->args, &err);
    if (p.prompt_cut) note(&s->args, "the prompt is longer than this model reads: its end was left out");
    keep(s, w, &p);
    printf("$%d  %lld x %lld, seed %lld, %s, ", s->n, (long long)p.image.width, (long long)p.image.height,
           (long long)w->seed, show_steps(p.steps, j->picture.steps).text);
    printf("%s\n", show_seconds(seconds_now() - begun).text);
    see_result(&s->see, &p.image);
    p.image = (lz_image){.pixels = NULL};
    lz_picture_free(&p);
    return DONE;
}

/* ---- prompts ----------------------------------------------------------------------------------------------------- */

/* "$3": the number of a picture, from 0; -1: no reference; -2: none of that number, and it has been said. */
static int read_reference(session *s, const char *word, size_t length) {
    int64_t number;
    if (word[0] != '$' || !whole_number(word + 1, length - 1, 0, 1e9, &number)) return -1;
    if (number >= 1 && number <= s->n) return (int)number - 1;
    if (s->n)
        fail(&s->args, NOT_UNDERSTOOD, "there is no picture $%lld: they are $1 to $%d", (long long)number, s->n);
    else
        fail(&s->args, NOT_UNDERSTOOD, "there is no picture $%lld: none has been made yet", (long long)number);
    return -2;
}

/* Words that name pictures become references, the others the prompt. False: it has been said what is wrong. */
static bool read_wish(session *s, const char *line, wish *w) {
    char *end = w->prompt;
    for (size_t length; *(line += strspn(line, " \t")); line += length) {
        length = strcspn(line, " \t");
        int reference = read_reference(s, line, length);
        if (reference == -2) return false;
        if (reference >= 0 && w->n_references == LZ_MAX_IMAGES) {
            fail(&s->args, NOT_UNDERSTOOD, "at most %d pictures can be looked at", LZ_MAX_IMAGES);
            return false;
        }
        if (reference >= 0)
            w->references[w->n_references++] = reference;
        else {
            if (end > w->prompt) *end++ = ' ';
            end = (char *)memcpy(end, line, length) + length;
        }
    }
    return check_text(&s->args, "prompt", w->prompt) == DONE;
}

static void take_prompt(session *s, const char *line) {
    wish w = {.prompt = calloc(1, strlen(line) + 1), .seed = s->args.n_seeds ? s->args.seeds[0] : random_seed()};
    if (!w.prompt)
        fail(&s->args, FAILED, "there is no memory left for the prompt");
    else if (read_wish(s, line, &w))
        paint(s, &w);
    free(w.prompt);
}

/* ---- commands ---------------------------------------------------------------------------------------------------- */

static kept *last(session *s) {
    if (s->n) return &s->pictures[s->n - 1];
    fail(&s->args, NOT_UNDERSTOOD, "there is no picture yet: type what to see");
    return NULL;
}

static void set_size(session *s, const char *rest) {
    size_t width = strcspn(rest, "x");
    int64_t w = 0, h = 0;
    if (!*rest)
        w = h = 0; /* the model's own */
    else if (!rest[width] || !whole_number(rest, width, 16, 8192, &w) ||
             !whole_number(rest + width + 1, strlen(rest + width + 1), 16, 8192, &h)) {
        fail(&s->args, NOT_UNDERSTOOD, "/size takes sides from 16 to 8192 pixels, such as 512x768, not '%s'", rest);
        return;
    }
    s->args.width = w;
    s->args.height = h;
}

static void set_seed(session *s, const char *rest) {
    int64_t seed;
    if (*rest && !whole_number(rest, strlen(rest), 0, 9223372036854775807.0, &seed)) {
        fail(&s->args, NOT_UNDERSTOOD, "/seed takes a whole number, or nothing for random ones, not '%s'", rest);
        return;
    }
    s->args.n_seeds = *rest ? 1 : 0;
    if (*rest) s->args.seeds[0] = seed;
}

static void set_steps(session *s, const char *rest) {
    int64_t steps = 0;
    if (*rest && !whole_number(rest, strlen(rest), 1, 1000, &steps))
        fail(&s->args, NOT_UNDERSTOOD, "/steps takes a whole number from 1 to 1000, not '%s'", rest);
    else
        s->args.steps = steps;
}

static void again(session *s, const char *rest) {
    (void)rest;
    const kept *k = last(s);
    if (k) paint(s, &k->wish);
}

static void vary(session *s, const char *rest) {
    int64_t count = 4;
    const kept *k = last(s);
    if (!k) return;
    if (*rest && !whole_number(rest, strlen(rest), 1, 64, &count)) {
        fail(&s->args, NOT_UNDERSTOOD, "/vary takes a whole number from 1 to 64, not '%s'", rest);
        return;
    }
    wish w = k->wish; /* the prompt stays the last one's, which nothing drops meanwhile */
    for (int64_t i = 0; i < count; i++) {
        w.seed = (int64_t)(((uint64_t)w.seed + 1) & INT64_MAX);
        if (paint(s, &w) != DONE) return;
    }
}

/* Writes a picture with the settings it was painted with. References are recorded by the files they were saved to; one
 * that was not saved as $N, which nobody will find. */
static lz_status write_kept(session *s, const kept *k, const char *path, lz_error *err) {
    char numbers[LZ_MAX_IMAGES][16];
    arguments args = s->args;
    job j = s->job;
    j.args = &args;
    j.picture.prompt = k->wish.prompt;
    j.picture.width = k->image.width;
    j.picture.height = k->image.height;
    j.picture.steps = k->schedule_steps;
    j.picture.guidance = k->guidance;
    args.n_images = k->wish.n_references;
    for (int i = 0; i < args.n_images; i++) {
        int number = k->wish.references[i];
        snprintf(numbers[i], sizeof numbers[i], "$%d", number + 1);
        args.images[i] = s->pictures[number].path ? s->pictures[number].path : numbers[i];
    }
    lz_picture p = {.image = k->image, .steps = k->steps, .guidance = k->guidance};
    return write_picture(&j, &p, k->wish.seed, path, err);
}

/* "[$N] [FILE]" */
static void save(session *s, const char *rest) {
    kept *k = last(s);
    size_t length = strcspn(rest, " \t");
    int reference = k ? read_reference(s, rest, length) : -2;
    if (reference == -2) return;
    if (reference >= 0) {
        k = &s->pictures[reference];
        rest += length + strspn(rest + length, " \t");
    }
    bool own = !*rest || (is_folder(rest) && !picture_side_limit(rest)); /* a name of its own */
    lz_error err = {.status = LZ_OK};
    char *path = own ? reserve_path(NULL, *rest ? rest : NULL, k->wish.seed, &err) : strdup(rest);
    if (!path)
        fail(&s->args, FAILED, "%s", own ? err.text : "there is no memory left for a name");
    else if (!picture_side_limit(path))
        fail(&s->args, NOT_UNDERSTOOD, "%s: the name of a picture ends in .png, .jpg or .webp", path);
    else if (check_output(&s->args, path) == DONE) {
        if (write_kept(s, k, path, &err) != LZ_OK) {
            fail_with(&s->args, &err);
            if (own) unlink(path);
        } else {
            printf("%s\n", path);
            free(k->path);
            k->path = realpath(path, NULL);
        }
    }
    free(path);
}

static void drop_last(session *s) {
    kept *k = &s->pictures[--s->n];
    lz_image_free(s->job.ctx, &k->image);
    free(k->wish.prompt);
    free(k->path);
}

static void undo(session *s, const char *rest) {
    (void)rest;
    if (!last(s)) return;
    drop_last(s);
    printf("$%d is dropped\n", s->n + 1);
}

static void quit(session *s, const char *rest) {
    (void)rest;
    s->over = true;
}

static void help(session *s, const char *rest);

static const struct {
    const char *name, *takes, *help;
    void (*run)(session *s, const char *rest);
} orders[] = {
    {"/size", "WxH", "of the pictures from here on; alone: the model's own", set_size},
    {"/seed", "N", "of the pictures from here on; alone: a random one for each", set_seed},
    {"/steps", "N", "of the pictures from here on; alone: the model's own", set_steps},
    {"/again", "", "the last picture once more, with the size and steps of now", again},
    {"/vary", "[N]", "the last prompt with the next N seeds, else 4", vary},
    {"/save", "[$N] [FILE]", "the last picture, or picture N, as .png, .jpg or .webp", save},
    {"/undo", "", "drops the last picture", undo},
    {"/help", "", "this", help},
    {"/quit", "", "ends; so does Ctrl-D. Ctrl-C stops a picture", quit},
};

void each_order(void (*print)(const char *name, const char *takes, const char *help)) {
    for (size_t i = 0; i < COUNT(orders); i++) print(orders[i].name, orders[i].takes, orders[i].help);
}

static void print_order(const char *name, const char *takes, const char *text) {
    printf("  %-7s %-12s %s\n", name, takes, text);
}

static void help(session *s, const char *rest) {
    (void)s, (void)rest;
    puts("Type what to see. $1, as a word of its own, has the model look at picture 1.");
    each_order(print_order);
}

static void take_order(session *s, const char *line) {
    char name[16];
    size_t length = strcspn(line, " \t");
    snprintf(name, sizeof name, "%.*s", (int)length, line);
    const char *nearest = NULL;
    int best = 3; /* further off is a guess */
    for (size_t i = 0; i < COUNT(orders); i++) {
        if (strcmp(orders[i].name, name) == 0) {
            orders[i].run(s, line + length + strspn(line + length, " \t"));
            return;
        }
        int d = distance(name, orders[i].name);
        if (d >= best) continue;
        best = d;
        nearest = orders[i].name;
    }
    if (nearest)
        fail(&s->args, NOT_UNDERSTOOD, "there is no command %s; is %s meant?", name, nearest);
    else
        fail(&s->args, NOT_UNDERSTOOD, "there is no command %s; /help lists them", name);
}

/* ---- the session ------------------------------------------------------------------------------------------------- */

/* $XDG_STATE_HOME/lazuli/history, else below ~/.local/state; owned. NULL: there is no such place, and no history. */
static char *history_path(void) {
    const char *state = getenv("XDG_STATE_HOME"), *home = getenv("HOME");
    char *path = NULL;
    bool own = state && *state == '/';
    if (!own && (!home || *home != '/')) return NULL;
    if (asprintf(&path, "%s%s/lazuli/history", own ? state : home, own ? "" : "/.local/state") < 0) return NULL;
    for (char *slash = strchr(path + 1, '/'); slash; slash = strchr(slash + 1, '/')) {
        *slash = 0;
        bool there = mkdir(path, 0700) == 0 || errno == EEXIST;
        *slash = '/';
        if (there) continue;
        free(path);
        return NULL;
    }
    return path;
}

static void take_line(session *s, char *line) {
    for (char *end = line + strlen(line); end > line && isspace((unsigned char)end[-1]);) *--end = 0;
    line += strspn(line, " \t");
    if (*line == '/')
        take_order(s, line);
    else if (*line)
        take_prompt(s, line);
    fflush(stdout);
}

static int talk(session *s) {
    char *history = history_path(), *line = NULL;
    editor *e = editor_open("lazuli> ", history);
    if (!e) {
        free(history);
        return fail(&s->args, FAILED, "there is no memory left to read lines");
    }
    printf("Lazuli %s, %s, %s. Type what to see; /help lists the rest.\n", lz_version(), s->job.facts.family,
           lz_device_name(s->job.ctx));
    fflush(stdout);
    while (!s->over && (line = editor_read(e))) {
        take_line(s, line);
        free(line);
    }
    if (!line) putchar('\n'); /* Ctrl-D leaves the cursor behind the prompt */
    editor_close(e);
    free(history);
    return s->ended_by ? 128 + s->ended_by : DONE;
}

bool is_interactive(const arguments *args) {
    bool about_one = args->output || args->n_images || args->noise || args->dump || args->count || args->steps_dir ||
                     args->sheet || args->json;
    return !about_one && isatty(STDIN_FILENO) && isatty(STDOUT_FILENO);
}

int interactive_command(const arguments *args) {
    if (!can_edit)
        return fail(
            args, NOT_UNDERSTOOD,
            "what shall be shown? lazuli \"a red fox\" -o fox.png (asking for prompts was left out of this build, "
            "which was made without libedit)");
    session *s = calloc(1, sizeof *s);
    if (!s) return fail(args, FAILED, "there is no memory left");
    s->args = *args;
    s->args.command = &commands[0];
    s->args.preview = see_possible(true);
    s->args.show = see_possible(false);
    int code = job_open(&s->job, &s->args);
    if (code == DONE) code = talk(s);
    while (s->n) drop_last(s);
    job_close(&s->job);
    free(s);
    return code;
}
