/* test_serve.c: the parsers of the server, and the flusher of its job file. What the server does as a whole is tested by
 * tests/cli/serve.py, with the files of tests/serve. */
#include <errno.h>
#include <poll.h>
#include <stdatomic.h>
#include <sys/eventfd.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "serve/flush.h"
#include "serve/inside.h"
#include "serve/measure.h"
#include "serve/multipart.h"
#include "serve/sse.h"
#include "serve/text.h"
#include "serve/wire.h"

#include "folder.h"

static void base64(void) {
    /* RFC 4648, section 10 */
    static const char *const pairs[][2] = {{"", ""},
                                           {"f", "Zg=="},
                                           {"fo", "Zm8="},
                                           {"foo", "Zm9v"},
                                           {"foob", "Zm9vYg=="},
                                           {"fooba", "Zm9vYmE="},
                                           {"foobar", "Zm9vYmFy"}};
    for (size_t i = 0; i < sizeof pairs / sizeof *pairs; i++) {
        buffer text = {.data = NULL}, back = {.data = NULL};
        CHECK(base64_add(&text, pairs[i][0], strlen(pairs[i][0])));
        CHECK(strcmp(text.data, pairs[i][1]) == 0, "%s is %s", pairs[i][0], text.data);
        CHECK(base64_read(pairs[i][1], strlen(pairs[i][1]), &back) && back.size == strlen(pairs[i][0]) &&
                  (!back.size || memcmp(back.data, pairs[i][0], back.size) == 0),
              "%s", pairs[i][1]);
        buffer_free(&text);
        buffer_free(&back);
    }
    static const char *const wrong[] = {
        "Z", "Zg", "Zg=", "Zg==Zg==", "Zh==", "Zm9=", "Z===", "====", "Zm 9", "Zm9v\nZm9v", "Zm-_", "=Zg=", "Zg=a"};
    for (size_t i = 0; i < sizeof wrong / sizeof *wrong; i++) {
        buffer back = {.data = NULL};
        CHECK(!base64_read(wrong[i], strlen(wrong[i]), &back), "%s is refused", wrong[i]);
        buffer_free(&back);
    }
}

static void data_urls(void) {
    static const struct {
        const char *url;
        bool good;
    } all[] = {{"data:image/png;base64,Zm9v", true},
               {"DATA:;BASE64,Zm9v", true},
               {"data:image/png,foo", false},
               {"data:;base64", false},
               {"http://a/;base64,Zm9v", false},
               {"data:image/png;base64,Zm9", false},
               {"", false}};
    for (size_t i = 0; i < sizeof all / sizeof *all; i++) {
        buffer back = {.data = NULL};
        CHECK(data_url_read(all[i].url, strlen(all[i].url), &back) == all[i].good, "%s", all[i].url);
        if (all[i].good) CHECK(back.size == 3 && memcmp(back.data, "foo", 3) == 0);
        buffer_free(&back);
    }
}

static int parts_of(const char *body, form_part parts[PARTS]) {
    const char *why;
    return multipart_read(body, strlen(body), "b", parts, &why);
}

