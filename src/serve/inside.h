/* inside.h: what the files of the front share. Everything runs on one thread, so nothing here is locked. */
#ifndef LZ_SERVE_INSIDE_H
#define LZ_SERVE_INSIDE_H

#include <jansson.h>
#include <microhttpd.h>
#include <sys/socket.h>

#include "serve.h"
#include "text.h"

enum { MOST_PICTURES = 10, MOST_LISTED = 200, OWNER = 96, MOST_FIELD = 128 << 10, MOST_UPLOAD = 50 << 20 };
#define MOST_BODIES ((int64_t)256 << 20) /* bytes of request bodies in memory together */

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
typedef enum job_source { FROM_OPENAI, FROM_API, FROM_SDAPI, SOURCES } job_source;
extern const char *const source_names[];

typedef struct picture {
    char id[ID_BYTES], job[ID_BYTES], owner[OWNER];
    int index;
    int64_t seed, width, height, bytes;
    char format[8]; /* png, jpeg, webp */
    double created;
    json_t *facts; /* milliseconds, tokens, prompt_cut; owned */
    bool pinned, removed;
} picture;

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
    const char *repeat;                 /* its Idempotency-Key, while it is admitted; NULL: none */
    double created, started, completed; /* seconds since 1970; 0: not yet */
    double queued_at, painted_at;       /* steady: when it began to wait, and when the picture was begun */
    double looked;                      /* steady: when a front of a fleet last asked for its state */
    int attempts;                       /* of the current picture */
    int priority;
    int rank; /* jobs of the same owner before it, and when the owner was served, as queue.c last counted them */
    uint64_t served;
    bool attended;    /* a client waits for it; without one it is cancelled */
    bool painting;    /* a worker has it */
    bool over;        /* it was cancelled while a worker has it */
    const char *code; /* of the error; NULL if there is none */
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
    char family[40], device[128];
    bool distilled, guidance_built_in, transparent, references, start_images, masks; /* as in lz_model_facts */
    int64_t width, height, token_pixels;
    int steps, least_images, most_images;
    int layers; /* above 0: it makes layers, which are not offered */
    double guidance;
    double pace;  /* seconds for a pixel and step, measured; 0: unknown */
    double guess; /* the same, estimated before the first picture; 0: unknown */
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
    bool secure; /* with TLS, up to this server */
    int refused; /* status of a body that is too large; 0: none */
    int status;
    struct MHD_Response *response; /* set when the answer is known; owned */
    bool cross_origin;             /* other pages may show the answer */
    char ignored[256], note[64];
    job *job; /* it waits for this job, or streams its events; NULL: none */
    request *next_waiting;
    void (*answer)(request *r, job *j); /* makes the answer when the job has ended */
    stream *stream;                     /* owned; or NULL */
    char ask[ID_BYTES];                 /* of a plan that it waits for; or "" */
};

enum { OPEN = 1, FILES = 2, JSON_BODY = 4, FORM_BODY = 8, RAW_BODY = 16, ADMIN = 32, PAGE = 64, EVENTS = 128 };
struct route {
    const char *method, *path; /* path: ends in a * that stands for an id */
    void (*handle)(request *r);
    int flags;         /* such as OPEN */
    const char *after; /* what follows the id, such as "/cancel" */
};
/* NULL: problem says why, 404 or 405. */
const route *find_route(request *r, problem *why);
const route *route_at(int i); /* the table's rows; NULL after the last */

/* answer.c and, of streams, http.c. Each of these sets r->response. */
void set_response(request *r, int status, struct MHD_Response *response); /* takes the response */
void reply_json(request *r, int status, json_t *body);                    /* releases body */
void reply_problem(request *r, const problem *p);
__attribute__((format(printf, 5, 6))) void reply_error(request *r, int status, const char *code, const char *param,
                                                       const char *format, ...);
