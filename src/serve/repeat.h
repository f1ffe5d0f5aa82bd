/* repeat.h: requests that come again. One with the same Idempotency-Key and body as an earlier one, within a day, gets the
 * job of that one. OpenAI's client sends no key; what it repeats joins a job that waits or runs. */
#ifndef LZ_SERVE_REPEAT_H
#define LZ_SERVE_REPEAT_H

#include "inside.h"

void repeat_hash(request *r); /* fills r->hash */
/* Answers a request that repeats an earlier one. live: gets a job that waits or runs; ended: one that has ended, and is
 * freed afterwards. false: the request is new. */
bool repeat_answer(request *r, void (*live)(request *r, job *j), void (*ended)(request *r, job *j));
/* Queues a job for a request that waits for it, unless the request repeats an earlier one. Takes settings. */
void repeat_or_queue(request *r, json_t *settings, job_source source, void (*attend)(request *r, job *j),
                     void (*ended)(request *r, job *j));

#endif
