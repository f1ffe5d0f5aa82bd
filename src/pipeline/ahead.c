/* ahead.c: work for later stages of a job that is done by threads while the prompt is encoded, if a device has room for
 * the whole job: weights are sent there, programs are rehearsed and their kernels compiled and loaded, and the arrays of
 * the schedule and of the size are computed. If the job is expected to run (lz_job_expect), the text's part of it begins
 * when the text is planned. Nothing of it is needed for the result: after an error a thread ends, and the stage does the
 * work again and reports the error.
 *
 * A thread uses objects that the job owns. The stage that uses them joins it first (lz_ahead_wait). A thread of a job
 * that was cancelled, or that ends, begins no further program. */
#include "pipeline/job.h"

static bool ends(lz_job *job) { return atomic_load(&job->cancelled) || atomic_load(&job->ahead_ends); }

static void prepare(lz_job *job, lz_compiled *program) {
    if (!ends(job)) lz_compiled_prepare(program);
}

static void *prepare_text(void *arg) {
    lz_job *job = arg;
    prepare(job, job->reader->program);
    return NULL;
}

static void *compute_arrays(void *arg) {
    lz_job *job = arg;
    lz_scope *scope = lz_scope_begin(job->model->ctx, "ahead");
    if (!ends(job) && !lz_schedule_ready(job->schedule, NULL) && !ends(job) && !lz_loop_ready(job->loop, NULL))
        prepare(job, job->loop->begin.compiled);
    lz_scope_end(scope);
    return NULL;
}

static void *prepare_steps(void *arg) {
    lz_job *job = arg;
    const lz_loop *l = job->loop;
    const lz_traced *programs[] = {&l->step, &l->velocity[0], &l->velocity[1], &l->advance};
    for (size_t i = 0; i < sizeof programs / sizeof *programs; i++) prepare(job, programs[i]->compiled);
    return NULL;
}

static void *prepare_decoder(void *arg) {
    lz_job *job = arg;
    prepare(job, job->decoder->program);
    return NULL;
}

/* Asks that the weights of the programs are sent in the order in which the programs will run. false: there is no room
 * for those of a program, which uploads or streams them when it runs; later programs were not asked for. */
static bool send_weights(const lz_job *job) {
    const lz_loop *l = job->loop;
    const lz_traced *programs[] = {&l->begin, &l->step, &l->velocity[0], &l->velocity[1]};
    bool all = (job->text_sent || lz_compiled_preload(job->reader->program)) &&
               lz_evaluation_preload(job->schedule->planned);
    for (size_t i = 0; i < sizeof programs / sizeof *programs && all; i++)
        all = lz_compiled_preload(programs[i]->compiled);
    return all && lz_compiled_preload(job->decoder->program);
}

static void start(lz_job *job, int i) {
    static void *(*const work[LZ_AHEAD])(void *) = {[LZ_AHEAD_TEXT] = prepare_text,
                                                    [LZ_AHEAD_ARRAYS] = compute_arrays,
                                                    [LZ_AHEAD_STEPS] = prepare_steps,
                                                    [LZ_AHEAD_DECODER] = prepare_decoder};
    job->is_ahead[i] = pthread_create(&job->ahead[i], NULL, work[i], job) == 0;
}

void lz_ahead_text(lz_job *job) {
    if (!job->expected || job->text_sent || ends(job)) return;
    job->text_sent = lz_compiled_preload(job->reader->program);
    if (job->text_sent) start(job, LZ_AHEAD_TEXT);
}

void lz_ahead_begin(lz_job *job) {
    bool planned = job->reader && job->schedule && job->schedule->planned && job->loop && job->decoder;
    if (!planned || ends(job) || !send_weights(job)) return;
    for (int i = LZ_AHEAD_ARRAYS; i < LZ_AHEAD; i++) start(job, i);
}

void lz_ahead_wait(lz_job *job, int first, int last) {
    for (int i = first; i <= last; i++) {
        if (job->is_ahead[i]) pthread_join(job->ahead[i], NULL);
        job->is_ahead[i] = false;
    }
}

static void drop_weights(const lz_job *job) {
    if (job->reader) lz_compiled_drop(job->reader->program);
    if (job->decoder) lz_compiled_drop(job->decoder->program);
    if (!job->loop) return;
    lz_traced *const programs[] = {&job->loop->begin, &job->loop->step, &job->loop->velocity[0],
                                   &job->loop->velocity[1]};
    for (size_t i = 0; i < sizeof programs / sizeof *programs; i++) lz_compiled_drop(programs[i]->compiled);
}

void lz_ahead_end(lz_job *job) {
    atomic_store(&job->ahead_ends, true);
    drop_weights(job); /* first, so that no thread waits for weights */
    lz_ahead_wait(job, 0, LZ_AHEAD - 1);
    atomic_store(&job->ahead_ends, false);
}
