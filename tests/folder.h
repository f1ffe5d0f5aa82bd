/* folder.h: a temporary folder for a test that writes files, and an allocator that fails on request. */
#ifndef LZ_TEST_FOLDER_H
#define LZ_TEST_FOLDER_H

#include <dirent.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

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

#endif
