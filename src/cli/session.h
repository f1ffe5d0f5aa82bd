/* session.h: a session (interactive.c), its commands that change settings of the next pictures (session_settings.c),
 * and those about several pictures (session_sheets.c). */
#ifndef LZ_CLI_SESSION_H
#define LZ_CLI_SESSION_H

#include "album.h"
#include "progress.h"
#include "see.h"

typedef struct session {
    arguments args; /* the settings */
    job job;
    seeing see;
    progress line;
    album album;
    char *loras[MAX_LORAS]; /* owned: the arguments of /lora; args.loras points to them */
    char *mask, *extend;    /* owned: the arguments of /mask and /extend; those of args point to them */
    int given;              /* number of pictures of -i ($1, ...), references of the first prompt; 0 after it */
    char number[16];        /* memory for a completed word */
    bool over;
    int ended_by; /* a signal, or 0 */
} session;

kept *last_painted(session *s); /* the last picture with a prompt; loaded ones have none. NULL: the user was told */
/* The index of picture "$3"; -1: not a reference; -2: there is no such picture, which was reported. */
int read_reference(const session *s, const char *word, size_t length);
void end_signals(session *s); /* after stop_picture_on_signals: Ctrl-C stops a picture, other signals end the session */

/* "[$A $B]": compares two pictures, by default the last two */
void compare_two(session *s, const char *rest);
/* "NAME=VALUES [NAME=VALUES]": makes the last prompt and seed for all values, on one sheet, which becomes a picture */
void make_grid(session *s, const char *rest);
/* How much two pictures differ, and which of their settings do (compare.c). files: that have the settings; or NULL */
void compare_in_session(const job *j, const lz_image *const images[2], const char *const files[2]);

/* The path that was typed, with or without quotes, with ~ replaced by the home folder. Owned. */
char *typed_path(const char *text);

/* Each takes what follows the command. A mistake is told, and changes nothing. */
void set_size(session *s, const char *rest);
void set_seed(session *s, const char *rest);
void set_steps(session *s, const char *rest);
void set_guidance(session *s, const char *rest);
void set_shift(session *s, const char *rest);
void set_sampler(session *s, const char *rest);
void set_schedule(session *s, const char *rest);
void set_fast(session *s, const char *rest);
void set_strength(session *s, const char *rest);
void set_cache(session *s, const char *rest);
void set_lora(session *s, const char *rest);
void set_mask(session *s, const char *rest);
void set_extend(session *s, const char *rest);

#endif
