/* grid.c: `lazuli grid`, and /grid in a session: pictures for all pairs of values of two settings, on one sheet with
 * labels. Every cell is checked and settled before the first picture is made. The sheet appears whole or not at all. */
#include "grid.h"

#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "axis.h"
#include "font.h"
#include "progress.h"
#include "see.h"

enum { LARGEST = 8192, SMALLEST_CELL = 32, GAP = 8, MOST_LINES = 4, LEAST_LETTERS = 16 };

typedef struct grid {
    arguments base, cell; /* of all cells, and of the current one */
    axis x, y;
    char *text, *resolved; /* owned: the prompt that was given, and that of the cell if it is a template; or NULL */
    char *stem;            /* owned: of the names of kept cells: DIR/grid */
    job own, *job;         /* job: own, or that of a session */
    progress line;
    overall overall;
    seeing see;
    int64_t width, height;             /* of the largest cell */
    int shrink, scale;                 /* of the pictures, and of letters */
    int64_t left, top, cell_w, cell_h; /* where the cells begin, and their size on the sheet */
    lz_image image;                    /* pixels: owned */
    json_t *cells, *settings;          /* owned: about each cell; of the first cell */
    double begun;
} grid;

/* ---- cells ------------------------------------------------------------------------------------------------------- */

static bool is_axis_of(const grid *g, const char *name) {
    return (g->x.option && strcmp(g->x.option->name, name) == 0) ||
           (g->y.option && strcmp(g->y.option->name, name) == 0);
}

static int64_t seed_of(const arguments *cell) { return cell->n_seeds ? cell->seeds[0] : 0; }

/* Does another value of the option open the model again? */
static bool opens_model(const axis *a) { return a->option && a->option->commands & INFO; }

/* The same, or its LoRAs? */
static bool is_slow(const axis *a) { return opens_model(a) || (a->option && strcmp(a->option->name, "lora") == 0); }

static bool in_session(const grid *g) { return g->job != &g->own; }

/* Gives the job the arguments of the cell. The model of a session stays open. */
static int open_cell(grid *g) {
    if (!in_session(g)) return job_reopen(g->job, &g->cell);
    job_take(g->job, &g->cell);
    return DONE;
}

/* The column and the row of cell i. Models and LoRAs change as rarely as possible. */
static void find_cell(const grid *g, int i, int *column, int *row) {
    bool down = is_slow(&g->x) && !is_slow(&g->y);
    *column = down ? i / g->y.n : i % g->x.n;
    *row = down ? i % g->y.n : i / g->x.n;
}

/* Fills in the arguments of a cell. The choices of a prompt are made by the seed of the cell. */
static int fill_cell(grid *g, int column, int row) {
    arguments *cell = &g->cell;
    *cell = g->base;
    int code = axis_apply(&g->x, column, cell);
    if (code == DONE) code = axis_apply(&g->y, row, cell);
    free(g->resolved);
    g->resolved = NULL;
    if (code != DONE) return code;
    if (!cell->prompt)
        return fail(cell, NOT_UNDERSTOOD, "a prompt is needed, as in lazuli grid \"a red fox\" --x steps=2,4,8");
    code = resolve_prompt(cell, cell->prompt, seed_of(cell), &g->resolved);
    cell->template = template_of(cell, cell->prompt);
    if (g->resolved) cell->prompt = g->resolved;
    return code;
}

/* The file of a kept cell: DIR/grid-2-1.png for the first of the second row. NULL: none is kept. */
static char *cell_path(const grid *g, int column, int row) {
    char *path = NULL;
    return g->stem && asprintf(&path, "%s-%d-%d.png", g->stem, row + 1, column + 1) >= 0 ? path : NULL;
}

static int check_cell(grid *g, int column, int row) {
    if (g->cell.n_seeds > 1)
        return fail(&g->cell, NOT_UNDERSTOOD, "a picture of the grid has one seed, but a value of the axis has %d",
                    g->cell.n_seeds);
    char *path = cell_path(g, column, row);
    int code = job_check(&g->cell, NULL);
    if (code == DONE && path && access(g->base.keep_cells, F_OK) == 0) {
        code = check_output(&g->cell, path);
        if (code == DONE) code = check_unread(&g->cell, NULL, path);
    }
    if (code == DONE && g->base.output && !is_stdout(g->base.output))
        code = check_unread(&g->cell, NULL, g->base.output);
    free(path);
    return code;
}

