/* records.c: jobs and pictures in Redis. scripts.h lists the keys. */
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "fleet.h"

enum { MOST_SEEDS = 4096 /* bytes */, MOST_ATTEMPTS = 1000 };
enum { PAGE_OF_IDS = 50, MOST_SCANNED = 5000, SCANNED_AT_ONCE = 500 };

/* ---- reading ----------------------------------------------------------------------------------------------------- */

json_t *record_json(const char *text, size_t size, size_t most) {
    json_t *object = size && size <= most ? json_loadb(text, size, JSON_REJECT_DUPLICATES, NULL) : NULL;
    if (json_is_object(object)) return object;
    json_decref(object);
    return NULL;
}

static const redisReply *field_of(const redisReply *fields, const char *name) {
    if (!fields || fields->type != REDIS_REPLY_ARRAY) return NULL;
    for (size_t i = 0; i + 1 < fields->elements; i += 2)
        if (strcmp(redis_text(fields->element[i]), name) == 0 && fields->element[i + 1]->type == REDIS_REPLY_STRING)
            return fields->element[i + 1];
    return NULL;
}

static const char *text_of(const redisReply *fields, const char *name) { return redis_text(field_of(fields, name)); }
static int number_of(const redisReply *fields, const char *name) { return atoi(text_of(fields, name)); }

double record_time(double seconds) { return seconds > 0 && seconds < 1e11 ? seconds : 0; }

/* The copy can be put into JSON, also where a character was cut. */
static void copy_text(char *to, size_t size, const char *from) {
    snprintf(to, size, "%s", from);
    lz_printable(to);
}

json_t *picture_data(const picture *p) {
    return json_pack("{s:s, s:s, s:s, s:i, s:I, s:I, s:I, s:I, s:s, s:f, s:O?}", "id", p->id, "job", p->job, "owner",
                     p->owner, "index", p->index, "seed", (json_int_t)p->seed, "width", (json_int_t)p->width, "height",
                     (json_int_t)p->height, "bytes", (json_int_t)p->bytes, "format", p->format, "created", p->created,
                     "facts", p->facts);
}

bool record_picture(const char *text, size_t size, picture *to) {
    json_t *o = record_json(text, size, MOST_FACTS), *facts = json_object_get(o, "facts");
    static const char *const names[] = {"id", "job", "owner", "format"};
    const char *texts[4];
    bool good = json_is_object(facts);
    *to = (picture){.index = (int)json_integer_value(json_object_get(o, "index"))};
    for (int i = 0; i < 4; i++) good = (texts[i] = json_string_value(json_object_get(o, names[i]))) && good;
    good = good && is_id(texts[0]) && strlen(texts[0]) < ID_BYTES && is_id(texts[1]) && strlen(texts[1]) < ID_BYTES &&
           strcmp(format_ending(texts[3]), ".bin") != 0 && strlen(texts[2]) < OWNER;
    if (good) {
        copy_text(to->id, sizeof to->id, texts[0]);
        copy_text(to->job, sizeof to->job, texts[1]);
        copy_text(to->owner, sizeof to->owner, texts[2]);
        copy_text(to->format, sizeof to->format, texts[3]);
        to->seed = json_integer_value(json_object_get(o, "seed"));
        to->width = json_integer_value(json_object_get(o, "width"));
        to->height = json_integer_value(json_object_get(o, "height"));
        to->bytes = json_integer_value(json_object_get(o, "bytes"));
        to->created = record_time(json_number_value(json_object_get(o, "created")));
        to->facts = json_incref(facts);
    }
    json_decref(o);
    return good;
}

static bool read_seeds(job *j, const char *text) {
    json_t *list = strlen(text) <= MOST_SEEDS ? json_loads(text, 0, NULL) : NULL;
    bool good = json_array_size(list) == (size_t)j->n;
    for (int i = 0; i < j->n && good; i++) j->seeds[i] = json_integer_value(json_array_get(list, (size_t)i));
    json_decref(list);
    return good;
}

