/* fast.c: --fast, the settings that are recommended for speed. The library knows them (pipeline/fast.c). */
#include <string.h>

#include "cli.h"

bool is_overruled(const arguments *a, const char *name) {
    return a->fast && is_elsewhere(a, name) && !is_by_line(a, name);
}

/* Was one of the options given that --fast sets? */
static bool is_chosen(const arguments *a) {
    return (a->steps && !is_overruled(a, "steps")) || (a->sampler && !is_overruled(a, "sampler")) ||
           (a->schedule && !is_overruled(a, "schedule"));
}

void say_fast(job *j) {
    const arguments *a = j->args;
    char now[sizeof j->said_fast] = "";
    if (a->fast && j->picture.fast)
        snprintf(now, sizeof now, "--fast: %d steps of %s, schedule %s", j->picture.steps, j->picture.sampler,
                 j->picture.schedule);
    else if (a->fast && !is_chosen(a))
        snprintf(now, sizeof now, "--fast has no effect; no faster settings are recommended for this model");
    if (*now && strcmp(now, j->said_fast) != 0) note(a, "%s", now);
    memcpy(j->said_fast, now, sizeof now);
}