/* Checks the arguments of all cells, first without the model, then with it. */
static int check_cells(grid *g) {
    int n = g->x.n * g->y.n, code = DONE, column, row;
    for (int pass = 0; pass < 2; pass++)
        for (int i = 0; i < n && code == DONE && !stop_wanted(); i++) {
            find_cell(g, i, &column, &row);
            code = fill_cell(g, column, row);
            if (pass == 0) {
                if (code == DONE) code = check_cell(g, column, row);
                continue;
            }
            if (code == DONE) code = open_cell(g);
            if (code == DONE) code = job_fill(g->job);
            if (code != DONE) break;
            int64_t width, height;
            result_size(g->job, &width, &height);
            if (width > g->width) g->width = width;
            if (height > g->height) g->height = height;
        }
    return code == DONE && stop_wanted() ? fail(&g->base, STOPPED, "stopped") : code;
}

/* ---- the sheet --------------------------------------------------------------------------------------------------- */

/* The label of a column or row, as large as it may be. */
static label label_of(const grid *g, const char *text, bool column) {
    int64_t room = (column ? g->cell_w : g->cell_w / 2) / (FONT_WIDTH * g->scale);
    if (!column && room < LEAST_LETTERS) room = LEAST_LETTERS;
    return (label){.text = text, .scale = g->scale, .columns = room > 1 ? (int)room : 1, .lines = MOST_LINES};
}

/* The largest label of an axis. */
static label_size largest_label(const grid *g, const axis *a, bool column) {
    label_size most = {0, 0};
    for (int i = 0; i < a->n; i++) {
        char *text = axis_label(a, i);
        label l = label_of(g, text ? text : "", column);
        label_size size = label_measure(&l);
        if (size.columns > most.columns) most.columns = size.columns;
        if (size.lines > most.lines) most.lines = size.lines;
        free(text);
    }
    return most;
}

/* Where everything is if pictures are shrunk this much. */
static void lay_out(grid *g, int shrink) {
    g->shrink = shrink;
    g->cell_w = g->width / shrink;
    g->cell_h = g->height / shrink;
    g->scale = g->cell_w < 128 ? 1 : g->cell_w < 512 ? 2 : g->cell_w < 1024 ? 3 : 4;
    int lines = largest_label(g, &g->x, true).lines, letters = largest_label(g, &g->y, false).columns;
    g->left = GAP + (letters ? letters * FONT_WIDTH * g->scale + GAP : 0);
    g->top = GAP + (lines ? lines * FONT_HEIGHT * g->scale : 0);
    g->image.width = g->left + g->x.n * (g->cell_w + GAP);
    g->image.height = g->top + g->y.n * (g->cell_h + GAP);
}

static void draw_labels(const grid *g, const axis *a, bool column) {
    for (int i = 0; i < a->n; i++) {
        char *text = axis_label(a, i);
        label l = label_of(g, text ? text : "", column);
        label_size size = label_measure(&l);
        int64_t wide = size.columns * FONT_WIDTH * g->scale, high = size.lines * FONT_HEIGHT * g->scale;
        if (column)
            label_draw(&l, &g->image, g->left + i * (g->cell_w + GAP) + (g->cell_w - wide) / 2, g->top - high);
        else
            label_draw(&l, &g->image, GAP, g->top + i * (g->cell_h + GAP) + (g->cell_h - high) / 2);
        free(text);
    }
}

static int begin_sheet(grid *g) {
    const arguments *a = &g->base;
    int shrink = 1;
    lay_out(g, shrink);
    while ((g->image.width > LARGEST || g->image.height > LARGEST) && g->cell_w > SMALLEST_CELL &&
           g->cell_h > SMALLEST_CELL)
        lay_out(g, ++shrink);
    if (g->image.width > LARGEST || g->image.height > LARGEST)
        return fail(a, NOT_UNDERSTOOD,
                    "a sheet of %d x %d pictures would have more than %d pixels a side; use fewer values", g->x.n,
                    g->y.n, LARGEST);
    size_t bytes = 3 * (size_t)(g->image.width * g->image.height);
    g->image.pixels = malloc(bytes);
    if (!g->image.pixels) return fail(a, FAILED, "out of memory");
    memset(g->image.pixels, 255, bytes);
    draw_labels(g, &g->x, true);
    draw_labels(g, &g->y, false);
    return a->output && !is_stdout(a->output) ? check_free(a, a->output, (int64_t)bytes) : DONE;
}