job *record_job(front *f, const char *id, const redisReply *fields) {
    const redisReply *settings = field_of(fields, "settings");
    job *j = settings && is_id(id) && strlen(id) < ID_BYTES ? calloc(1, sizeof *j) : NULL;
    if (!j) return NULL;
    copy_text(j->id, sizeof j->id, id);
    copy_text(j->owner, sizeof j->owner, text_of(fields, "owner"));
    copy_text(j->body, sizeof j->body, text_of(fields, "body"));
    copy_text(j->kind, sizeof j->kind, text_of(fields, "kind"));
    copy_text(j->entry, sizeof j->entry, text_of(fields, "entry"));
    copy_text(j->message, sizeof j->message, text_of(fields, "message"));
    j->settings = record_json(settings->str, settings->len, MOST_SETTINGS);
    int source = number_of(fields, "source"), state = number_of(fields, "state");
    j->source = source >= 0 && source < SOURCES ? (job_source)source : FROM_OPENAI;
    j->state = state >= 0 && state <= CANCELLED ? (job_state)state : FAILED_JOB;
    j->model = -1;
    for (int i = 0; i < f->n_models; i++)
        if (strcmp(f->models[i].id, text_of(fields, "model")) == 0) j->model = i;
    j->n = number_of(fields, "n");
    j->created = record_time(strtod(text_of(fields, "created"), NULL));
    j->started = record_time(strtod(text_of(fields, "started"), NULL));
    j->completed = record_time(strtod(text_of(fields, "completed"), NULL));
    j->attempts = number_of(fields, "attempts");
    if (j->attempts < 1 || j->attempts > MOST_ATTEMPTS) j->attempts = 1;
    j->priority = number_of(fields, "priority");
    const char *code = text_of(fields, "code");
    j->code = *code ? constant_code(code) : NULL;
    j->queued_at = steady_seconds();
    bool good = j->settings && j->n > 0 && j->n <= MOST_PICTURES && read_seeds(j, text_of(fields, "seeds"));
    for (int i = 0; good && i < j->n; i++) {
        char name[24];
        snprintf(name, sizeof name, "picture%d", i);
        const redisReply *data = field_of(fields, name);
        if (!data || !record_picture(data->str, data->len, &j->pictures[i])) break;
        j->made++;
    }
    j->given = j->told = j->made;
    if (good) return j;
    job_free(j);
    return NULL;
}

/* ---- jobs -------------------------------------------------------------------------------------------------------- */

/* The upload that a job names, if it is one, is kept as if it had been sent now. */
static void renew_upload(fleet_store *t, const json_t *name) {
    const char *text = json_string_value(name);
    if (text && strncmp(text, "upload:", 7) == 0)
        freeReplyObject(
            redis_do(&t->link, "ZADD %suploads XX %lld %s", t->prefix, (long long)wall_seconds(), text + 7));
}

static void renew_uploads(fleet_store *t, const job *j) {
    const json_t *images = json_object_get(j->settings, "images");
    for (size_t i = 0; i < json_array_size(images); i++) renew_upload(t, json_array_get(images, i));
    renew_upload(t, json_object_get(j->settings, "mask"));
}

static added add_job(store *s, const job *j) {
    fleet_store *t = (fleet_store *)s;
    char repeat[65] = "", both[OWNER + 256];
    json_t *seeds = json_array();
    for (int i = 0; i < j->n; i++) json_array_append_new(seeds, json_integer(j->seeds[i]));
    char *settings = json_dumps(j->settings, JSON_COMPACT), *list = json_dumps(seeds, JSON_COMPACT);
    json_decref(seeds);
    if (j->repeat) {
        snprintf(both, sizeof both, "%s %s", j->owner, j->repeat);
        hash_hex(both, strlen(both), repeat);
    }
    const char *name = json_string_value(json_object_get(j->settings, "model"));
    bool fits = settings && list && name && strlen(settings) <= MOST_SETTINGS;
    renew_uploads(t, j);
    redisReply *reply = fits ? redis_script(&t->link, script_put, t->prefix, "sssiississsssisissss", j->id, name,
                                            j->owner, j->n, j->priority, repeat, j->body,
                                            (int)((t->keep_days < 20000 ? t->keep_days : 20000) * 86400), "settings",
                                            settings, "seeds", list, "source", (int)j->source, "attended",
                                            (int)j->attended, "front", t->id, "kind", j->kind)
                             : NULL;
    free(settings);
    free(list);
    added done = !reply ? NOT_ADDED : strcmp(redis_text(reply), "added") == 0 ? ADDED : ADDED_BEFORE;
    freeReplyObject(reply);
    return done;
}

