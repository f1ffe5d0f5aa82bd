/* fuzz_config.c: any bytes are a configuration or an error, and a configuration that was read can be used. The first
 * byte selects the file:
 *     s  scheduler/scheduler_config.json
 *     p  processor_config.json
 *     q  preprocessor_config.json
 * Run from the root of the sources. */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <unistd.h>

#include "models/qwen25_processor.h"
#include "pipeline/family.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static lz_context *ctx;
static char folder[] = "/tmp/lazuli-fuzz-XXXXXX";

static void write_file(const char *name, const uint8_t *data, size_t size) {
    char path[sizeof folder + 60];
    snprintf(path, sizeof path, "%s/%s", folder, name);
    FILE *f = fopen(path, "wb");
    if (!f) abort();
    fwrite(data, 1, size, f);
    fclose(f);
}

static void check(lz_status status, const lz_error *err) {
    if (status != err->status || (status && (status != LZ_BAD_FILE || !err->text[0]))) abort();
}

static void fuzz_schedule(void) {
    static const int64_t tokens[] = {1, 4096, 262144};
    static const int steps[] = {1, 4, 50};
    lz_error err = {.status = LZ_OK};
    lz_schedule s;
    float to[51];
    lz_status status = lz_schedule_read(&s, ctx, folder, &err);
    check(status, &err);
    for (int i = 0; i < 3 && !status; i++)
        for (int k = 0; k < 3; k++)
            if (lz_schedule_sigmas(&s, lz_schedule_line(&s, tokens[i]), steps[k], to))
                for (int j = 0; j <= steps[k]; j++)
                    if (!isfinite(to[j])) abort();
}

static void fuzz_processor(void) {
    lz_error err = {.status = LZ_OK};
    lz_qwen25_processor p;
    lz_status status = lz_qwen25_processor_read(&p, ctx, folder, 14, &err);
    check(status, &err);
    for (int64_t width = 32; width < 32768 && !status; width *= 3) {
        int64_t w = width, h = 1024 * 1024 / width;
        lz_qwen25_fit(&p, &w, &h);
        if (w < 28 || h < 28 || w % 28 || h % 28 || w > 1 << 26 || h > 1 << 26) abort();
    }
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
    static const char *const names[] = {"scheduler/scheduler_config.json", "processor_config.json",
                                        "preprocessor_config.json"};
    if (!ctx) {
        char path[sizeof folder + 20];
        ctx = lz_open(.threads = 1, .cache_limit = -1);
        if (!ctx || !mkdtemp(folder)) abort();
        snprintf(path, sizeof path, "%s/scheduler", folder);
        if (mkdir(path, 0700)) abort();
    }
    if (size == 0) return 0;
    int which = data[0] == 'p' ? 1 : data[0] == 'q' ? 2 : 0;
    for (int i = 1; i < 3; i++) write_file(names[i], (const uint8_t *)"{}", 2);
    write_file(names[which], data + 1, size - 1);
    which ? fuzz_processor() : fuzz_schedule();
    return 0;
}
