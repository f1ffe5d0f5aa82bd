/* slots.c: see slots.h. */
#include "pipeline/family.h"

/* The address of array i of a list in *s; NULL after the last. */
static lz_array **place_of(lz_slot_list list, lz_slots *s, int i) {
    for (int k = 0; k < list.n; i -= list.slots[k++].n)
        if (i < list.slots[k].n) return (lz_array **)(void *)((char *)s + list.slots[k].offset) + i;
    return NULL;
}

const char *lz_slot_name(lz_slot_list list, int i) {
    for (int k = 0; k < list.n; i -= list.slots[k++].n)
        if (i < list.slots[k].n) return list.slots[k].name;
    return "no slot";
}

int lz_slots_pack(lz_slot_list list, const lz_slots *from, lz_array *to[LZ_MAX_SLOTS], uint64_t *filled) {
    lz_array **place;
    int n = 0;
    *filled = 0;
    for (int i = 0; (place = place_of(list, (lz_slots *)from, i)); i++)
        if (*place) {
            to[n++] = *place;
            *filled |= 1ull << i;
        }
    return n;
}

void lz_slots_unpack(lz_slot_list list, uint64_t filled, lz_array *const *from, lz_slots *to) {
    lz_array **place;
    for (int i = 0; (place = place_of(list, to, i)); i++) *place = filled >> i & 1 ? *from++ : NULL;
}

void lz_slots_copy(lz_slot_list list, const lz_slots *from, lz_slots *to) {
    lz_array **place;
    for (int i = 0; (place = place_of(list, to, i)); i++) *place = *place_of(list, (lz_slots *)from, i);
}

void lz_slots_stand_in(lz_slot_list list, const lz_slots *from, lz_slots *to) {
    lz_array **place;
    for (int i = 0; (place = place_of(list, to, i)); i++) *place = lz_stand_in(*place_of(list, (lz_slots *)from, i));
}

void lz_slots_retain(lz_slot_list list, const lz_slots *s) {
    lz_array **place;
    for (int i = 0; (place = place_of(list, (lz_slots *)s, i)); i++) lz_retain(*place);
}

void lz_slots_release(lz_slot_list list, lz_slots *s) {
    lz_array **place;
    for (int i = 0; (place = place_of(list, s, i)); i++) {
        lz_release(*place);
        *place = NULL;
    }
}

/* ---- programs ---------------------------------------------------------------------------------------------------- */

static void describe(lz_context *ctx, lz_array *const *in, lz_array **out, void *user) {
    const lz_traced *t = user;
    lz_slots from = {.x = NULL}, to = {.x = NULL};
    lz_slots_unpack(t->kind->in, t->filled_in, in, &from);
    t->kind->describe(t, &from, &to);
    lz_array **place;
    for (int i = 0; (place = place_of(t->kind->out, &to, i)); i++)
        if (t->filled_out >> i & 1)
            *out++ = *place ? *place
                            : lz_poison(ctx, LZ_BAD_ARGUMENT, "the program '%s' does not make '%s'", t->kind->name,
                                        lz_slot_name(t->kind->out, i));
}

/* The arguments of a program: its slots as positional lists. */
typedef struct call {
    lz_array *in[LZ_MAX_SLOTS], *out[LZ_MAX_SLOTS];
    int n_out;
    uint64_t filled_out;
} call;

/* Packs the slots, and compiles the program unless the same slots were filled in the call before. */
static bool ready(lz_traced *t, const lz_slots *in, const lz_slots *out, call *c, lz_error *err) {
    uint64_t filled_in;
    int n_in = lz_slots_pack(t->kind->in, in, c->in, &filled_in);
    c->n_out = lz_slots_pack(t->kind->out, out, c->out, &c->filled_out);
    if (filled_in != t->filled_in || c->filled_out != t->filled_out) lz_traced_free(t);
    t->filled_in = filled_in;
    t->filled_out = c->filled_out;
    if (!t->compiled) t->compiled = lz_compile(t->model->ctx, describe, t, n_in, c->n_out, t->kind->cached, err);
    if (t->compiled) return true;
    for (int i = 0; i < c->n_out; i++) c->out[i] = lz_poison(t->model->ctx, err->status, "%s", err->text);
    return false;
}

lz_status lz_traced_run(lz_traced *t, const lz_slots *in, lz_slots *out, const lz_watch *watch, lz_error *err) {
    lz_error local = {.status = LZ_OK};
    call c;
    if (ready(t, in, out, &c, &local)) lz_run_watched(t->compiled, c.in, c.out, watch, &local);
    lz_slots_unpack(t->kind->out, c.filled_out, c.out, out);
    if (local.status && err) *err = local;
    return local.status;
}

lz_status lz_traced_plan(lz_traced *t, const lz_slots *in, lz_slots *out, lz_plan_info *info, lz_error *err) {
    lz_error local = {.status = LZ_OK};
    call c;
    if (ready(t, in, out, &c, &local)) lz_compiled_plan(t->compiled, c.in, c.out, info, &local);
    lz_slots_unpack(t->kind->out, c.filled_out, c.out, out);
    if (local.status && err) *err = local;
    return local.status;
}

void lz_traced_free(lz_traced *t) {
    lz_compiled_free(t->compiled);
    t->compiled = NULL;
}
