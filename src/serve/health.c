/* health.c: /healthz, /readyz and /metrics. */
#include <stdio.h>
#include <string.h>
#include <sys/statvfs.h>
#include <sys/sysinfo.h>
#include <unistd.h>

#include "guard.h"
#include "handlers.h"
#include "store.h"

void handle_health(request *r) { reply_json(r, 200, json_pack("{s:s}", "status", "ok")); }

bool reply_is_ready(front *f, const char **status) {
    *status = f->draining                         ? "draining"
              : f->no_disk                        ? "disk_full"
              : f->child.ready || f->child.asleep ? "ok"
              : f->child.deaths                   ? "no_worker"
                                                  : "loading";
    return strcmp(*status, "ok") == 0;
}

void handle_ready(request *r) {
    const char *status;
    bool ready = reply_is_ready(r->front, &status);
    reply_json(r, ready ? 200 : 503, json_pack("{s:s}", "status", status));
}

/* GET /sdapi/v1/memory. A CPU has no memory of its own. */
void handle_sd_memory(request *r) {
    const front *f = r->front;
    const child *c = &f->child;
    struct sysinfo s = {.mem_unit = 1};
    bool gpu = c->loaded >= 0 && strncmp(f->models[c->loaded].device, "cuda", 4) == 0;
    sysinfo(&s);
    json_int_t all = (json_int_t)s.totalram * s.mem_unit, left = (json_int_t)s.freeram * s.mem_unit;
    json_int_t used = c->memory_active + c->memory_cached;
    json_t *device = gpu ? json_pack("{s:{s:I, s:I, s:I}, s:{s:I, s:I}}", "system", "free",
                                     (json_int_t)c->memory_total - used, "used", used, "total",
                                     (json_int_t)c->memory_total, "active", "current", (json_int_t)c->memory_active,
                                     "peak", (json_int_t)c->memory_peak)
                         : json_object();
    reply_json(
        r, 200,
        json_pack("{s:{s:I, s:I, s:I}, s:o}", "ram", "free", left, "used", all - left, "total", all, "cuda", device));
}

/* ---- metrics ----------------------------------------------------------------------------------------------------- */

static void add_head(buffer *b, const char *name, const char *type, const char *help) {
    buffer_print(b, "# HELP %s %s\n# TYPE %s %s\n", name, help, name, type);
}

static void add_counter(buffer *b, const char *name, const char *help, uint64_t value) {
    add_head(b, name, "counter", help);
    buffer_print(b, "%s %llu\n", name, (unsigned long long)value);
}

static void add_histogram(buffer *b, const char *name, const char *label, const char *value, const histogram *h,
                          const double *limits) {
    uint64_t sum = 0;
    char pair[64] = "";
    if (label) snprintf(pair, sizeof pair, "%s=\"%s\",", label, value);
    for (int i = 0; i < BUCKETS; i++) {
        sum += h->counts[i];
        if (i < BUCKETS - 1)
            buffer_print(b, "%s_bucket{%sle=\"%g\"} %llu\n", name, pair, limits[i], (unsigned long long)sum);
        else
            buffer_print(b, "%s_bucket{%sle=\"+Inf\"} %llu\n", name, pair, (unsigned long long)sum);
    }
    if (label) snprintf(pair, sizeof pair, "{%s=\"%s\"}", label, value);
    buffer_print(b, "%s_sum%s %.6f\n%s_count%s %llu\n", name, pair, h->sum, name, pair, (unsigned long long)h->n);
}

static void add_jobs(buffer *b, front *f) {
    static const job_state ended[] = {COMPLETED, FAILED_JOB, CANCELLED};
    static const char *const whys[] = {"client", "api", "timeout", "drain"};
    int counts[2] = {0};
    for (const job *j = f->jobs; j; j = j->next) counts[j->state == RUNNING]++;
    add_head(b, "lazuli_jobs", "gauge", "Jobs that wait or run.");
    for (int i = 0; i < 2; i++) buffer_print(b, "lazuli_jobs{state=\"%s\"} %d\n", state_names[i], counts[i]);
    add_head(b, "lazuli_jobs_total", "counter", "Jobs that have ended.");
    for (int s = 0; s < SOURCES; s++)
        for (int i = 0; i < 3; i++)
            buffer_print(b, "lazuli_jobs_total{source=\"%s\",outcome=\"%s\"} %llu\n", source_names[s],
                         state_names[ended[i]], (unsigned long long)f->metrics.jobs[s][ended[i]]);
    add_head(b, "lazuli_cancelled_total", "counter", "Jobs that were cancelled.");
    for (int i = 0; i < 4; i++)
        buffer_print(b, "lazuli_cancelled_total{why=\"%s\"} %llu\n", whys[i],
                     (unsigned long long)f->metrics.cancelled[i]);
}

