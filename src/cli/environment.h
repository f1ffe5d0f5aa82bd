/* environment.h: maps environment variables to options of a context. The library reads no variables; the command line,
 * the tests of GPUs and the benchmarks open their contexts with these functions. help.c describes the variables. */
#ifndef LZ_ENVIRONMENT_H
#define LZ_ENVIRONMENT_H

#include <lazuli.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { ENVIRONMENT_PATH = 4096 };

/* The value of a variable; NULL: not set, or empty. */
static inline const char *environment_value(const char *name) {
    const char *value = getenv(name);
    return value && *value ? value : NULL;
}

static inline void environment_log(void *user, lz_log_level level, const char *text) {
    (void)user, (void)level;
    fprintf(stderr, "%s\n", text);
}

/* Writes the folder for compiled kernels to `to` and returns it; NULL: none, for example with LAZULI_CACHE="". */
static inline const char *environment_cache(char to[ENVIRONMENT_PATH]) {
    static const struct {
        const char *variable, *below;
    } places[] = {{"LAZULI_CACHE", ""}, {"XDG_CACHE_HOME", "/lazuli"}, {"HOME", "/.cache/lazuli"}};
    if (getenv("LAZULI_CACHE") && !environment_value("LAZULI_CACHE")) return NULL;
    for (size_t i = 0; i < sizeof places / sizeof *places; i++) {
        const char *value = environment_value(places[i].variable);
        int n = value ? snprintf(to, ENVIRONMENT_PATH, "%s%s", value, places[i].below) : 0;
        if (value) return n < ENVIRONMENT_PATH ? to : NULL;
    }
    return NULL;
}

/* `asked` with the settings of the variables. cache: memory for a path, which must outlive the options. */
static inline lz_context_options environment_options(lz_context_options asked, char cache[ENVIRONMENT_PATH]) {
    const char *cudnn = getenv("LAZULI_CUDA_DNN");
    asked.cache_folder = environment_cache(cache);
    asked.cuda_path = environment_value("LAZULI_CUDA_PATH");
    asked.cuda_gemm = environment_value("LAZULI_CUDA_GEMM");
    asked.cuda_sdpa = environment_value("LAZULI_CUDA_SDPA");
    asked.no_cudnn = cudnn && !strcmp(cudnn, "0");
    if (getenv("LAZULI_CUDA_TRACE")) asked.log = environment_log;
    return asked;
}

/* lz_open_with, with the settings of the variables. */
static inline lz_context *open_as_asked(lz_context_options asked, lz_error *err) {
    char cache[ENVIRONMENT_PATH];
    asked = environment_options(asked, cache);
    return lz_open_with(&asked, err);
}

#endif
