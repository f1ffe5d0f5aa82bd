/* interactive.c: `lazuli` without arguments on a terminal: a session. A line is a prompt, or a command that begins with
 * a slash. The model stays open, pictures have numbers (album.c), and the session continues after an error. */
#include <ctype.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>
#include <unistd.h>

#include "session.h"
#include "terminal.h"

/* ---- painting ---------------------------------------------------------------------------------------------------- */

static bool watch(void *user, const lz_progress *now) {
    session *s = user;
    return see_watch(&s->see, now) && progress_watch(&s->line, now);
}

static int ask(session *s, const wish *w, lz_image images[LZ_MAX_IMAGES]) {
    job *j = &s->job;
    if (!album_has_place(&s->album, j)) return FAILED;
    if (repaints(&s->args) && !w->n_references)
        return fail(&s->args, NOT_UNDERSTOOD,
                    "/%s needs the picture to change: name it, as in: $1 with a hat; /%s alone ends it",
                    s->args.mask ? "mask" : "extend", s->args.mask ? "mask" : "extend");
    for (int i = 0; i < w->n_references; i++) images[i] = s->album.pictures[w->references[i]].image;
    char *resolved = NULL;
    int code = resolve_prompt(&s->args, w->prompt, w->seed, &resolved);
    free(j->prompt);
    j->prompt = resolved;
    if (code != DONE) return code;
    j->picture = LZ_PICTURE_OPTIONS(.prompt = resolved ? resolved : w->prompt, .negative = s->args.negative,
                                    .images = images, .n_images = w->n_references,
                                    .strength = w->n_references ? s->args.strength : 0, .seed = (uint64_t)w->seed,
                                    .watch = watch, .user = s);
    code = use_loras(j);
    if (code == DONE) code = ask_mask(j);
    j->said_cut = false;
    if (code == DONE) code = job_settle(j);
    if (code != DONE) return code;
    lz_job_expect(j->work);
    return job_plan(j);
}

void end_signals(session *s) {
    int signal = forget_signals();
    if (signal && signal != SIGINT) s->ended_by = signal;
    s->over = s->ended_by;
}

/* Makes the picture of a wish. Returns an exit code. */
static int run(session *s, const wish *w) {
    job *j = &s->job;
    lz_error err = {.status = LZ_OK};
    lz_picture p;
    double begun = seconds_now();
    j->picture.preview = see_kind(&s->see);
    j->picture.preview_pause = see_pause(&s->see);
    progress_begin(&s->line, j, 0, 1, NULL);
    stop_picture_on_signals();
    lz_status status = lz_job_renew(j->work, &j->picture, &err);
    if (status == LZ_OK) status = lz_job_run(j->work, &p, &err);
    progress_clear(&s->line);
    see_leave(&s->see);
    end_signals(s);
    if (status == LZ_CANCELLED) return fail(&s->args, STOPPED, "stopped");
    if (status != LZ_OK) return fail_with(&s->args, &err);
    if (p.prompt_cut) note(&s->args, "the prompt is longer than the model can read, so its end was ignored");
    printf("$%d  %lld x %lld, seed %lld, %s, ", s->album.n + 1, (long long)p.image.width, (long long)p.image.height,
           (long long)w->seed, show_steps(p.steps, j->picture.steps).text);
    fputs(show_seconds(seconds_now() - begun).text, stdout);
    if (template_of(&s->args, w->prompt)) say(stdout, ", \"%s\"", j->picture.prompt);
    if (p.n_layers) printf(", %d layers", p.n_layers);
    putchar('\n');
    see_result(&s->see, &p.image);
    kept k = {.image = p.image,
              .wish = *w,
              .steps = p.steps,
              .schedule_steps = j->picture.steps,
              .prompt = strdup(j->picture.prompt),
              .loras = j->loras ? strdup(j->loras) : NULL,
              .loras_ordinary = j->loras_ordinary,
              .guidance = p.guidance,
              .sampler = j->picture.sampler,
              .schedule = j->picture.schedule,
              .shift = j->picture.shift,
              .cache = j->picture.cache,
              .guidance_range = {j->picture.guidance_from, j->picture.guidance_to},
              .guidance_every = j->picture.guidance_every,
              .passes = p.passes,
              .forecast = p.forecast,
              .strength = j->picture.strength,
              .mask = s->args.mask ? strdup(s->args.mask) : NULL,
              .extend = s->args.extend ? strdup(s->args.extend) : NULL,
              .by_image = job_sized_by_image(j),
              .width = j->picture.width,
              .height = j->picture.height};
    k.layers = (lz_picture){.layers = p.layers, .n_layers = p.n_layers, .ctx = p.ctx};
    p.layers = NULL;
    p.n_layers = 0;
    k.wish.prompt = strdup(w->prompt);
    album_add(&s->album, j, &k);
    s->given = 0;
    p.image = (lz_image){.pixels = NULL};
    lz_picture_free(&p);
    return DONE;
}

