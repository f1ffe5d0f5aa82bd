/* album.h: the pictures of an interactive session. Each is kept in memory, and written to a file below the state folder
 * as soon as it is made, so that an unsaved picture survives Ctrl-D or a closed terminal:
 *
 *     $XDG_STATE_HOME/lazuli/unsaved/DATE-TIME-PID/N.png     of a session that is running or was killed
 *                                    DATE-TIME/N.png         of a session that ended and reported this path
 *
 * N is the number of the picture. At the end of a session, files of saved pictures are removed. Folders of ended
 * sessions are removed, oldest first, while they have more than MOST_UNSAVED pictures in total. */
#ifndef LZ_CLI_ALBUM_H
#define LZ_CLI_ALBUM_H

#include "cli.h"

enum { MAX_KEPT = 256, MOST_UNSAVED = 256 }; /* pictures; one megapixel takes 3 MB of memory */

/* The prompt, references and seed of a picture; sizes and steps are settings. */
typedef struct wish {
    char *prompt;                  /* owned; NULL: the picture was loaded from a file */
    int references[LZ_MAX_IMAGES]; /* indices of earlier pictures */
    int n_references;
    int64_t seed;
} wish;

typedef struct kept {
    lz_image image;
    lz_picture layers; /* owned: the layers of the picture, and nothing else */
    wish wish;
    int steps, schedule_steps;
    char *prompt; /* owned: the prompt of the wish without the tags of LoRAs; or NULL */
    char *loras;  /* owned: the LoRAs, as in struct job; or NULL */
    bool loras_ordinary;
    double guidance, strength;      /* strength: 0 without a start image */
    const char *sampler, *schedule; /* constants of the library */
    double shift;                   /* 0: the model's */
    double cache, guidance_range[2];
    int guidance_every, passes, forecast;
    char *mask, *extend;   /* owned: --mask and --extend; or NULL */
    bool by_image;         /* its size is that of an image */
    int64_t width, height; /* that were painted; with a mask, the picture may have another size */
    char *path;            /* owned: the file that it was last saved to or loaded from; or NULL */
    bool exact;            /* the file has exactly these pixels (not so for JPEG) */
    char *copy;            /* owned: its file below the state folder; or NULL */
    char *sheet;           /* owned: the settings of a grid, whose pixels are of malloc; or NULL */
} kept;

typedef struct album {
    kept pictures[MAX_KEPT];
    int n;
    char session[64]; /* DATE-TIME-PID */
    bool homeless;    /* the state folder cannot be written, so unsaved pictures are not stored; the user was told */
} album;

char *state_path(const char *below);          /* .../lazuli/BELOW, owned; makes its folders. NULL: not possible */
void album_open(album *a, const job *j);      /* reports unsaved pictures of killed sessions */
bool album_has_place(album *a, const job *j); /* is there space for one more picture? false: the user was told */
/* Adds a picture; takes ownership of all that *k owns. */
void album_add(album *a, const job *j, const kept *k);
int album_load(album *a, const job *j, const char *path); /* adds a picture from a file. Returns an exit code */
/* Saves a picture, and its references in the same folder, so that --from can make it again. Returns an exit code. */
int album_save(album *a, const job *j, kept *k, const char *path);
void album_drop_last(album *a, const job *j);
void album_list(const album *a);
void album_close(album *a, const job *j,
                 bool tell); /* tell: report unsaved pictures; otherwise the next session does */

#endif
