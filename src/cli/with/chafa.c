/* chafa.c: pictures on the terminal, see terminal.h. */
#include <chafa.h>
#include <langinfo.h>
#include <locale.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <unistd.h>

#include "../terminal.h"

const bool can_draw = true;

/* Protocols, best first; the first that the terminal supports is used. */
static const struct {
    ChafaTermSeq sequence;
    ChafaPixelMode pixels;
    ChafaCanvasMode colours;
} ways[] = {
    {CHAFA_TERM_SEQ_BEGIN_KITTY_IMMEDIATE_IMAGE_V1, CHAFA_PIXEL_MODE_KITTY, CHAFA_CANVAS_MODE_TRUECOLOR},
    {CHAFA_TERM_SEQ_BEGIN_SIXELS, CHAFA_PIXEL_MODE_SIXELS, CHAFA_CANVAS_MODE_TRUECOLOR},
    {CHAFA_TERM_SEQ_BEGIN_ITERM2_IMAGE, CHAFA_PIXEL_MODE_ITERM2, CHAFA_CANVAS_MODE_TRUECOLOR},
    {CHAFA_TERM_SEQ_SET_COLOR_FGBG_DIRECT, CHAFA_PIXEL_MODE_SYMBOLS, CHAFA_CANVAS_MODE_TRUECOLOR},
    {CHAFA_TERM_SEQ_SET_COLOR_FGBG_256, CHAFA_PIXEL_MODE_SYMBOLS, CHAFA_CANVAS_MODE_INDEXED_240},
    {CHAFA_TERM_SEQ_SET_COLOR_FGBG_16, CHAFA_PIXEL_MODE_SYMBOLS, CHAFA_CANVAS_MODE_INDEXED_16},
};

static void choose_way(ChafaCanvasConfig *config, const ChafaTermInfo *terminal) {
    const char *no_colour = getenv("NO_COLOR"), *name = getenv("TERM");
    bool plain = (no_colour && *no_colour) || !name || !*name || strcmp(name, "dumb") == 0;
    chafa_canvas_config_set_pixel_mode(config, CHAFA_PIXEL_MODE_SYMBOLS);
    chafa_canvas_config_set_canvas_mode(config, CHAFA_CANVAS_MODE_FGBG);
    for (size_t i = 0; i < COUNT(ways) && !plain; i++) {
        if (!chafa_term_info_have_seq(terminal, ways[i].sequence)) continue;
        chafa_canvas_config_set_pixel_mode(config, ways[i].pixels);
        chafa_canvas_config_set_canvas_mode(config, ways[i].colours);
        return;
    }
}

/* Block symbols need UTF-8; otherwise ASCII symbols are used. */
static ChafaSymbolMap *choose_symbols(void) {
    setlocale(LC_CTYPE, "");
    bool utf8 = strcmp(nl_langinfo(CODESET), "UTF-8") == 0;
    ChafaSymbolMap *symbols = chafa_symbol_map_new();
    chafa_symbol_map_add_by_tags(symbols, CHAFA_SYMBOL_TAG_SPACE);
    chafa_symbol_map_add_by_tags(symbols, utf8 ? CHAFA_SYMBOL_TAG_BLOCK : CHAFA_SYMBOL_TAG_ASCII);
    return symbols;
}

/* The size of a terminal cell in pixels; a usual size if the terminal does not report it. */
static void measure_cell(int *width, int *height) {
    struct winsize size = {0};
    *width = 10;
    *height = 20;
    if (ioctl(STDERR_FILENO, TIOCGWINSZ, &size) || !size.ws_col || !size.ws_row) return;
    if (size.ws_xpixel < size.ws_col || size.ws_ypixel < size.ws_row) return;
    *width = size.ws_xpixel / size.ws_col;
    *height = size.ws_ypixel / size.ws_row;
}

bool draw_picture(const lz_image *image, int columns, int rows, drawing *to) {
    int cell_width, cell_height;
    measure_cell(&cell_width, &cell_height);
    chafa_calc_canvas_geometry((gint)image->width, (gint)image->height, &columns, &rows,
                               (gfloat)cell_width / (gfloat)cell_height, TRUE, FALSE);
    gchar **environment = g_get_environ();
    ChafaTermInfo *terminal = chafa_term_db_detect(chafa_term_db_get_default(), environment);
    ChafaSymbolMap *symbols = choose_symbols();
    ChafaCanvasConfig *config = chafa_canvas_config_new();
    choose_way(config, terminal);
    chafa_canvas_config_set_symbol_map(config, symbols);
    chafa_canvas_config_set_work_factor(config, 0.1f); /* takes half the time, and blocks look the same */
    chafa_canvas_config_set_geometry(config, columns, rows);
    chafa_canvas_config_set_cell_geometry(config, cell_width, cell_height);
    ChafaCanvas *canvas = chafa_canvas_new(config);
    bool four = image->channels == 4; /* pixels that are not opaque show the background of the terminal */
    chafa_canvas_draw_all_pixels(canvas, four ? CHAFA_PIXEL_RGBA8_UNASSOCIATED : CHAFA_PIXEL_RGB8, image->pixels,
                                 (gint)image->width, (gint)image->height, (gint)((four ? 4 : 3) * image->width));
    GString *text = chafa_canvas_print(canvas, terminal);
    *to = (drawing){.text = malloc(text->len + 1), .bytes = text->len, .rows = rows};
    to->above = chafa_canvas_config_get_pixel_mode(config) == CHAFA_PIXEL_MODE_KITTY;
    if (to->text) memcpy(to->text, text->str, text->len + 1);
    g_string_free(text, TRUE);
    chafa_canvas_unref(canvas);
    chafa_canvas_config_unref(config);
    chafa_symbol_map_unref(symbols);
    chafa_term_info_unref(terminal);
    g_strfreev(environment);
    return to->text;
}
