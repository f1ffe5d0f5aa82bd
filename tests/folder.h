/* folder.h: a temporary folder for a test that writes files, and an allocator that fails on request. */
#ifndef LZ_TEST_FOLDER_H
#define LZ_TEST_FOLDER_H

#include <dirent.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

#include "check.h"

static char folder[256];

__attribute__((unused)) static const char *in_folder(const char *name) {
    static char ring[64][512]; /* so many may be in use at once */
    static int next;
    char *path = ring[next++ & 63];
    snprintf(path, sizeof ring[0], "%s/%s", folder, name);
    return path;
}

__attribute__((unused)) static void enter_folder(void) {
    const char *base = getenv("TMPDIR");
    snprintf(folder, sizeof folder, "%s/lazuli-test-XXXXXX", base ? base : "/tmp");
    if (!mkdtemp(folder)) abort();
}

__attribute__((unused)) static int files_in_folder(void) {
    int n = 0;
    DIR *dir = opendir(folder);
    for (struct dirent *e; (e = readdir(dir));) n += e->d_name[0] != '.';
    closedir(dir);
    return n;
}

/* Empties the folder, and says how many files there were. */
__attribute__((unused)) static int empty_folder(void) {
    int n = 0;
    DIR *dir = opendir(folder);
    for (struct dirent *e; (e = readdir(dir));)
        if (e->d_name[0] != '.') n += unlink(in_folder(e->d_name)) == 0;
    closedir(dir);
    return n;
}

__attribute__((unused)) static void leave_folder(void) {
    empty_folder();
    rmdir(folder);
}

/* ---- memory that runs out ---------------------------------------------------------------------------------------- */

typedef struct failing {
    long long asked, fail_at, live;
} failing;

__attribute__((unused)) static void *failing_allocate(void *user, size_t bytes) {
    failing *f = user;
    if (++f->asked == f->fail_at) return NULL;
    f->live++;
    return aligned_alloc(64, (bytes + 63) / 64 * 64);
}

__attribute__((unused)) static void failing_release(void *user, void *memory, size_t bytes) {
    (void)bytes;
    ((failing *)user)->live -= memory != NULL;
    free(memory);
}

/* Calls attempt(ctx, number) in a context whose allocation of that number fails: 1, 2, ... until there are fewer
 * allocations. attempt checks its errors, and frees what it made; then nothing may be left. */
__attribute__((unused)) static void fail_each_allocation(void (*attempt)(lz_context *ctx, long long number),
                                                         int compute) {
    bool through = false;
    for (long long number = 1; !through && number < 10000; number++) {
        failing f = {.fail_at = number};
        lz_allocator allocator = {failing_allocate, failing_release, &f};
        lz_context *ctx = lz_open(.threads = 1, .compute = compute, .allocator = &allocator);
        if (ctx) attempt(ctx, number);
        through = ctx && f.asked < number;
        lz_close(ctx);
        CHECK_I64(f.live, 0);
    }
    CHECK(through);
}

#endif