/* Workers save how far a job is. A front only ends jobs, when it cancels them. */
static bool save_job(store *s, const job *j) {
    fleet_store *t = (fleet_store *)s;
    if (j->state == QUEUED || j->state == RUNNING) return true;
    redisReply *reply = redis_script(&t->link, script_end, t->prefix, "siss", j->id, (int)j->state,
                                     j->code ? j->code : "", j->message);
    freeReplyObject(reply);
    return reply;
}

static bool add_picture(store *s, const picture *p, const job *j) {
    (void)s, (void)p, (void)j; /* workers do */
    return false;
}

static job *find_job(front *f, const char *id) {
    fleet_store *t = fleet_of(f);
    redisReply *fields = redis_do(&t->link, "HGETALL %sjob:%s", t->prefix, id);
    job *j = record_job(f, id, fields);
    freeReplyObject(fields);
    return j;
}

static bool each_live(front *f, void (*each)(front *f, job *j)) {
    (void)f, (void)each; /* the jobs of a fleet need no front */
    return true;
}

/* The rank after that of the reply; -1: there is none. */
static int rank_after(const redisReply *rank) {
    bool good = rank && rank->type == REDIS_REPLY_INTEGER && rank->integer >= 0 && rank->integer < INT_MAX / 2;
    return good ? (int)rank->integer + 1 : -1;
}

/* Calls take for the ids of a sorted set, the newest first, after the one that is named `after` (or NULL), until it
 * returns false. */
static void each_id(fleet_store *t, const char *set, const char *owner, const char *after,
                    bool (*take)(void *user, const char *id), void *user) {
    char key[OWNER + 96];
    long long from = 0;
    snprintf(key, sizeof key, "%s%s%s%s", t->prefix, set, owner ? ":" : "", owner ? owner : "");
    if (after) {
        redisReply *rank = redis_do(&t->link, "ZREVRANK %s %s", key, after);
        from = rank_after(rank);
        freeReplyObject(rank);
        if (from < 0) return;
    }
    for (long long i = from; i < from + MOST_SCANNED; i += PAGE_OF_IDS) {
        redisReply *ids = redis_do(&t->link, "ZREVRANGE %s %lld %lld", key, i, i + PAGE_OF_IDS - 1);
        bool more = ids && ids->type == REDIS_REPLY_ARRAY && ids->elements == PAGE_OF_IDS;
        for (size_t k = 0; ids && ids->type == REDIS_REPLY_ARRAY && k < ids->elements; k++)
            if (!take(user, redis_text(ids->element[k]))) {
                more = false;
                break;
            }
        freeReplyObject(ids);
        if (!more) return;
    }
}

typedef struct job_list {
    front *front;
    const char *state;
    int limit, n;
    job **to;
} job_list;

static bool take_job(void *user, const char *id) {
    job_list *l = user;
    job *j = find_job(l->front, id);
    if (j && (!l->state || strcmp(state_names[j->state], l->state) == 0))
        l->to[l->n++] = j;
    else
        job_free(j);
    return l->n < l->limit;
}

static int list_jobs(front *f, const char *owner, const char *state, const char *after, int limit, job **to) {
    job_list l = {.front = f, .state = state, .limit = limit, .to = to};
    each_id(fleet_of(f), "list", owner, after, take_job, &l);
    return l.n;
}

static void find_repeat(store *s, const char *owner, const char *key, char id[ID_BYTES], char body[65]) {
    fleet_store *t = (fleet_store *)s;
    char both[OWNER + 256], hash[65];
    snprintf(both, sizeof both, "%s %s", owner, key);
    hash_hex(both, strlen(both), hash);
    redisReply *reply = redis_do(&t->link, "GET %srepeat:%s", t->prefix, hash);
    const char *text = redis_text(reply), *blank = strchr(text, ' ');
    if (blank && blank - text < ID_BYTES && strlen(blank + 1) < 65) {
        snprintf(id, ID_BYTES, "%.*s", (int)(blank - text), text);
        snprintf(body, 65, "%s", blank + 1);
        if (!is_id(id)) *id = 0;
    }
    freeReplyObject(reply);
}

/* ---- pictures ---------------------------------------------------------------------------------------------------- */

static int rating_of(const char *text) {
    int rating = atoi(text);
    return rating > 0 && rating <= BEST_RATING ? rating : 0;
}

