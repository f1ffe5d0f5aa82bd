/* see.h: what is seen of pictures beside their files: the preview and the result on the terminal, each step's picture in
 * a folder, all pictures on one sheet. The terminal is the one of stderr. */
#ifndef LZ_CLI_SEE_H
#define LZ_CLI_SEE_H

#include "cli.h"

typedef struct sheet {
    lz_image image; /* pixels: NULL where none is asked for */
    int columns, shrink, n;
    int64_t width, height; /* of a picture on it */
} sheet;

typedef struct seeing {
    const arguments *args;
    lz_context *ctx;
    bool preview, show; /* asked for, and possible */
    int rows;           /* of the preview that stands on the terminal above the line; 0: none does */
    bool above;         /* it lies over the letters: see drawing */
    int64_t seed;
    sheet sheet;
    int code; /* an exit code: how writing steps went */
} seeing;

bool see_possible(bool in_place);                     /* there is a terminal, and something to draw on it with */
int see_check(const arguments *args);                 /* names, before anything is opened. An exit code */
int see_begin(seeing *s, const job *j, int pictures); /* of a seeing that is zero or was begun. An exit code; see_free
                                                         in any case, after the last */
int see_kind(const seeing *s);                        /* lz_preview: what to ask the library for */
double see_pause(const seeing *s);                    /* seconds between two of them */
bool see_watch(seeing *s, const lz_progress *now);    /* false: stop, see code */
void see_clear(seeing *s);                            /* takes the preview away, to print a line */
void see_leave(seeing *s);                            /* this picture is done */
void see_add(seeing *s, const lz_image *image);       /* put on the sheet, if there is one */
void see_result(seeing *s, const lz_image *image);    /* the same, and shown */
int see_finish(seeing *s, const char *const *text);   /* writes the sheet, with this text. An exit code */
void see_free(seeing *s);

/* A sheet of n pictures as large as this one, side by side, shrunk so that it is no more than 4096 pixels a side. */
int sheet_begin(sheet *s, const arguments *args, int n, int64_t width, int64_t height); /* an exit code */
void sheet_add(sheet *s, const lz_image *image);

#endif
