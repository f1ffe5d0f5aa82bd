/* inside.h: what the files of the front share. Everything runs on one thread, so nothing here is locked. */
#ifndef LZ_SERVE_INSIDE_H
#define LZ_SERVE_INSIDE_H

#include <jansson.h>
#include <microhttpd.h>
#include <sys/socket.h>

#include "serve.h"
#include "text.h"

enum { MOST_PICTURES = 10, MOST_LISTED = 200, OWNER = 96, MOST_FIELD = 128 << 10, MOST_UPLOAD = 50 << 20 };
enum { MOST_SMALL = 64 << 10, MOST_OPEN = 4 << 10 }; /* bytes of a body without images; of one that needs no key */
#define MOST_BODIES ((int64_t)256 << 20)             /* bytes of request bodies in memory together */

#define MOST_UPLOADS ((int64_t)4 << 30)   /* bytes of images that clients have sent; the oldest are removed first */
#define MOST_ANSWERS ((int64_t)512 << 20) /* bytes of answers, until their clients have got them */

typedef struct front front;
typedef struct request request;
typedef struct stream stream;
typedef struct peer peer;
typedef struct store store;
typedef struct guard guard;
typedef struct crew crew;

/* ---- errors ------------------------------------------------------------------------------------------------------ */

/* Why a request or a job failed; section "Errors" of docs/server.md lists the codes. */
typedef struct problem {
    int status; /* of HTTP; 0: no problem */
    const char *code;
    char param[48]; /* the field; "" if none */
    char text[400];
} problem;
/* Fills the problem and returns false. */
__attribute__((format(printf, 5, 6))) bool set_problem(problem *p, int status, const char *code, const char *param,
                                                       const char *format, ...);
json_t *problem_json(const problem *p);      /* {"error": {...}} */
json_t *problem_detail(const problem *p);    /* the same as clients of AUTOMATIC1111 expect it */
int problem_status(const char *code);        /* the status of HTTP that belongs to a code */
bool may_help_again(const char *code);       /* another try may succeed */
const char *constant_code(const char *code); /* the same text as a constant; "generation_failed" if it is unknown */

/* ---- jobs -------------------------------------------------------------------------------------------------------- */

typedef enum job_state { QUEUED, RUNNING, COMPLETED, FAILED_JOB, CANCELLED } job_state;
extern const char *const state_names[];
typedef enum job_source { FROM_OPENAI, FROM_API, FROM_SDAPI, FROM_PAGE, SOURCES } job_source;
extern const char *const source_names[];

typedef struct picture {
    char id[ID_BYTES], job[ID_BYTES], owner[OWNER];
    int index;
    int64_t seed, width, height, bytes;
    char format[8]; /* png, jpeg, webp */
    double created;
    json_t *facts; /* milliseconds, tokens, prompt_cut; owned */
    bool pinned, removed;
    int rating; /* 1 to BEST_RATING; 0: none */
} picture;
enum { BEST_RATING = 5, ENTRY = 64 };

typedef struct job {
    struct job *next;
    char id[ID_BYTES], owner[OWNER], body[65]; /* body: hash of the request */
    job_source source;
    job_state state;
    int model;        /* index; -1: it is not offered any more */
    json_t *settings; /* what was asked, checked; owned */
    int n;            /* pictures wanted */
    int64_t seeds[MOST_PICTURES];
    picture pictures[MOST_PICTURES];
    int made;
    int given;                          /* pictures that are made, or that the worker of this machine has */
    int seats;                          /* pictures that it has */
    const char *repeat;                 /* its Idempotency-Key, while it is admitted; NULL: none */
    double created, started, completed; /* seconds since 1970; 0: not yet */
    double queued_at, painted_at;       /* steady: when it began to wait, and when the picture was begun */
    double looked;                      /* steady: when a front of a fleet last asked for its state */
    int attempts;                       /* of the current picture */
    int priority;
    int rank,
        place; /* as queue.c last counted them: jobs of the same owner before it; the place of the owner's oldest */
    uint64_t served;   /* and when the owner was served */
    bool attended;     /* a client waits for it; without one it is cancelled */
    bool painting;     /* a worker makes a picture of it */
    bool over;         /* it has ended while the worker of this machine has a picture of it, which frees it */
    char kind[65];     /* in a fleet: see queue_kind */
    char entry[ENTRY]; /* in a worker of a fleet: its ticket */
    int told;          /* in a worker of a fleet: pictures that Redis knows of */
    const char *code;  /* of the error; NULL if there is none */
    char message[400];
    /* progress of the current picture */
    char stage[16];
    int step, steps;
    double done;
    buffer preview;   /* the last one, for /sdapi */
    request *waiting; /* requests that are answered when the job ends */
} job;