/* ---- painting ---------------------------------------------------------------------------------------------------- */

static bool watch(void *user, const lz_progress *now) { return progress_watch(&((grid *)user)->line, now); }

static int keep_cell(grid *g, const lz_picture *p, int column, int row, char **path) {
    lz_error err = {.status = LZ_OK};
    if (!g->stem) return DONE;
    *path = cell_path(g, column, row);
    mkdir(g->base.keep_cells, 0777); /* if this fails, the folder exists, or writing reports the error */
    if (!*path) return fail(&g->cell, FAILED, "out of memory");
    return write_picture(g->job, p, seed_of(&g->cell), *path, &err) == LZ_OK ? DONE : fail_with(&g->cell, &err);
}

static int paint_cell(grid *g, lz_picture *p) {
    job *j = g->job;
    lz_error err = {.status = LZ_OK};
    progress_begin(&g->line, j, 0, 1, &g->overall);
    const lz_picture_options asked = LZ_PICTURE_OPTIONS(.seed = (uint64_t)seed_of(&g->cell), .watch = watch, .user = g);
    lz_status status = stop_wanted() ? LZ_CANCELLED : lz_job_renew(j->work, &asked, &err);
    if (status == LZ_OK) status = lz_job_run(j->work, p, &err);
    progress_clear(&g->line);
    if (status == LZ_CANCELLED) return fail(&g->cell, STOPPED, "stopped");
    return status == LZ_OK ? DONE : fail_with(&g->cell, &err);
}

static int make_cell(grid *g, int column, int row) {
    lz_picture p = {.steps = 0};
    char *path = NULL;
    int64_t seed = seed_of(&g->cell);
    double begun = seconds_now();
    int code = open_cell(g);
    if (code == DONE) code = job_ask(g->job);
    if (code == DONE) code = paint_cell(g, &p);
    if (code != DONE) return code;
    paste_shrunk(&g->image, g->left + column * (g->cell_w + GAP), g->top + row * (g->cell_h + GAP), &p.image,
                 g->shrink);
    code = keep_cell(g, &p, column, row, &path);
    if (!column && !row) g->settings = settings_of(g->job, seed, g->base.full_paths);
    json_array_append_new(g->cells, json_pack("{s:i, s:i, s:o, s:o, s:o}", "column", column + 1, "row", row + 1, "file",
                                              json_text(path), "milliseconds", json_milliseconds(seconds_now() - begun),
                                              "settings", settings_of(g->job, seed, true)));
    lz_picture_free(&p);
    free(path);
    return code;
}

static int make_cells(grid *g) {
    int code = DONE, column, row;
    g->overall = (overall){.all = g->x.n * g->y.n, .begun = seconds_now()};
    for (; g->overall.before < g->overall.all && code == DONE; g->overall.before++) {
        find_cell(g, g->overall.before, &column, &row);
        code = fill_cell(g, column, row);
        if (code == DONE) code = make_cell(g, column, row);
        g->overall.painted++;
    }
    return code;
}

/* ---- the end ----------------------------------------------------------------------------------------------------- */

/* The settings of a sheet are those of its first cell, and the axes; `grid --settings` can read them. */
static char *sheet_settings(grid *g) {
    const axis *axes[] = {&g->x, &g->y};
    static const char *const names[] = {"x", "y"};
    const char *template = json_string_value(json_object_get(g->settings, "template"));
    if (template) json_object_set_new(g->settings, "prompt", json_text(template));
    json_object_del(g->settings, "template");
    for (int i = 0; i < 2; i++) {
        if (!axes[i]->option) continue;
        char *text = axis_text(axes[i], g->base.full_paths);
        json_object_del(g->settings, axes[i]->option->name);
        if (strcmp(axes[i]->option->name, "model") == 0) json_object_del(g->settings, "model-version");
        json_object_set_new(g->settings, names[i], json_text(text));
        free(text);
    }
    return settings_text(g->settings);
}