static void forms(void) {
    form_part parts[PARTS];
    char boundary[BOUNDARY + 1];
    CHECK(multipart_boundary("multipart/form-data; boundary=abc", boundary) && strcmp(boundary, "abc") == 0);
    CHECK(multipart_boundary("Multipart/Form-Data; charset=utf-8; boundary=\"a b\"", boundary) &&
          strcmp(boundary, "a b") == 0);
    CHECK(!multipart_boundary("multipart/form-data", boundary));
    CHECK(!multipart_boundary("multipart/form-data; boundary=", boundary));
    CHECK(!multipart_boundary("multipart/form-data; boundary=a\"b", boundary));
    CHECK(!multipart_boundary("application/json; boundary=abc", boundary));
    char longest[200] = "multipart/form-data; boundary=";
    memset(longest + 30, 'x', 70);
    CHECK(multipart_boundary(longest, boundary));
    longest[100] = 'x';
    CHECK(!multipart_boundary(longest, boundary));

    int n = parts_of(
        "preamble\r\n--b\r\nContent-Disposition: form-data; name=\"prompt\"\r\n\r\na fox\r\n--b\r\n"
        "content-type: image/png\r\ncontent-disposition: form-data; name=\"image[]\"; filename=\"a;\\\"b.png\"\r\n\r\n"
        "\r\n--x\r\n--b--\r\n",
        parts);
    if (CHECK_I64(n, 2)) {
        CHECK(strcmp(parts[0].name, "prompt") == 0 && !parts[0].is_file && parts[0].size == 5);
        CHECK(strcmp(parts[1].name, "image[]") == 0 && parts[1].is_file && parts[1].size == 5);
        CHECK(memcmp(parts[1].data, "\r\n--x", 5) == 0);
    }
    CHECK_I64(parts_of("--b\r\nContent-Disposition: form-data; name=a\r\n\r\n\r\n--b--", parts), 1);
    CHECK_I64(parts[0].size, 0);
    CHECK_I64(parts_of("--b--", parts), 0);
    static const char *const wrong[] = {
        "",
        "no boundary",
        "--b\r\n",
        "--b\r\nContent-Disposition: form-data; name=\"a\"\r\n\r\nno end",
        "--b\r\nContent-Disposition: form-data\r\n\r\nx\r\n--b--",
        "--b\r\nContent-Type: text/plain\r\n\r\nx\r\n--b--",
        "--b\r\nContent-Disposition: form-data; name=a\r\nContent-Disposition: form-data; name=b\r\n\r\nx\r\n--b--",
        "--b\nContent-Disposition: form-data; name=\"a\"\n\nx\n--b--",
        "--b\r\nContent-Disposition: form-data; name=\"a\r\n\r\nx\r\n--b--",
    };
    for (size_t i = 0; i < sizeof wrong / sizeof *wrong; i++) CHECK_I64(parts_of(wrong[i], parts), -1);

    buffer many = {.data = NULL};
    const char *why;
    for (int i = 0; i < PARTS; i++)
        buffer_print(&many, "--b\r\nContent-Disposition: form-data; name=\"a\"\r\n\r\nx\r\n");
    size_t length = many.size;
    buffer_print(&many, "--b--");
    CHECK_I64(multipart_read(many.data, many.size, "b", parts, &why), PARTS);
    many.size = length;
    buffer_print(&many, "--b\r\nContent-Disposition: form-data; name=\"a\"\r\n\r\nx\r\n--b--");
    CHECK_I64(multipart_read(many.data, many.size, "b", parts, &why), -1);
    buffer_free(&many);
}

/* The sizes that lz_image_write stores. */
static void sizes(void) {
    static const char *const kinds[] = {".png", ".jpg", ".webp"};
    lz_context *ctx = lz_open(.threads = 1);
    uint8_t pixels[3 * 37 * 21] = {0};
    lz_image image = {.width = 37, .height = 21, .pixels = pixels};
    const char *const texts[] = {"prompt", "a fox", NULL};
    for (int i = 0; i < 6; i++) {
        int64_t bytes = 0, width = 0, height = 0;
        char *data = lz_image_encode(ctx, kinds[i % 3], &image, i < 3 ? NULL : texts, 0, &bytes, NULL);
        CHECK(data && measure_image(data, (size_t)bytes, &width, &height) && width == 37 && height == 21,
              "%s: %lld x %lld", kinds[i % 3], (long long)width, (long long)height);
        CHECK(data && image_is_whole(data, (size_t)bytes), "%s is whole", kinds[i % 3]);
        for (int64_t n = 0; data && n < bytes; n++) { /* copied, so that a sanitizer sees a read after the end */
            char *cut = malloc((size_t)n + 1);
            memcpy(cut, data, (size_t)n);
            char *tight = realloc(cut, n ? (size_t)n : 1);
            measure_image(tight ? tight : cut, (size_t)n, &width, &height);
            CHECK(!image_is_whole(tight ? tight : cut, (size_t)n), "%s: %lld of %lld bytes", kinds[i % 3], (long long)n,
                  (long long)bytes);
            free(tight ? tight : cut);
        }
        lz_free_text(ctx, data);
    }
    int64_t width, height;
    CHECK(!measure_image("GIF89a", 6, &width, &height) && !measure_image("", 0, &width, &height));
    /* the end of a small picture inside of a JPEG is not its own end */
    static const char small[] = "\xff\xd8\xff\xe1\0\6\xff\xd8\xff\xd9\xff\xc0\0\x11\x8\0\x15\0\x25\3\1\x22\0\xff\xd9";
    size_t n = sizeof small - 1;
    CHECK(measure_image(small, n, &width, &height) && width == 37 && height == 21);
    CHECK(image_is_whole(small, n) && !image_is_whole(small, n - 2));
    lz_close(ctx);
}