typedef struct model {
    const char *id;
    bool known, unusable; /* facts are filled; it could not be opened */
    double failed;        /* steady: when it could not be opened */
    bool loaded;          /* the worker of this server has it open */
    bool loading, wanted; /* the worker was told to load it; it will be told so when it is ready */
    char family[40], device[128];
    bool distilled, guidance_built_in, transparent, references, start_images, masks; /* as in lz_model_facts */
    int64_t width, height, token_pixels;
    int64_t sizes[16][2]; /* that it was trained for */
    int n_sizes;          /* 0: any */
    int steps, least_images, most_images;
    int layers;   /* above 0: it takes an image apart into layers, by default so many */
    int together; /* pictures that a worker makes in the same passes, at most */
    double guidance;
    double pace;    /* seconds for a pixel and step, measured; 0: unknown */
    double guess;   /* the same, estimated before the first picture; 0: unknown */
    double learned; /* pixels times steps of the pictures that pace comes from, a moving average; 0: none */
    bool measured;  /* pace comes from pictures, and not from an estimate */
} model;

/* ---- requests ---------------------------------------------------------------------------------------------------- */

typedef struct identity {
    char owner[OWNER]; /* "key:NAME" or "address:ADDRESS" */
    bool by_key, admin;
} identity;

typedef struct route route;
struct request {
    front *front;
    request *next, *before; /* all requests */
    struct MHD_Connection *connection;
    int socket;
    char id[72], method[24], *path, address[64], local[64]; /* local: our address, as in Host */
    int port;                                               /* ours; 0: a socket in a folder */
    const route *route;
    char item[65]; /* the part of the path that names an object */
    identity who;
    buffer body;
    int64_t counted, received; /* bytes of the body: in front.bodies, and in all */
    double begun;
    bool called, suspended, gone, is_http_1_1;
    bool secure;       /* with TLS, up to this server */
    bool metrics;      /* it came by --metrics-listen */
    int64_t most_body; /* bytes that the body may have */
    int refused;       /* status of a body that is too large; 0: none */
    int status;
    struct MHD_Response *response; /* set when the answer is known; owned */
    int64_t answer_bytes;          /* of it that are in memory until the request ends */
    bool cross_origin;             /* other pages may show the answer */
    char ignored[256], note[64];
    job *job; /* it waits for this job, or streams its events; NULL: none */
    request *next_waiting;
    double waited, ran;                       /* seconds of its job */
    const char *outcome;                      /* of its job, for the log; NULL: it had none, or left it */
    void (*answer)(request *r, job *j);       /* makes the answer when the job has ended */
    stream *stream;                           /* owned; or NULL */
    char ask[ID_BYTES];                       /* of a plan that it waits for; or "" */
    json_t *settings;                         /* of a job that waits for admission, owned; or NULL */
    void (*go)(request *r, json_t *settings); /* queues that job, and takes the settings; NULL: none waits */
    double asked;                             /* steady: when its plan was asked for */
    char plan_key[65], hash[65];              /* of the plan; of the body */
    int loading;                              /* 1 + the index of a model that is loaded before the answer is sent */
    uint64_t commits;                         /* that must be on the disk before the answer is sent */
    bool held;                                /* the answer waits for that */
};

