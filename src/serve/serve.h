/* serve.h: pictures over HTTP, for the command line. docs/server.md is the manual.
 *
 *   front.c      the event loop: HTTP, the worker, signals, timers        http.c      requests and answers, on libmicrohttpd
 *   route.c      the table of paths                                       guard.c     Host, Origin, keys, sessions
 *   openai.c     /v1: requests to jobs, jobs to answers                   native.c    /api/v1
 *   fields.c     fields of a request, checked                             wanted.c    the settings of a job
 *   jobs.c       a job from its request to its end                        queue.c     the order of jobs
 *   store.c      where jobs and pictures are kept: two kinds              files.c     pictures and uploads on the disk
 *   sqlite.c     one kind: SQLite, and a worker of this machine           paint.c     the jobs of that worker
 *   seats.c      the pictures that a worker has                           recode.c    pictures in another format
 *   fleet/       the other: Redis, and workers on any machine
 *   sse.c        streams of events                                        health.c    /healthz, /readyz, /metrics
 *   child.c      starting and watching the worker                         worker.c    the worker process
 *   sitting.c    one picture in the worker                                pass.c      pictures that the worker makes together
 *   wire.c       messages between both                                    describe.c  the texts in a picture
 *   text.c       bytes, base64, ids                                       multipart.c forms with files
 *   measure.c    the size of an image from its header                     images.c    the images of a request
 *   sdapi.c      /sdapi/v1, as AUTOMATIC1111                              gallery.c   /api/v1, pictures
 *   problem.c    errors as clients see them                               pnginfo.c   the settings in a picture
 *   slow.c       connections that take too long                           listen.c    addresses, and accepting connections
 *   log.c        lines on stderr                                          confine.c   where a worker may write
 *   answer.c     answers: JSON, errors, files                             openapi.c   /api/v1/openapi.json
 *   page.c       the page for browsers                                    flush.c     commits to the disk
 *   strict.c     heads of requests that are not what they seem            plan.c      plans, and admission by them
 *   models.c     the models that are offered, and loading them            repeat.c    requests that come again
 *
 * The front is one thread in one process, with a second thread that waits for the disk (flush.c). It never opens a
 * model: the worker does, in a process of its own, so that a failure of a model or a device costs one attempt at one
 * picture. */
#ifndef LZ_SERVE_H
#define LZ_SERVE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define LZ_NO_SUGAR
#include "lazuli.h"

enum { PIN_STEPS = 1, PIN_GUIDANCE = 2, PIN_SIZE = 4, PIN_AUTO = 8 /* as the model says, on /sdapi */ };
/* Values of OpenAI's field quality. */
enum { QUALITIES = 8 };
extern const char *const quality_names[QUALITIES];
enum { SERVE_MODELS = 16, SERVE_NAMES = 16, FIRST_INHERITED = 3, MOST_INHERITED = 8 };

typedef enum far_result {
    FAR_HERE,
    FAR_NONE,
    FAR_AWAY
} far_result; /* NONE: no such file; AWAY: it cannot be read now */

/* Where a fleet keeps its files, if it has no shared folder. A name is such as "pictures/pic_ab.png". The state folder then
 * holds copies. */
typedef struct far_files {
    void *user;
    /* Stores the file at the path under the name. true: the name is there now, or was there before. */
    bool (*put)(void *user, const char *name, const char *path);
    far_result (*get)(void *user, const char *name, const char *path); /* writes the file at the path */
    void (*remove)(void *user, const char *name);
    /* From now on tick is called about once a second while one of the functions above waits; NULL: nothing is called. */
    void (*watch)(void *user, void (*tick)(void *with), void *with);
} far_files;

