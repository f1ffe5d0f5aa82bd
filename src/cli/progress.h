/* progress.h: the line on the terminal that says how far a picture is, and the signals that ask to stop. */
#ifndef LZ_CLI_PROGRESS_H
#define LZ_CLI_PROGRESS_H

#include "cli.h"

/* Of several sets of pictures, one after the other: a batch. */
typedef struct overall {
    int before, all; /* which of them it is, from 0; all: how many, or 0: nobody knows */
    int painted;     /* of those before: the others were there already, and tell nothing of the time */
    double begun;
} overall;

typedef struct progress {
    const lz_picture_plan *plan; /* how much of the work each stage is */
    int picture, pictures;       /* which of how many, from 0 */
    const overall *overall;      /* what the line is about then; or NULL */
    bool shown;                  /* stderr is a terminal where lines_move(), and -q was not given */
    bool drawn;
    double begun, drawn_at, share;
} progress;

void progress_begin(progress *p, const job *j, int picture, int pictures, const overall *all);
bool progress_watch(void *user, const lz_progress *now); /* for lz_picture_options.watch; false after Ctrl-C */
void progress_clear(progress *p);

void draw_line(const char *before, double share, const char *after); /* over the line that is there; after: its tail */
void clear_line(void);

void stop_on_signals(
    void); /* from here on Ctrl-C (SIGINT), SIGTERM and SIGHUP ask to stop; a second one ends at once */
bool stop_wanted(void);
int stop_code(void);                /* the exit code: 128 and the signal, as shells have it, so 130 after Ctrl-C */
void stop_picture_on_signals(void); /* as stop_on_signals, any number of times */
int forget_signals(void);           /* they end the program again. Returns the one that came meanwhile, or 0 */

#endif