static bool find_picture(store *s, const char *id, picture *to) {
    fleet_store *t = (fleet_store *)s;
    redisReply *fields = redis_do(&t->link, "HGETALL %spicture:%s", t->prefix, id);
    const redisReply *data = field_of(fields, "data");
    bool found = data && record_picture(data->str, data->len, to);
    if (found && strcmp(to->id, id) != 0) {
        json_decref(to->facts);
        to->facts = NULL;
        found = false;
    }
    if (found) {
        to->pinned = number_of(fields, "pinned");
        to->removed = number_of(fields, "removed");
        to->rating = rating_of(text_of(fields, "rating"));
    }
    freeReplyObject(fields);
    return found;
}

static char *picture_settings(store *s, const picture *p) {
    fleet_store *t = (fleet_store *)s;
    redisReply *reply = redis_do(&t->link, "HGET %sjob:%s settings", t->prefix, p->job);
    char *text = reply && reply->type == REDIS_REPLY_STRING && reply->len <= MOST_SETTINGS ? strdup(reply->str) : NULL;
    freeReplyObject(reply);
    return text;
}

typedef struct picture_list {
    const char *search;
    int limit, n;
    picture *to;
    double before; /* only older ones that are not pinned; 0: all */
    bool pinned;   /* only pinned ones */
    int rating;    /* only those with this rating or a better one */
    int pages;     /* of script_page, that are looked at */
    char *next;    /* of 65 bytes: the id at which the pages were over; or NULL */
} picture_list;

static bool has_words(const redisReply *text, const char *words) {
    json_t *settings = text->type == REDIS_REPLY_STRING ? record_json(text->str, text->len, MOST_SETTINGS) : NULL;
    const char *prompt = json_string_value(json_object_get(settings, "prompt"));
    bool found = prompt && strcasestr(prompt, words);
    json_decref(settings);
    return found;
}

/* A picture of script_page. Returns false when there is nothing more to look for. */
static bool take_picture(picture_list *l, const redisReply *entry) {
    picture *p = &l->to[l->n];
    if (entry->type != REDIS_REPLY_ARRAY || entry->elements != 6) return true;
    redisReply **fields = entry->element; /* id, data, pinned, removed, settings, rating */
    const redisReply *data = fields[1];
    if (data->type != REDIS_REPLY_STRING || !record_picture(data->str, data->len, p)) return true;
    p->pinned = atoi(redis_text(fields[2]));
    p->removed = atoi(redis_text(fields[3]));
    p->rating = rating_of(redis_text(fields[5]));
    bool young = l->before > 0 && p->created >= l->before;
    if (strcmp(p->id, redis_text(fields[0])) == 0 && !p->removed && (!l->pinned || p->pinned) &&
        p->rating >= l->rating && !young && !(l->before > 0 && p->pinned) &&
        (!l->search || has_words(fields[4], l->search)))
        l->n++;
    else
        json_decref(p->facts);
    return l->n < l->limit && !young;
}

/* The id of the last picture of a page; to is not changed if it has none. */
static void note_last(const redisReply *page, char to[65]) {
    const redisReply *last = page->element[page->elements - 1];
    const char *id = last->type == REDIS_REPLY_ARRAY && last->elements ? redis_text(last->element[0]) : "";
    if (is_id(id)) copy_text(to, 65, id);
}

/* Looks at the pictures of a set from a rank on. */
static void scan_pictures(fleet_store *t, const char *set, int from, picture_list *l) {
    bool more = true;
    for (int page = 0; more && page < l->pages; page++) {
        redisReply *r = redis_script(&t->link, script_page, t->prefix, "siiii", set, from, PAGE_OF_IDS, l->before > 0,
                                     (int)(l->search != NULL));
        size_t n = r && r->type == REDIS_REPLY_ARRAY ? r->elements : 0;
        more = n && r->element[0]->type == REDIS_REPLY_INTEGER && r->element[0]->integer == PAGE_OF_IDS;
        for (size_t i = 1; i < n && l->n < l->limit; i++)
            if (!take_picture(l, r->element[i])) {
                more = false;
                break;
            }
        from += n ? (int)n - 1 : 0;
        if (more && page + 1 == l->pages && l->next) note_last(r, l->next);
        freeReplyObject(r);
    }
}

