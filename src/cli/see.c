/* see.c: see see.h. Previews are drawn in place: the first one adds lines, later ones move the cursor up to the first
 * of them. The progress line (progress.c) is below. */
#include "see.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/stat.h>
#include <unistd.h>

#include "terminal.h"

/* ---- can it be seen? --------------------------------------------------------------------------------------------- */

enum { PREVIEW_COLUMNS = 40, PREVIEW_ROWS = 16, SHOW_COLUMNS = 80 };

bool see_possible(bool in_place) { return can_draw && (in_place ? lines_move() : isatty(STDERR_FILENO) != 0); }

/* Is a requested preview possible? If not, the user is told, and the picture is made without it. */
static bool ask_terminal(const arguments *args, const char *name, bool asked, bool moves) {
    if (!asked) return false;
    if (!can_draw)
        note(args, "--%s has no effect: this build was made without chafa", name);
    else if (!isatty(STDERR_FILENO))
        note(args, "--%s needs a terminal, but stderr is not one; nothing is shown", name);
    else if (moves && !lines_move())
        note(args, "--%s needs a terminal that can move its cursor, but $TERM names none; nothing is shown", name);
    else
        return true;
    return false;
}

int check_new_folder(const arguments *args, const char *path) {
    struct stat s;
    if (mkdir(path, 0777) == 0) { /* only a test: the folder is made when it is needed, after all checks */
        rmdir(path);
        return DONE;
    }
    if (errno != EEXIST) return fail(args, FAILED, "%s: cannot be created: %s", path, strerror(errno));
    if (stat(path, &s) == 0 && S_ISDIR(s.st_mode) && access(path, W_OK | X_OK) == 0) return DONE;
    return fail(args, FAILED, "%s: is not a folder that can be written into", path);
}

int see_check(const arguments *args) {
    if (args->sheet && !picture_side_limit(args->sheet))
        return fail(args, NOT_UNDERSTOOD, "%s: a sheet is a picture, so the name must end in .png, .jpg or .webp",
                    args->sheet);
    return args->steps_dir ? check_new_folder(args, args->steps_dir) : DONE;
}

/* ---- on the terminal --------------------------------------------------------------------------------------------- */

/* The side of the terminal: from $COLUMNS or $LINES, else reported by the terminal, else the usual size. */
static int terminal_side(const char *variable, int told, int usual) {
    const char *text = getenv(variable);
    int64_t side;
    if (text && whole_number(text, strlen(text), 1, 10000, &side)) return (int)side;
    return told ? told : usual;
}

static void terminal_size(int *columns, int *rows) {
    struct winsize size = {0};
    ioctl(STDERR_FILENO, TIOCGWINSZ, &size);
    *columns = terminal_side("COLUMNS", size.ws_col, 80);
    *rows = terminal_side("LINES", size.ws_row, 24);
}

static int least(int a, int b) { return a < b ? a : b; }
static int most(int a, int b) { return a > b ? a : b; }

/* After drawing pixels, the cursor position depends on the terminal, so it is saved, restored and moved down here. */
static void draw_preview(seeing *s, const lz_image *image) {
    int columns, rows;
    drawing d;
    terminal_size(&columns, &rows);
    if (!draw_picture(image, least(PREVIEW_COLUMNS, most(columns - 1, 1)), least(PREVIEW_ROWS, most(rows - 3, 1)), &d))
        return;
    see_clear(s);
    for (int i = 0; i < d.rows; i++) fputc('\n', stderr);
    fprintf(stderr, "\033[%dA\0337", d.rows);
    fwrite(d.text, 1, d.bytes, stderr);
    fprintf(stderr, "\0338\033[%dB\r", d.rows);
    fflush(stderr);
    s->rows = d.rows;
    s->above = d.above;
    free(d.text);
}

/* kitty's graphics need a separate command to be deleted. */
void see_clear(seeing *s) {
    if (s->rows) fprintf(stderr, "\r\033[%dA%s\033[J", s->rows, s->above ? "\033_Ga=d,d=C,q=2\033\\" : "");
    s->rows = 0;
}

void see_leave(seeing *s) {
    if (s->show) see_clear(s); /* the result is drawn instead */
    s->rows = 0;
}

static void show_result(const lz_image *image) {
    int columns, rows;
    drawing d;
    terminal_size(&columns, &rows);
    if (!draw_picture(image, least(SHOW_COLUMNS, most(columns - 1, 1)), most(rows - 3, 1), &d)) return;
    fflush(stdout); /* the text before it must be printed first */
    fwrite(d.text, 1, d.bytes, stderr);
    fputc('\n', stderr);
    fflush(stderr);
    free(d.text);
}

/* ---- in a folder ------------------------------------------------------------------------------------------------- */

static void keep_step(seeing *s, const lz_progress *now) {
    char *path = NULL;
    lz_error err = {.status = LZ_OK};
    mkdir(s->args->steps_dir, 0777); /* if this fails, the folder exists, or writing reports the error */
    if (asprintf(&path, "%s/%lld-step-%02d.png", s->args->steps_dir, (long long)s->seed, now->step + 1) < 0)
        s->code = fail(s->args, FAILED, "out of memory");
    else if (save_image(s->ctx, path, now->preview, NULL, &err) != LZ_OK) {
        see_clear(s);
        s->code = fail_with(s->args, &err);
    }
    free(path);
}

/* ---- all --------------------------------------------------------------------------------------------------------- */

int see_begin(seeing *s, const job *j, int pictures) {
    const arguments *a = j->args;
    see_free(s); /* the sheet of the previous line of a batch */
    *s = (seeing){.args = a, .ctx = j->ctx};
    s->preview = ask_terminal(a, "preview", a->preview, true);
    s->show = ask_terminal(a, "show", a->show, false);
    if (!a->sheet) return DONE;
    int64_t width, height;
    result_size(j, &width, &height);
    return sheet_begin(&s->sheet, a, pictures, width, height);
}

int see_kind(const seeing *s) {
    return s->args->steps_dir ? LZ_PREVIEW_FULL : s->preview ? LZ_PREVIEW_SMALL : LZ_PREVIEW_NONE;
}

double see_pause(const seeing *s) { return s->args->steps_dir ? 0 : 0.25; } /* at most four per second */

bool see_watch(seeing *s, const lz_progress *now) {
    if (!now->preview) return s->code == DONE;
    if (s->args->steps_dir) keep_step(s, now);
    if (s->preview && s->code == DONE) draw_preview(s, now->preview);
    return s->code == DONE;
}

void see_add(seeing *s, const lz_image *image) {
    if (s->sheet.image.pixels) sheet_add(&s->sheet, image);
}

void see_result(seeing *s, const lz_image *image) {
    see_add(s, image);
    if (s->show) show_result(image);
}

int see_finish(seeing *s, const char *const *text) {
    lz_error err = {.status = LZ_OK};
    if (!s->sheet.image.pixels) return DONE;
    if (save_image(s->ctx, s->args->sheet, &s->sheet.image, text, &err) != LZ_OK) return fail_with(s->args, &err);
    if (s->args->quiet || s->args->json) return DONE;
    say(result_stream(s->args), "%s  %lld x %lld, a sheet of %d\n", s->args->sheet, (long long)s->sheet.image.width,
        (long long)s->sheet.image.height, s->sheet.n);
    return flush_output(s->args);
}

void see_free(seeing *s) { free(s->sheet.image.pixels); }