static void texts(void) {
    char good[] = "a+b%20%C3%A9", bad[] = "a%0", zero[] = "a%00";
    CHECK(unescape(good) && strcmp(good, "a b \xc3\xa9") == 0, "%s", good);
    CHECK(!unescape(bad) && !unescape(zero));
    static const char *const utf8[] = {"", "a", "\xc3\xa9", "\xe2\x82\xac", "\xf0\x9f\x98\x80"};
    static const char *const other[] = {"\xc3", "\xc0\x80", "\xe0\x80\x80", "\xed\xa0\x80", "\xf4\x90\x80\x80",
                                        "\xff", "\x80"};
    for (size_t i = 0; i < sizeof utf8 / sizeof *utf8; i++) CHECK(is_utf8(utf8[i], strlen(utf8[i])), "%zu", i);
    for (size_t i = 0; i < sizeof other / sizeof *other; i++) CHECK(!is_utf8(other[i], strlen(other[i])), "%zu", i);
    char id[ID_BYTES], again[ID_BYTES], hex[65];
    make_id(id, "job_");
    make_id(again, "job_");
    CHECK(strlen(id) == 30 && is_id(id) && strcmp(id, again) != 0, "%s", id);
    CHECK(!is_id("") && !is_id("../x") && !is_id("A") && !is_id("a.b"));
    hash_hex("abc", 3, hex); /* FIPS 180-2 */
    CHECK(strcmp(hex, "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad") == 0, "%s", hex);
    CHECK(same_text("a", "a") && !same_text("a", "b") && !same_text("a", NULL));
}

static void messages(void) {
    buffer b = {.data = NULL}, bytes;
    json_t *object;
    CHECK(wire_add(&b, json_pack("{s:s}", "type", "beat"), "xyz", 3));
    CHECK(wire_add(&b, json_pack("{s:s}", "type", "ready"), NULL, 0));
    size_t all = b.size;
    for (size_t n = 0; n < 20; n++) { /* a part of a message is none */
        buffer piece = {.data = NULL};
        buffer_add(&piece, b.data, n);
        CHECK_I64(wire_take(&piece, &object, &bytes), 0);
        buffer_free(&piece);
    }
    CHECK_I64(wire_take(&b, &object, &bytes), 1);
    CHECK(bytes.size == 3 && memcmp(bytes.data, "xyz", 3) == 0 && b.size < all);
    json_decref(object);
    buffer_free(&bytes);
    CHECK_I64(wire_take(&b, &object, &bytes), 1);
    CHECK(strcmp(json_string_value(json_object_get(object, "type")), "ready") == 0 && !bytes.size && !b.size);
    json_decref(object);
    buffer_add(&b, "\xff\xff\xff\xff\0\0\0\0", 8);
    CHECK_I64(wire_take(&b, &object, &bytes), -1);
    buffer_free(&b);
}

static int64_t size_of(const char *path) {
    struct stat s;
    return stat(path, &s) == 0 ? (int64_t)s.st_size : -1;
}

/* Waits until the flusher has told of a flush that covers all commits; false: not within 20 seconds. */
static bool are_flushed(const flusher *f, int news) {
    for (int i = 0; i < 200 && flusher_flushed(f) < flusher_committed(f); i++) {
        struct pollfd one = {.fd = news, .events = POLLIN};
        uint64_t n;
        if (poll(&one, 1, 100) > 0 && read(news, &n, sizeof n) != sizeof n) return false;
    }
    return flusher_flushed(f) == flusher_committed(f);
}

/* Takes the place of libc's function, in the whole program. */
static atomic_bool disk_is_broken;
static atomic_uint_fast64_t order; /* counts calls */
static atomic_uint_fast64_t log_order;
int fdatasync(int file) {
    log_order = ++order;
    if (!disk_is_broken) return syscall(SYS_fdatasync, file) == 0 ? 0 : -1;
    errno = EIO;
    return -1;
}

static _Atomic ino_t synced_folder;
static atomic_uint_fast64_t folder_order;

/* Likewise. */
int fsync(int file) {
    struct stat s;
    if (fstat(file, &s) == 0 && S_ISDIR(s.st_mode)) {
        synced_folder = s.st_ino;
        folder_order = ++order;
    }
    return syscall(SYS_fsync, file) == 0 ? 0 : -1;
}