static int write_sheet(grid *g, char **path) {
    const arguments *a = &g->base;
    const char *folder = a->output && !picture_side_limit(a->output) && !is_stdout(a->output) ? a->output : NULL;
    bool own = !a->output || folder;
    char software[48], *text = sheet_settings(g);
    lz_error err = {.status = LZ_OK, .text = "out of memory"};
    snprintf(software, sizeof software, "Lazuli %s", lz_version());
    const char *prompt = json_string_value(json_object_get(g->settings, "prompt"));
    const char *pairs[] = {"software", software, SHEET_KEY, text, prompt ? "prompt" : NULL, prompt, NULL};
    *path = own ? reserve_name(NULL, file_in(folder, "lazuli-grid.png"), 0, &err) : strdup(a->output);
    int code = text && *path ? DONE : fail(a, FAILED, "%s", err.text);
    if (code == DONE && (own ? save_reserved : put_picture)(g->job->ctx, *path, &g->image,
                                                            a->no_metadata ? NULL : pairs, &err) != LZ_OK)
        code = fail_with(a, &err);
    if (code != DONE && own && *path) unlink(*path);
    free(text);
    return code;
}

static json_t *axis_json(const axis *a) {
    if (!a->option) return json_null();
    json_t *values = json_array();
    for (int i = 0; i < a->n; i++) json_array_append_new(values, json_text(a->values[i]));
    return json_pack("{s:s, s:o}", "name", a->option->name, "values", values);
}

static int tell(const grid *g, const char *path) {
    const arguments *a = &g->base;
    if (a->json)
        return print_json(a, json_pack("{s:o, s:I, s:I, s:i, s:o, s:o, s:O}", "file", json_text(path), "width",
                                       (json_int_t)g->image.width, "height", (json_int_t)g->image.height, "shrunk",
                                       g->shrink, "x", axis_json(&g->x), "y", axis_json(&g->y), "cells", g->cells));
    if (a->quiet) return DONE;
    FILE *to = result_stream(a);
    say(to, "%s  %lld x %lld, %d x %d pictures, ", path, (long long)g->image.width, (long long)g->image.height, g->x.n,
        g->y.n);
    if (!is_axis_of(g, "seed") && !a->noise) fprintf(to, "seed %lld, ", (long long)a->seeds[0]);
    if (g->shrink > 1) fprintf(to, "shrunk %d times, ", g->shrink);
    fprintf(to, "%s\n", show_seconds(seconds_now() - g->begun).text);
    return flush_output(a);
}

/* ---- the command ------------------------------------------------------------------------------------------------- */

static int check_axes(grid *g) {
    arguments *a = &g->base;
    const bool session = in_session(g);
    int code = axis_read(&g->x, a, session ? "/grid" : "--x", a->x);
    if (code == DONE) code = axis_read(&g->y, a, session ? "/grid" : "--y", a->y);
    if (code != DONE) return code;
    const axis *slow = opens_model(&g->x) ? &g->x : &g->y;
    if (session && opens_model(slow))
        return fail(a, NOT_UNDERSTOOD,
                    "a session keeps its model open, so %s cannot be an axis; lazuli grid can do that",
                    slow->option->name);
    if (!a->x && !a->y)
        return fail(a, NOT_UNDERSTOOD, "a grid needs an axis, as in --x steps=2,4,8 or --y sampler=euler,heun");
    if (g->x.option == g->y.option)
        return fail(a, NOT_UNDERSTOOD, "both axes are %s; choose another for one", g->x.option->name);
    if ((int64_t)g->x.n * g->y.n > MAX_PICTURES)
        return fail(a, NOT_UNDERSTOOD, "a grid of %d x %d has more than %d pictures", g->x.n, g->y.n, MAX_PICTURES);
    if (a->n_seeds > 1)
        return fail(a, NOT_UNDERSTOOD, "a grid has one seed for all pictures; --x seed=1,2,3 makes an axis of several");
    if (!a->n_seeds) a->seeds[a->n_seeds++] = a->noise ? 0 : random_seed();
    return DONE;
}

