/* parts.c: see parts.h. */
#include "parts.h"

#include <dirent.h>
#include <errno.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

const char *base_name(const char *path) {
    const char *slash = strrchr(path, '/');
    return slash ? slash + 1 : path;
}

char *folder_of(const char *path) {
    size_t length = (size_t)(base_name(path) - path);
    return length ? strndup(path, length) : strdup("./");
}

static const char ending_form[] = ".%ld-%u.part";

size_t name_part(const char *path, char *to, size_t size) {
    struct stat s;
    char *target = realpath(path, NULL);
    size_t length = (size_t)snprintf(to, size, "%s", target ? target : path);
    unsigned number = 0;
    free(target);
    if (length + 48 > size) return 0;
    do snprintf(to + length, size - length, ending_form, (long)getpid(), number++);
    while (lstat(to, &s) == 0); /* exists: left by an earlier process with the same PID */
    return length;
}

bool is_part_ending(const char *ending, pid_t *pid) {
    long process;
    unsigned number;
    char again[64]; /* printed again, because sscanf also accepts blanks, signs, zeros and trailing text */
    if (sscanf(ending, ending_form, &process, &number) != 2 || process < 1) return false;
    snprintf(again, sizeof again, ending_form, process, number);
    *pid = (pid_t)process;
    return strcmp(again, ending) == 0;
}

void remove_parts(const char *path) {
    char *target = realpath(path, NULL), *folder = folder_of(target ? target : path);
    const char *base = base_name(target ? target : path);
    DIR *dir = folder ? opendir(folder) : NULL;
    size_t length = strlen(base);
    for (const struct dirent *e; dir && (e = readdir(dir));) {
        pid_t pid;
        if (strncmp(e->d_name, base, length) != 0 || !is_part_ending(e->d_name + length, &pid)) continue;
        if (kill(pid, 0) != 0 && errno == ESRCH) unlinkat(dirfd(dir), e->d_name, 0);
    }
    if (dir) closedir(dir);
    free(folder);
    free(target);
}