typedef struct serve_options {
    const char *models[SERVE_MODELS]; /* ids, as clients name them; the first is the default */
    int n_models;
    const char *listen[SERVE_NAMES + 1]; /* ADDRESS:PORT, [ADDRESS]:PORT or unix:PATH; ended by NULL */
    const char *metrics; /* ADDRESS:PORT or unix:PATH for /metrics and health checks, without keys; or NULL */
    int inherited;       /* sockets that listen already, from descriptor FIRST_INHERITED on */
    const char *state;   /* folder for jobs, pictures and uploads; made if it does not exist */
    const char *key_file, *public_url; /* or NULL */
    const char *keys;                  /* lines as in key_file; or NULL */
    const char *cert, *cert_key;       /* files in PEM, for TLS on all addresses but unix:PATH; or NULL */
    bool no_auth;
    const char *hosts[SERVE_NAMES + 1], *origins[SERVE_NAMES + 1]; /* ended by NULL */
    int64_t queue, queue_per_key;                                  /* jobs that may wait */
    int64_t max_pixels, max_input_pixels, max_body;
    double queue_timeout, drain_timeout; /* seconds */
    double idle_unload;                  /* seconds without work after which the worker ends; 0: never */
    int64_t
        keep_days; /* pictures that are older are removed, unless they are pinned; 0: as soon as they are delivered */
    int64_t keep_bytes; /* above it the oldest pictures are removed, unless they are pinned; 0: no limit */
    bool quiet;         /* no line for each request */
    bool log_json, log_prompts;
    bool strict;                  /* unknown fields and names of other models are errors */
    int quality_steps[QUALITIES]; /* steps for a value of OpenAI's field quality, by quality_names; 0: the model's */
    unsigned pinned;              /* settings of clients that are ignored, PIN_... */
    const char *previews;         /* of OpenAI's streams and /sdapi: small, full or off */
    const char *cache;            /* folder for compiled kernels, which a worker may write to; or NULL */
    const char *store;            /* redis://... of a fleet; NULL: SQLite in the state folder */
    const char *store_password, *fleet; /* of Redis, or NULL; the name of the fleet */
    const far_files *far_files;         /* or NULL: the state folder is shared */
    char *const *worker;                /* program and arguments of a worker; its socket is file descriptor 3 */
} serve_options;
/* Serves until a signal ends it. Returns 0 after a drain; otherwise 1, and why has a sentence. */
int serve_run(const serve_options *options, char *why, size_t size);

/* Takes jobs of a fleet, and makes them, until a signal ends it. Of the options it uses models, state, drain_timeout,
 * worker, store, store_password and fleet. Returns 0 after a drain; otherwise 1, and why has a sentence. */
int fleet_worker_run(const serve_options *options, char *why, size_t size);

/* The options of the command line that a worker uses. */
typedef struct worker_engine {
    void *user;
    int n_models;
    /* Makes a model the one that is used: opens it, unless it is open, and may close others. false: it could not be opened,
     * and stderr has the reason. */
    bool (*open)(void *user, int index, lz_context **ctx, lz_model **model);
    bool (*find)(void *user, int index, lz_context **ctx, lz_model **model); /* false: the model is not open */
    /* The number of tokens of a text, for the model that is used; 0: unknown. */
    int64_t (*count_tokens)(void *user, const char *text);
    /* The model and the device as pictures record them, valid until the next open; device may be "". */
    const char *(*model_name)(void *user);
    const char *(*device)(void *user);
    const char *(*sampler_title)(const char *sampler);        /* its name in other programs */
    int64_t (*memory)(void *user);                            /* bytes of the device, or of this machine; 0: unknown */
    int (*together)(void *user, const lz_picture_plan *plan); /* pictures of this plan; NULL: the most of any plan */
    /* Seconds that a planned picture of this size may take, measured with a few products; 0: unknown. */
    double (*seconds)(void *user, const lz_picture_plan *plan, int64_t width, int64_t height);
} worker_engine;
enum { WORKER_SOCKET = 3 };
/* Paints until the front closes the socket. Returns an exit code. */
int worker_run(int socket, const worker_engine *engine);

#endif
