/* slots.h: the arrays that the programs of the denoising loop read and make, by name. Each program lists its slots in
 * one table. The positional lists that lz_compile wants are made from that table and from nothing else, so a
 * slot can be added, moved or left empty without another function having to agree. */
#ifndef LZ_SLOTS_H
#define LZ_SLOTS_H

#include "graph/eval.h"

enum { LZ_MAX_ROWS = 8, LZ_MAX_TABLES = 6, LZ_MAX_STATES = 4, LZ_MAX_REFERENCES = 16 };

/* Sizes that decide the programs of the loop, beside which slots are filled. Without padding: compared as bytes. */
typedef struct lz_layout {
    int64_t h, w;           /* of the picture, in tokens */
    int64_t text_tokens[2]; /* of the prompt and of the negative prompt; 0: there is none */
    int64_t n_references, reference_sizes[LZ_MAX_REFERENCES][2]; /* h, w in tokens */
} lz_layout;

/* Index 0 belongs to the prompt, 1 to the negative prompt, which exists only with guidance. An empty slot is NULL. */
typedef struct lz_slots {
    /* Of the picture, before the loop. */
    lz_array *noise;       /* [1, c, h, w] */
    lz_array *features[2]; /* [t, e] */
    lz_array *start;       /* [h w, c] tokens of the image to start from */
    lz_array *start_share; /* [] how much of x is the start; the rest is noise */
    lz_array *noise_share; /* [] */

    /* Of the picture, in every step. */
    lz_array *guidance;   /* [] */
    lz_array *context[2]; /* features as the transformer reads them */
    lz_array *references; /* [r, c] tokens of the images to look at */

    /* What a step hands to the next one. */
    lz_array *x;                     /* [h w, c] */
    lz_array *step_index;            /* [1] i64, in the schedule */
    lz_array *states[LZ_MAX_STATES]; /* the sampler's own */

    /* Of the schedule. */
    lz_array *sigma_drops;       /* [steps] sigma after the step less sigma before it */
    lz_array *rows[LZ_MAX_ROWS]; /* [steps, ...] the family's own: a step reads one row of each */
    lz_array *clean_row;         /* modulation of references, as if no noise were left: the same in every step */

    /* Of the size. */
    lz_array *tables[LZ_MAX_TABLES]; /* the family's own */
} lz_slots;

/* A member of lz_slots: one array, or several in a row. */
typedef struct lz_slot {
    const char *name;
    size_t offset;
    int n;
} lz_slot;
#define LZ_SLOT(member)                                                                                                \
    { #member, offsetof(lz_slots, member), (int)(sizeof(((lz_slots *)0)->member) / sizeof(lz_array *)) }

typedef struct lz_slot_list {
    const lz_slot *slots;
    int n;
} lz_slot_list;
#define LZ_SLOT_LIST(slots)                                                                                            \
    { slots, (int)(sizeof(slots) / sizeof(slots)[0]) }

enum { LZ_MAX_SLOTS = sizeof(lz_slots) / sizeof(lz_array *) };
_Static_assert(LZ_MAX_SLOTS <= 64, "sets of slots are bits of an uint64_t");

/* Filled slots of the list in its order; returns how many. Bit i of *filled: array i of the list is there. */
int lz_slots_pack(lz_slot_list list, const lz_slots *from, lz_array *to[LZ_MAX_SLOTS], uint64_t *filled);
/* The reverse: the other slots of the list become NULL. */
void lz_slots_unpack(lz_slot_list list, uint64_t filled, lz_array *const *from, lz_slots *to);
void lz_slots_copy(lz_slot_list list, const lz_slots *from, lz_slots *to);
void lz_slots_retain(lz_slot_list list, const lz_slots *s);
void lz_slots_release(lz_slot_list list, lz_slots *s);                         /* they become NULL */
void lz_slots_stand_in(lz_slot_list list, const lz_slots *from, lz_slots *to); /* stand-ins of the filled ones */
const char *lz_slot_name(lz_slot_list list, int i);                            /* of array i */

/* ---- programs ---------------------------------------------------------------------------------------------------- */

struct lz_model;
struct lz_sampler;
typedef struct lz_traced lz_traced;

typedef struct lz_traced_kind {
    const char *name;
    lz_slot_list in, out;
    void (*describe)(const lz_traced *t, const lz_slots *in, lz_slots *out);
    int cached; /* shapes of inputs for which a program is kept */
} lz_traced_kind;

/* A compiled program of one kind. What describe needs beside arrays is set by whoever makes it. */
struct lz_traced {
    const lz_traced_kind *kind;
    const struct lz_model *model;
    const struct lz_sampler *sampler;
    lz_layout layout;
    lz_compiled *compiled; /* NULL: not yet */
    uint64_t filled_in, filled_out;
};

/* Compiles on the first call, and again when other slots are filled than in the last one. Outputs are the slots of the
 * kind's list that are filled in *out before the call, with anything: their results replace them. After an error they are
 * poisoned arrays. t must not move between calls. */
lz_status lz_traced_run(lz_traced *t, const lz_slots *in, lz_slots *out, const lz_watch *watch, lz_error *err);
/* The same without running it: what the run will take, and stand-ins in *out. */
lz_status lz_traced_plan(lz_traced *t, const lz_slots *in, lz_slots *out, lz_plan_info *info, lz_error *err);
void lz_traced_free(lz_traced *t); /* the program; *t may be used again */

#endif
