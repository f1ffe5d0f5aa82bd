/* test_rooms.c: a source file includes only what its room may include. The rooms and what each may include are the
 * table in docs/architecture.md, from the lowest room to the highest. A room may name only rooms above its own row
 * there, so the table has no cycle, and then the includes have none. The functions that the walks in that file name are
 * there. */
#include <ctype.h>
#include <dirent.h>
#include <sys/stat.h>

#include "check.h"

enum { ROOMS = 32, PATH_BYTES = 512, FILE_BYTES = 1 << 18 };

typedef struct room {
    char name[64];
    bool may[ROOMS]; /* include these rooms */
    int files;
} room;

static room rooms[ROOMS];
static int n_rooms;

/* The text between the next two backticks, and where to go on; NULL: there is none. */
static const char *next_word(const char *at, char *word, size_t bytes) {
    const char *begin = strchr(at, '`'), *end = begin ? strchr(begin + 1, '`') : NULL;
    if (!end) return NULL;
    snprintf(word, bytes, "%.*s", (int)(end - begin - 1), begin + 1);
    return end + 1;
}

/* "| `graph` | what it holds | `base`, `op` |" */
static void read_row(const char *line) {
    room *r = &rooms[n_rooms];
    char word[64];
    const char *at = next_word(line, r->name, sizeof r->name), *cell = at ? strchr(at, '|') : NULL;
    cell = cell ? strchr(cell + 1, '|') : NULL;
    if (!CHECK(cell, "row '%.60s' of docs/architecture.md needs three cells", line)) return;
    while ((cell = next_word(cell, word, sizeof word))) {
        int i = 0;
        while (i < n_rooms && strcmp(rooms[i].name, word)) i++;
        if (CHECK(i < n_rooms, "room '%s' may include '%s', which is not above it in the table", r->name, word))
            r->may[i] = true;
    }
    n_rooms++;
}

static void read_table(void) {
    FILE *f = fopen(LZ_SOURCE_DIR "/docs/architecture.md", "r");
    char line[1024];
    bool inside = false;
    n_rooms = 0;
    memset(rooms, 0, sizeof rooms);
    while (f && fgets(line, sizeof line, f)) {
        if (!strncmp(line, "| room |", 8))
            inside = true;
        else if (inside && line[0] != '|')
            inside = false;
        else if (inside && !strncmp(line, "| `", 3) && CHECK(n_rooms < ROOMS))
            read_row(line);
    }
    if (f) fclose(f);
    CHECK(n_rooms > 3, "docs/architecture.md has a table of rooms");
}

/* The room of a path below src: the longest row that the path begins with; -1: none. */
static int room_of(const char *path) {
    int best = -1;
    for (int i = 0; i < n_rooms; i++) {
        size_t n = strlen(rooms[i].name);
        bool inside = !strncmp(path, rooms[i].name, n) && path[n] == '/';
        if (inside && (best < 0 || n > strlen(rooms[best].name))) best = i;
    }
    return best;
}

static bool is_file(const char *folder, const char *name) {
    char path[3 * PATH_BYTES];
    struct stat s;
    snprintf(path, sizeof path, LZ_SOURCE_DIR "/%s/%s", folder, name);
    return stat(path, &s) == 0 && S_ISREG(s.st_mode);
}

/* file: below src. included: as it stands between the quotes, below src, include, src/cli or the folder of the file. */
static void check_include(const char *file, const char *included) {
    char folder[PATH_BYTES], below_src[2 * PATH_BYTES];
    int own = room_of(file), other = own;
    snprintf(folder, sizeof folder, "src/%.*s", (int)(strrchr(file, '/') - file), file);
    if (is_file("src", included))
        other = room_of(included);
    else if (is_file(folder, included)) {
        snprintf(below_src, sizeof below_src, "%s/%s", folder + strlen("src/"), included);
        other = room_of(below_src);
    } else if (!is_file("include", included) && !is_file("src/cli", included))
        CHECK(false, "%s includes '%s', which is not there", file, included);
    CHECK(own >= 0 && other >= 0 && (own == other || rooms[own].may[other]),
          "%s includes '%s': docs/architecture.md does not let room '%s' include room '%s'", file, included,
          own >= 0 ? rooms[own].name : "?", other >= 0 ? rooms[other].name : "?");
}

