/* main.c: lazuli-synth, which writes model folders of random weights. Exit codes: 0 done, 1 error, 2 wrong usage. */
#include <errno.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "synth/synth.h"

static volatile sig_atomic_t stopped;
static void stop(int signal) {
    (void)signal;
    stopped = 1;
}

static bool watch(void *user, const char *file, int64_t done, int64_t total) {
    time_t *last = user, now = time(NULL);
    if (isatty(2) && (now != *last || done == total)) {
        *last = now;
        fprintf(stderr, "\r\033[K%3d %%  %.1f of %.1f GB  %s%s", (int)(100 * done / total), 1e-9 * (double)done,
                1e-9 * (double)total, strrchr(file, '/') ? strrchr(file, '/') + 1 : file, done == total ? "\n" : "");
    }
    return !stopped;
}

static int help(void) {
    puts("lazuli-synth writes a model folder of random weights, in the layout, shapes and sizes of the published "
         "model.\n"
         "Its pictures are noise, and take the time and memory of the real model.\n\n"
         "usage: lazuli-synth KIND DIR [OPTIONS]     write the model into DIR, which must be new or empty\n"
         "       lazuli-synth --list KIND [OPTIONS]  print its tensors (part, name, shape, type); write "
         "nothing\n\nkinds:");
    const char *name, *what;
    for (int i = 0; (name = synth_kind(i, &what)); i++) printf("  %-16s %s\n", name, what);
    puts("\noptions:\n"
         "  --layers N       number of blocks of the transformer, of both kinds together; for Z-Image\n"
         "                   without its refiners\n"
         "  --text-layers N  number of layers of the text encoder; for klein with fewer than 28, other programs\n"
         "                   need text_encoder_out_layers as an argument\n"
         "  --tokenizer DIR  copy the tokenizer from DIR; by default one is made that knows bytes only\n"
         "  --whole          write one file for each part, of any size\n"
         "  --seed N         seed of the weights (default 1); the same seed gives the same files everywhere\n"
         "  --help           print this\n\n"
         "examples:\n"
         "  lazuli-synth tiny /tmp/tiny && lazuli -m /tmp/tiny -p \"a red fox\" -o fox.png\n"
         "  lazuli-synth klein-4b /tmp/small --layers 5 --text-layers 9");
    return 0;
}

static int complain(int code, const char *text, const char *about) {
    fprintf(stderr, "lazuli-synth: %s%s\n", text, about);
    return code;
}

static int print_list(const synth_model *model) {
    puts("component\tname\tshape\tdtype");
    for (int part = 0; part < SYNTH_PARTS; part++) {
        int n;
        synth_tensor *tensors = synth_tensors(model, (synth_part)part, &n);
        if (!tensors) return complain(1, "out of memory", "");
        for (const synth_tensor *t = tensors; t < tensors + n; t++) {
            printf("%s\t%s\t%s", synth_part_names[part], t->name, t->dims.n ? "" : "scalar");
            for (int d = 0; d < t->dims.n; d++) printf(d ? "x%lld" : "%lld", (long long)t->dims.at[d]);
            printf("\t%s\n", synth_type(t));
        }
        free(tensors);
    }
    return 0;
}

int main(int argc, char **argv) {
    time_t last = 0;
    long long blocks = 0, text_layers = 0, seed = 1;
    synth_options options = {.watch = watch, .user = &last};
    const struct option {
        const char *name;
        long long *number;
        const char **text;
    } known[] = {{"--layers", &blocks, NULL},
                 {"--text-layers", &text_layers, NULL},
                 {"--seed", &seed, NULL},
                 {"--tokenizer", NULL, &options.tokenizer}};
    const char *words[2] = {NULL, NULL};
    int n_words = 0;
    bool list = false, whole = false;
    for (int i = 1; i < argc; i++) {
        if (!strcmp(argv[i], "--help") || !strcmp(argv[i], "-h")) return help();
        bool *flag = !strcmp(argv[i], "--list") ? &list : !strcmp(argv[i], "--whole") ? &whole : NULL;
        if (flag) *flag = true;
        if (flag) continue;
        const struct option *o = NULL;
        for (size_t k = 0; k < sizeof known / sizeof known[0]; k++)
            if (!strcmp(argv[i], known[k].name)) o = &known[k];
        if (!o && argv[i][0] == '-') return complain(2, "unknown option, see --help: ", argv[i]);
        if (!o && n_words == 2) return complain(2, "one word too many: ", argv[i]);
        if (!o) words[n_words++] = argv[i];
        if (!o) continue;
        if (++i == argc) return complain(2, "this option needs a value: ", o->name);
        if (o->text) *o->text = argv[i];
        char *end = "";
        errno = 0;
        if (o->number) *o->number = strtoll(argv[i], &end, 10);
        if (*end || end == argv[i] || errno || (o->number && *o->number < 0))
            return complain(2, "not a whole number: ", argv[i]);
    }
    if (n_words != (list ? 1 : 2))
        return complain(2, list ? "--list takes a KIND" : "a KIND and a DIR are needed, see --help", "");
    options.seed = (uint64_t)seed;

    lz_error err = {.status = LZ_OK};
    synth_model model;
    if (synth_model_of(words[0], blocks, text_layers, &model, &err))
        return complain(err.status == LZ_NOT_FOUND ? 2 : 1, err.text, "");
    if (whole) model.text_shard = model.transformer_shard = INT64_MAX;
    if (list) return print_list(&model);
    struct sigaction action = {.sa_handler = stop};
    sigaction(SIGINT, &action, NULL);
    sigaction(SIGTERM, &action, NULL);
    lz_context *ctx = lz_open(.error = &err);
    if (!ctx) return complain(1, err.text, "");
    lz_status status = synth_write(ctx, &model, words[1], &options, &err);
    lz_close(ctx);
    if (status && isatty(2)) fputc('\n', stderr);
    return status ? complain(1, err.text, "") : 0;
}
