/* font.h: labels on pictures, in letters of 5 x 9 dots. */
#ifndef LZ_CLI_FONT_H
#define LZ_CLI_FONT_H

#include "lazuli.h"

enum { FONT_WIDTH = 6, FONT_HEIGHT = 11 }; /* dots from a letter to the next, and from a line to the next */

typedef struct label {
    const char *text; /* UTF-8. Letters with accents lose them; what the font does not have becomes a box */
    int scale;        /* pixels of a dot */
    int columns;      /* letters of a line: longer texts are broken at blanks, or anywhere */
    int lines;        /* at most; a longer text ends in "..." */
} label;

typedef struct label_size {
    int columns, lines; /* that are used */
} label_size;

label_size label_measure(const label *l);
/* Draws in black, with the left upper corner of the first letter at x, y. Pixels outside of the image are left out. */
void label_draw(const label *l, const lz_image *image, int64_t x, int64_t y);

#endif
