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

/* ---- several pictures ------------------------------------------------------------------------------------------- */

/* The slots that differ between pictures that run together. */
static const lz_slot of_pictures[] = {LZ_SLOT(noise),      LZ_SLOT(features),   LZ_SLOT(start),      LZ_SLOT(guidance),
                                      LZ_SLOT(context),    LZ_SLOT(references), LZ_SLOT(step_noise), LZ_SLOT(mask),
                                      LZ_SLOT(kept),       LZ_SLOT(kept_noise), LZ_SLOT(x),          LZ_SLOT(states),
                                      LZ_SLOT(velocities), LZ_SLOT(history),    LZ_SLOT(differences)};
static const lz_slot_list own_slots = LZ_SLOT_LIST(of_pictures);

static bool is_own(const lz_slots *s, lz_array *const *place) {
    size_t at = (size_t)((const char *)(const void *)place - (const char *)s);
    for (int i = 0; i < own_slots.n; i++) {
        const lz_slot *o = &own_slots.slots[i];
        if (at >= o->offset && at < o->offset + (size_t)o->n * sizeof(lz_array *)) return true;
    }
    return false;
}

/* The dims without the first axis. */
static lz_dims without_first(lz_dims dims) {
    lz_dims rest = {.n = dims.n - 1};
    for (int i = 0; i < rest.n; i++) rest.at[i] = dims.at[i + 1];
    return rest;
}

static lz_dims with_first(int64_t n, lz_dims dims) {
    lz_dims more = {.n = dims.n + 1, .at = {n}};
    for (int i = 0; i < dims.n; i++) more.at[i + 1] = dims.at[i];
    return more;
}

lz_array *lz_pick_picture(lz_array *all, int i) {
    return lz_contiguous(lz_reshape(lz_slice(all, 0, i, i + 1, 1), without_first(lz_shape(all))));
}

void lz_slots_stack(const lz_slots *const *each, int n, lz_slots *to) {
    lz_array **place, *rows[LZ_MAX_TOGETHER];
    lz_slots all = *each[0];
    for (int i = 0; (place = place_of(own_slots, &all, i)); i++) {
        if (!*place) continue;
        for (int k = 0; k < n; k++) {
            lz_array *one = *place_of(own_slots, (lz_slots *)each[k], i);
            rows[k] = lz_reshape(one, with_first(1, lz_shape(one)));
        }
        *place = lz_contiguous(lz_concat(rows, n, 0));
    }
    *to = all;
}

/* ---- programs ---------------------------------------------------------------------------------------------------- */

/* Describes the program of one picture, then that of all from it. */
static void describe_all(const lz_traced *t, const lz_slots *from, lz_slots *to) {
    lz_context *ctx = t->model->ctx;
    int64_t n = t->layout.pictures;
    lz_array **place, *one[LZ_MAX_SLOTS], *all[LZ_MAX_SLOTS], *out[LZ_MAX_SLOTS];
    lz_slots first = *from;
    int n_in = 0, n_out = 0;
    for (int i = 0; (place = place_of(t->kind->in, &first, i)); i++) {
        if (!*place || !is_own(&first, place)) continue;
        all[n_in] = *place;
        *place = one[n_in++] = lz_reshape(lz_slice(*place, 0, 0, 1, 1), without_first(lz_shape(*place)));
    }
    t->kind->describe(t, &first, to);
    for (; (place = place_of(t->kind->out, to, n_out)); n_out++) out[n_out] = *place;
    lz_describe_many(ctx, n, one, all, n_in, out, n_out);
    for (int i = 0; (place = place_of(t->kind->out, to, i)); i++) {
        bool same = out[i] == *place; /* for all pictures */
        if (out[i] && same && is_own(to, place))
            out[i] = lz_contiguous(lz_broadcast(out[i], with_first(n, lz_shape(out[i]))));
        else if (out[i] && !same && !is_own(to, place))
            out[i] = lz_poison(ctx, LZ_BAD_ARGUMENT, "'%s' differs between pictures", lz_slot_name(t->kind->out, i));
        *place = out[i];
    }
}

static void describe(lz_context *ctx, lz_array *const *in, lz_array **out, void *user) {
    const lz_traced *t = user;
    lz_slots from = {.x = NULL}, to = {.x = NULL};
    lz_slots_unpack(t->kind->in, t->filled_in, in, &from);
    if (t->layout.pictures > 1)
        describe_all(t, &from, &to);
    else
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