/* Makes a picture. Returns an exit code; errors are reported. */
static int paint(session *s, const wish *w) {
    lz_image images[LZ_MAX_IMAGES];
    int code = ask(s, w, images);
    if (code == DONE) code = see_begin(&s->see, &s->job, 1);
    if (code == DONE) code = run(s, w);
    job_drop(&s->job); /* before the images are freed */
    return code;
}

/* ---- prompts ----------------------------------------------------------------------------------------------------- */

int read_reference(const session *s, const char *word, size_t length) {
    int64_t number;
    if (word[0] != '$' || !whole_number(word + 1, length - 1, 0, 1e9, &number)) return -1;
    int n = s->album.n;
    if (number >= 1 && number <= n) return (int)number - 1;
    if (n)
        fail(&s->args, NOT_UNDERSTOOD, "there is no picture $%lld; there are $1 to $%d", (long long)number, n);
    else
        fail(&s->args, NOT_UNDERSTOOD, "there is no picture $%lld; none has been made yet", (long long)number);
    return -2;
}

/* Words like $3 become references, the others the prompt. False: an error, which was reported. */
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
    if (w->n_references && !*w->prompt && s->args.strength <= 0 && !repaints(&s->args)) {
        int n = w->references[0] + 1;
        fail(
            &s->args, NOT_UNDERSTOOD,
            "words are missing that say what to do with it, as in '$%d on a red background'; '/save $%d FILE' saves it",
            n, n);
        return false;
    }
    if (!w->n_references)
        for (; w->n_references < s->given; w->n_references++) w->references[w->n_references] = w->n_references;
    return check_text(&s->args, "prompt", w->prompt) == DONE;
}

static void take_prompt(session *s, const char *line) {
    wish w = {.prompt = calloc(1, strlen(line) + 1), .seed = s->args.n_seeds ? s->args.seeds[0] : random_seed()};
    if (!w.prompt)
        fail(&s->args, FAILED, "out of memory");
    else if (read_wish(s, line, &w))
        paint(s, &w);
    free(w.prompt);
}

/* ---- commands ---------------------------------------------------------------------------------------------------- */

static kept *no_picture(const session *s) {
    fail(&s->args, NOT_UNDERSTOOD, "there is no picture yet; type a prompt first");
    return NULL;
}

static kept *last(session *s) { return s->album.n ? &s->album.pictures[s->album.n - 1] : no_picture(s); }

kept *last_painted(session *s) {
    for (int i = s->album.n - 1; i >= 0; i--)
        if (s->album.pictures[i].wish.prompt) return &s->album.pictures[i];
    return no_picture(s);
}

static void again(session *s, const char *rest) {
    (void)rest;
    const kept *k = last_painted(s);
    if (k) paint(s, &k->wish);
}

static void vary(session *s, const char *rest) {
    int64_t count = 4;
    const kept *k = last_painted(s);
    if (!k) return;
    if (*rest && !whole_number(rest, strlen(rest), 1, 64, &count)) {
        fail(&s->args, NOT_UNDERSTOOD, "/vary takes a whole number from 1 to 64, not '%s'", rest);
        return;
    }
    wish w = k->wish; /* shares the prompt of the last picture, which stays in the album */
    for (int64_t i = 0; i < count; i++) {
        w.seed = (int64_t)(((uint64_t)w.seed + 1) & INT64_MAX);
        if (paint(s, &w) != DONE) return;
    }
}

/* "[$N] [FILE]"; a number without $ is no name of a picture, so it means $N too. */
static void save(session *s, const char *rest) {
    kept *k = last(s);
    size_t length = strcspn(rest, " \t");
    char number[12] = "$";
    bool bare = length && length < sizeof number - 1 && strspn(rest, "0123456789") == length;
    if (bare) memcpy(number + 1, rest, length);
    int reference = k ? read_reference(s, bare ? number : rest, length + bare) : -2;
    if (reference == -2) return;
    if (reference >= 0) {
        k = &s->album.pictures[reference];
        rest += length + strspn(rest + length, " \t");
    }
    lz_error err = {.status = LZ_OK, .text = "out of memory"};
    char *typed = typed_path(rest), *path = typed;
    bool own = typed && (!*typed || (is_folder(typed) && !picture_side_limit(typed))); /* generate a name */
    if (own) path = reserve_path(NULL, *typed ? typed : NULL, k->wish.seed, 0, &err);
    if (!path)
        fail(&s->args, FAILED, "%s", err.text);
    else if (album_save(&s->album, &s->job, k, path) != DONE && own)
        unlink(path);
    if (own) free(path);
    free(typed);
}

