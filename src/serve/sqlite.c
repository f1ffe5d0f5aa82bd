/* sqlite.c: jobs, pictures, uploads and addresses in one SQLite file. See store.h. The worker is a process of this
 * machine (paint.c, child.c), and the queue is front.jobs (queue.c). */
#include "store.h"

#include <fcntl.h>
#include <sqlite3.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/eventfd.h>
#include <sys/file.h>
#include <unistd.h>

#include "flush.h"

typedef struct sqlite_store {
    store base;
    sqlite3 *db;
    int lock;       /* descriptor of a file that one server locks; -1: none */
    double forgot;  /* steady: when rows were last deleted */
    int64_t looked; /* seq of the last job that was looked at for that */
} sqlite_store;

static sqlite3 *db_of(store *s) { return ((sqlite_store *)s)->db; }

static const char schema[] =
    "PRAGMA journal_mode=WAL; PRAGMA synchronous=NORMAL; PRAGMA foreign_keys=OFF;"
    "CREATE TABLE IF NOT EXISTS jobs(seq INTEGER PRIMARY KEY AUTOINCREMENT, id TEXT UNIQUE NOT NULL, owner TEXT, "
    " source INT, state INT, model TEXT, settings TEXT, n INT, seeds TEXT, created REAL, started REAL, completed REAL, "
    " attempts INT, priority INT, attended INT, code TEXT, message TEXT, body TEXT);"
    "CREATE INDEX IF NOT EXISTS jobs_state ON jobs(state);"
    "CREATE INDEX IF NOT EXISTS jobs_owner ON jobs(owner);" /* each index ends in seq */
    "CREATE TABLE IF NOT EXISTS pictures(seq INTEGER PRIMARY KEY AUTOINCREMENT, id TEXT UNIQUE NOT NULL, job TEXT, "
    " owner TEXT, number INT, seed INT, width INT, height INT, bytes INT, format TEXT, created REAL, facts TEXT, "
    " pinned INT DEFAULT 0, removed INT DEFAULT 0, rating INT DEFAULT 0);" /* removed: when; 0: not */
    "CREATE INDEX IF NOT EXISTS pictures_job ON pictures(job);"
    "CREATE INDEX IF NOT EXISTS pictures_owner ON pictures(owner, removed);"
    "CREATE INDEX IF NOT EXISTS pictures_old ON pictures(removed, pinned, created);"
    "UPDATE pictures SET removed=strftime('%s','now') WHERE removed=1;" /* an earlier version has not stored when */
    "CREATE TABLE IF NOT EXISTS uploads(id TEXT PRIMARY KEY, width INT, height INT, created REAL);"
    "CREATE TABLE IF NOT EXISTS addresses(name TEXT PRIMARY KEY, picture TEXT, until REAL);"
    "CREATE TABLE IF NOT EXISTS repeats(owner TEXT, key TEXT, job TEXT, body TEXT, created REAL, "
    " PRIMARY KEY(owner, key));"
    "PRAGMA user_version=1;";

/* ---- statements -------------------------------------------------------------------------------------------------- */

/* Prepares a statement and binds its values. kinds has a letter for each: t text or NULL, i int64_t, n int, d double.
 * NULL: it failed. */
static sqlite3_stmt *ask_list(store *s, const char *sql, const char *kinds, va_list list) {
    sqlite3_stmt *q = NULL;
    if (sqlite3_prepare_v2(db_of(s), sql, -1, &q, NULL) != SQLITE_OK) return NULL;
    for (int i = 0; kinds[i]; i++) {
        switch (kinds[i]) {
        case 't': sqlite3_bind_text(q, i + 1, va_arg(list, const char *), -1, SQLITE_TRANSIENT); break;
        case 'i': sqlite3_bind_int64(q, i + 1, va_arg(list, int64_t)); break;
        case 'n': sqlite3_bind_int(q, i + 1, va_arg(list, int)); break;
        default: sqlite3_bind_double(q, i + 1, va_arg(list, double)); break;
        }
    }
    return q;
}

static sqlite3_stmt *ask(store *s, const char *sql, const char *kinds, ...) {
    va_list list;
    va_start(list, kinds);
    sqlite3_stmt *q = ask_list(s, sql, kinds, list);
    va_end(list);
    return q;
}

