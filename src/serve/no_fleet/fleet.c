/* fleet.c: for builds without hiredis. */
#include <stdio.h>

#include "../store.h"

static const char sentence[] = "this lazuli was built without hiredis, which --store needs";

store *fleet_store_open(front *f, char *why, size_t size) {
    (void)f;
    snprintf(why, size, "%s", sentence);
    return NULL;
}

int fleet_worker_run(const serve_options *options, char *why, size_t size) {
    (void)options;
    snprintf(why, size, "%s", sentence);
    return 1;
}
