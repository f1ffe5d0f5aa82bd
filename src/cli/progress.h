/* progress.h: the progress line on the terminal, and signals that ask to stop. */
#ifndef LZ_CLI_PROGRESS_H
#define LZ_CLI_PROGRESS_H

#include "cli.h"

/* Progress over several sets of pictures: a batch. */
typedef struct overall {
    int before, all; /* index of the current set; number of sets, 0: unknown */
    int painted;     /* earlier sets that were generated; others existed already, and do not count for the time */
    double begun;
} overall;

typedef struct progress {
    const lz_picture_plan *plan; /* work of each stage */
    int picture, pictures;       /* index, and number of pictures */
    const overall *overall;      /* of a batch; or NULL */
    bool shown;                  /* stderr is a terminal, and -q was not given */
    bool drawn;
    double begun, drawn_at, share;
} progress;

void progress_begin(progress *p, const job *j, int picture, int pictures, const overall *all);
bool progress_watch(void *user, const lz_progress *now); /* for lz_picture_options.watch; false after Ctrl-C */
void progress_clear(progress *p);

/* The line is redrawn in its place. A terminal that cannot do that (TERM=dumb) gets plain lines, without a bar and far
 * fewer of them. */
bool line_is_due(double drawn_at);                                   /* drawn_at: when it was drawn last, or begun */
void draw_line(const char *before, double share, const char *after); /* before and after: its texts */
void clear_line(void);

/* From now on SIGINT (Ctrl-C), SIGTERM and SIGHUP ask to stop; a second signal ends the program. */
void stop_on_signals(void);
bool stop_wanted(void);
bool await_input(int fd);           /* waits until fd has bytes or is at its end; false: a signal asked to stop */
int stop_code(void);                /* the exit code: 128 + the signal's number, as in shells: 130 after Ctrl-C */
void stop_picture_on_signals(void); /* like stop_on_signals, but a second signal does not end the program */
int forget_signals(void);           /* restores the default action. Returns the signal that arrived meanwhile, or 0 */

#endif