/* A folder is flushed once, before the log, in the thread of the flusher. */
static void flushed_folders(void) {
    sqlite3 *db = NULL;
    struct stat s;
    enter_folder();
    const char *path = in_folder("jobs.sqlite");
    char *made = strdup(in_folder("pictures"));
    int news = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
    CHECK(made && mkdir(made, 0700) == 0 && stat(made, &s) == 0 && sqlite3_open(path, &db) == SQLITE_OK);
    CHECK(sqlite3_exec(db, "PRAGMA journal_mode=WAL; PRAGMA synchronous=NORMAL; CREATE TABLE t(b)", NULL, NULL, NULL) ==
          SQLITE_OK);
    flusher *f = flusher_new(db, path, news);
    CHECK(f && !flusher_changed(f, in_folder("none")), "a folder that is not there");
    for (int i = 0; i < 2; i++) {
        synced_folder = 0;
        CHECK(flusher_changed(f, made) && synced_folder == 0, "not by the thread of the caller");
        CHECK(sqlite3_exec(db, "INSERT INTO t VALUES(1)", NULL, NULL, NULL) == SQLITE_OK && are_flushed(f, news));
        CHECK(synced_folder == s.st_ino && folder_order < log_order, "the folder is flushed before the log");
        synced_folder = 0;
        CHECK(sqlite3_exec(db, "INSERT INTO t VALUES(1)", NULL, NULL, NULL) == SQLITE_OK && are_flushed(f, news));
        CHECK(synced_folder == 0, "and only if it has changed");
    }
    flusher_free(f);
    sqlite3_close(db);
    close(news);
    rmdir(made);
    free(made);
    empty_folder();
    rmdir(folder);
}

static void failed_flushes(void) {
    sqlite3 *db = NULL;
    enter_folder();
    const char *path = in_folder("jobs.sqlite");
    int news = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
    CHECK(sqlite3_open(path, &db) == SQLITE_OK);
    CHECK(sqlite3_exec(db, "PRAGMA journal_mode=WAL; PRAGMA synchronous=NORMAL; CREATE TABLE t(b)", NULL, NULL, NULL) ==
          SQLITE_OK);
    flusher *f = flusher_new(db, path, news);
    CHECK(f && sqlite3_exec(db, "INSERT INTO t VALUES(1)", NULL, NULL, NULL) == SQLITE_OK && are_flushed(f, news));
    uint64_t before = flusher_flushed(f), n;
    disk_is_broken = true;
    CHECK(sqlite3_exec(db, "INSERT INTO t VALUES(2)", NULL, NULL, NULL) == SQLITE_OK);
    struct pollfd one = {.fd = news, .events = POLLIN};
    CHECK(poll(&one, 1, 10000) == 1 && read(news, &n, sizeof n) == sizeof n, "a failure is told");
    CHECK(flusher_failed(f) && flusher_flushed(f) == before, "a commit that is not on the disk does not count");
    disk_is_broken = false;
    CHECK(sqlite3_exec(db, "INSERT INTO t VALUES(3)", NULL, NULL, NULL) == SQLITE_OK);
    poll(NULL, 0, 300);
    CHECK(flusher_flushed(f) == before, "nor do commits after it");
    flusher_free(f); /* though commits are not flushed */
    sqlite3_close(db);
    close(news);
    empty_folder();
    rmdir(folder);
}