enum {
    OPEN = 1,
    FILES = 2,
    JSON_BODY = 4,
    FORM_BODY = 8,
    RAW_BODY = 16,
    ADMIN = 32,
    PAGE = 64,
    EVENTS = 128,
    HEALTH = 256,
    SAME_SITE = 512,  /* not for pages of other sites, though it is OPEN */
    SMALL_BODY = 1024 /* the body has a few fields, and no image */
};
struct route {
    const char *method, *path; /* path: ends in a * that stands for an id */
    void (*handle)(request *r);
    int flags;         /* such as OPEN */
    const char *after; /* what follows the id, such as "/cancel" */
};
/* NULL: problem says why, 404 or 405. */
const route *find_route(request *r, problem *why);
enum { ROUTES = 64 };             /* rows of the table, at most */
const route *route_at(int i);     /* the table's rows; NULL after the last */
int route_number(const route *t); /* its row; ROUTES for NULL */

/* answer.c and, of streams, http.c. Each of these sets r->response. */
void set_response(request *r, int status, struct MHD_Response *response); /* takes the response */
void reply_json(request *r, int status, json_t *body);                    /* releases body */
void reply_problem(request *r, const problem *p);
__attribute__((format(printf, 5, 6))) void reply_error(request *r, int status, const char *code, const char *param,
                                                       const char *format, ...);
void reply_bytes(request *r, int status, const char *type, buffer *data); /* takes the data */
/* Is there memory for an answer of so many bytes beside those that are being sent? One that is alone always has it. */
bool answers_have_room(const front *f, int64_t bytes);
bool pictures_have_room(request *r,
                        const job *j); /* the same of the job's pictures in base64; false: the answer is set */
/* data: stays as it is for the life of the process. */
void reply_constant(request *r, int status, const char *type, const void *data, size_t size);
/* path: NULL if the file cannot be reached now. tag: of a file that never changes, which clients may keep; or NULL. */
void reply_file(request *r, const char *path, const char *type, const char *tag);
void reply_missing(request *r, const char *path); /* the file of a picture is not there; path: as of reply_file */
void reply_stream(request *r, stream *s);         /* takes the stream */
void reply_empty(request *r, int status);
void add_header(request *r, const char *name, const char *value);
const char *header_of(const request *r, const char *name); /* or NULL */
char *query_of(const request *r, const char *name);        /* decoded, owned; NULL: not there, or empty */
void note_ignored(request *r, const char *field);
/* Where clients connect; listen.c. */
typedef struct listener {
    int socket;
    bool loopback;    /* other machines cannot reach it */
    bool secure;      /* with TLS */
    bool metrics;     /* answers GET /metrics and health checks only, without keys */
    char where[128];  /* as it is said */
    const char *path; /* of a socket that is removed at the end; or NULL */
} listener;
/* http.c */
void wake(request *r); /* the answer is set, the stream has news, or the client is gone: goes on with the request */
void http_flushed(front *f); /* commits are on the disk: sends the answers that waited for them */
bool http_start(front *f, char *why, size_t size);
/* A new connection. */
void http_take(front *f, int socket, const struct sockaddr *address, socklen_t size, const listener *from);
bool http_renew(front *f, char *why, size_t size); /* reads the certificate again */
void http_turn(front *f);                          /* does what can be done without waiting */
int http_timeout(front *f);                        /* milliseconds until http_turn must be called; -1: none */
void http_stop(front *f);

/* slow.c */
enum { SECONDS_TO_SEND = 30 };
void slow_connection(void *user, struct MHD_Connection *c, void **mine, enum MHD_ConnectionNotificationCode code);
void slow_request(request *r, bool begins); /* the head of the request has come, or it has been answered */
void slow_tick(front *f);
int slow_count(const front *f, const char *address); /* connections of an address */

