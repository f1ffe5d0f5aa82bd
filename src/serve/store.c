/* store.c: calls the functions of the kind of store. See store.h. */
#include "store.h"

#include "flush.h"

bool store_open(front *f, char *why, size_t size) {
    f->store = f->options->store ? fleet_store_open(f, why, size) : sqlite_store_open(f, why, size);
    return f->store;
}

void store_close(front *f) {
    if (f->store) f->store->kind->close(f);
    f->store = NULL;
}

bool store_is_there(front *f) { return f->store->kind->is_there(f); }
uint64_t store_writes(const store *s) { return s->flusher ? flusher_committed(s->flusher) : 0; }
bool store_has_flushed(const store *s, uint64_t commits) {
    return !s->flusher || flusher_flushed(s->flusher) >= commits;
}
bool store_files_changed(front *f, const char *folder) {
    if (!f->store->flusher) return true;
    char *path = file_path(f, folder, "", "");
    bool good = path && flusher_changed(f->store->flusher, path);
    free(path);
    return good;
}
bool store_has_failed(const store *s) { return s->flusher && flusher_failed(s->flusher); }

added store_add_job(store *s, const job *j) { return s->kind->add_job(s, j); }
bool store_save_job(store *s, const job *j) { return s->kind->save_job(s, j); }
bool store_add_picture(store *s, const picture *p, const job *j) { return s->kind->add_picture(s, p, j); }
job *store_find_job(front *f, const char *id) { return f->store->kind->find_job(f, id); }
bool store_each_live(front *f, void (*each)(front *f, job *j)) { return f->store->kind->each_live(f, each); }

int store_list_jobs(front *f, const char *owner, const char *state, const char *after, int limit, job **to) {
    return f->store->kind->list_jobs(f, owner, state, after, limit, to);
}

void store_find_repeat(store *s, const char *owner, const char *key, char id[ID_BYTES], char body[65]) {
    *id = *body = 0;
    s->kind->find_repeat(s, owner, key, id, body);
}

bool store_find_picture(store *s, const char *id, picture *to) { return s->kind->find_picture(s, id, to); }

int store_list_pictures(store *s, const picture_query *q, picture *to, char next[65]) {
    *next = 0;
    return s->kind->list_pictures(s, q, to, next);
}

char *store_picture_settings(store *s, const picture *p) { return s->kind->picture_settings(s, p); }
bool store_change_picture(store *s, const picture *p) { return s->kind->change_picture(s, p); }

int store_old_pictures(store *s, double time, int limit, picture *to) {
    return s->kind->old_pictures(s, time, limit, to);
}

bool store_add_upload(store *s, const char *id, int64_t width, int64_t height) {
    return s->kind->add_upload(s, id, width, height);
}

bool store_find_upload(store *s, const char *id, int64_t *width, int64_t *height) {
    *width = *height = 0;
    return s->kind->find_upload(s, id, width, height);
}

int store_old_uploads(store *s, double time, int limit, char (*to)[65]) {
    return s->kind->old_uploads(s, time, limit, to);
}

bool store_remove_upload(store *s, const char *id) { return s->kind->remove_upload(s, id); }

bool store_add_address(store *s, const char *name, const char *id, double until) {
    return s->kind->add_address(s, name, id, until);
}

int store_find_address(store *s, const char *name, char id[ID_BYTES]) { return s->kind->find_address(s, name, id); }
