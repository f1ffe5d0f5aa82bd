/* album.h: the pictures of a session. Each is in memory, and in a file below the state folder from the moment it was made,
 * so that neither Ctrl-D nor a closed terminal loses one that was not saved:
 *
 *     $XDG_STATE_HOME/lazuli/unsaved/DATE-TIME-PID/N.png     of a session that runs, or that was killed
 *                                    DATE-TIME/N.png         of one that ended and said where they are
 *
 * N is the number of the picture. Files of saved pictures go at the end, and whole folders, oldest first, while there are
 * more than MOST_UNSAVED pictures of sessions that are over. */
#ifndef LZ_CLI_ALBUM_H
#define LZ_CLI_ALBUM_H

#include "cli.h"

enum { MAX_KEPT = 256, MOST_UNSAVED = 256 }; /* pictures; one of a megapixel takes 3 MB of memory */

/* The prompt, references and seed of a picture; sizes and steps are settings. */
typedef struct wish {
    char *prompt;                  /* owned; NULL: it was not painted but loaded */
    int references[LZ_MAX_IMAGES]; /* earlier pictures, from 0 */
    int n_references;
    int64_t seed;
} wish;

typedef struct kept {
    lz_image image;
    wish wish;
    int steps, schedule_steps;
    char *prompt; /* owned: the wish's, without the LoRAs that it names; or NULL */
    char *loras;  /* owned: as in job; or NULL */
    bool loras_ordinary;
    double guidance, strength; /* strength: 0 where the picture began as noise */
    char *path;                /* owned: where it was saved last, or loaded from; or NULL */
    bool exact;                /* that file has the very pixels: JPEG does not keep them */
    char *copy;                /* owned: its file below the state folder; or NULL */
} kept;

typedef struct album {
    kept pictures[MAX_KEPT];
    int n;
    char session[64]; /* DATE-TIME-PID */
    bool homeless;    /* there is no place for unsaved pictures, and that has been said */
} album;

char *state_path(const char *below);          /* .../lazuli/BELOW, its folders made; owned. NULL: there is no place */
void album_open(album *a, const job *j);      /* says where pictures of sessions are that were killed */
bool album_has_place(album *a, const job *j); /* for one more picture; else it has been said */
/* One more picture; all that *k owns goes over. */
void album_add(album *a, const job *j, const kept *k);
int album_load(album *a, const job *j, const char *path); /* one more, from a file. An exit code */
/* Saves a picture, and those it was made from beside it, so that --from can make it again. An exit code. */
int album_save(album *a, const job *j, kept *k, const char *path);
void album_drop_last(album *a, const job *j);
void album_list(const album *a);
void album_close(album *a, const job *j,
                 bool tell); /* tell: say where unsaved pictures are; else the next session does */

#endif