/* listen.c */
enum { LISTENERS = SERVE_NAMES + MOST_INHERITED + 1 };
bool listen_open(front *f, char *why, size_t size);
bool listen_start(front *f); /* from now on clients are accepted */
void listen_stop(front *f);
void listen_accept(front *f, const listener *l);
void listen_tick(front *f);
bool listen_is_ours(const front *f, const void *what); /* is it a listener of the front? */
bool listen_is_crowded(const front *f);                /* only health checks are answered */
/* The address as text, in brackets if it is one of IPv6 and they are wanted; "" for a socket in a folder. */
void address_text(const struct sockaddr_storage *from, bool brackets, char to[64]);
int address_port(const struct sockaddr_storage *from);

/* ---- the front --------------------------------------------------------------------------------------------------- */

typedef struct kept_event {
    long long id;
    char owner[OWNER], job[ID_BYTES];
    char *text; /* owned */
} kept_event;
enum { KEPT_EVENTS = 100, OWNERS = 256, BUCKETS = 10 };

/* Daemons of libmicrohttpd: without TLS, with it, and with earlier certificates, whose connections are still open. */
enum { PLAIN, SECURE, DAEMONS = 5 };

typedef struct turn { /* when an owner was served last */
    char owner[OWNER];
    uint64_t served;
    int model;   /* 1 + the index of the model that the owner chose by /sdapi; 0: front.preferred */
    int waiting; /* jobs, while queue.c counts them */
    int place;   /* of its oldest job, likewise */
} turn;

typedef struct seat { /* a picture that the worker has */
    job *job;
    int index;     /* of the picture */
    bool begun;    /* it is being made, or written */
    int pass;      /* child.pass of the pass that makes it */
    double cancel; /* steady: when the worker was told that it is not wanted; 0: it is wanted */
} seat;
/* The worker writes the pictures of a pass, has made those of the next, makes those of a third and has a fourth. */
enum { MOST_SEATS = 4 * LZ_MAX_TOGETHER };

typedef struct child {
    int pid, socket; /* 0, -1: none */
    buffer in, out;
    bool ready;
    bool free;              /* it waits for pictures to make */
    seat seats[MOST_SEATS]; /* in the order in which they were given */
    int n_seats;
    int thumbs;    /* small pictures that it writes, of pictures that are done */
    int pass;      /* number of the last pass that it began; pictures of earlier ones may still be written */
    double begun;  /* steady: when it began that pass */
    double share;  /* of that pass that is done; 0: not known */
    int loaded;    /* index of the model that it uses; -1: none */
    double heard;  /* steady */
    double again;  /* steady: when it is started again */
    int deaths;    /* since it last finished a picture */
    double cancel; /* steady: when the oldest cancel was sent that it has not answered; 0: none */
    double used;   /* steady: when there was work last; 0: never */
    bool asleep;   /* ended because nothing was to do; the next job starts it */
    bool sleepy;   /* to be ended when the small pictures are written, unless a job comes before */
    /* Bytes of the device that makes the pictures: of all, of arrays, kept for reuse, and the most of both; 0: unknown. */
    int64_t memory_total, memory_active, memory_cached, memory_peak;
    double looked; /* steady: when requests that wait for a model were looked at last */
    /* Receives each message after child.c, and borrows it. */
    void (*take)(front *f, json_t *message, buffer *bytes);
    void (*lost)(front *f);                 /* the process has ended */
    void (*name)(const job *j, picture *p); /* gives a picture its id */
} child;

typedef struct histogram {
    uint64_t counts[BUCKETS];
    double sum;
    uint64_t n;
} histogram;

typedef struct metrics {
    uint64_t jobs[SOURCES][5];        /* by source and final state */
    uint64_t cancelled[4];            /* by why: client, api, timeout, drain */
    uint64_t requests[ROUTES + 1][6]; /* by the row of route.c (the last: none), and the first digit of the status */
    uint64_t restarts, steps, loads, pictures[SERVE_MODELS];
    histogram queue, stages[4], together;
} metrics;
enum { BY_CLIENT, BY_API, BY_TIMEOUT, BY_DRAIN };

