/* grid.h: /grid in a session (grid.c). */
#ifndef LZ_CLI_GRID_H
#define LZ_CLI_GRID_H

#include "cli.h"

typedef struct grid_sheet {
    lz_image image; /* pixels: owned, of malloc */
    char *settings; /* owned: of the picture, under SHEET_KEY */
    int columns, rows, shrink;
} grid_sheet;

/* Makes a grid with the model of a session, which stays open. args: the settings of all cells, with the prompt, one
 * seed and the axes x and y. Afterwards the job has its own arguments again, and no picture. Returns an exit code. */
int grid_in_session(job *j, const arguments *args, grid_sheet *to);

#endif