static void flushes(void) {
    enum { ROWS = 40, MEBIBYTE = 1 << 20 };
    sqlite3 *db = NULL, *other = NULL;
    sqlite3_stmt *q = NULL;
    enter_folder();
    const char *path = in_folder("jobs.sqlite"), *log = in_folder("jobs.sqlite-wal");
    int news = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
    CHECK(sqlite3_open(path, &db) == SQLITE_OK);
    CHECK(sqlite3_exec(db,
                       "PRAGMA journal_mode=WAL; PRAGMA synchronous=NORMAL; PRAGMA user_version=1; CREATE TABLE t(b)",
                       NULL, NULL, NULL) == SQLITE_OK);
    flusher *f = flusher_new(db, path, news);
    CHECK(f && flusher_committed(f) == 0 && flusher_flushed(f) == 0 && !flusher_failed(f));
    for (int i = 0; i < ROWS; i++) /* 5 MiB, which is more than the log should keep */
        CHECK(sqlite3_exec(db, "INSERT INTO t VALUES(zeroblob(131072))", NULL, NULL, NULL) == SQLITE_OK);
    CHECK_I64((int64_t)flusher_committed(f), ROWS);
    CHECK(are_flushed(f, news) && !flusher_failed(f));
    for (int i = 0; i < 200 && size_of(path) < 5 * MEBIBYTE; i++) poll(NULL, 0, 100);
    CHECK(size_of(path) >= 5 * MEBIBYTE, "the log was moved into the database: %lld", (long long)size_of(path));
    poll(NULL, 0, 200); /* and begun anew */
    int64_t before = size_of(log);
    for (int i = 0; i < 30; i++)
        CHECK(sqlite3_exec(db, "INSERT INTO t VALUES(zeroblob(4096))", NULL, NULL, NULL) == SQLITE_OK);
    CHECK(before > 5 * MEBIBYTE && size_of(log) == before, "the log does not grow: %lld", (long long)size_of(log));
    CHECK(are_flushed(f, news));
    /* A killed process leaves the files as they are. */
    CHECK(sqlite3_open_v2(path, &other, SQLITE_OPEN_READONLY, NULL) == SQLITE_OK);
    CHECK(sqlite3_prepare_v2(other, "SELECT count(*) FROM t", -1, &q, NULL) == SQLITE_OK &&
          sqlite3_step(q) == SQLITE_ROW);
    CHECK_I64(sqlite3_column_int64(q, 0), ROWS + 30);
    sqlite3_finalize(q);
    sqlite3_close(other);
    flusher_free(f);
    flusher_free(NULL);
    sqlite3_close(db);
    CHECK(size_of(log) == -1, "the last connection removes the log");
    CHECK(!flusher_new(NULL, in_folder("none"), news), "a file that does not exist");
    close(news);
    empty_folder();
    rmdir(folder);
}

/* Answers that are being sent have MOST_ANSWERS together. Each counts until its request ends. */
static void answers(void) {
    static char path[] = "/v1/images/generations";
    front f = {.requests = NULL};
    request second = {.front = &f, .path = path}, first = {.front = &f, .path = path, .next = &second};
    job large = {.made = 2, .pictures = {{.bytes = MOST_ANSWERS / 8 * 3}, {.bytes = MOST_ANSWERS / 8 * 3}}};
    job small = {.made = 1, .pictures = {{.bytes = 30}}};
    buffer text = {.data = NULL};
    f.requests = &first;
    CHECK(pictures_have_room(&second, &large), "an answer that is alone");
    CHECK(buffer_add(&text, "some bytes", 10));
    reply_bytes(&first, 200, "text/plain", &text);
    CHECK(first.answer_bytes == 10 && pictures_have_room(&second, &small), "a small one beside it");
    CHECK(!second.response && !pictures_have_room(&second, &large), "a large one");
    CHECK(second.response && second.status == 429, "it is answered with %d", second.status);
    reply_empty(&second, 204);
    stream out = {.out = {.size = (size_t)MOST_ANSWERS}};
    first.stream = &out;
    CHECK(!answers_have_room(&f, 0), "the events that a client has not read count");
    first.stream = NULL;
    f.requests = &second; /* the first client has got its answer */
    CHECK(pictures_have_room(&second, &large), "there is room again");
    MHD_destroy_response(first.response);
    MHD_destroy_response(second.response);
}

/* With k partial images of s steps, previews are sent after the steps ceil(i * s / (k + 1)), but not after the last. */
static void previews(void) {
    front f = {.models = {{.id = "demo"}}, .n_models = 1};
    for (int k = 0; k <= 3; k++)
        for (int s = 1; s <= 30; s++) {
            request r = {.front = &f};
            stream out = {.request = &r, .partials = k};
            job j = {.settings = json_pack("{s:{s:s}}", "openai", "quality", "auto"), .n = 1};
            buffer image = {.data = NULL};
            CHECK(j.settings && buffer_add(&image, "x", 1));
            for (int step = 1, sent = 0; step <= s; step++) {
                bool due = false;
                for (int i = 1; i <= k; i++) due = due || (step < s && (i * s + k) / (k + 1) == step);
                json_t *facts = json_pack("{s:i, s:i, s:i, s:i}", "step", step, "steps", s, "width", 8, "height", 8);
                openai_preview(&out, &j, facts, &image);
                json_decref(facts);
                sent += due;
                CHECK(out.partial == sent, "%d partial images, step %d of %d: %d were sent", k, step, s, out.partial);
            }
            json_decref(j.settings);
            buffer_free(&image);
            buffer_free(&out.preview);
        }
}