typedef struct planned { /* the memory of a picture, as the worker planned it; see plan.c */
    char key[65];
    int64_t needed, available;
} planned;
enum { PLANS = 64 };

struct front {
    const serve_options *options;
    store *store;
    crew *crew; /* of a worker of a fleet; NULL in a front */
    guard *guard;
    struct MHD_Daemon *daemons[DAEMONS];
    int epoll, signals;
    int flushed; /* descriptor that can be read when commits have been flushed to the disk; 0: none */
    listener listeners[LISTENERS];
    int n_listeners, n_connections, most_connections;
    double deaf_until; /* steady: accepts nothing until then; 0: accepts */
    model models[SERVE_MODELS];
    int n_models;
    child child;
    job *jobs, **jobs_end; /* that wait or run, the oldest first */
    job *unsaved;          /* copies of jobs that have ended, whose end is not stored yet; owned */
    double saved;          /* steady: when that was tried last */
    turn turns[OWNERS];
    int preferred; /* the model of /sdapi, unless an owner has chosen another */
    uint64_t clock;
    int streak; /* pictures in a row with the loaded model, though another was due */
    double streak_since;
    request *requests;
    peer *peers;              /* connections, for slow.c */
    const listener *accepted; /* that the connection comes from which is being added */
    stream *streams;
    int n_streams;
    size_t unread;      /* bytes of native streams that their clients have not read */
    double streams_due; /* steady: when streams_tick must be called */
    kept_event events[KEPT_EVENTS];
    long long last_event;
    int64_t bodies;
    metrics metrics;
    planned plans[PLANS];
    unsigned next_plan;
    double plans_due; /* steady: when plans_tick must be called; 0: not */
    double begun, swept, forgot, drain_until;
    bool draining, paused, ended, no_disk;
    bool told_paused; /* what streams were told of paused last */
    bool no_model;    /* the first worker could open none */
    bool broken;      /* the disk does not keep what is written */
    bool woken;       /* a request was resumed, so http_turn must be called */
    void *checked;    /* DIR of files_check, and the number of its folder; or NULL */
    int checked_folder;
    int64_t upload_bytes; /* of the files of uploads */
    char *state;          /* owned path */
    char *spool;          /* owned path of the folder in which the worker writes */
    bool loopback;        /* other machines cannot reach any listener */
};

/* jobs.c */
job *job_new(front *f, const identity *who, job_source source, json_t *settings); /* takes settings; NULL: no memory */
bool job_admit(front *f, job *j, const request *r, problem *p);                   /* stores and queues it */
void job_free(job *j);
job *job_find(front *f, const char *id); /* among those that wait or run */
/* Cancels it. why: BY_... */
void job_cancel(front *f, job *j, int why, const char *code, const char *message);
void job_fail(front *f, job *j, const char *code, const char *message);
void job_end(front *f, job *j, job_state state, const char *code, const char *message);
/* The same for a job whose end is in the store already. */
void job_ended(front *f, job *j, job_state state, const char *code, const char *message);
void job_append(front *f, job *j); /* to front.jobs */
void job_unlink(front *f, job *j); /* from front.jobs, if it is there */
void job_tell_state(front *f, const job *j);
bool job_is_native(const job *j);            /* it came by /api/v1 */
int job_steps(const front *f, const job *j); /* of a picture; 0: not known yet */
problem job_problem(const job *j);           /* of a job that failed or was cancelled */
void job_leave(request *r);                  /* the request does not wait for its job any more */
void job_wait(request *r, job *j, void (*answer)(request *, job *));
void job_started(front *f, job *j); /* a worker begins its next picture */
void job_preview(front *f, job *j, const json_t *facts, buffer *image);
void job_progress(front *f, job *j, const json_t *facts);
/* pictures[made] is made, which took so many seconds, and is in the store */
void job_has_picture(front *f, job *j, double seconds);
void pictures_counted(front *f, int together);   /* a pass of so many pictures has begun */
void jobs_save(front *f);                        /* tries again to store the ends of jobs that could not be stored */
bool uploads_have_room(front *f, int64_t bytes); /* removes old uploads if there is none for so many bytes more */
void jobs_sweep(front *f);                       /* timeouts, and old files, once a second */
bool jobs_load(front *f);                        /* of the time before the last start */
json_t *job_json(front *f, const job *j);
json_t *picture_json(const picture *p);

