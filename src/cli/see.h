/* see.h: other views of pictures: previews and results on the terminal, previews of each step in a folder, all pictures
 * on one sheet. The terminal is that of stderr. */
#ifndef LZ_CLI_SEE_H
#define LZ_CLI_SEE_H

#include "cli.h"

typedef struct sheet {
    lz_image image; /* pixels is NULL without --sheet */
    int columns, shrink, n;
    int64_t width, height; /* of a picture on it */
} sheet;

typedef struct seeing {
    const arguments *args;
    lz_context *ctx;
    bool preview, show; /* requested, and possible */
    int rows;           /* lines of the preview above the progress line; 0: none */
    bool above;         /* see drawing.above */
    int64_t seed;
    sheet sheet;
    int code; /* exit code of writing steps */
} seeing;

bool see_possible(bool in_place);                              /* is there a terminal, and can it be drawn on? */
int check_new_folder(const arguments *args, const char *path); /* does it exist, or can it be created? An exit code */
int see_check(const arguments *args);                 /* checks names before anything is opened. Returns an exit code */
int see_begin(seeing *s, const job *j, int pictures); /* of a seeing that is zero or was begun. An exit code; see_free
                                                         in any case, after the last */
int see_kind(const seeing *s);                        /* lz_preview: the kind of preview to request */
double see_pause(const seeing *s);                    /* seconds between two previews */
bool see_watch(seeing *s, const lz_progress *now);    /* false: stop, see code */
void see_clear(seeing *s);                            /* removes the preview, to print a line */
void see_leave(seeing *s);                            /* after the last step of a picture */
void see_add(seeing *s, const lz_image *image);       /* adds it to the sheet, if there is one */
void see_result(seeing *s, const lz_image *image);    /* the same, and draws it */
int see_finish(seeing *s, const char *const *text);   /* writes the sheet with this text. Returns an exit code */
void see_free(seeing *s);

/* Begins a sheet of n pictures of this size, shrunk such that its sides are at most 4096 pixels. */
int sheet_begin(sheet *s, const arguments *args, int n, int64_t width, int64_t height); /* an exit code */
void sheet_add(sheet *s, const lz_image *image);
/* Draws an image onto another; shrink x shrink pixels become one, their mean. What would be outside is left out. */
void paste_shrunk(const lz_image *to, int64_t left, int64_t top, const lz_image *image, int shrink);

#endif
