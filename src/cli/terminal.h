/* terminal.h: drawing pictures on the terminal (chafa) and editing lines (libedit). with/ uses these libraries;
 * without/ is for builds without them. */
#ifndef LZ_CLI_TERMINAL_H
#define LZ_CLI_TERMINAL_H

#include "cli.h"

/* ---- pictures ---------------------------------------------------------------------------------------------------- */

extern const bool can_draw; /* built with chafa */

typedef struct drawing {
    char *text; /* with control sequences; owned */
    size_t bytes;
    int rows;   /* lines of the terminal that it takes */
    bool above; /* kitty's graphics, which are drawn over text and stay when the text is erased */
} drawing;
/* As large as fits into so many cells, by the best the terminal on stderr is known to have: kitty's, sixel or iTerm2's
 * pixels, else symbols; without colours under NO_COLOR. False: out of memory. */
bool draw_picture(const lz_image *image, int columns, int rows, drawing *to);

/* ---- lines ------------------------------------------------------------------------------------------------------- */

extern const bool can_edit; /* built with libedit */

typedef struct editor editor;
/* What Tab completes: a first word that begins with /, a word that begins with $, or the name of a file. */
typedef struct completion {
    const char *(*word)(void *user, int i); /* word i, valid until the next call; NULL: after the last */
    bool (*names_file)(const char *line);   /* is the next word of this line the name of a file? */
    void *user;
} completion;
editor *editor_open(const char *prompt, const char *history,
                    completion by_tab); /* history: a file, or NULL. NULL: there
                                                                                    is no memory left */
/* A line without its end, owned; NULL: Ctrl-D, or the end of input. Writes the history. */
char *editor_read(editor *e);
void editor_close(editor *e);

#endif
