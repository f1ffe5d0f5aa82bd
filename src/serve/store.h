/* store.h: jobs, pictures, uploads and addresses of pictures, in one SQLite file. Each function commits before it
 * returns. Functions that return false have not changed anything. */
#ifndef LZ_SERVE_STORE_H
#define LZ_SERVE_STORE_H

#include "inside.h"

store *store_open(const char *path, char *why, size_t size);
void store_close(store *s);

bool store_add_job(store *s, const job *j);
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
bool store_add_repeat(store *s, const char *owner, const char *key, const char *id, const char *body);

bool store_find_picture(store *s, const char *id, picture *to); /* facts are owned by the caller */
int store_list_pictures(store *s, const char *owner, const char *before, const char *search, int limit, picture *to);
char *store_picture_settings(store *s, const picture *p); /* of its job, as JSON; owned */
bool store_change_picture(store *s, const picture *p);    /* pinned, removed */
/* Pictures to remove: older than `time`, not pinned. */
int store_old_pictures(store *s, double time, int limit, picture *to);

bool store_add_upload(store *s, const char *id, int64_t width, int64_t height);
bool store_find_upload(store *s, const char *id, int64_t *width, int64_t *height);
bool store_old_upload(store *s, double time, char id[65]); /* one that is older; */
bool store_remove_upload(store *s, const char *id);

bool store_add_address(store *s, const char *name, const char *id, double until);
/* 1: the picture of the address; 0: there is no such address; -1: it has expired. */
int store_find_address(store *s, const char *name, char id[ID_BYTES]);

#endif