static void load(session *s, const char *rest) {
    char *path = typed_path(rest);
    if (!path || !*path)
        fail(&s->args, NOT_UNDERSTOOD, "/load needs the name of a picture, as in /load photo.jpg");
    else
        album_load(&s->album, &s->job, path);
    free(path);
}

static void list(session *s, const char *rest) {
    (void)rest;
    if (last(s)) album_list(&s->album);
}

static void undo(session *s, const char *rest) {
    (void)rest;
    if (!last(s)) return;
    album_drop_last(&s->album, &s->job);
    printf("$%d is dropped\n", s->album.n + 1);
    if (s->given > s->album.n) s->given = s->album.n;
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
    {"/size", "[WxH]", "size of the next pictures (default: the model's)", set_size},
    {"/seed", "[N]", "seed of the next pictures (default: random)", set_seed},
    {"/steps", "[N]", "steps of the next pictures (default: the model's)", set_steps},
    {"/guidance", "[X]", "how closely prompts are followed (default: the model's)", set_guidance},
    {"/sampler", "[NAME]", "how a step is made, as --sampler (default: the model's)", set_sampler},
    {"/schedule", "[NAME]", "noise in each step (default: the model's)", set_schedule},
    {"/shift", "[X]", "shift of the schedule (default: the model's)", set_shift},
    {"/fast", "[off]", "steps, sampler and schedule for speed, as --fast", set_fast},
    {"/cache", "[SHARE]", "forecast this share of the passes (default: off)", set_cache},
    {"/strength", "[X]", "change the first $N this much (default: look at it)", set_strength},
    {"/mask", "[FILE]", "repaint the first $N where FILE is white; off: end it", set_mask},
    {"/extend", "[SIDES]", "paint around the first $N: left=128,top=32; off: end it", set_extend},
    {"/lora", "[FILE[=X]]", "add a LoRA for the next pictures (no FILE: remove all)", set_lora},
    {"/again", "", "make the last picture again, with the current settings", again},
    {"/vary", "[N]", "make the last prompt with the next N seeds (default 4)", vary},
    {"/grid", "AXIS [AXIS]", "the last picture for each value, as steps=2,4,8", make_grid},
    {"/compare", "[$A $B]", "how much two pictures differ (default: the last two)", compare_two},
    {"/load", "FILE", "load a picture from a file; it gets the next number", load},
    {"/list", "", "list all pictures with size, seed, prompt and file", list},
    {"/save", "[$N] [FILE]", "save the last picture or $N, as .png, .jpg or .webp", save},
    {"/undo", "", "drop the last picture", undo},
    {"/help", "", "print this list", help},
    {"/quit", "", "end the session, like Ctrl-D. Ctrl-C stops a picture", quit},
};

void each_order(void (*print)(const char *name, const char *takes, const char *help)) {
    for (size_t i = 0; i < COUNT(orders); i++) print(orders[i].name, orders[i].takes, orders[i].help);
}

static void print_order(const char *name, const char *takes, const char *text) {
    printf("  %-9s %-12s %s\n", name, takes, text);
}

static void help(session *s, const char *rest) {
    (void)s, (void)rest;
    puts("Type a prompt. If it contains the word $1, the model looks at picture 1.");
    each_order(print_order);
}

static void take_order(session *s, const char *line) {
    char name[16];
    size_t length = strcspn(line, " \t");
    snprintf(name, sizeof name, "%.*s", (int)length, line);
    const char *nearest = NULL;
    int best = 3; /* larger distances are not suggested */
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
        fail(&s->args, NOT_UNDERSTOOD, "there is no command %s; did you mean %s?", name, nearest);
    else
        fail(&s->args, NOT_UNDERSTOOD, "there is no command %s; /help lists them", name);
}

/* Words for leaving or help that are typed without a slash. */
static const char *order_meant(const char *line) {
    static const char *const others[][2] = {{"exit", "/quit"}, {"bye", "/quit"}, {"?", "/help"}};
    for (size_t i = 0; i < COUNT(orders); i++)
        if (strcasecmp(line, orders[i].name + 1) == 0) return orders[i].name;
    for (size_t i = 0; i < COUNT(others); i++)
        if (strcasecmp(line, others[i][0]) == 0) return others[i][1];
    return NULL;
}

