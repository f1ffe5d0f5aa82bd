/* shrunk.c: see shrunk.h. If a mapped file becomes shorter while it is read, for example because a download overwrites
 * a model that is in use, the process gets SIGBUS. The library checks its files before each picture; during a picture
 * only a signal handler can end the program with a message. It removes the files that are being written, prints the
 * name of the shortened file, and exits.
 *
 * A handler may only call async-signal-safe functions (signal-safety(7)), so names are in static memory. */
#include "shrunk.h"

#include <fcntl.h>
#include <limits.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "parts.h"

/* ---- files that are being written -------------------------------------------------------------------------------- */

enum { PARTS = 8, NAME = PATH_MAX + 48 };

/* An entry belongs to the thread that has set `taken`, until it clears it; the handler reads entries that are ready. */
static struct {
    atomic_bool taken, ready;
    size_t reserved; /* length of the prefix of name that is an empty file, made to reserve it; 0: none */
    char name[NAME]; /* of the unfinished file, see name_part */
} parts[PARTS];

static int begin_part(const char *path, bool reserved) {
    int i = 0;
    while (i < PARTS && atomic_exchange(&parts[i].taken, true)) i++;
    if (i == PARTS) return i; /* more files than expected: this one would not be removed */
    size_t length = name_part(path, parts[i].name, NAME);
    parts[i].reserved = reserved ? length : 0;
    atomic_store(&parts[i].ready, length > 0);
    return i;
}

static void end_part(int i) {
    if (i == PARTS) return;
    atomic_store(&parts[i].ready, false);
    atomic_store(&parts[i].taken, false);
}

static lz_status write_image(lz_context *ctx, const char *path, bool reserved, const lz_image *image,
                             const char *const *text, lz_error *err) {
    int part = begin_part(path, reserved);
    lz_status status = lz_image_write(ctx, path, image, text, err);
    end_part(part);
    return status;
}

lz_status save_image(lz_context *ctx, const char *path, const lz_image *image, const char *const *text, lz_error *err) {
    return write_image(ctx, path, false, image, text, err);
}

lz_status save_reserved(lz_context *ctx, const char *path, const lz_image *image, const char *const *text,
                        lz_error *err) {
    return write_image(ctx, path, true, image, text, err);
}

lz_status save_tensors(lz_context *ctx, const char *path, const lz_named_array *arrays, int64_t n,
                       const char *const *text, lz_error *err) {
    int part = begin_part(path, false);
    lz_status status = lz_weights_save(ctx, path, arrays, n, text, err);
    end_part(part);
    return status;
}

/* ---- the handler ------------------------------------------------------------------------------------------------- */

static bool want_json, on_terminal;
static atomic_flag ending = ATOMIC_FLAG_INIT;

static uintptr_t read_hex(const char **at) {
    uintptr_t n = 0;
    for (;; ++*at) {
        int digit = **at >= '0' && **at <= '9' ? **at - '0' : **at >= 'a' && **at <= 'f' ? **at - 'a' + 10 : -1;
        if (digit < 0) return n;
        n = n << 4 | (uintptr_t)digit;
    }
}

/* Lines of /proc/self/maps are "BEGIN-END rw-p OFFSET DEVICE INODE    PATH". */
static const char *path_if_inside(const char *line, uintptr_t address) {
    const char *at = line, *path = strchr(line, '/');
    uintptr_t begin = read_hex(&at);
    if (*at++ != '-') return NULL;
    uintptr_t end = read_hex(&at);
    return address >= begin && address < end ? path : NULL;
}

/* The file that is mapped at an address; "a file of the model" if unknown. */
static const char *file_at(uintptr_t address) {
    static char line[NAME], block[4096];
    const char *path = NULL;
    size_t n = 0;
    int fd = open("/proc/self/maps", O_RDONLY | O_CLOEXEC);
    for (ssize_t got; fd >= 0 && !path && (got = read(fd, block, sizeof block)) > 0;)
        for (ssize_t i = 0; i < got && !path; i++) {
            char c = block[i];
            bool plain = c != '"' && c != '\\'; /* needs no escape in JSON */
            if (c != '\n') {
                if (n < sizeof line - 1) line[n++] = plain ? c : '?';
                continue;
            }
            line[n] = 0;
            n = 0;
            path = path_if_inside(lz_printable(line), address);
        }
    return path ? path : "a file of the model";
}

static void say_all(int to, const char *const *texts, size_t n) {
    for (size_t i = 0; i < n; i++) {
        ssize_t written = write(to, texts[i], strlen(texts[i]));
        (void)written; /* errors cannot be reported */
    }
}

static void remove_part(char *name, size_t reserved) {
    struct stat s;
    unlink(name);
    if (!reserved) return;
    name[reserved] = 0;
    if (stat(name, &s) == 0 && S_ISREG(s.st_mode) && s.st_size == 0) unlink(name);
}

#define SHRUNK ": the file became shorter while it was in use; run the same command again when the file is complete"

static void on_bus_error(int signal_number, siginfo_t *info, void *context) {
    (void)context;
    if (info->si_code != BUS_ADRERR) { /* not a missing page of a file: a bug, or sent by another process */
        signal(signal_number, SIG_DFL);
        raise(signal_number);
        return;
    }
    if (atomic_flag_test_and_set(&ending))
        for (;;) pause(); /* another thread is ending the program */
    for (int i = 0; i < PARTS; i++)
        if (atomic_load(&parts[i].ready)) remove_part(parts[i].name, parts[i].reserved);
    const char *path = file_at((uintptr_t)info->si_addr);
    say_all(STDERR_FILENO, (const char *[]){on_terminal ? "\r\033[K" : "", "lazuli: ", path, SHRUNK, "\n"}, 5);
    if (want_json) say_all(STDOUT_FILENO, (const char *[]){"{\"error\": \"", path, SHRUNK, "\"}\n"}, 4);
    _exit(1);
}

void end_on_shrunk_files(bool json) {
    want_json = json;
    on_terminal = isatty(STDERR_FILENO);
    struct sigaction action = {.sa_sigaction = on_bus_error, .sa_flags = SA_SIGINFO};
    sigemptyset(&action.sa_mask);
    sigaction(SIGBUS, &action, NULL);
}