/* The pace of a model from its pictures: 256 x 256 pixels with 8 steps are its own, 1e-6 seconds a pixel and step. */
static void paces(void) {
    static front f = {.models[0] = {.width = 256, .height = 256, .steps = 8}, .n_models = 1};
    enum { USUAL = 256 * 256 * 9 };
    json_t *tiny = json_pack("{s:i, s:i, s:i}", "width", 64, "height", 64, "steps", 1), *usual = json_object();
    job small = {.settings = tiny}, own = {.settings = usual};
    /* Tiny pictures that take a tenth of the time of a usual one, with a 72nd of its work, leave the pace nearly as it is. */
    queue_learn(&f, &own, 1e-6 * USUAL);
    for (int i = 0; i < 5; i++) queue_learn(&f, &small, 1e-6 * USUAL / 10);
    double seconds = queue_guess(&f, 0, 256, 256, 8) / (1e-6 * USUAL);
    CHECK(seconds > 0.9 && seconds < 1.3, "%g", seconds);
    /* If it is the first of all, the next usual one sets the pace. */
    f.models[0].pace = f.models[0].learned = 0;
    queue_learn(&f, &small, 0.1);
    queue_learn(&f, &own, 1e-6 * USUAL);
    seconds = queue_guess(&f, 0, 256, 256, 8) / (1e-6 * USUAL);
    CHECK(seconds > 0.9 && seconds < 1.1, "%g", seconds);
    /* The first picture of the usual size replaces what a plan has estimated, also after a tiny one. */
    f.models[0].pace = f.models[0].learned = 0;
    f.models[0].measured = false;
    queue_estimate(&f, 0, 256, 256, 8, 1e-5 * USUAL);
    queue_learn(&f, &small, 0.1);
    queue_learn(&f, &own, 1e-6 * USUAL);
    seconds = queue_guess(&f, 0, 256, 256, 8) / (1e-6 * USUAL);
    CHECK(seconds > 0.9 && seconds < 1.1, "%g", seconds);
    /* Pictures of the usual size change it by 0.3 of the difference. */
    queue_learn(&f, &own, 2e-6 * USUAL);
    seconds = queue_guess(&f, 0, 256, 256, 8) / (1e-6 * USUAL);
    CHECK(seconds > 1.2 && seconds < 1.4, "%g", seconds);
    json_decref(tiny);
    json_decref(usual);
}

/* The time left of the picture that is being made: by the pace at first, then by its progress. */
static void times_left(void) {
    static front f = {.models[0] = {.width = 256, .height = 256, .steps = 8, .pace = 1000.0 / (256 * 256 * 9)},
                      .n_models = 1};
    json_t *settings = json_object();
    job j = {.settings = settings, .n = 1, .state = RUNNING}, written = j;
    f.child.n_seats = 2;
    f.child.seats[0] = (seat){.job = &written, .begun = true, .pass = 1}; /* of the pass before */
    f.child.seats[1] = (seat){.job = &j, .begun = true, .pass = 2};
    f.child.pass = 2;
    f.child.begun = steady_seconds() - 90;
    double left = queue_left(&f, &j);
    CHECK(left > 800 && left < 911, "%g", left); /* 1000 by the pace */
    json_t *late = json_pack("{s:s, s:i, s:i, s:f}", "stage", "decode", "step", 8, "steps", 8, "done", 1.0);
    queue_progress(&f, &f.child.seats[0], late);
    left = queue_left(&f, &j);
    CHECK(left > 800 && left < 911, "%g", left); /* the picture that is written tells nothing of the next */
    left = queue_left(&f, &written);
    CHECK(left >= 0 && left < 1, "%g", left); /* nor the next of it */
    json_t *half = json_pack("{s:s, s:i, s:i, s:f}", "stage", "denoise", "step", 4, "steps", 8, "done", 0.0);
    queue_progress(&f, &f.child.seats[1], half); /* half of the work took 90 seconds */
    left = queue_left(&f, &j);
    CHECK(left > 80 && left < 100, "%g", left);
    queue_progress(&f, &f.child.seats[1], late);
    left = queue_left(&f, &j);
    CHECK(left >= 0 && left < 1, "%g", left);
    json_decref(late);
    json_decref(half);
    json_decref(settings);
}

TEST_MAIN({"base64", base64}, {"previews", previews}, {"data_urls", data_urls}, {"forms", forms}, {"sizes", sizes},
          {"texts", texts}, {"messages", messages}, {"flushes", flushes}, {"answers", answers},
          {"failed_flushes", failed_flushes}, {"paces", paces}, {"times_left", times_left},
          {"flushed_folders", flushed_folders})
