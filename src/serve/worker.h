/* worker.h: what the files of the worker process share.
 *
 *   worker.c   the process: messages, the model, plans      pass.c   pictures that are made together, and writing them
 *   sitting.c  one picture
 *
 * A pass is a list of pictures that the front asks for at once. The first is always made. The others are made in the same
 * passes through the model if they are alike (lz_jobs_alike) and --batch has room; if not, the front is told to ask for
 * them later. Threads hand a pass on: the reader makes it of a message, one of two painting threads makes the pictures,
 * and the saver encodes and writes them, while the pictures of the next pass are made. On a device the second painting
 * thread begins the next pass, with tokens, programs and the text encoder, while the first one decodes. On the host the
 * processor has no time to spare, so one pass is made after the other. Passes are written in the order in which they
 * came. */
#ifndef LZ_SERVE_WORKER_H
#define LZ_SERVE_WORKER_H

#include <pthread.h>
#include <stdatomic.h>

#include "serve.h"
#include "wire.h"

typedef struct painter painter;
typedef struct pass pass;

typedef struct sitting { /* everything of one picture */
    painter *painter;
    pass *pass;                       /* it belongs to */
    const json_t *message, *settings; /* borrowed from the message of the pass */
    const char *job;                  /* its id */
    int index;                        /* of the picture in its job */
    atomic_bool cancelled;            /* it is not wanted any more */
    bool answered;                    /* the front was told how it ended; by the main thread, then by the saver */
    lz_image images[LZ_MAX_IMAGES], mask;
    int n_images;
    lz_picture_options options;
    lz_job *work;
    lz_picture picture;
    struct sitting *whole; /* of a layer: the picture that is made, in the same pass; NULL: it is made itself */
    const char *code;      /* of the error in err; NULL: none */
    lz_error err;
    char *parameters;    /* the text of the picture, owned */
    double file_seconds; /* for the bytes of its file */
    double told;         /* progress, as the front was told last */
    char stage[16];
    int step;
} sitting;

struct pass {
    pass *next;      /* in painter.passes */
    json_t *message; /* owned */
    int64_t number;  /* counts passes */
    int model;
    bool entered; /* a painting thread works on it; painter.lock protects it */
    sitting all[LZ_MAX_TOGETHER];
    int n;
    int together;   /* pictures that are made in the same passes */
    int most;       /* that could be */
    int decoded;    /* those of them that are decoded */
    bool said_free; /* the front was told to send the next pass */
    double seconds; /* for each of them */
};

struct painter {
    const worker_engine *engine;
    int socket;
    pthread_mutex_t sending; /* held while a message is written to the socket */
    pthread_mutex_t lock;    /* protects the following, as far as `opening` */
    pthread_cond_t arrived;  /* one of them changed */
    pass *work;              /* the next pass, or NULL; owned by `passes` */
    json_t *loads;           /* indexes of models to load, an array */
    json_t *plans;           /* plan messages, an array */
    pass *saving;            /* the saver has it; or NULL */
    pass *passes;            /* all that are not over; owned */
    int64_t n_passes;        /* that came */
    int64_t to_save;         /* number of the next pass that the saver gets */
    int painting;            /* threads that make pictures, or open a model */
    int chosen;              /* index of the model that they use */
    bool on_device;          /* that model is open, on a GPU: two threads may use it */
    pthread_mutex_t opening; /* held while a model is opened or planned with */
    lz_context *ctx;
    lz_model *model;
    int open;      /* index of the model that is open and used; -1: none */
    struct known { /* how many pictures of a size are made together; by the thread that begins a pass */
        int64_t width, height;
        int n_images, layers, preview, most;
        bool guided;
    } known[16];
    int n_known; /* entries ever made for this model */
};

/* worker.c */
void tell(painter *p, json_t *object, const void *bytes, size_t size); /* releases object */
bool open_model(painter *p, int index);
void tell_memory(painter *p); /* tells the front how much memory the model's device uses */
const char *text_of(const json_t *o, const char *key);
int64_t integer_of(const json_t *o, const char *key);

/* sitting.c */
typedef struct memory_need {
    int64_t bytes, have; /* that a picture needs, and that there are; have is 0 if that is unknown */
} memory_need;
memory_need need_of(const painter *p, const lz_picture_plan *plan);
const char *code_of(lz_status status);
bool sitting_failed(sitting *s, const char *code, lz_status status, const char *text);
void sitting_options(sitting *s); /* fills options from the settings */
bool sitting_begin(sitting *s);   /* reads the images and makes the job; false: code and err say why */
bool sitting_plan(sitting *s, lz_picture_plan *plan); /* false: the picture does not fit */
bool sitting_save(sitting *s);
void sitting_answer(sitting *s); /* tells the front how it ended, unless that was told */
void sitting_follow(sitting *s); /* writes the small picture, if the front does not wait for it */
void sitting_end(sitting *s);    /* frees it */

/* pass.c */
pass *pass_new(painter *p, json_t *message);            /* takes the message; NULL: it is none, or there is no memory */
void pass_cancel(pass *c, const char *job, bool waits); /* waits: no thread works on it, so it is answered now */
void pass_watch(pass *c, const lz_progress *now);       /* after each progress of a picture */
void pass_run(painter *p, pass *c);
void pass_enter(painter *p, int model, pass *c); /* waits until pictures of this model may be begun; c: or NULL */
void pass_leave(painter *p);
void *save_passes(void *user);

#endif
