/* loras.c: the LoRAs of a model: their files, the programs that they invalidate, and the number of steps of few-step
 * LoRAs. models/lora.h reads the files, models/patch.h applies them. */
#include <assert.h>
#include <ctype.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "models/lora.h"
#include "models/param.h"
#include "pipeline/job.h"

enum { LORAS_MOST = 64, LIGHTNING_STEPS = 8 };

static void free_list(lz_context *ctx, lz_lora_facts *list, int n) {
    for (int i = 0; i < n; i++) lz_host_free(ctx, (char *)list[i].path);
    lz_host_free(ctx, list);
}

void lz_loras_free(lz_model *m) {
    free_list(m->ctx, m->loras, m->n_loras);
    m->loras = NULL;
    m->n_loras = 0;
}

/* ---- few steps --------------------------------------------------------------------------------------------------- */

static const char *find_word(const char *text, const char *word) {
    size_t n = strlen(word);
    for (; *text; text++)
        if (strncasecmp(text, word, n) == 0) return text;
    return NULL;
}

/* The number before "step" in a file's name: 4steps, 8-step, 4_steps; 0: there is none. */
static int steps_in_name(const char *name) {
    for (const char *at = name; (at = find_word(at, "step")); at++) {
        const char *end = at;
        while (end > name && (end[-1] == '-' || end[-1] == '_' || end[-1] == ' ')) end--;
        const char *digit = end;
        while (digit > name && isdigit((unsigned char)digit[-1])) digit--;
        int n = digit < end && end - digit < 4 ? atoi(digit) : 0;
        if (n > 0 && n <= LZ_MAX_STEPS) return n;
    }
    return 0;
}

/* The steps of a Lightning LoRA, which is recognised by its name, or by its modules, which all have the same form; else
 * 0. */
static int few_steps(const lz_model *m, const lz_lora *lora, const lz_lora_report *report) {
    if (m->family->few_step_shift == 0 || lora->ordinary || lora->weight == 0) return 0;
    const char *slash = strrchr(lora->path, '/'), *name = slash ? slash + 1 : lora->path;
    bool named = find_word(name, "lightning") || find_word(name, "turbo");
    int steps = steps_in_name(name);
    bool alike = report->all_64_alpha_8 && report->rank == 64 &&
                 report->modules % 12 == 0; /* the same twelve modules for each block */
    if (named && steps) return steps;
    return alike || find_word(name, "lightning") ? LIGHTNING_STEPS : 0;
}

/* Sets a shift that is the same for all sizes, with the fields of diffusers. */
static void set_schedule(lz_model *m, int steps) {
    m->lora_steps = steps;
    m->schedule = m->own_schedule;
    if (!steps) return;
    m->schedule.dynamic = true;
    m->schedule.linear = false;
    m->schedule.base_shift = m->schedule.max_shift = log(m->family->few_step_shift);
    m->schedule.terminal = 0;
    m->schedule.space = LZ_AS_SHIFTED;
}

/* ---- reading ----------------------------------------------------------------------------------------------------- */

static lz_status read_one(const lz_model *m, const lz_lora *lora, lz_lora_facts *facts, lz_error *err) {
    if (!lora->path) return lz_fail(err, LZ_BAD_ARGUMENT, "a LoRA has no path");
    if (!isfinite(lora->weight) || fabs(lora->weight) > 1000)
        return lz_fail(err, LZ_BAD_ARGUMENT, "a weight of %g cannot be used for a LoRA: take -1000 to 1000",
                       lora->weight);
    lz_lora_report report;
    lz_status status = lz_lora_read(m->ctx, lora->path, lora->weight, lora->partial,
                                    m->family->targets(m->state, false), m->family->targets(m->state, true), &report,
                                    err);
    if (status) return status;
    if (!(facts->path = lz_host_copy(m->ctx, lora->path))) return lz_out_of_memory(err, (int64_t)strlen(lora->path));
    facts->weight = lora->weight;
    facts->modules = report.modules;
    facts->used = report.used;
    facts->in_text = report.in_text;
    facts->given_twice = report.double_given;
    facts->rank = report.rank;
    memcpy(facts->unused, report.unused, sizeof facts->unused);
    facts->steps = few_steps(m, lora, &report);
    facts->shift = facts->steps ? m->family->few_step_shift : 0;
    return LZ_OK;
}

/* Builds the patches whose parameters are open, or not needed; *waits: other patches exist. The scope frees a base
 * that was unpacked for DoRA. */
