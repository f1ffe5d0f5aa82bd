/* output.c: where results go. Everything that can be known to be wrong with a name is found before computing. */
#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>
#include <sys/stat.h>
#include <unistd.h>

#include "cli.h"

static const struct {
    const char *ending;
    int64_t side; /* the most the format can say */
} kinds[] = {{".png", 65535}, {".jpg", 65535}, {".jpeg", 65535}, {".webp", 16383}};

const char *base_name(const char *path) {
    const char *slash = strrchr(path, '/');
    return slash ? slash + 1 : path;
}

int64_t picture_side_limit(const char *path) {
    const char *dot = strrchr(base_name(path), '.');
    for (size_t i = 0; dot && i < COUNT(kinds); i++)
        if (strcasecmp(dot, kinds[i].ending) == 0) return kinds[i].side;
    return 0;
}

bool is_folder(const char *path) {
    struct stat s;
    return !*base_name(path) || (stat(path, &s) == 0 && S_ISDIR(s.st_mode));
}

char *file_in(const char *folder, const char *name) {
    char *path = NULL;
    bool slash = folder && *base_name(folder);
    return asprintf(&path, "%s%s%s", folder ? folder : "", slash ? "/" : "", name) < 0 ? NULL : path;
}

int check_output(const arguments *args, const char *path) {
    struct stat s;
    if (is_folder(path)) return fail(args, FAILED, "%s: is a folder, and a file is to be written: add a name", path);
    size_t length = (size_t)(base_name(path) - path);
    char *folder = length ? strndup(path, length) : strdup(".");
    if (!folder) return fail(args, FAILED, "there is no memory left for a name");
    int code = DONE;
    if (stat(folder, &s) != 0)
        code = fail(args, FAILED, "%s: cannot be written: %s: %s; make the folder first", path, folder,
                    strerror(errno));
    else if (access(folder, W_OK | X_OK) != 0)
        code = fail(args, FAILED, "%s: cannot be written into this folder: %s", path, strerror(errno));
    free(folder);
    return code;
}

char *numbered_path(const char *path, int number) {
    const char *dot = strrchr(base_name(path), '.');
    size_t stem = dot ? (size_t)(dot - path) : strlen(path);
    char *to = NULL;
    return asprintf(&to, "%.*s-%d%s", (int)stem, path, number, path + stem) < 0 ? NULL : to;
}

int read_file(const arguments *args, const char *path, size_t most, char **text, size_t *bytes) {
    bool is_stdin = strcmp(path, "-") == 0;
    FILE *file = is_stdin ? stdin : fopen(path, "re");
    if (!file) return fail(args, FAILED, "%s: cannot be opened: %s", path, strerror(errno));
    size_t room = 0, n = 0, got = 1;
    int code = DONE;
    *text = NULL;
    while (got > 0 && n <= most) {
        if (n == room) {
            char *more = realloc(*text, room = 2 * room + 4096);
            if (!more) break;
            *text = more;
        }
        n += got = fread(*text + n, 1, room - n, file);
    }
    if (ferror(file))
        code = fail(args, FAILED, "%s: cannot be read: %s", path, strerror(errno));
    else if (n > most)
        code = fail(args, FAILED, "%s: is too large: at most %s are read", path, show_bytes((int64_t)most).text);
    else if (got > 0)
        code = fail(args, FAILED, "%s: there is no memory left to read it", path);
    if (!is_stdin) fclose(file);
    *bytes = n;
    return code;
}

/* Only a name that was asked for is overwritten. */
char *unused_path(const char *folder, int64_t seed) {
    char name[64];
    snprintf(name, sizeof name, "lazuli-%lld.png", (long long)seed);
    char *first = file_in(folder, name), *path = first ? strdup(first) : NULL;
    for (int i = 2; path && access(path, F_OK) == 0; i++) {
        free(path);
        path = numbered_path(first, i);
    }
    free(first);
    return path;
}
