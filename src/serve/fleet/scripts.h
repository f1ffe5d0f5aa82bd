/* scripts.h: what a fleet changes in Redis, as Lua scripts, so that each change is made as a whole or not at all. Every
 * script may run twice with the same effect. KEYS[1] is "lz:{FLEET}:", and all keys begin with it:
 *
 *   job:ID            hash: the job
 *   wait:MODEL        sorted set: the jobs that wait, the next one first; a member is SEQUENCE:ID
 *   jobs:MODEL        stream, group "workers": a ticket for each job that waits. A ticket names no job: a worker that gets
 *                     one draws the first job of wait:MODEL and binds the ticket to it. So the stream has leases,
 *                     deliveries and lag, and the sorted set has the order.
 *   bound             hash: MODEL ENTRY of a ticket -> the job that was drawn with it
 *   tags:MODEL        hash: owner -> the score of its last job; "*" -> the score of the last job that was drawn
 *   waiting           hash: owner -> number of jobs that wait; "*" -> of all
 *   dead              stream: jobs that lost three workers
 *   list, list:OWNER, pictures, pictures:OWNER      sorted sets of ids, the oldest first
 *   picture:ID        hash: data (JSON), job, owner, pinned, removed
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
/* model, entry, worker, id. Returns 1; 0: the job is not this worker's any more, or has ended. */
extern const char script_renew[];
/* id, index, id of the picture, its data. Returns the number of pictures that are made; -1: the job does not run. */
extern const char script_finish[];
/* id, state, code, message; of a worker also model, entry, worker. Ends a job that has not ended, if the ticket is that
 * worker's. Returns its state. */
extern const char script_end[];
/* model, entry, worker, id or "". The ticket, and the job that is bound to it, go back, if the ticket is that worker's. */
extern const char script_give_back[];
/* id, most attempts, model, entry, worker. A worker lost its process. Returns 1: try again; 0: the job has failed, or is
 * not this worker's any more. */
extern const char script_lost[];
/* set of pictures, rank, number, 1: the oldest first, 1: with settings. Returns the number of ids, then id, data, pinned,
 * removed and settings (or "") of each picture. Removes ids without a picture from the set. */
extern const char script_page[];
/* worker, seconds after which a silent worker counts as gone. Returns the number of workers. */
extern const char script_beat[];
/* model. Deletes consumers that own nothing and were not heard for a minute, and restores the lag after a restart. */
extern const char script_tidy[];

#endif