static void check_file(const char *file) {
    char path[4 * PATH_BYTES], line[1024], included[PATH_BYTES];
    int own = room_of(file);
    if (!CHECK(own >= 0, "src/%s is in no room of docs/architecture.md", file)) return;
    rooms[own].files++;
    snprintf(path, sizeof path, LZ_SOURCE_DIR "/src/%s", file);
    FILE *f = fopen(path, "r");
    while (f && fgets(line, sizeof line, f))
        if (sscanf(line, " # include \"%500[^\"]\"", included) == 1) check_include(file, included);
    if (CHECK(f, "src/%s can be read", file)) fclose(f);
}

/* below: a folder of src, with a slash at its end, or "". */
static void check_folder(const char *below) {
    char path[4 * PATH_BYTES], inside[PATH_BYTES];
    if (snprintf(path, sizeof path, LZ_SOURCE_DIR "/src/%s", below) >= (int)sizeof path) return;
    DIR *d = opendir(path);
    for (const struct dirent *e; d && (e = readdir(d));) {
        const char *end = strrchr(e->d_name, '.');
        bool is_source = end && (!strcmp(end, ".c") || !strcmp(end, ".h"));
        if (e->d_name[0] == '.') continue;
        if (snprintf(inside, PATH_BYTES, "%s%s%s", below, e->d_name, end ? "" : "/") >= PATH_BYTES) continue;
        if (!end)
            check_folder(inside);
        else if (is_source)
            check_file(inside);
    }
    CHECK(d, "src/%s can be read", below);
    if (d) closedir(d);
}

static void includes(void) {
    read_table();
    check_folder("");
    for (int i = 0; i < n_rooms; i++) CHECK(rooms[i].files > 0, "room '%s' holds no file", rooms[i].name);
}

/* ---- walks ------------------------------------------------------------------------------------------------------- */

/* A whole file, ended by a zero; NULL: it cannot be read. */
static char *read_all(const char *path) {
    FILE *f = fopen(path, "r");
    char *text = f ? calloc(1, FILE_BYTES) : NULL;
    if (text) text[fread(text, 1, FILE_BYTES - 1, f)] = 0;
    if (f) fclose(f);
    return text;
}

static bool is_name_character(char c) { return isalnum((unsigned char)c) || c == '_'; }

/* The text defines name: it stands there as a whole word, with '(' or " =" after it. */
static bool has_definition(const char *text, const char *name) {
    size_t n = strlen(name);
    for (const char *at = text; (at = strstr(at, name)); at += n)
        if ((at == text || !is_name_character(at[-1])) && (at[n] == '(' || !strncmp(at + n, " =", 2))) return true;
    return false;
}

/* Every `file: function` that docs/architecture.md names, below src, is there. A line may end after the colon. */
static void walks(void) {
    char *doc = read_all(LZ_SOURCE_DIR "/docs/architecture.md"), step[256], file[128], name[128], path[PATH_BYTES];
    int n = 0;
    if (!CHECK(doc)) return;
    for (const char *at = doc; (at = next_word(at, step, sizeof step));) {
        char end = 0;
        if (sscanf(step, "%127[a-z0-9_/].c: %127[a-zA-Z0-9_]%c", file, name, &end) != 2) continue;
        snprintf(path, sizeof path, LZ_SOURCE_DIR "/src/%s.c", file);
        char *text = read_all(path);
        if (CHECK(text, "docs/architecture.md names src/%s.c, which is not there", file))
            CHECK(has_definition(text, name), "docs/architecture.md names '%s' in src/%s.c, which has no such function",
                  name, file);
        free(text);
        n++;
    }
    CHECK(n > 40, "docs/architecture.md names %d functions", n);
    free(doc);
}

TEST_MAIN({"includes", includes}, {"walks", walks})
