/* fleet.h: what the files of this folder share. docs/fleet.md describes a fleet.
 *
 *   redis.c    connections                         scripts.c  what is changed in Redis, each as a whole
 *   records.c  jobs and pictures                   uploads.c  uploads, and addresses of pictures
 *   front.c    what a front notices of jobs that workers make
 *   worker.c   `lazuli worker`: gives pictures to a worker process of this machine, and tells Redis of them
 *   tickets.c  how a worker gets a job */
#ifndef LZ_SERVE_FLEET_H
#define LZ_SERVE_FLEET_H

#include "../store.h"
#include "redis.h"
#include "scripts.h"

enum {
    MOST_SETTINGS = 1 << 20, /* bytes of the settings of a job */
    MOST_FACTS = 1 << 16,    /* bytes of the data of a picture, and of the facts of a model */
    MOST_NEWS = 1 << 20,     /* bytes of a message */
    MOST_PREVIEW = 64 << 10,
    SILENT_WORKER = 20, /* seconds */
    SILENT_FRONT = 60,
};

typedef struct fleet_store {
    store base;
    redis_address where;
    redis link;        /* for commands */
    redis news;        /* a front's subscription */
    char prefix[64];   /* "lz:{FLEET}:" */
    char id[ID_BYTES]; /* of this front or worker */
    bool was_there;    /* as the log said last */
    double beat;       /* steady: when the next one is due */
    int workers;
    int64_t keep_days;
    char *names[SERVE_MODELS]; /* of models, as workers told them; owned */
} fleet_store;

static inline fleet_store *fleet_of(front *f) { return (fleet_store *)f->store; }

/* records.c */
extern const store_kind fleet_kind;
job *record_job(front *f, const char *id, const redisReply *fields); /* of names and values; NULL: it is no job */
bool record_picture(const char *text, size_t size, picture *to);     /* the data of a picture */
json_t *record_json(const char *text, size_t size, size_t most);     /* an object; NULL: it is none */
double record_time(double seconds); /* since 1970, as a number that can be made whole; 0: it is no time */
json_t *picture_data(const picture *p);

/* uploads.c: see store.h */
bool fleet_add_upload(store *s, const char *id, int64_t width, int64_t height);
bool fleet_find_upload(store *s, const char *id, int64_t *width, int64_t *height);
int fleet_old_uploads(store *s, double time, int limit, char (*to)[65]);
bool fleet_remove_upload(store *s, const char *id);
bool fleet_add_address(store *s, const char *name, const char *id, double until);
int fleet_find_address(store *s, const char *name, char id[ID_BYTES]);

/* front.c */
bool fleet_is_there(front *f);
void fleet_tick(front *f);
job *fleet_find_live(front *f, const char *id);
bool fleet_tell(front *f, json_t *message);
void fleet_pause(front *f, bool paused);
void fleet_first(front *f, job *j);
int fleet_waiting(front *f, const char *owner);
int fleet_position(front *f, const job *j);
double fleet_seconds_before(front *f, const job *j);

#endif