/* ---- the session ------------------------------------------------------------------------------------------------- */

/* Words for Tab: commands, then numbers of pictures. */
static const char *word_to_complete(void *user, int i) {
    session *s = user;
    if (i < (int)COUNT(orders)) return orders[i].name;
    i -= (int)COUNT(orders);
    snprintf(s->number, sizeof s->number, "$%d", i + 1);
    return i < s->album.n ? s->number : NULL;
}

static bool names_file(const char *line) {
    static const char *const orders_of_files[] = {"/save ", "/load ", "/lora ", "/mask "};
    for (size_t i = 0; i < COUNT(orders_of_files); i++)
        if (strncmp(line, orders_of_files[i], 6) == 0) return true;
    return false;
}

static void take_line(session *s, char *line) {
    for (char *end = line + strlen(line); end > line && isspace((unsigned char)end[-1]);) *--end = 0;
    line += strspn(line, " \t");
    const char *meant = order_meant(line);
    if (meant)
        fail(&s->args, NOT_UNDERSTOOD, "'%s' is a command; type %s", line, meant);
    else if (*line == '/')
        take_order(s, line);
    else if (*line)
        take_prompt(s, line);
    fflush(stdout);
}

static int talk(session *s) {
    char *history = state_path("history"), *line = NULL;
    editor *e = editor_open("lazuli> ", history, (completion){word_to_complete, names_file, s});
    if (!e) {
        free(history);
        return fail(&s->args, FAILED, "out of memory");
    }
    say(stdout, "Lazuli %s, %s, %s. Type a prompt; /help lists the commands.\n", lz_version(), s->job.facts.family,
        lz_device_name(s->job.ctx));
    fflush(stdout);
    while (!s->over && (line = editor_read(e))) {
        take_line(s, line);
        free(line);
    }
    if (!line) putchar('\n'); /* after Ctrl-D the cursor is still on the line of the prompt */
    editor_close(e);
    free(history);
    return s->ended_by ? 128 + s->ended_by : DONE;
}

/* Loads the pictures of -i as the first of the session. */
static int load_given(session *s) {
    int code = DONE;
    for (int i = 0; i < s->args.n_images && code == DONE; i++) code = album_load(&s->album, &s->job, s->args.images[i]);
    s->args.n_images = 0;
    s->given = s->album.n;
    if (code != DONE) return code;
    if (s->given > 1)
        printf("The first prompt looks at $1 to $%d; later prompts name them, as in: $1 in blue\n", s->given);
    else if (s->given)
        printf("The first prompt %s $1; later prompts name it, as in: $1 in blue\n",
               s->args.strength > 0 ? "changes" : "looks at");
    return code;
}

bool is_interactive(const arguments *args) {
    bool about_one = args->output || args->noise || args->dump || args->count || args->steps_dir || args->sheet ||
                     args->combinations || args->json;
    return !about_one && isatty(STDIN_FILENO) && isatty(STDOUT_FILENO);
}

/* Refuses options of generate that a session does not support. */
static int check_session(const arguments *args) {
    if (args->n_seeds > 1)
        return fail(args, NOT_UNDERSTOOD,
                    "a session takes one seed with -S; /vary 4 makes the last prompt with more seeds");
    if (args->profile || args->verbose)
        return fail(args, NOT_UNDERSTOOD,
                    "--%s cannot be used in a session; give a prompt too, as in lazuli \"a red fox\" %s",
                    args->profile ? "profile" : "verbose", args->profile ? "--profile" : "-v");
    return DONE;
}

int interactive_command(const arguments *args) {
    int code = check_session(args);
    if (code != DONE) return code;
    if (!can_edit)
        return fail(args, NOT_UNDERSTOOD,
                    "a prompt is needed, as in lazuli \"a red fox\" -o fox.png (this build has no sessions, because it "
                    "was made without libedit)");
    session *s = calloc(1, sizeof *s);
    if (!s) return fail(args, FAILED, "out of memory");
    s->args = *args;
    s->args.command = &commands[0];
    s->args.preview = see_possible(true);
    s->args.show = see_possible(false);
    code = job_open(&s->job, &s->args);
    if (code == DONE) album_open(&s->album, &s->job);
    if (code == DONE) code = load_given(s);
    if (code == DONE) code = talk(s);
    album_close(&s->album, &s->job, !s->ended_by);
    job_close(&s->job);
    for (int i = 0; i < MAX_LORAS; i++) free(s->loras[i]);
    free(s->mask);
    free(s->extend);
    free(s);
    return code;
}
