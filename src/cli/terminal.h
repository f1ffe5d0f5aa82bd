/* terminal.h: what the terminal can be asked beyond lines of text: to draw pictures (chafa) and to edit lines (libedit).
 * with/ holds what calls these libraries, without/ what stands in where they were missing when this was built. */
#ifndef LZ_CLI_TERMINAL_H
#define LZ_CLI_TERMINAL_H

#include "cli.h"

/* ---- pictures ---------------------------------------------------------------------------------------------------- */

extern const bool can_draw; /* it was built with chafa */

typedef struct drawing {
    char *text; /* with control sequences; owned */
    size_t bytes;
    int rows;   /* lines of the terminal that it covers */
    bool above; /* pixels that lie over the letters, and stay when these go: kitty's */
} drawing;
/* As large as fits into so many cells, by the best the terminal on stderr is known to have: kitty's, sixel or iTerm2's
 * pixels, else symbols; without colours under NO_COLOR. False: out of memory. */
bool draw_picture(const lz_image *image, int columns, int rows, drawing *to);

/* ---- lines ------------------------------------------------------------------------------------------------------- */

extern const bool can_edit; /* it was built with libedit */

typedef struct editor editor;
/* What Tab completes, where the cursor is after a word that begins with / (the first) or $, or is the name of a file. */
typedef struct completion {
    const char *(*word)(void *user, int i); /* word i, up to the next call; NULL: after the last */
    bool (*names_file)(const char *line);   /* what is typed behind this is the name of a file */
    void *user;
} completion;
editor *editor_open(const char *prompt, const char *history,
                    completion by_tab); /* history: a file, or NULL. NULL: there
                                                                                    is no memory left */
char *editor_read(editor *e);           /* owned, without its end; NULL: Ctrl-D, or the end. Writes the history */
void editor_close(editor *e);

#endif