static lz_status build_open(const lz_targets *t, bool *waits, lz_error *err) {
    lz_status status = LZ_OK;
    for (int64_t i = 0; i < t->n && !status; i++) {
        lz_target *target = t->list[i];
        if (!lz_patch_waits(target)) continue;
        lz_scope *scope = lz_scope_begin(t->ctx, "LoRA");
        if (!lz_patch_needs_base(target))
            status = lz_patch_build(target, NULL, err);
        else if (target->param)
            status = lz_patch_build(target, lz_param_base(target->param), err);
        else
            *waits = true;
        lz_scope_end(scope);
    }
    return status;
}

static lz_status build(const lz_model *m, lz_error *err) {
    bool waits = false, text_waits = false;
    lz_status status = build_open(m->family->targets(m->state, false), &waits, err);
    if (!status && waits && m->family->build) status = m->family->build(m->state, err);
    if (!status) status = build_open(m->family->targets(m->state, true), &text_waits, err);
    if (status || !text_waits) return status;
    void *text = m->family->open_text(m->state, false, err);
    if (!text) return LZ_BAD_FILE;
    m->family->close_text(text);
    return LZ_OK;
}

static lz_status read_all(const lz_model *m, const lz_lora *loras, int n, lz_lora_facts *facts, lz_error *err) {
    lz_status status = LZ_OK;
    for (int i = 0; i < n && !status; i++) {
        lz_lora lora;
        size_t stride = loras->size;
        status = lz_read_options(&lora, sizeof lora, (const char *)loras + (size_t)i * stride, "LZ_LORA", err);
        if (!status) status = read_one(m, &lora, &facts[i], err);
    }
    return status ? status : build(m, err);
}

/* ---- changing ---------------------------------------------------------------------------------------------------- */

static lz_status check_idle(lz_model *m, lz_error *err) {
    pthread_mutex_lock(&m->kept.lock);
    bool busy = m->jobs != NULL;
    pthread_mutex_unlock(&m->kept.lock);
    if (!busy) return LZ_OK;
    return lz_fail(err, LZ_BAD_ARGUMENT, "a picture of this model is under way: LoRAs are changed between pictures");
}

lz_status lz_model_set_loras(lz_model *model, const lz_lora *loras, int n, lz_error *err) {
    if (!model || (n > 0 && !loras))
        return lz_fail(err, LZ_BAD_ARGUMENT, "set_loras: needs a model, and LoRAs if n is above 0");
    if (n < 0 || n > LORAS_MOST)
        return lz_fail(err, LZ_BAD_ARGUMENT, "set_loras: takes up to %d LoRAs, not %d", LORAS_MOST, n);
    lz_error local = {.status = LZ_OK};
    lz_context *ctx = model->ctx;
    if (!model->n_loras && !n) return LZ_OK;
    if (check_idle(model, err)) return LZ_BAD_ARGUMENT;
    lz_targets *parts[2] = {model->family->targets(model->state, false), model->family->targets(model->state, true)};
    bool had_text = lz_targets_patched(parts[1]);
    lz_lora_facts *facts = lz_host_alloc(ctx, (size_t)(n + 1) * sizeof *facts);
    lz_patch **old[2] = {lz_targets_take(parts[0]), lz_targets_take(parts[1])};
    if (facts && old[0] && old[1])
        read_all(model, loras, n, facts, &local);
    else
        lz_out_of_memory(&local, (int64_t)sizeof *facts);
    for (int i = 0; i < 2; i++)
        if (local.status)
            lz_targets_put(parts[i], old[i]);
        else
            lz_targets_drop(parts[i], old[i]);
    if (local.status) {
        if (facts) free_list(ctx, facts, n);
        if (err) *err = local;
        return local.status;
    }
    assert(facts);
    lz_loras_free(model);
    model->loras = facts;
    model->n_loras = n;
    model->lora_changes++;
    int steps = 0;
    for (int i = 0; i < n; i++)
        if (facts[i].steps) steps = facts[i].steps;
    set_schedule(model, steps);
    lz_kept_forget_transformer(model);
    if (had_text || lz_targets_patched(parts[1])) lz_kept_forget_text(model);
    return LZ_OK;
}

int lz_model_loras(const lz_model *model, lz_lora_facts *facts, int n) {
    if (!model) return 0;
    for (int i = 0; facts && i < n && i < model->n_loras; i++) facts[i] = model->loras[i];
    return model->n_loras;
}
