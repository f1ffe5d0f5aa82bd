/* slots.h: the arrays that the programs of the denoising loop read and make, by name. Each program lists its slots in
 * one table. The positional lists that lz_compile wants are made from that table and from nothing else, so a
 * slot can be added, moved or left empty without another function having to agree. */
#ifndef LZ_SLOTS_H
#define LZ_SLOTS_H

#include "graph/eval.h"

enum { LZ_MAX_ROWS = 8, LZ_MAX_TABLES = 6, LZ_MAX_STATES = 4, LZ_MAX_REFERENCES = 16, LZ_HISTORY = 3 };

/* Sizes on which the programs of the loop depend, in addition to which slots are filled. It has no padding, since it is
 * compared byte by byte. */
typedef struct lz_layout {
    int64_t h, w;     /* of the picture, in tokens */
    int64_t pictures; /* that run together, see lz_slots; 0: one alone */
    int64_t frames;   /* pictures of this size that are denoised together: the whole and its layers; otherwise 1 */
    int64_t text_tokens[2]; /* of the prompt and of the negative prompt; 0: there is none */
    int64_t n_references, reference_sizes[LZ_MAX_REFERENCES][2]; /* h, w in tokens */
} lz_layout;

/* Index 0 is the prompt, 1 the negative prompt, which exists only with guidance. An empty slot is NULL.
 *
 * Pictures that run together share one program. Families and samplers describe one picture all the same: the slots that
 * differ between pictures, which are listed in slots.c, have one more axis, the first, outside of describe(). */
typedef struct lz_slots {
    /* Of the picture, before the loop. */
    lz_array *noise;       /* [frames, c, h, w] */
    lz_array *features[2]; /* [t, e] */
    lz_array *start;       /* [h w, c] tokens of the start image */
    lz_array *start_share; /* [] weight of the start image in x */
    lz_array *noise_share; /* [] weight of the noise in x */

    /* Of the picture, in every step. */
    lz_array *guidance;   /* [] */
    lz_array *context[2]; /* input of the transformer, made from the features */
    /* [r, c] tokens of the reference images; in the steps of some models their cache (family.h) */
    lz_array *references;
    lz_array *step_noise; /* [n, h w, c] of the last n passes, for a sampler that adds noise */
    /* Only if a part of the picture is repainted. */
    lz_array *mask;              /* [h w, 1 or c]: 1 where the picture is repainted, 0 where the start is kept */
    lz_array *kept, *kept_noise; /* [h w, c] start and noise, as tokens */
    lz_array *sigmas_after;      /* [passes] sigma after each pass */

    /* Passed from step to step. */
    lz_array *x;                     /* [frames h w, c] */
    lz_array *step_index;            /* [1] i64, index of the pass through the model */
    lz_array *states[LZ_MAX_STATES]; /* of the sampler */
    /* Only in a loop that skips evaluations of the model (cache.h). Histories begin with the newest. */
    lz_array *velocities[2];           /* [h w, c] of the last evaluations */
    lz_array *history[LZ_HISTORY];     /* [h w, c] of the prompt */
    lz_array *differences[LZ_HISTORY]; /* [h w, c] of the prompt less the negative prompt */

    /* Of the schedule. */
    lz_array *sigma_drops;       /* [passes] sigma after the pass minus sigma before it */
    lz_array *weights;           /* [passes, n] of the sampler */
    lz_array *skips;             /* [passes, LZ_SKIP_COLUMNS] */
    lz_array *rows[LZ_MAX_ROWS]; /* [passes, ...] of the family; a pass reads one row of each */
    lz_array *clean_row;         /* modulation of references, as at time 0; the same in every step */

    /* Of the size. */
    lz_array *tables[LZ_MAX_TABLES]; /* of the family */
} lz_slots;

/* A member of lz_slots: one array, or an array of n. */
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

/* Copies the filled slots of a list, in its order, to `to`; returns their number. Bit i of *filled: array i of the list
 * is filled. */
int lz_slots_pack(lz_slot_list list, const lz_slots *from, lz_array *to[LZ_MAX_SLOTS], uint64_t *filled);
/* The inverse; other slots of the list become NULL. */
void lz_slots_unpack(lz_slot_list list, uint64_t filled, lz_array *const *from, lz_slots *to);
void lz_slots_copy(lz_slot_list list, const lz_slots *from, lz_slots *to);
void lz_slots_retain(lz_slot_list list, const lz_slots *s);
void lz_slots_release(lz_slot_list list, lz_slots *s); /* sets them to NULL */
/* Copies stand-ins of the filled slots. */
void lz_slots_stand_in(lz_slot_list list, const lz_slots *from, lz_slots *to);
const char *lz_slot_name(lz_slot_list list, int i); /* of array i */
/* Slots of n pictures that run together, from those of each, in which the same slots are filled. Those that differ
 * between pictures are described, not evaluated; the others are those of the first. */
void lz_slots_stack(const lz_slots *const *each, int n, lz_slots *to);
/* The array of picture i in an array of all, described. */
lz_array *lz_pick_picture(lz_array *all, int i);

/* ---- programs ---------------------------------------------------------------------------------------------------- */

struct lz_model;
struct lz_sampler;
typedef struct lz_traced lz_traced;

typedef struct lz_traced_kind {
    const char *name;
    lz_slot_list in, out;
    void (*describe)(const lz_traced *t, const lz_slots *in, lz_slots *out);
    int cached; /* number of programs that are kept, one for each signature of the inputs */
} lz_traced_kind;

/* A compiled program of a kind. Its maker sets the members that describe() reads. */
struct lz_traced {
    const lz_traced_kind *kind;
    const struct lz_model *model;
    const struct lz_sampler *sampler;
    lz_layout layout;
    lz_compiled *compiled; /* NULL: not compiled yet */
    uint64_t filled_in, filled_out;
};

/* Compiles on the first call, and again if other slots are filled than in the last call. Outputs are those slots of the
 * kind's list that are not NULL in *out before the call; the results replace them. After an error they are poisoned
 * arrays. t must not move between calls. */
lz_status lz_traced_run(lz_traced *t, const lz_slots *in, lz_slots *out, const lz_watch *watch, lz_error *err);
/* The same without running it: what the run will take, and stand-ins in *out. */
lz_status lz_traced_plan(lz_traced *t, const lz_slots *in, lz_slots *out, lz_plan_info *info, lz_error *err);
void lz_traced_free(lz_traced *t); /* frees the program; *t may be run again */

#endif
