/* store.h: where jobs, pictures, uploads and addresses of pictures are kept, and who makes the pictures. There are two
 * kinds: SQLite with a worker process of this machine (sqlite.c, paint.c), and Redis with workers on any machine
 * (fleet/). Only those files know which kind it is.
 *
 * Each function that writes has committed when it returns: a killed process loses nothing. Functions that return false have not changed anything. */
#ifndef LZ_SERVE_STORE_H
#define LZ_SERVE_STORE_H

#include "inside.h"

typedef enum added { ADDED, ADDED_BEFORE, NOT_ADDED } added;

typedef struct picture_query {
    const char *owner;  /* NULL: of all */
    const char *before; /* the id of a picture after which they come; or NULL */
    const char *search; /* that their prompts contain; or NULL */
    bool pinned;        /* only pinned ones */
    int rating;         /* only those with this rating or a better one; 0: all */
    int limit;
} picture_query;

typedef struct store_kind {
    void (*close)(front *f);
    bool (*is_there)(front *f); /* false: the store cannot be reached now */
    bool own_worker;            /* a worker process of this server makes the pictures, in the order of front.jobs */

    /* work */
    void (*tick)(front *f);                      /* in each turn of the loop: gives work, notices what was done */
    job *(*find_live)(front *f, const char *id); /* a job that waits or runs and is not in front.jobs yet; or NULL */
    bool (*tell)(front *f, json_t *message);     /* to a worker; releases message */
    void (*pause)(front *f, bool paused);
    void (*first)(front *f, job *j);                  /* puts it before the other waiting jobs of its owner */
    int (*waiting)(front *f, const char *owner);      /* jobs; NULL: of all */
    int (*position)(front *f, const job *j);          /* of a job that waits, from 1 */
    double (*seconds_before)(front *f, const job *j); /* of the jobs that come before it; below 0: unknown */

    /* records; see the functions below */
    added (*add_job)(store *s, const job *j);
    bool (*save_job)(store *s, const job *j);
    bool (*add_picture)(store *s, const picture *p, const job *j);
    job *(*find_job)(front *f, const char *id);
    bool (*each_live)(front *f, void (*each)(front *f, job *j));
    int (*list_jobs)(front *f, const char *owner, const char *state, const char *after, int limit, job **to);
    void (*find_repeat)(store *s, const char *owner, const char *key, char id[ID_BYTES], char body[65]);
    bool (*find_picture)(store *s, const char *id, picture *to);
    int (*list_pictures)(store *s, const picture_query *q, picture *to, char next[65]);
    char *(*picture_settings)(store *s, const picture *p);
    bool (*change_picture)(store *s, const picture *p);
    int (*old_pictures)(store *s, double time, int limit, picture *to);
    bool (*add_upload)(store *s, const char *id, int64_t width, int64_t height);
    bool (*find_upload)(store *s, const char *id, int64_t *width, int64_t *height);
    int (*old_uploads)(store *s, double time, int limit, char (*to)[65]);
    bool (*remove_upload)(store *s, const char *id);
    bool (*add_address)(store *s, const char *name, const char *id, double until);
    int (*find_address)(store *s, const char *name, char id[ID_BYTES]);
} store_kind;

struct store { /* the first member of each kind's own struct */
    const store_kind *kind;
    int64_t kept_bytes;      /* of the files of all pictures, without thumbs; 0: not counted */
    struct flusher *flusher; /* brings commits to the disk; NULL: a function that writes has done so when it returns */
};

/* Opens front.store. false: why has a sentence. */
bool store_open(front *f, char *why, size_t size);
void store_close(front *f);
bool store_is_there(front *f);
uint64_t store_writes(const store *s);                    /* the number of commits so far */
bool store_has_flushed(const store *s, uint64_t commits); /* are the first so many on the disk? */
/* A file of this folder of the state was put in its place: the folder is flushed with the next commit. */
bool store_files_changed(front *f, const char *folder);
bool store_has_failed(const store *s); /* the disk has refused to keep a commit */

/* The job, and that it was made with its Idempotency-Key, if it has one. ADDED_BEFORE: another front was faster with
 * the same key. */
added store_add_job(store *s, const job *j);
bool store_save_job(store *s, const job *j);                      /* its state, times, attempts and error */
bool store_add_picture(store *s, const picture *p, const job *j); /* and the same of its job */
/* The job with its pictures, owned; NULL: there is none. */
job *store_find_job(front *f, const char *id);
/* Calls each for the jobs that wait or run, the oldest first; each takes the job. */
bool store_each_live(front *f, void (*each)(front *f, job *j));
/* Jobs of an owner (NULL: of all), the newest first, after the job with the id `after` (or NULL); owned. */
int store_list_jobs(front *f, const char *owner, const char *state, const char *after, int limit, job **to);
/* The job that was made with this key of Idempotency-Key in the last day; "" if there is none. */
void store_find_repeat(store *s, const char *owner, const char *key, char id[ID_BYTES], char body[65]);

bool store_find_picture(store *s, const char *id, picture *to); /* facts are owned by the caller */
/* Pictures, the newest first. A search may stop before it has found as many as asked for: then next is the id before
 * which it goes on, else "". */
int store_list_pictures(store *s, const picture_query *q, picture *to, char next[65]);
char *store_picture_settings(store *s, const picture *p); /* of its job, as JSON; owned */
bool store_change_picture(store *s, const picture *p);    /* pinned, rating, removed */
/* Pictures to remove: older than `time`, not pinned. */
int store_old_pictures(store *s, double time, int limit, picture *to);

bool store_add_upload(store *s, const char *id, int64_t width, int64_t height);
bool store_find_upload(store *s, const char *id, int64_t *width, int64_t *height);
/* Ids of uploads that are older, the oldest first. */
int store_old_uploads(store *s, double time, int limit, char (*to)[65]);
bool store_remove_upload(store *s, const char *id);

bool store_add_address(store *s, const char *name, const char *id, double until);
/* 1: the picture of the address; 0: there is no such address; -1: it has expired. */
int store_find_address(store *s, const char *name, char id[ID_BYTES]);

/* The kinds. Each returns NULL, and a sentence in why, if the store cannot be opened. */
store *sqlite_store_open(front *f, char *why, size_t size);
store *fleet_store_open(front *f, char *why, size_t size);

#endif