void reply_bytes(request *r, int status, const char *type, buffer *data); /* takes the data */
/* data: stays as it is for the life of the process. */
void reply_constant(request *r, int status, const char *type, const void *data, size_t size);
/* tag: of a file that never changes, which clients may keep; or NULL. */
void reply_file(request *r, const char *path, const char *type, const char *tag);
void reply_stream(request *r, stream *s); /* takes the stream */
void reply_empty(request *r, int status);
void add_header(request *r, const char *name, const char *value);
const char *header_of(const request *r, const char *name); /* or NULL */
char *query_of(const request *r, const char *name);        /* decoded, owned; NULL: not there, or empty */
void note_ignored(request *r, const char *field);
/* http.c */
void wake(request *r); /* the answer is set, the stream has news, or the client is gone: goes on with the request */
bool http_start(front *f, char *why, size_t size);
/* A new connection; secure: with TLS. */
void http_take(front *f, int socket, const struct sockaddr *address, socklen_t size, bool secure);
bool http_renew(front *f, char *why, size_t size); /* reads the certificate again */
void http_turn(front *f);                          /* does what can be done without waiting */
int http_timeout(front *f);                        /* milliseconds until http_turn must be called; -1: none */
void http_stop(front *f);

/* slow.c */
enum { SECONDS_TO_SEND = 30 };
void slow_connection(void *user, struct MHD_Connection *c, void **mine, enum MHD_ConnectionNotificationCode code);
void slow_request(const request *r, bool begins); /* the head of the request has come, or it has been answered */
void slow_tick(front *f);
int slow_count(const front *f, const char *address); /* connections of an address */

/* listen.c */
typedef struct listener {
    int socket;
    bool loopback;    /* other machines cannot reach it */
    bool secure;      /* with TLS */
    char where[128];  /* as it is said */
    const char *path; /* of a socket that is removed at the end; or NULL */
} listener;
enum { LISTENERS = SERVE_NAMES + MOST_INHERITED };
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

/* ---- streams ----------------------------------------------------------------------------------------------------- */

struct stream {
    stream *next;
    request *request;
    job *job; /* whose events it gets; NULL: all jobs of the owner, or none */
    bool native, ended, with_ids;
    buffer out, preview; /* preview: an event that the next preview replaces if nobody has read it */
    size_t sent;
    double spoke;
    bool pending;                  /* it has news that the client has not been told of */
    double sent_at;                /* steady: when it was told last */
    int partials, passed, partial; /* of OpenAI: previews wanted; those whose step has passed; those sent */
};
stream *stream_new(request *r, job *j, bool native);
void stream_free(front *f, stream *s);
/* An event; releases data. As a preview it replaces an unread one. */
void stream_event(stream *s, const char *type, json_t *data, bool preview);
void stream_end(stream *s);
void streams_tick(front *f);                                               /* a comment every 10 seconds */
void native_event(front *f, const job *j, const char *type, json_t *data); /* to all native streams; releases data */
void native_replay(front *f, stream *s, long long after);                  /* the events after this id that are kept */

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
    int model;   /* that the owner chose by /sdapi; 0: the default */
    int waiting; /* jobs, while queue.c counts them */
} turn;

typedef struct child {
    int pid, socket; /* 0, -1: none */
    buffer in, out;
    bool ready;
    job *job;      /* that it paints; or NULL */
    int loaded;    /* index of the model; -1: none */
    double heard;  /* steady */
    double again;  /* steady: when it is started again */
    int deaths;    /* since it last finished a picture */
    double cancel; /* steady: when a cancel was sent; 0: none */
    double used;   /* steady: when there was work last; 0: never */
    bool asleep;   /* ended because nothing was to do; the next job starts it */
    int wanted;    /* model to load when it is ready; 0: the one that it loads by itself */
    /* Receives each message after child.c, and borrows it. */
    void (*take)(front *f, json_t *message, buffer *bytes);
    void (*lost)(front *f); /* the process has ended */
} child;

typedef struct histogram {
    uint64_t counts[BUCKETS];
    double sum;
    uint64_t n;
} histogram;

typedef struct metrics {
    uint64_t jobs[SOURCES][5]; /* by source and final state */
    uint64_t cancelled[4];     /* by why: client, api, timeout, drain */
    uint64_t requests, codes[6], restarts, steps, loads, pictures;
    histogram queue, stages[4];
} metrics;
enum { BY_CLIENT, BY_API, BY_TIMEOUT, BY_DRAIN };

