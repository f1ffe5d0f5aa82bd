/* progress.h: the line on the terminal that says how far a picture is, and Ctrl-C. */
#ifndef LZ_CLI_PROGRESS_H
#define LZ_CLI_PROGRESS_H

#include "cli.h"

/* Of several sets of pictures, one after the other: a batch. */
typedef struct overall {
    int before, all; /* which of them it is, from 0 */
    int painted;     /* of those before: the others were there already, and tell nothing of the time */
    double begun;
} overall;

typedef struct progress {
    const lz_picture_plan *plan; /* how much of the work each stage is */
    int picture, pictures;       /* which of how many, from 0 */
    const overall *overall;      /* what the line is about then; or NULL */
    bool shown;                  /* stderr is a terminal, and -q was not given */
    bool drawn;
    double begun, drawn_at, share;
} progress;

void progress_begin(progress *p, const job *j, int picture, int pictures, const overall *all);
bool progress_watch(void *user, const lz_progress *now); /* for lz_picture_options.watch; false after Ctrl-C */
void progress_clear(progress *p);

void draw_line(const char *before, double share, const char *after); /* over the line that is there; after: its tail */
void clear_line(void);

void stop_on_signals(void); /* from here on Ctrl-C asks to stop; a second one ends at once */
bool stop_wanted(void);
void stop_picture_on_signals(void); /* the same, any number of times */
int forget_signals(void); /* they end the program again. Returns what came meanwhile: 0 nothing, 1 Ctrl-C, 2 to end */

#endif
