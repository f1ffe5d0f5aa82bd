/* repeat.c: see repeat.h. */
#include "repeat.h"

#include <stdlib.h>
#include <string.h>

#include "store.h"

void repeat_hash(request *r) {
    char text[65 + 64] = "";
    hash_hex(r->body.data ? r->body.data : "", r->body.size, text);
    strncat(text, r->route->path, 60); /* the same body means something else for another path */
    hash_hex(text, strlen(text), r->hash);
}

/* The job that waits or runs. id: of the one with the same key; "" if there is none. */
static job *find_live(request *r, const char *id) {
    const char *count = header_of(r, "x-stainless-retry-count");
    job *found = *id ? job_find(r->front, id) : NULL;
    for (job *j = r->front->jobs; j && !*id && count && atoi(count) > 0; j = j->next)
        if (strcmp(j->owner, r->who.owner) == 0 && strcmp(j->body, r->hash) == 0) found = j;
    return found;
}

bool repeat_answer(request *r, void (*live)(request *r, job *j), void (*ended)(request *r, job *j)) {
    front *f = r->front;
    const char *key = header_of(r, "idempotency-key");
    char id[ID_BYTES] = "", before[65] = "";
    if (key && strlen(key) > 200) {
        reply_error(r, 400, "invalid_value", "", "Idempotency-Key has more than 200 characters");
        return true;
    }
    if (key) store_find_repeat(f->store, r->who.owner, key, id, before);
    if (*id && strcmp(before, r->hash) != 0) {
        reply_error(r, 422, "idempotency_mismatch", "", "this Idempotency-Key was used with another request");
        return true;
    }
    job *found = find_live(r, id), *old = found || !*id ? NULL : store_find_job(f, id);
    /* The client left, and wants it after all; or the server asked it to try again. */
    bool again = old && ((old->state == CANCELLED && old->attended) ||
                         (old->state == FAILED_JOB && may_help_again(old->code)));
    if (found) live(r, found);
    if (old && !again) ended(r, old);
    job_free(old);
    return found || (old && !again);
}

void repeat_or_queue(request *r, json_t *settings, job_source source, void (*attend)(request *r, job *j),
                     void (*ended)(request *r, job *j)) {
    problem p = {.status = 0};
    if (repeat_answer(r, attend, ended)) {
        json_decref(settings);
        return;
    }
    job *j = job_new(r->front, &r->who, source, settings);
    if (!j) {
        reply_error(r, 500, "out_of_memory", "", "out of memory");
        return;
    }
    memcpy(j->body, r->hash, sizeof j->body);
    j->attended = true;
    j->repeat = header_of(r, "idempotency-key");
    if (job_admit(r->front, j, r, &p))
        attend(r, j);
    else {
        reply_problem(r, &p);
        job_free(j);
    }
}
