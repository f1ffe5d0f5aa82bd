/* chafa.c: no pictures on the terminal. */
#include "../terminal.h"

const bool can_draw = false;

bool draw_picture(const lz_image *image, int columns, int rows, drawing *to) {
    (void)image, (void)columns, (void)rows, (void)to;
    return false;
}
