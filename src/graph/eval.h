/* eval.h: an evaluation is a program with the memory it runs in: lz_eval runs it at once, a stream later. */
#ifndef LZ_EVAL_H
#define LZ_EVAL_H

#include "graph/graph.h"

typedef struct lz_evaluation {
    lz_context *ctx;
    lz_program *program;
    lz_buffer *arena, **outputs;
    lz_event *event; /* streams: told when it is done */
    struct lz_evaluation *next;
} lz_evaluation;

lz_status lz_check_all(lz_array *const *arrays, int n, lz_error *err);
lz_evaluation *lz_evaluation_new(lz_context *ctx, lz_array *const *arrays, int n,
                                 lz_error *err); /* with the context locked */
lz_status lz_evaluation_run(lz_evaluation *e, const lz_watch *watch, lz_error *err);
void lz_evaluation_commit(lz_evaluation *e, lz_array *const *arrays, lz_event *event); /* with the context locked */
void lz_evaluation_free(lz_evaluation *e);

/* lz_eval_all and lz_run, with somebody watching. */
lz_status lz_eval_watched(lz_array *const *arrays, int n, const lz_watch *watch, lz_error *err);
lz_status lz_run_watched(lz_compiled *compiled, lz_array *const *in, lz_array **out, const lz_watch *watch,
                         lz_error *err);
/* An input of the same type and shape without a value: for planning what will be compiled, and nothing else. */
lz_array *lz_stand_in(lz_array *a);

#endif