static bool run(store *s, const char *sql, const char *kinds, ...) {
    va_list list;
    va_start(list, kinds);
    sqlite3_stmt *q = ask_list(s, sql, kinds, list);
    va_end(list);
    bool good = q && sqlite3_step(q) == SQLITE_DONE;
    sqlite3_finalize(q);
    return good;
}

static bool next_row(sqlite3_stmt *q) { return q && sqlite3_step(q) == SQLITE_ROW; }

static void copy(sqlite3_stmt *q, int column, char *to, size_t size) {
    const char *text = (const char *)sqlite3_column_text(q, column);
    snprintf(to, size, "%s", text ? text : "");
}

static void close_store(front *f) {
    sqlite_store *s = (sqlite_store *)f->store;
    flusher_free(s->base.flusher);
    sqlite3_close(s->db);
    if (s->lock >= 0) close(s->lock);
    if (f->flushed > 0) close(f->flushed);
    free(s);
}

static bool is_there(front *f) {
    (void)f;
    return true;
}

static job *find_live(front *f, const char *id) { /* all of them are in front.jobs */
    (void)f, (void)id;
    return NULL;
}

/* ---- jobs -------------------------------------------------------------------------------------------------------- */

#define JOB_COLUMNS                                                                                                    \
    "id, owner, source, state, model, settings, n, seeds, created, started, completed, attempts, priority, attended, " \
    "code, message, body"

static bool insert_job(store *s, const job *j) {
    json_t *seeds = json_array();
    for (int i = 0; i < j->n; i++) json_array_append_new(seeds, json_integer(j->seeds[i]));
    char *settings = json_dumps(j->settings, JSON_COMPACT), *list = json_dumps(seeds, JSON_COMPACT);
    json_decref(seeds);
    bool good = settings && list &&
                run(s, "INSERT INTO jobs(" JOB_COLUMNS ") VALUES(?,?,?,?,?,?,?,?,?,?,?,?,?,?,?,?,?)",
                    "ttnnttntdddnnnttt", j->id, j->owner, (int)j->source, (int)j->state,
                    json_string_value(json_object_get(j->settings, "model")), settings, j->n, list, j->created,
                    j->started, j->completed, j->attempts, j->priority, (int)j->attended, j->code, j->message, j->body);
    free(settings);
    free(list);
    return good;
}

static bool add_repeat(store *s, const char *owner, const char *key, const char *id, const char *body) {
    double now = wall_seconds();
    return run(s, "DELETE FROM repeats WHERE created<?", "d", now - 86400) &&
           run(s, "INSERT OR REPLACE INTO repeats VALUES(?,?,?,?,?)", "ttttd", owner, key, id, body, now);
}

static added add_job(store *s, const job *j) {
    bool good = run(s, "BEGIN IMMEDIATE", "") && insert_job(s, j) &&
                (!j->repeat || add_repeat(s, j->owner, j->repeat, j->id, j->body)) && run(s, "COMMIT", "");
    if (!good) run(s, "ROLLBACK", "");
    return good ? ADDED : NOT_ADDED;
}

static bool save_job(store *s, const job *j) {
    return run(
        s, "UPDATE jobs SET state=?, started=?, completed=?, attempts=?, attended=?, code=?, message=? WHERE id=?",
        "nddnnttt", (int)j->state, j->started, j->completed, j->attempts, (int)j->attended, j->code, j->message, j->id);
}

#define PICTURE_COLUMNS                                                                                                \
    "id, job, owner, number, seed, width, height, bytes, format, created, facts, pinned, removed, "                    \
    "rating"

static bool add_picture(store *s, const picture *p) {
    char *facts = json_dumps(p->facts, JSON_COMPACT);
    bool good = run(s, "INSERT INTO pictures(" PICTURE_COLUMNS ") VALUES(?,?,?,?,?,?,?,?,?,?,?,?,?,?)",
                    "tttniiiitdtnnn", p->id, p->job, p->owner, p->index, p->seed, p->width, p->height, p->bytes,
                    p->format, p->created, facts, (int)p->pinned, (int)p->removed, p->rating);
    free(facts);
    return good;
}