/* seats.c: the pictures that the worker of this machine has */
enum { MOST_DEATHS = 3 };
/* Gives it the next picture of the job, and those of front.jobs that may be made together with it. false: out of memory. */
bool seats_give(front *f, job *first);
seat *seat_find(front *f, const char *id, int index); /* of the job with this id (or NULL); NULL: there is none */
/* The worker has answered, and the seat is gone. Returns false if the job had ended before; it is freed with its last
 * seat. */
bool seat_take_back(front *f, seat *s);
/* The worker has not made the picture. Returns the job if it has failed by that; NULL: it is over, or is made again. */
job *seat_refused(front *f, seat *s, const char *code);
/* Takes the pictures of the job back from a worker that has ended. Returns whether one of them was begun. */
bool seats_lose(front *f, job *j);
void seats_cancel(front *f, job *j); /* tells the worker that the job is not wanted */
void seat_clear(front *f, const job *j,
                int index); /* removes what was written of a picture that will not be finished */

/* paint.c: the worker of a server without a fleet */
void paint_name(const job *j, picture *p); /* as child.name */
void paint_heard(front *f, json_t *message, buffer *bytes);
void paint_lost(front *f);
void paint_stop(front *f); /* the server ends: pictures that are not made are begun anew after the next start */
void paint_tick(front *f);
void paint_pause(front *f, bool paused);

/* queue.c */
job *queue_next(front *f);                   /* or NULL */
job *queue_join(front *f, const job *first); /* one whose next picture may be made together with first; or NULL */
/* A hash of size, steps and the like, which is the same for pictures that may be made together. */
void queue_kind(const front *f, const job *j, char to[65]);
int queue_position(front *f, const job *j);     /* from 1; 0: it runs */
int queue_waiting(front *f, const char *owner); /* jobs; NULL: of all */
double queue_seconds(front *f, const job *j);   /* until it is done; below 0: unknown */
double queue_told(front *f, const job *j);      /* the same for clients: unknown while the queue is stopped */
double queue_left(front *f, const job *j);      /* the same once its turn has come */
void queue_first(front *f, job *j); /* puts it before the other waiting jobs of its owner, until the server ends */
void queue_progress(front *f, const seat *s, const json_t *facts); /* the worker told the progress of a picture */
void queue_learn(front *f, const job *j, double seconds);
void queue_estimate(front *f, int model, int64_t width, int64_t height, int steps, double seconds);
double queue_guess(const front *f, int model, int64_t width, int64_t height, int steps); /* below 0: unknown */

void queue_pause(front *f, bool paused);
/* The same of the jobs in front.jobs, without a fleet. */
int local_waiting(front *f, const char *owner);
int local_position(front *f, const job *j);
double local_seconds_before(front *f, const job *j);

int queue_preferred(front *f, const char *owner);          /* the index of the model that the owner chose */
void queue_prefer(front *f, const char *owner, int index); /* owner: NULL for all */