static int check_names(grid *g) {
    const arguments *a = &g->base;
    bool folder = a->output && !is_stdout(a->output) && !picture_side_limit(a->output) && is_folder(a->output);
    char *unnamed = file_in(folder ? a->output : NULL, "lazuli-grid.png");
    const char *path = a->output && !folder ? a->output : unnamed;
    int code = unnamed ? DONE : fail(a, FAILED, "out of memory");
    if (code == DONE && is_stdout(path))
        code = check_stdout(a, 1);
    else if (code == DONE && !picture_side_limit(path))
        code = fail(a, NOT_UNDERSTOOD, "%s: the name of a picture must end in .png, .jpg or .webp", path);
    else if (code == DONE)
        code = check_output(a, path);
    if (code == DONE && a->keep_cells) {
        const char *name = is_stdout(path) ? "grid.png" : base_name(path), *dot = strrchr(name, '.');
        char *stem = strndup(name, (size_t)(dot - name));
        g->stem = stem ? file_in(a->keep_cells, stem) : NULL;
        code = g->stem ? check_new_folder(a, a->keep_cells) : fail(a, FAILED, "out of memory");
        free(stem);
    }
    free(unnamed);
    return code;
}

static int take_prompt(grid *g) {
    /* A wrong model is reported before the user types the prompt. */
    int code = reads_prompt(&g->base) && !opens_model(&g->x) && !opens_model(&g->y) ? job_reopen(g->job, &g->base)
                                                                                    : DONE;
    if (code == DONE) code = prompt_of(&g->base, &g->text, &g->base.prompt);
    if (code == DONE && g->base.prompt) g->base.n_words = 0;
    if (g->text) g->base.elsewhere[find_option("prompt", 6) - options] = true; /* '-' is not read from stdin again */
    return code;
}

/* Makes the sheet, after its axes were checked. */
static int paint_sheet(grid *g) {
    int code = check_cells(g);
    if (code == DONE) code = begin_sheet(g);
    if (code == DONE) code = see_begin(&g->see, g->job, 1);
    return code == DONE ? make_cells(g) : code;
}

static int run(grid *g) {
    char *path = NULL;
    int code = check_axes(g);
    if (code == DONE) code = check_names(g);
    if (code == DONE) code = take_prompt(g);
    if (code == DONE) code = paint_sheet(g);
    if (code == DONE) code = write_sheet(g, &path);
    if (code == DONE) code = tell(g, path);
    if (code == DONE) see_result(&g->see, &g->image);
    free(path);
    return code;
}

static grid *grid_new(const arguments *args, job *j) {
    grid *g = calloc(1, sizeof *g);
    if (!g) {
        fail(args, FAILED, "out of memory");
        return NULL;
    }
    g->base = *args;
    g->base.said = json_object();
    g->cells = json_array();
    g->begun = seconds_now();
    g->job = j ? j : &g->own;
    return g;
}

static void grid_free(grid *g) {
    job_close(&g->own);
    see_free(&g->see);
    axis_free(&g->x);
    axis_free(&g->y);
    json_decref(g->base.said);
    json_decref(g->cells);
    json_decref(g->settings);
    free(g->image.pixels);
    free(g->text);
    free(g->resolved);
    free(g->stem);
    free(g);
}

int grid_command(const arguments *args) {
    grid *g = grid_new(args, NULL);
    if (!g) return FAILED;
    stop_on_signals();
    int code = run(g);
    grid_free(g);
    return code;
}

int grid_in_session(job *j, const arguments *args, grid_sheet *to) {
    const arguments *of_session = j->args;
    grid *g = grid_new(args, j);
    *to = (grid_sheet){.columns = 0};
    if (!g) return FAILED;
    int code = check_axes(g);
    if (code == DONE) code = paint_sheet(g);
    if (code == DONE) *to = (grid_sheet){.columns = g->x.n, .rows = g->y.n, .shrink = g->shrink};
    if (code == DONE && !(to->settings = sheet_settings(g))) code = fail(args, FAILED, "out of memory");
    if (code == DONE) {
        see_result(&g->see, &g->image);
        to->image = g->image;
        g->image.pixels = NULL;
    }
    job_take(j, of_session);
    grid_free(g);
    return code;
}