static void add_requests(buffer *b, const front *f) {
    add_head(b, "lazuli_http_requests_total", "counter", "Requests by path and first digit of their status.");
    for (int i = 0; i <= ROUTES; i++) {
        const route *t = route_at(i);
        for (int code = 0; code < 6; code++)
            if (f->metrics.requests[i][code])
                buffer_print(b, "lazuli_http_requests_total{path=\"%s%s\",code=\"%dxx\"} %llu\n", t ? t->path : "",
                             t ? t->after : "", code, (unsigned long long)f->metrics.requests[i][code]);
    }
}

/* Bytes of a process in memory; 0: unknown. */
static long long resident(int pid) {
    char path[48];
    long long all = 0, pages = 0;
    snprintf(path, sizeof path, "/proc/%d/statm", pid);
    FILE *file = pid ? fopen(path, "re") : NULL;
    if (file && fscanf(file, "%lld %lld", &all, &pages) != 2) pages = 0;
    if (file) fclose(file);
    return pages * sysconf(_SC_PAGESIZE);
}

static void add_sizes(buffer *b, const front *f) {
    struct statvfs disk;
    add_head(b, "lazuli_memory_bytes", "gauge", "Memory of the processes.");
    buffer_print(b, "lazuli_memory_bytes{kind=\"front\"} %lld\n", resident(getpid()));
    buffer_print(b, "lazuli_memory_bytes{kind=\"worker\"} %lld\n", resident(f->child.pid));
    const child *c = &f->child;
    const struct {
        const char *kind;
        int64_t bytes;
    } all[] = {{"total", c->memory_total},
               {"active", c->memory_active},
               {"cached", c->memory_cached},
               {"peak", c->memory_peak}};
    add_head(b, "lazuli_device_memory_bytes", "gauge",
             "Memory of the device that makes the pictures, after the last one.");
    for (size_t i = 0; i < sizeof all / sizeof *all && c->memory_total; i++)
        buffer_print(b, "lazuli_device_memory_bytes{kind=\"%s\"} %lld\n", all[i].kind, (long long)all[i].bytes);
    add_head(b, "lazuli_disk_bytes", "gauge", "The disk of the state folder.");
    if (statvfs(f->state, &disk) == 0)
        buffer_print(b, "lazuli_disk_bytes{kind=\"free\"} %llu\n",
                     (unsigned long long)disk.f_bavail * (unsigned long long)disk.f_frsize);
    if (f->store->kind->own_worker)
        buffer_print(b, "lazuli_disk_bytes{kind=\"pictures\"} %lld\n", (long long)f->store->kept_bytes);
}

void handle_metrics(request *r) {
    static const double sizes[] = {1, 2, 3, 4, 6, 8, 10, 12, 16};
    static const double waits[] = {0.01, 0.1, 1, 5, 15, 60, 300, 600, 1800},
                        paints[] = {0.01, 0.05, 0.25, 1, 3, 10, 30, 100, 300};
    static const char *const stages[] = {"text", "encode", "denoise", "decode"};
    front *f = r->front;
    buffer b = {.data = NULL};
    if (!f->loopback && !r->who.admin && !r->metrics) {
        reply_error(r, 403, "admin_only", "", "this needs the key of an administrator, or --metrics-listen");
        return;
    }
    add_jobs(&b, f);
    add_head(&b, "lazuli_pictures_total", "counter", "Pictures that were made.");
    for (int i = 0; i < f->n_models; i++)
        buffer_print(&b, "lazuli_pictures_total{model=\"%s\"} %llu\n", f->models[i].id,
                     (unsigned long long)f->metrics.pictures[i]);
    add_head(&b, "lazuli_pictures_together", "histogram", "Pictures of a pass, which were made together.");
    add_histogram(&b, "lazuli_pictures_together", NULL, NULL, &f->metrics.together, sizes);
    add_counter(&b, "lazuli_steps_total", "Denoising steps of these pictures.", f->metrics.steps);
    add_counter(&b, "lazuli_model_loads_total", "Models that were opened.", f->metrics.loads);
    add_counter(&b, "lazuli_worker_restarts_total", "Worker processes that ended.", f->metrics.restarts);
    add_head(&b, "lazuli_queue_seconds", "histogram", "Time that jobs waited.");
    add_histogram(&b, "lazuli_queue_seconds", NULL, NULL, &f->metrics.queue, waits);
    add_head(&b, "lazuli_picture_seconds", "histogram", "Time of each stage of a picture.");
    for (int i = 0; i < 4; i++)
        add_histogram(&b, "lazuli_picture_seconds", "stage", stages[i], &f->metrics.stages[i], paints);
    add_requests(&b, f);
    add_sizes(&b, f);
    add_head(&b, "lazuli_http_connections", "gauge", "Open connections.");
    buffer_print(&b, "lazuli_http_connections %d\n", f->n_connections);
    add_head(&b, "lazuli_build_info", "gauge", "The version.");
    buffer_print(&b, "lazuli_build_info{version=\"%s\"} 1\n", lz_version());
    reply_bytes(r, 200, "text/plain; version=0.0.4", &b);
}
