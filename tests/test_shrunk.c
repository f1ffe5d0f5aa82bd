/* test_shrunk.c: weight files that change while they are in use. The library refuses the next picture; during a
 * picture the signal handler of the command line ends the program, which is tested in a child process. */
#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/wait.h>

#include "check.h"
#include "cli/parts.c"  /* NOLINT(bugprone-suspicious-include): the handler needs it */
#include "cli/shrunk.c" /* NOLINT(bugprone-suspicious-include): the handler is not in the library */
#include "folder.h"

/* ---- before a picture -------------------------------------------------------------------------------------------- */

static void copy_file(const char *from, const char *to) {
    char line[1200];
    snprintf(line, sizeof line, "cp -rL '%s' '%s'", from, to);
    if (system(line) != 0) abort();
}

static void remove_model(const char *path) {
    char line[600];
    snprintf(line, sizeof line, "rm -r '%s'", path);
    if (system(line) != 0) abort();
}

static lz_status paint(lz_model *model, lz_error *err) {
    lz_picture picture;
    lz_status status = lz_generate(model, &picture, err, .prompt = "fox", .width = 32, .height = 32, .steps = 1);
    if (status == LZ_OK) lz_picture_free(&picture);
    return status;
}

static void touch_file(const char *path) { /* an hour ago */
    struct timespec times[2] = {{.tv_nsec = UTIME_OMIT}, {.tv_sec = time(NULL) - 3600}};
    if (utimensat(AT_FDCWD, path, times, 0) != 0) abort();
}

static void shorten_file(const char *path) {
    if (truncate(path, 4096) != 0) abort();
}

static void replace_file(const char *path) { /* as cp of a new version over another name, and mv, do */
    char other[600];
    snprintf(other, sizeof other, "%s.new", path);
    FILE *f = fopen(other, "w");
    if (!f || fputs("another version", f) < 0 || fclose(f) != 0 || rename(other, path) != 0) abort();
}

static void before_a_picture(void) {
    static const struct {
        const char *what, *file;
        void (*change)(const char *path);
        lz_status status;
    } cases[] = {
        {"shorter", "transformer/diffusion_pytorch_model-00002-of-00004.safetensors", shorten_file, LZ_IO},
        {"written to", "transformer/diffusion_pytorch_model-00002-of-00004.safetensors", touch_file, LZ_IO},
        {"shorter", "vae/diffusion_pytorch_model.safetensors", shorten_file, LZ_IO},
        {"replaced", "transformer/diffusion_pytorch_model-00002-of-00004.safetensors", replace_file, LZ_OK},
    };
    lz_context *ctx = lz_open(.threads = 1);
    enter_folder();
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        const char *model_folder = in_folder("model");
        char path[700];
        snprintf(path, sizeof path, "%s/%s", model_folder, cases[i].file);
        char from[1024];
        snprintf(from, sizeof from, "%.*s", (int)strlen(test_data("flux2/A/model_index.json")) - 17,
                 test_data("flux2/A/model_index.json"));
        copy_file(from, model_folder);
        lz_error err = {.status = LZ_OK};
        lz_model *model = lz_model_open(ctx, model_folder, &err);
        if (!CHECK(model, "%s", err.text)) break;
        CHECK_OK(paint(model, &err), &err);
        cases[i].change(path);
        lz_status status = paint(model, &err);
        CHECK(status == cases[i].status, "trap 6: a file %s gave %s", cases[i].what, lz_status_name(status));
        if (status) CHECK_TEXT(err.text, ".safetensors: the file was changed after it was opened (");
        lz_model_close(model); /* from here on the file concerns nobody: the next model paints again */
        remove_model(model_folder);
    }
    leave_folder();
    lz_close(ctx);
}

/* ---- in the middle of one ---------------------------------------------------------------------------------------- */

/* The part of link.png, which leads to target.png: it has the number 1, because another process left 0. */
static void begin_link(void) {
    char name[600];
    close(open(in_folder("target.png"), O_RDWR | O_CREAT, 0600)); /* empty, and not reserved by us: it stays */
    if (symlink("target.png", in_folder("link.png")) != 0) _exit(9);
    for (int i = 0; i < 2; i++) {
        if (i) begin_part(in_folder("link.png"), false);
        snprintf(name, sizeof name, "%s.%ld-%d.part", in_folder("target.png"), (long)getpid(), i);
        close(open(name, O_RDWR | O_CREAT, 0600));
    }
}

/* Begins to write three files, one of them done; then reads a page that is gone. */
static void read_shrunk(const char *weights, bool json) {
    end_on_shrunk_files(json);
    int fd = open(weights, O_RDWR | O_CREAT, 0600);
    if (fd < 0 || ftruncate(fd, 1 << 20) != 0) _exit(9);
    const volatile char *data = mmap(NULL, 1 << 20, PROT_READ, MAP_PRIVATE, fd, 0);
    if (data == MAP_FAILED || data[1 << 19] != 0) _exit(9);
    end_part(begin_part(in_folder("done.png"), true));
    begin_part(in_folder("half.png"), true);
    begin_link();
    for (int i = 0; i < 2; i++) {
        char name[600];
        snprintf(name, sizeof name, "%s.%ld-0.part", in_folder(i ? "done.png" : "half.png"), (long)getpid());
        close(open(name, O_RDWR | O_CREAT, 0600));
    }
    close(open(in_folder("half.png"), O_RDWR | O_CREAT, 0600)); /* a reserved name */
    if (ftruncate(fd, 4096) != 0) _exit(9);
    _exit(data[1 << 19] ? 7 : 8);
}

static int run_shrunk(bool json, char *said, size_t room) {
    int ends[2], status = 0;
    if (pipe(ends) != 0) abort();
    pid_t child = fork();
    if (child == 0) {
        dup2(ends[1], STDERR_FILENO);
        dup2(ends[1], STDOUT_FILENO);
        read_shrunk(in_folder("some \"weights\".safetensors"), json);
    }
    close(ends[1]);
    size_t n = 0;
    for (ssize_t got; n < room - 1 && (got = read(ends[0], said + n, room - 1 - n)) > 0;) n += (size_t)got;
    said[n] = 0;
    close(ends[0]);
    waitpid(child, &status, 0);
    return WIFEXITED(status) ? WEXITSTATUS(status) : -WTERMSIG(status);
}

static void in_the_middle(void) {
    char said[2000];
    enter_folder();
    for (int json = 0; json < 2; json++) {
        int code = run_shrunk(json, said, sizeof said);
        CHECK(code == 1, "trap 6: a mapped file that became shorter ended with %d: %s", code, said);
        CHECK_TEXT(said, "lazuli: /");
        CHECK_TEXT(said, "some ?weights?.safetensors: the file became shorter while it was in use; run the same");
        CHECK((strstr(said, "{\"error\": \"/") != NULL) == json);
        /* The weights, the file of which nobody said that it is being written, link.png, target.png and the part that
         * another process left. */
        CHECK_I64(files_in_folder(), 5);
        CHECK(access(in_folder("target.png"), F_OK) == 0, "an empty file of the user's was removed");
        CHECK_I64(empty_folder(), 5);
    }
    leave_folder();
}

TEST_MAIN({"shrunk: before a picture", before_a_picture}, {"shrunk: in the middle of one", in_the_middle})
