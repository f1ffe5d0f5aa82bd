/* test_limits.c: limits on sizes, and work that must grow linearly. Limits of images are tested in test_image.c. */
#include <fcntl.h>
#include <unistd.h>

#include "check.h"
#include "folder.h"
#include "graph/eval.h"
#include "models/config.h"

/* A file that is too large is refused by its size, before it is read as JSON. */
static void configurations(void) {
    lz_context *ctx = lz_open(.threads = 1);
    enter_folder();
    const char *path = in_folder("config.json");
    int fd = open(path, O_RDWR | O_CREAT, 0600);
    for (int i = 0; i < 2; i++) {
        lz_config config;
        lz_error err = {.status = LZ_OK};
        if (fd < 0 || ftruncate(fd, LZ_CONFIG_MAX_BYTES + i) != 0) abort();
        CHECK_STATUS(lz_config_open(&config, ctx, folder, "config.json", &err), LZ_BAD_FILE, &err);
        CHECK(!i == !strstr(err.text, "config.json: holds 16777217 bytes, more than the 16777216 allowed"),
              "trap 8: %s", err.text);
    }
    close(fd);
    leave_folder();
    lz_close(ctx);
}

/* Inputs of concats that the planner looks at. */
static int64_t count_visits(lz_context *ctx, lz_array *a) {
    lz_error err = {.status = LZ_OK};
    LZ_LOCK(ctx);
    lz_program *p = lz_program_new(ctx, &a, 1, false, &err);
    LZ_UNLOCK(ctx);
    if (!CHECK(p, "%s", err.text)) return -1;
    int64_t visits = p->concat_visits;
    lz_program_free(p);
    return visits;
}

static void concats(void) {
    enum { PARTS = 4000 };
    lz_context *ctx = lz_open(.threads = 1);
    lz_array *parts[PARTS], *nested;
    float wanted = 0;
    for (int computed = 0; computed < 2; computed++) {
        for (int i = 0; i < PARTS; i++) {
            float value = (float)i;
            parts[i] = lz_from(ctx, LZ_DIMS(1), LZ_F32, &value);
            if (computed) parts[i] = lz_neg(parts[i]);
        }
        lz_array *wide = lz_concat(parts, PARTS, 0);
        int64_t visits = count_visits(ctx, wide);
        CHECK(visits == 2 * PARTS, "trap 8: %lld visits to plan a concat of %d", (long long)visits, PARTS);
        const float *data = lz_data(wide, NULL);
        wanted = computed ? -(float)(PARTS - 1) : (float)(PARTS - 1);
        CHECK(data && data[PARTS - 1] == wanted && data[0] == 0);
        nested = parts[0];
        for (int i = 1; i < 200; i++) nested = lz_concat(((lz_array *[]){nested, parts[i]}), 2, 0);
        CHECK_I64(count_visits(ctx, nested), 2 * 2 * 199);
        data = lz_data(nested, NULL);
        CHECK(data && data[199] == (computed ? -199.0f : 199.0f));
    }
    lz_close(ctx);
}

TEST_MAIN({"limits: configurations", configurations}, {"limits: concats", concats})
