/* health.c: /healthz, /readyz and /metrics. */
#include <stdio.h>
#include <string.h>

#include "guard.h"

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

void handle_metrics(request *r) {
    static const double waits[] = {0.01, 0.1, 1, 5, 15, 60, 300, 600, 1800},
                        paints[] = {0.01, 0.05, 0.25, 1, 3, 10, 30, 100, 300};
    static const char *const stages[] = {"text", "encode", "denoise", "decode"};
    front *f = r->front;
    buffer b = {.data = NULL};
    if (!f->loopback && !r->who.admin) {
        reply_error(r, 403, "admin_only", "", "this needs the key of an administrator");
        return;
    }
    add_jobs(&b, f);
    add_counter(&b, "lazuli_pictures_total", "Pictures that were made.", f->metrics.pictures);
    add_counter(&b, "lazuli_steps_total", "Denoising steps of these pictures.", f->metrics.steps);
    add_counter(&b, "lazuli_model_loads_total", "Models that were opened.", f->metrics.loads);
    add_counter(&b, "lazuli_worker_restarts_total", "Worker processes that ended.", f->metrics.restarts);
    add_head(&b, "lazuli_queue_seconds", "histogram", "Time that jobs waited.");
    add_histogram(&b, "lazuli_queue_seconds", NULL, NULL, &f->metrics.queue, waits);
    add_head(&b, "lazuli_picture_seconds", "histogram", "Time of each stage of a picture.");
    for (int i = 0; i < 4; i++)
        add_histogram(&b, "lazuli_picture_seconds", "stage", stages[i], &f->metrics.stages[i], paints);
    add_head(&b, "lazuli_http_requests_total", "counter", "Requests by the first digit of their status.");
    for (int i = 2; i < 6; i++)
        buffer_print(&b, "lazuli_http_requests_total{code=\"%dxx\"} %llu\n", i,
                     (unsigned long long)f->metrics.codes[i]);
    add_head(&b, "lazuli_http_connections", "gauge", "Open connections.");
    buffer_print(&b, "lazuli_http_connections %d\n", f->n_connections);
    add_head(&b, "lazuli_build_info", "gauge", "The version.");
    buffer_print(&b, "lazuli_build_info{version=\"%s\"} 1\n", lz_version());
    reply_bytes(r, 200, "text/plain; version=0.0.4", &b);
}