static bool add_picture_of(store *s, const picture *p, const job *j) {
    bool good = run(s, "BEGIN IMMEDIATE", "") && add_picture(s, p) && save_job(s, j) && run(s, "COMMIT", "");
    if (!good) run(s, "ROLLBACK", "");
    if (good) s->kept_bytes += p->bytes;
    return good;
}

static void read_picture(sqlite3_stmt *q, picture *p) {
    *p = (picture){.index = sqlite3_column_int(q, 3)};
    copy(q, 0, p->id, sizeof p->id);
    copy(q, 1, p->job, sizeof p->job);
    copy(q, 2, p->owner, sizeof p->owner);
    p->seed = sqlite3_column_int64(q, 4);
    p->width = sqlite3_column_int64(q, 5);
    p->height = sqlite3_column_int64(q, 6);
    p->bytes = sqlite3_column_int64(q, 7);
    copy(q, 8, p->format, sizeof p->format);
    p->created = sqlite3_column_double(q, 9);
    const char *facts = (const char *)sqlite3_column_text(q, 10);
    p->facts = facts ? json_loads(facts, 0, NULL) : NULL;
    p->pinned = sqlite3_column_int(q, 11);
    p->rating = sqlite3_column_int(q, 13);
    p->removed = sqlite3_column_int(q, 12);
}

static void read_seeds(job *j, const char *text) {
    json_t *list = text ? json_loads(text, 0, NULL) : NULL;
    for (size_t i = 0; i < json_array_size(list) && i < MOST_PICTURES; i++)
        j->seeds[i] = json_integer_value(json_array_get(list, i));
    json_decref(list);
}

static job *read_job(front *f, sqlite3_stmt *q) {
    job *j = calloc(1, sizeof *j);
    if (!j) return NULL;
    copy(q, 0, j->id, sizeof j->id);
    copy(q, 1, j->owner, sizeof j->owner);
    int source = sqlite3_column_int(q, 2);
    j->source = source > 0 && source < SOURCES ? (job_source)source : FROM_OPENAI;
    int state = sqlite3_column_int(q, 3);
    j->state = state >= 0 && state <= CANCELLED ? (job_state)state : FAILED_JOB;
    char name[128];
    copy(q, 4, name, sizeof name);
    j->model = -1;
    for (int i = 0; i < f->n_models; i++)
        if (strcmp(f->models[i].id, name) == 0) j->model = i;
    const char *settings = (const char *)sqlite3_column_text(q, 5), *code = (const char *)sqlite3_column_text(q, 14);
    j->settings = settings ? json_loads(settings, 0, NULL) : NULL;
    if (!j->settings) j->settings = json_object();
    j->n = sqlite3_column_int(q, 6);
    if (j->n < 0 || j->n > MOST_PICTURES) j->n = 0;
    read_seeds(j, (const char *)sqlite3_column_text(q, 7));
    j->created = sqlite3_column_double(q, 8);
    j->started = sqlite3_column_double(q, 9);
    j->completed = sqlite3_column_double(q, 10);
    j->attempts = sqlite3_column_int(q, 11);
    j->priority = sqlite3_column_int(q, 12);
    j->attended = sqlite3_column_int(q, 13);
    j->code = code ? constant_code(code) : NULL;
    copy(q, 15, j->message, sizeof j->message);
    copy(q, 16, j->body, sizeof j->body);
    j->queued_at = steady_seconds();
    sqlite3_stmt *p = ask(f->store, "SELECT " PICTURE_COLUMNS " FROM pictures WHERE job=? ORDER BY number", "t", j->id);
    while (j->made < MOST_PICTURES && next_row(p)) read_picture(p, &j->pictures[j->made++]);
    sqlite3_finalize(p);
    return j;
}

static job *find_job(front *f, const char *id) {
    sqlite3_stmt *q = ask(f->store, "SELECT " JOB_COLUMNS " FROM jobs WHERE id=?", "t", id);
    job *j = next_row(q) ? read_job(f, q) : NULL;
    sqlite3_finalize(q);
    return j;
}