struct front {
    const serve_options *options;
    store *store;
    crew *crew; /* of a worker of a fleet; NULL in a front */
    guard *guard;
    struct MHD_Daemon *daemons[DAEMONS];
    int epoll, signals;
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
    uint64_t clock;
    int streak; /* pictures in a row with the loaded model, though another was due */
    double streak_since;
    request *requests;
    peer *peers; /* connections, for slow.c */
    stream *streams;
    int n_streams;
    double streams_due; /* steady: when streams_tick must be called */
    kept_event events[KEPT_EVENTS];
    long long last_event;
    int64_t bodies;
    metrics metrics;
    double begun, swept, forgot, drain_until;
    bool draining, paused, ended, no_disk;
    bool no_model; /* the first worker could open none */
    bool woken;    /* a request was resumed, so http_turn must be called */
    char *state;   /* owned path */
    char *spool;   /* owned path of the folder in which the worker writes */
    bool loopback; /* other machines cannot reach any listener */
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
void job_tell_state(front *f, const job *j);
problem job_problem(const job *j); /* of a job that failed or was cancelled */
void job_leave(request *r);        /* the request does not wait for its job any more */
void job_wait(request *r, job *j, void (*answer)(request *, job *));
void job_started(front *f, job *j); /* a worker begins its next picture */
void job_preview(front *f, job *j, const json_t *facts, buffer *image);
void job_progress(front *f, job *j, const json_t *facts);
void job_has_picture(front *f, job *j); /* pictures[made] is made, and is in the store */
void jobs_save(front *f);               /* tries again to store the ends of jobs that could not be stored */
void jobs_sweep(front *f);              /* timeouts, and old files, once a second */
bool jobs_load(front *f);               /* of the time before the last start */
json_t *job_json(front *f, const job *j);
json_t *picture_json(const picture *p);

/* paint.c: the worker of this machine */
enum { MOST_DEATHS = 3 };
void picture_begin(const job *j, picture *p); /* the next picture of the job, without an id */
json_t *paint_message(front *f, const job *j, const picture *p);
void paint_heard(front *f, json_t *message, buffer *bytes);
void paint_lost(front *f);
void paint_tick(front *f);
void paint_pause(front *f, bool paused);

/* queue.c */
job *queue_next(front *f);                      /* or NULL */
int queue_position(front *f, const job *j);     /* from 1; 0: it runs */
int queue_waiting(front *f, const char *owner); /* jobs; NULL: of all */
double queue_seconds(front *f, const job *j);   /* until it is done; below 0: unknown */
double queue_left(front *f, const job *j);      /* the same once its turn has come */
void queue_first(front *f, job *j); /* puts it before the other waiting jobs of its owner, until the server ends */
void queue_learn(front *f, const job *j, double seconds);
void queue_estimate(front *f, int model, int64_t width, int64_t height, int steps, double seconds);
double queue_guess(const front *f, int model, int64_t width, int64_t height, int steps); /* below 0: unknown */

void queue_pause(front *f, bool paused);
/* The same of the jobs in front.jobs, without a fleet. */
int local_waiting(front *f, const char *owner);
int local_position(front *f, const job *j);
double local_seconds_before(front *f, const job *j);

int queue_preferred(front *f, const char *owner); /* the index of the model that the owner chose */
void queue_prefer(front *f, const char *owner, int index);

/* child.c */
void child_tick(front *f);            /* starts it if needed, and ends one that is silent */
bool child_sleep(front *f);           /* ends it until there is work; false: there is work now */
void child_load(front *f, int index); /* starts it if it sleeps, and lets it load this model */
void child_read(front *f);
void child_write(front *f);
bool child_tell(front *f, json_t *message); /* releases message */
void child_end(front *f);
void model_learn(model *m, const json_t *facts);

/* files.c */
bool files_open(front *f, char *why, size_t size);                                         /* and the store */
char *spool_path(const front *f, const char *name, const char *ending);                    /* owned */
char *file_path(const front *f, const char *folder, const char *name, const char *ending); /* owned */
/* Paths of files that are there, unless the far files do not have them; owned. */
char *picture_path(const front *f, const picture *p);
char *thumb_path(const front *f, const picture *p);
char *upload_path(const front *f, const char *id);
/* Moves a finished picture into its place, unless there is one already. */
bool files_take(front *f, const picture *p);
int64_t file_bytes(const front *f, const picture *p); /* 0: it is not there */
void files_remove(front *f, const picture *p);
void files_remove_upload(front *f, const char *id);
void files_clear_spool(const front *f); /* removes what a worker was writing when it was killed */
/* Keeps the image of the field `name`, and writes its id to id. */
bool upload_keep(front *f, const char *name, const void *data, size_t size, char id[65], int64_t *width,
                 int64_t *height, problem *p);
void files_forget(front *f); /* removes copies of far files that are older than a day */
bool disk_is_full(front *f);
char *file_text(const char *path, char *why, size_t size); /* a small text file, owned; NULL: why says why */
const char *format_type(const char *format);               /* "image/png" */
const char *format_ending(const char *format);             /* ".png" */

/* fields.c */
json_t *body_json(request *r);            /* the body, an object; NULL: the answer is set */
bool asked_limit(request *r, int *limit); /* of a list, 1 to MOST_LISTED; false: the answer is set */

/* wanted.c: a job's settings from fields */
json_t *wanted_openai(request *r, json_t *fields, bool edit, problem *p); /* releases fields; NULL: p says why */
json_t *wanted_native(request *r, json_t *fields, problem *p);
json_t *wanted_sdapi(request *r, json_t *fields, bool from_image, problem *p);
int wanted_model(front *f, const char *name, bool edit); /* index; -1: there is none */

/* Handlers of routes */
void handle_models(request *r);
void handle_model(request *r);
void handle_generations(request *r);
void handle_edits(request *r);
void handle_variations(request *r);
void handle_about(request *r);
void handle_openapi(request *r);
void handle_jobs_new(request *r);
void handle_jobs_list(request *r);
void handle_jobs_clear(request *r);
void handle_job(request *r);
void handle_job_cancel(request *r);
void handle_job_retry(request *r);
void handle_job_first(request *r);
void handle_job_events(request *r);
void handle_events(request *r);
void handle_plan(request *r);
void handle_upload(request *r);
void handle_pictures(request *r);
void handle_picture(request *r);
void handle_picture_file(request *r);
void handle_picture_thumb(request *r);
void handle_picture_change(request *r);
void handle_picture_delete(request *r);
void handle_session_new(request *r);
void handle_session_end(request *r);
void handle_model_load(request *r);
void handle_model_unload(request *r);
void handle_pause(request *r);
void handle_resume(request *r);
void handle_health(request *r);
void handle_ready(request *r);
void handle_metrics(request *r);
void handle_page(request *r);
void handle_page_file(request *r);
void handle_file(request *r);
void handle_txt2img(request *r);
void handle_img2img(request *r);
void handle_sd_progress(request *r);
void handle_sd_interrupt(request *r);
void handle_sd_options(request *r);
void handle_sd_options_set(request *r);
void handle_sd_models(request *r);
void handle_sd_list(request *r);
void handle_sd_png_info(request *r);
void handle_sd_ping(request *r);
bool picture_base64(front *f, buffer *to, const picture *p); /* adds the file of a picture */
void plan_arrived(front *f, const char *ask, json_t *plan);  /* takes plan */
void openai_preview(stream *s, const job *j, const json_t *facts, const buffer *image);
void openai_picture(stream *s, const job *j, const picture *p);
void openai_ended(stream *s, const job *j);
bool reply_is_ready(front *f, const char **status);

/* log.c */
void say_line(const front *f, const char *format, ...) __attribute__((format(printf, 2, 3)));
void log_request(const request *r); /* that has been answered */
void log_prompt(const front *f, const job *j);

#endif