static int list_pictures(store *s, const picture_query *q, picture *to, char next[65]) {
    fleet_store *t = (fleet_store *)s;
    picture_list l = {
        .search = q->search, .pinned = q->pinned, .rating = q->rating, .limit = q->limit, .to = to, .next = next};
    const char *owner = q->owner, *before = q->before;
    l.pages = SCANNED_AT_ONCE / PAGE_OF_IDS; /* so that other requests do not wait long */
    char set[OWNER + 16];
    int from = 0;
    snprintf(set, sizeof set, "pictures%s%s", owner ? ":" : "", owner ? owner : "");
    if (before) {
        redisReply *rank = redis_do(&t->link, "ZREVRANK %s%s %s", t->prefix, set, before);
        from = rank_after(rank);
        freeReplyObject(rank);
    }
    if (from >= 0) scan_pictures(t, set, from, &l);
    return l.n;
}

static int old_pictures(store *s, double time, int limit, picture *to) {
    picture_list l = {.limit = limit, .to = to, .before = time, .pages = MOST_SCANNED / PAGE_OF_IDS};
    scan_pictures((fleet_store *)s, "pictures", 0, &l);
    return l.n;
}

/* The job of a pinned picture is kept with its settings. A removed picture is known for a week more. */
static bool change_picture(store *s, const picture *p) {
    fleet_store *t = (fleet_store *)s;
    redisReply *reply = redis_do(&t->link, "HSET %spicture:%s pinned %d removed %d rating %d", t->prefix, p->id,
                                 p->pinned, p->removed, p->rating);
    bool good = reply;
    freeReplyObject(reply);
    if (good && p->removed) {
        freeReplyObject(redis_do(&t->link, "EXPIRE %spicture:%s 604800", t->prefix, p->id));
        freeReplyObject(redis_do(&t->link, "ZREM %spictures %s", t->prefix, p->id));
        freeReplyObject(redis_do(&t->link, "ZREM %spictures:%s %s", t->prefix, p->owner, p->id));
    } else if (good && p->pinned)
        freeReplyObject(redis_do(&t->link, "PERSIST %sjob:%s", t->prefix, p->job));
    return good;
}

/* ---- the kind ---------------------------------------------------------------------------------------------------- */

static void close_store(front *f) {
    fleet_store *t = fleet_of(f);
    if (!f->crew) freeReplyObject(redis_do(&t->link, "DEL %sfront:%s", t->prefix, t->id));
    redis_close(&t->link);
    redis_close(&t->news);
    for (int i = 0; i < SERVE_MODELS; i++) free(t->names[i]);
    free(t);
}

const store_kind fleet_kind = {.close = close_store,
                               .is_there = fleet_is_there,
                               .tick = fleet_tick,
                               .find_live = fleet_find_live,
                               .tell = fleet_tell,
                               .pause = fleet_pause,
                               .first = fleet_first,
                               .waiting = fleet_waiting,
                               .position = fleet_position,
                               .seconds_before = fleet_seconds_before,
                               .add_job = add_job,
                               .save_job = save_job,
                               .add_picture = add_picture,
                               .find_job = find_job,
                               .each_live = each_live,
                               .list_jobs = list_jobs,
                               .find_repeat = find_repeat,
                               .find_picture = find_picture,
                               .list_pictures = list_pictures,
                               .picture_settings = picture_settings,
                               .change_picture = change_picture,
                               .old_pictures = old_pictures,
                               .add_upload = fleet_add_upload,
                               .find_upload = fleet_find_upload,
                               .old_uploads = fleet_old_uploads,
                               .remove_upload = fleet_remove_upload,
                               .add_address = fleet_add_address,
                               .find_address = fleet_find_address};

store *fleet_store_open(front *f, char *why, size_t size) {
    const serve_options *o = f->options;
    fleet_store *t = calloc(1, sizeof *t);
    if (!t || !redis_parse(o->store, o->store_password, &t->where, why, size)) {
        free(t);
        return NULL;
    }
    t->base.kind = &fleet_kind;
    t->link.where = t->news.where = &t->where;
    t->keep_days = o->keep_days;
    t->was_there = true;
    snprintf(t->prefix, sizeof t->prefix, "lz:{%.32s}:", o->fleet);
    make_id(t->id, f->crew ? "worker_" : "front_");
    return &t->base;
}