/* child.c */
void child_tick(front *f);            /* starts it if needed, and ends one that is silent */
bool child_sleep(front *f);           /* ends it until there is work; false: there is work now */
void child_load(front *f, int index); /* starts it if it sleeps, and lets it load this model */
void child_read(front *f);
void child_write(front *f);
bool child_tell(front *f, json_t *message); /* releases message */
void child_end(front *f);
void model_learn(model *m, const json_t *facts);
bool model_is_loaded(const front *f, int index); /* a worker has it open */
/* It could not be opened a short time ago. Later it is tried again. */
bool model_is_unusable(const front *f, int index);

/* files.c */
bool files_open(front *f, char *why, size_t size);                                         /* and the store */
char *spool_path(const front *f, const char *name, const char *ending);                    /* owned */
char *file_path(const front *f, const char *folder, const char *name, const char *ending); /* owned */
/* Paths of files that are there, unless the far files do not have them; owned. NULL: the far files cannot be reached. */
char *picture_path(const front *f, const picture *p);
char *thumb_path(const front *f, const picture *p);
char *upload_path(const front *f, const char *id);
/* Moves a finished picture, or its small one, into its place, unless there is one already. */
bool files_take(front *f, const picture *p);
bool files_take_thumb(front *f, const picture *p);
int64_t file_bytes(const front *f, const picture *p); /* 0: it is not there */
void files_remove(front *f, const picture *p);
void files_remove_upload(front *f, const char *id);
void files_clear_spool(const front *f); /* removes what a worker was writing when it was killed */
/* Keeps the image of the field `name`, and writes its id to id. */
bool upload_keep(front *f, const char *name, const void *data, size_t size, char id[65], int64_t *width,
                 int64_t *height, problem *p);
void files_forget(front *f); /* removes copies of far files that are older than a day */
void files_check(front *f);  /* looks at a few files, and removes those that are older than a day and have no row */
void files_check_end(front *f);
bool disk_is_full(front *f);
char *file_text(const char *path, char *why, size_t size); /* a small text file, owned; NULL: why says why */
const char *format_type(const char *format);               /* "image/png" */
const char *format_ending(const char *format);             /* ".png" */

/* fields.c */
json_t *body_json(request *r);            /* the body, an object; NULL: the answer is set */
bool asked_limit(request *r, int *limit); /* of a list, 1 to MOST_LISTED; false: the answer is set */

/* plan.c. Calls go, at once or later, if the picture fits into memory or nobody can tell; else answers the request. Takes
 * settings. */
void admit(request *r, json_t *settings, void (*go)(request *r, json_t *settings));
void plans_tick(front *f);

/* wanted.c: a job's settings from fields */
json_t *wanted_openai(request *r, json_t *fields, bool edit, problem *p); /* releases fields; NULL: p says why */
json_t *wanted_native(request *r, json_t *fields, problem *p);
json_t *wanted_sdapi(request *r, json_t *fields, bool from_image, problem *p);

/* models.c */
int wanted_model(front *f, const char *name, bool edit);         /* index; -1: there is none */
bool set_no_model(const front *f, const char *name, problem *p); /* returns false */
/* Answers the requests whose model has been loaded, or cannot be, or that have waited too long. lost: the worker has ended. */
void models_answer(front *f, bool lost);

bool picture_base64(front *f, buffer *to, const picture *p); /* adds the file of a picture */
bool asked_picture(request *r, picture *p);                  /* that the path names; false: the answer is set */
bool plan_may_ask(const front *f); /* a worker that is busy or stopped gets no further questions */
/* Asks the worker something; r->ask becomes the name of the question. Takes the question. false: it cannot be asked. */
bool plan_ask(request *r, json_t *question);
void recode_arrived(front *f, const json_t *message, buffer *bytes);
void plan_forget(request *r);                               /* nobody waits for its plan any more */
void plan_arrived(front *f, const char *ask, json_t *plan); /* takes plan */
bool reply_is_ready(front *f, const char **status);

/* log.c */
void say_line(const front *f, const char *format, ...) __attribute__((format(printf, 2, 3)));
void log_request(const request *r); /* that has been answered */
void log_prompt(const front *f, const job *j);

#endif