static bool each_live(front *f, void (*each)(front *f, job *j)) {
    enum { MOST = 4096 };
    job **all = calloc(MOST, sizeof *all);
    int n = 0;
    sqlite3_stmt *q = ask(f->store, "SELECT " JOB_COLUMNS " FROM jobs WHERE state IN (0, 1) ORDER BY seq", "");
    while (all && n < MOST && next_row(q))
        if ((all[n] = read_job(f, q))) n++;
    bool good = all && q;
    sqlite3_finalize(q);
    for (int i = 0; i < n; i++) each(f, all[i]);
    free(all);
    return good;
}

/* The owner is a term of its own, so that its index is used. */
#define JOBS_WHERE(owner)                                                                                              \
    "SELECT " JOB_COLUMNS " FROM jobs WHERE " owner                                                                    \
    " AND (?2<0 OR state=?2) AND (?3 IS NULL OR seq<(SELECT seq FROM jobs WHERE id=?3)) ORDER BY seq DESC LIMIT ?4"

static int list_jobs(front *f, const char *owner, const char *state, const char *after, int limit, job **to) {
    int n = 0, wanted = -1;
    for (int i = 0; state && i <= CANCELLED; i++)
        if (strcmp(state, state_names[i]) == 0) wanted = i;
    sqlite3_stmt *q = ask(f->store, owner ? JOBS_WHERE("owner=?1") : JOBS_WHERE("?1 IS NULL"), "tntn", owner, wanted,
                          after, limit);
    while (n < limit && next_row(q))
        if ((to[n] = read_job(f, q))) n++;
    sqlite3_finalize(q);
    return n;
}

static void find_repeat(store *s, const char *owner, const char *key, char id[ID_BYTES], char body[65]) {
    sqlite3_stmt *q = ask(s, "SELECT job, body FROM repeats WHERE owner=? AND key=? AND created>?", "ttd", owner, key,
                          wall_seconds() - 86400);
    if (next_row(q)) {
        copy(q, 0, id, ID_BYTES);
        copy(q, 1, body, 65);
    }
    sqlite3_finalize(q);
}

/* ---- pictures ---------------------------------------------------------------------------------------------------- */

static bool find_picture(store *s, const char *id, picture *to) {
    sqlite3_stmt *q = ask(s, "SELECT " PICTURE_COLUMNS " FROM pictures WHERE id=?", "t", id);
    bool found = next_row(q);
    if (found) read_picture(q, to);
    sqlite3_finalize(q);
    return found;
}

static int read_pictures(sqlite3_stmt *q, int limit, picture *to) {
    int n = 0;
    while (n < limit && next_row(q)) read_picture(q, &to[n++]);
    sqlite3_finalize(q);
    return n;
}

/* Rows are read in the order of seq, by the index of the owner or without one. Each + keeps SQLite from pictures_old. */
#define PICTURES_WHERE(owner)                                                                                          \
    "SELECT " PICTURE_COLUMNS " FROM pictures p WHERE " owner                                                          \
    " AND +pinned>=?5 AND rating>=?6 AND (?2 IS NULL OR seq<(SELECT seq FROM pictures WHERE id=?2)) "                  \
    "AND "                                                                                                             \
    "(?3 IS NULL OR instr(lower((SELECT json_extract(settings,'$.prompt') FROM jobs WHERE jobs.id=p.job)), "           \
    "lower(?3))>0) ORDER BY seq DESC LIMIT ?4"

static int list_pictures(store *s, const picture_query *q, picture *to, char next[65]) {
    (void)next;
    return read_pictures(
        ask(s, q->owner ? PICTURES_WHERE("owner=?1 AND removed=0") : PICTURES_WHERE("?1 IS NULL AND +removed=0"),
            "tttnnn", q->owner, q->before, q->search, q->limit, (int)q->pinned, q->rating),
        q->limit, to);
}

static int old_pictures(store *s, double time, int limit, picture *to) {
    return read_pictures(ask(s,
                             "SELECT " PICTURE_COLUMNS " FROM pictures WHERE removed=0 AND pinned=0 AND created<? "
                             "ORDER BY created LIMIT ?",
                             "dn", time, limit),
                         limit, to);
}

static char *picture_settings(store *s, const picture *p) {
    sqlite3_stmt *q = ask(s, "SELECT settings FROM jobs WHERE id=?", "t", p->job);
    const char *text = next_row(q) ? (const char *)sqlite3_column_text(q, 0) : NULL;
    char *found = text ? strdup(text) : NULL;
    sqlite3_finalize(q);
    return found;
}

