/* route.c: the table of paths. /v1 may be left out, and a slash at the end is ignored. */
#include <assert.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "handlers.h"

#define API "/api/v1"
#define SD "/sdapi/v1"

static const route routes[] = {
    {"GET", "/", handle_page, PAGE, ""},
    {"GET", "/page/*", handle_page_file, PAGE, ""},
    {"GET", "/healthz", handle_health, OPEN | HEALTH, ""},
    {"GET", "/readyz", handle_ready, OPEN | HEALTH, ""},
    {"GET", "/health", handle_ready, OPEN | HEALTH, ""},
    {"GET", "/metrics", handle_metrics, OPEN | HEALTH | SAME_SITE, ""},
    {"GET", "/files/*", handle_file, FILES, ""},
    {"GET", "/v1/models", handle_models, 0, ""},
    {"GET", "/v1/models/*", handle_model, 0, ""},
    {"POST", "/v1/images/generations", handle_generations, JSON_BODY, ""},
    {"POST", "/v1/images/edits", handle_edits, JSON_BODY | FORM_BODY, ""},
    {"POST", "/v1/images/variations", handle_variations, JSON_BODY | FORM_BODY, ""},
    {"GET", API "/about", handle_about, 0, ""},
    {"GET", API "/openapi.json", handle_openapi, 0, ""},
    {"POST", API "/jobs", handle_jobs_new, JSON_BODY, ""},
    {"GET", API "/jobs", handle_jobs_list, 0, ""},
    {"DELETE", API "/jobs", handle_jobs_clear, 0, ""},
    {"GET", API "/jobs/*", handle_job, 0, ""},
    {"POST", API "/jobs/*", handle_job_cancel, JSON_BODY | SMALL_BODY, "/cancel"},
    {"POST", API "/jobs/*", handle_job_retry, JSON_BODY | SMALL_BODY, "/retry"},
    {"POST", API "/jobs/*", handle_job_first, JSON_BODY | SMALL_BODY, "/first"},
    {"GET", API "/jobs/*", handle_job_events, EVENTS, "/events"},
    {"GET", API "/events", handle_events, EVENTS, ""},
    {"POST", API "/plan", handle_plan, JSON_BODY, ""},
    {"POST", API "/uploads", handle_upload, RAW_BODY, ""},
    {"GET", API "/pictures", handle_pictures, 0, ""},
    {"GET", API "/pictures/*", handle_picture, 0, ""},
    {"GET", API "/pictures/*", handle_picture_file, 0, "/file"},
    {"GET", API "/pictures/*", handle_picture_recode, 0, "/file.png"},
    {"GET", API "/pictures/*", handle_picture_recode, 0, "/file.jpg"},
    {"GET", API "/pictures/*", handle_picture_recode, 0, "/file.webp"},
    {"GET", API "/pictures/*", handle_picture_thumb, 0, "/thumb"},
    {"PUT", API "/pictures/*", handle_picture_change, JSON_BODY | SMALL_BODY, ""},
    {"DELETE", API "/pictures/*", handle_picture_delete, 0, ""},
    {"POST", API "/session", handle_session_new, OPEN | JSON_BODY | SMALL_BODY, ""},
    {"DELETE", API "/session", handle_session_end, OPEN, ""},
    {"POST", SD "/txt2img", handle_txt2img, JSON_BODY, ""},
    {"POST", SD "/img2img", handle_img2img, JSON_BODY, ""},
    {"GET", SD "/progress", handle_sd_progress, 0, ""},
    {"POST", SD "/interrupt", handle_sd_interrupt, JSON_BODY | SMALL_BODY, ""},
    {"POST", SD "/skip", handle_sd_interrupt, JSON_BODY | SMALL_BODY, ""},
    {"GET", SD "/options", handle_sd_options, 0, ""},
    {"POST", SD "/options", handle_sd_options_set, JSON_BODY | SMALL_BODY, ""},
    {"GET", SD "/sd-models", handle_sd_models, 0, ""},
    {"POST", SD "/png-info", handle_sd_png_info, JSON_BODY, ""},
    {"GET", SD "/memory", handle_sd_memory, 0, ""},
    {"POST", SD "/unload-checkpoint", handle_sd_unload, ADMIN | JSON_BODY | SMALL_BODY, ""},
    {"POST", SD "/reload-checkpoint", handle_sd_reload, ADMIN | JSON_BODY | SMALL_BODY, ""},
    {"GET", SD "/*", handle_sd_list, 0, ""},
    {"GET", "/internal/ping", handle_sd_ping, 0, ""},
    {"POST", API "/models/*", handle_model_load, ADMIN | JSON_BODY | SMALL_BODY, "/load"},
    {"POST", API "/models/*", handle_model_unload, ADMIN | JSON_BODY | SMALL_BODY, "/unload"},
    {"POST", API "/queue/pause", handle_pause, ADMIN | JSON_BODY | SMALL_BODY, ""},
    {"POST", API "/queue/resume", handle_resume, ADMIN | JSON_BODY | SMALL_BODY, ""},
};
enum { ROWS = sizeof routes / sizeof *routes };
static_assert((int)ROWS <= (int)ROUTES, "metrics.requests has an element for each");

const route *route_at(int i) { return i >= 0 && i < ROWS ? &routes[i] : NULL; }
int route_number(const route *t) { return t ? (int)(t - routes) : ROUTES; }

/* Does the path fit? item gets what stands for the *. */
static bool fits(const route *t, const char *path, char item[65]) {
    size_t n = strlen(t->path), length = strlen(path);
    if (t->path[n - 1] != '*') return strcmp(t->path, path) == 0;
    n--;
    if (strncmp(t->path, path, n) != 0) return false;
    size_t id = strspn(path + n, "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789._-");
    if (id < 1 || id > 64 || n + id > length || strcmp(path + n + id, t->after) != 0) return false;
    memcpy(item, path + n, id);
    item[id] = 0;
    return true;
}

static const route *look(request *r, const char *path, char *allowed, size_t size) {
    const char *method = strcmp(r->method, "HEAD") == 0 ? "GET" : r->method;
    for (int i = 0; i < ROWS; i++) {
        if (!fits(&routes[i], path, r->item)) continue;
        if (strcmp(routes[i].method, method) == 0) return &routes[i];
        size_t used = strlen(allowed);
        snprintf(allowed + used, size - used, "%s%s", used ? ", " : "", routes[i].method);
    }
    return NULL;
}

const route *find_route(request *r, problem *why) {
    char allowed[48] = "", *path = NULL;
    size_t n = strlen(r->path);
    bool slash = n > 1 && r->path[n - 1] == '/';
    if (asprintf(&path, "/v1%.*s", (int)(slash ? n - 1 : n), r->path) < 0) path = NULL;
    const route *found = path ? look(r, path + 3, allowed, sizeof allowed) : NULL;
    if (path && !found && !*allowed) found = look(r, path, allowed, sizeof allowed);
    free(path);
    if (!found && *allowed)
        set_problem(why, 405, "method_not_allowed", allowed, "this path takes %s", allowed);
    else if (!found)
        set_problem(why, 404, "not_found", "", "there is no such path; docs/server.md lists those that there are");
    return found;
}
