/* scripts.h: what a fleet changes in Redis, as Lua scripts, so that each change is made as a whole or not at all. Every
 * script may run twice with the same effect. KEYS[1] is "lz:{FLEET}:", and all keys begin with it:
 *
 *   job:ID            hash: the job; score: its place in wait:MODEL when it was drawn
 *   wait:MODEL        sorted set: the jobs that wait, the next one first; a member is SEQUENCE:ID
 *   jobs:MODEL        stream, group "workers": a ticket for each job that waits. A ticket names no job: a worker that gets
 *                     one draws the first job of wait:MODEL and binds the ticket to it. So the stream has leases,
 *                     deliveries and lag, and the sorted set has the order.
 *   bound             hash: MODEL ENTRY of a ticket -> the job that was drawn with it
 *   tags:MODEL        hash: owner -> the score of its last job; "*" -> the score of the last job that was drawn
 *   waiting           hash: owner -> number of jobs that wait; "*" -> of all
 *   dead              stream: jobs that lost three workers
 *   list, list:OWNER, pictures, pictures:OWNER      sorted sets of ids, the oldest first
 *   picture:ID        hash: data (JSON), job, owner, pinned, removed, rating
 *   repeat:HASH       the job and the hash of the request of an Idempotency-Key
 *   upload:ID, uploads, address:NAME, models, workers, front:ID, paused, seq
 *   news, previews, control      channels: to the fronts, to the fronts, to the workers
 *
 * Fairness: the score of a job is the larger of the last drawn score and the score of the owner's job before, plus the
 * number of its pictures (start-time fair queueing with a weight of 1 for each owner). */
#ifndef LZ_SERVE_SCRIPTS_H
#define LZ_SERVE_SCRIPTS_H

/* id, model, owner, pictures, priority, hash of the repeated key or "", hash of the request, seconds to keep the job
 * after its end (0: forever), then names and values of further fields. Returns "added" or "before". */
extern const char script_put[];
/* model, entry, worker, most attempts. Returns the fields of the job; nil: the ticket needs no work. */
extern const char script_draw[];
/* model, worker, most attempts, kind (queue_kind), ids that are left out. Takes a ticket and, of the first 32 jobs that
 * wait, the first of this kind. Returns the fields of the job; nil: there is none. */
extern const char script_join[];
/* model, entry, worker, id. Returns 1; 0: the job is not this worker's any more, or has ended. */
extern const char script_renew[];
/* id, index, id of the picture, its data. Returns the number of pictures that are made; -1: the job does not run. */
extern const char script_finish[];
/* id, state, code, message; of a worker also model, entry, worker. Ends a job that has not ended, if the ticket is that
 * worker's. Returns its state. */
extern const char script_end[];
/* model, entry, worker, id or "". The ticket, and the job that is bound to it, go back, if the ticket is that worker's. */
extern const char script_give_back[];
/* model, entry, worker, id. A job that was joined and is not begun waits again, in its place. Returns 1; 0: it is not this
 * worker's any more. */
extern const char script_put_back[];
/* id, most attempts, model, entry, worker. A worker lost its process. Returns 1: try again; 0: the job has failed, or is
 * not this worker's any more. */
extern const char script_lost[];
/* set of pictures, rank, number, 1: the oldest first, 1: with settings. Returns the number of ids, then id, data, pinned,
 * removed, settings (or "") and rating of each picture. Removes ids without a picture from the set. */
extern const char script_page[];
/* worker, seconds after which a silent worker counts as gone. Returns the number of workers. */
extern const char script_beat[];
/* id. The job changes places with the waiting jobs of its owner before it, so that it is the first of them. */
extern const char script_first[];
/* model. Deletes consumers that own nothing and were not heard for a minute, and scores of owners that are not needed any
 * more, and restores the lag after a restart. */
extern const char script_tidy[];

#endif