static bool change_picture(store *s, const picture *p) {
    bool good = run(s, "UPDATE pictures SET pinned=?, removed=?, rating=? WHERE id=?", "nint", (int)p->pinned,
                    p->removed ? (int64_t)wall_seconds() : (int64_t)0, p->rating, p->id);
    if (good && p->removed) s->kept_bytes -= p->bytes; /* nobody changes a picture that has been removed */
    return good;
}

static int64_t count_bytes(store *s) {
    sqlite3_stmt *q = ask(s, "SELECT sum(bytes) FROM pictures WHERE removed=0", "");
    int64_t bytes = next_row(q) ? sqlite3_column_int64(q, 0) : 0;
    sqlite3_finalize(q);
    return bytes;
}

/* ---- uploads and addresses --------------------------------------------------------------------------------------- */

static bool add_upload(store *s, const char *id, int64_t width, int64_t height) {
    return run(s, "INSERT OR REPLACE INTO uploads VALUES(?,?,?,?)", "tiid", id, width, height, wall_seconds());
}

static bool find_upload(store *s, const char *id, int64_t *width, int64_t *height) {
    sqlite3_stmt *q = ask(s, "SELECT width, height FROM uploads WHERE id=?", "t", id);
    bool found = next_row(q);
    if (found) *width = sqlite3_column_int64(q, 0), *height = sqlite3_column_int64(q, 1);
    sqlite3_finalize(q);
    return found;
}

static int old_uploads(store *s, double time, int limit, char (*to)[65]) {
    sqlite3_stmt *q = ask(s, "SELECT id FROM uploads WHERE created<? ORDER BY created LIMIT ?", "dn", time, limit);
    int n = 0;
    while (n < limit && next_row(q)) copy(q, 0, to[n++], 65);
    sqlite3_finalize(q);
    return n;
}

static bool remove_upload(store *s, const char *id) { return run(s, "DELETE FROM uploads WHERE id=?", "t", id); }

static bool add_address(store *s, const char *name, const char *id, double until) {
    return run(s, "DELETE FROM addresses WHERE until<?", "d", wall_seconds() - 7 * 86400) &&
           run(s, "INSERT INTO addresses VALUES(?,?,?)", "ttd", name, id, until);
}

static int find_address(store *s, const char *name, char id[ID_BYTES]) {
    sqlite3_stmt *q = ask(s, "SELECT picture, until FROM addresses WHERE name=?", "t", name);
    int found = !next_row(q) ? 0 : sqlite3_column_double(q, 1) < wall_seconds() ? -1 : 1;
    if (found > 0) copy(q, 0, id, ID_BYTES);
    sqlite3_finalize(q);
    return found;
}

/* ---- forgetting -------------------------------------------------------------------------------------------------- */

/* The rows of pictures that were removed a week ago, which answered 410 until now, and of jobs that ended a week ago and
 * have no pictures. A few at a time, so that no request waits for it. */
static void forget_rows(sqlite_store *s) {
    enum { AT_ONCE = 500 };
    double old = wall_seconds() - 7 * 86400;
    run(&s->base,
        "DELETE FROM pictures WHERE seq IN (SELECT seq FROM pictures WHERE removed>0 AND removed<? LIMIT 100)", "d",
        old);
    sqlite3_stmt *q = ask(&s->base,
                          "SELECT min(seq), max(seq) FROM (SELECT seq FROM jobs WHERE seq>? ORDER BY seq LIMIT ?)",
                          "in", s->looked, AT_ONCE);
    int64_t first = next_row(q) ? sqlite3_column_int64(q, 0) : 0, last = first ? sqlite3_column_int64(q, 1) : 0;
    sqlite3_finalize(q);
    if (first)
        run(&s->base,
            "DELETE FROM jobs WHERE seq BETWEEN ? AND ? AND state>=2 AND max(created, completed)<? AND "
            "NOT EXISTS (SELECT 1 FROM pictures WHERE job=jobs.id)",
            "iid", first, last, old);
    s->looked = last; /* after the last job: 0, so it begins again */
}

static void tick(front *f) {
    sqlite_store *s = (sqlite_store *)f->store;
    double now = steady_seconds();
    paint_tick(f);
    if (s->forgot > 0 && now - s->forgot < 10) return;
    s->forgot = now;
    forget_rows(s);
}

/* ---- opening ----------------------------------------------------------------------------------------------------- */

static const store_kind kind = {.close = close_store,
                                .is_there = is_there,
                                .own_worker = true,
                                .tick = tick,
                                .find_live = find_live,
                                .tell = child_tell,
                                .pause = paint_pause,
                                .first = queue_first,
                                .waiting = local_waiting,
                                .position = local_position,
                                .seconds_before = local_seconds_before,
                                .add_job = add_job,
                                .save_job = save_job,
                                .add_picture = add_picture_of,
                                .find_job = find_job,
                                .each_live = each_live,
                                .list_jobs = list_jobs,
                                .find_repeat = find_repeat,
                                .find_picture = find_picture,
                                .list_pictures = list_pictures,
                                .picture_settings = picture_settings,
                                .change_picture = change_picture,
                                .old_pictures = old_pictures,
                                .add_upload = add_upload,
                                .find_upload = find_upload,
                                .old_uploads = old_uploads,
                                .remove_upload = remove_upload,
                                .add_address = add_address,
                                .find_address = find_address};

/* A file of an earlier version has no column for the rating. */
static bool add_rating(sqlite_store *s) {
    sqlite3_stmt *q = NULL;
    bool there = sqlite3_prepare_v2(s->db, "SELECT rating FROM pictures", -1, &q, NULL) == SQLITE_OK;
    sqlite3_finalize(q);
    return there ||
           sqlite3_exec(s->db, "ALTER TABLE pictures ADD COLUMN rating INT DEFAULT 0", NULL, NULL, NULL) == SQLITE_OK;
}

/* One server uses a state folder. SQLite itself would let several. */
static bool lock_file(sqlite_store *s, const char *path) {
    char *name = NULL;
    s->lock = asprintf(&name, "%s-lock", path) < 0 ? -1 : open(name, O_RDWR | O_CREAT | O_CLOEXEC, 0600);
    free(name);
    return s->lock >= 0 && flock(s->lock, LOCK_EX | LOCK_NB) == 0;
}

/* From now on the flusher tells the loop of the front what it has flushed. */
static bool start_flusher(front *f, sqlite_store *s, const char *path) {
    struct epoll_event event = {.events = EPOLLIN, .data.ptr = &f->flushed};
    f->flushed = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
    if (f->flushed < 0 || epoll_ctl(f->epoll, EPOLL_CTL_ADD, f->flushed, &event) != 0) return false;
    s->base.flusher = flusher_new(s->db, path, f->flushed);
    return s->base.flusher;
}

store *sqlite_store_open(front *f, char *why, size_t size) {
    sqlite_store *s = calloc(1, sizeof *s);
    char *error = NULL, *path = NULL;
    bool locked = false;
    if (asprintf(&path, "%s/jobs.sqlite", f->state) < 0) path = NULL;
    if (s && path && (locked = lock_file(s, path)) && sqlite3_open(path, &s->db) == SQLITE_OK) {
        s->base.kind = &kind;
        sqlite3_busy_timeout(s->db, 2000);
        if (sqlite3_exec(s->db, schema, NULL, NULL, &error) == SQLITE_OK && add_rating(s) &&
            start_flusher(f, s, path)) {
            s->base.kept_bytes = count_bytes(&s->base);
            f->child.take = paint_heard;
            f->child.lost = paint_lost;
            f->child.name = paint_name;
            files_clear_spool(f); /* no other server uses it, because the store is open */
            free(path);
            return &s->base;
        }
    }
    snprintf(why, size, "%s: cannot be used: %s", path ? path : f->state,
             error          ? error
             : s && !locked ? "another server uses it; --state names another folder"
             : s && s->db   ? sqlite3_errmsg(s->db)
                            : "out of memory");
    sqlite3_free(error);
    free(path);
    if (s) sqlite3_close(s->db);
    if (s && s->lock >= 0) close(s->lock);
    free(s);
    return NULL;
}
