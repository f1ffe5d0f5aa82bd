/* main.c: the command line. It calls lazuli.h like any other program would, and is the only place that prints.
 *
 * Exit codes: 0 done, 1 failed (one sentence on stderr says why), 2 not understood, 128 and the signal's number when stopped
 * (130 by Ctrl-C), 141 when nobody reads stdout any more. */
#include <limits.h>
#include <signal.h>
#include <string.h>

#include "progress.h"

const command commands[] = {
    {GENERATE, "generate", "[WORDS]", "a picture from words", 0, INT_MAX, generate_command},
    {PLAN, "plan", "[WORDS]", "what a picture will take, before anything runs", 0, INT_MAX, plan_command},
    {INFO, "info", "", "what a model's folder holds, and what will run", 0, 0, info_command},
    {TOKENIZE, "tokenize", "[WORDS]", "text to token ids; without words JSON lines from stdin", 0, INT_MAX,
     tokenize_command},
    {ENCODE, "encode", "IMAGE", "a picture to latents, through the autoencoder", 1, 1, encode_command},
    {DECODE, "decode", "LATENTS", "latents to a picture", 1, 1, decode_command},
    {TENSORS, "tensors", "PATH", "what a .safetensors file, a model's index.json or its folder holds", 1, 1,
     tensors_command},
    {DEVICES, "devices", "", "what this machine can compute on", 0, 0, devices_command},
    {PULL, "pull", "NAME", "a model from the Hugging Face hub: OWNER/REPO or a short name", 1, 1, pull_command},
    {MODELS, "models", "", "which models are here, and whether they are complete", 0, 0, models_command},
    {BATCH, "batch", "FILE", "many pictures: a prompt or JSON settings a line; goes on where it stopped", 1, 1,
     batch_command},
    {COMPLETIONS, "completions", "SHELL", "what bash, zsh or fish needs to complete all of this", 1, 1,
     completions_command},
    {MAN, "man", "", "the manual page", 0, 0, man_command},
};
const size_t n_commands = COUNT(commands);

/* One lonely word that is nearly a command is a slip more often than a picture; but a can is no slip of man. */
static const command *nearly_a_command(const arguments *args) {
    if (args->command != &commands[0] || args->n_words != 1 || args->prompt) return NULL;
    for (size_t i = 0; i < n_commands; i++)
        if (strlen(commands[i].name) > 3 && distance(args->words[0], commands[i].name) == 1) return &commands[i];
    return NULL;
}

/* `lazuli help` is no picture of help. */
static bool is_lone_word(const arguments *args, const char *word) {
    return args->command == &commands[0] && args->n_words == 1 && !args->prompt && strcmp(args->words[0], word) == 0;
}

static int run(const arguments *args) {
    const command *c = args->command;
    if (args->version || is_lone_word(args, "version")) {
        printf("lazuli %s\n", lz_version());
        return DONE;
    }
    if (args->help || is_lone_word(args, "help")) {
        print_help(args->help ? c : NULL);
        return DONE;
    }
    if (!c && is_interactive(args)) return interactive_command(args);
    if (!c)
        return fail(args, NOT_UNDERSTOOD,
                    "what shall be shown? lazuli \"a red fox\" -o fox.png; 'lazuli --help' tells the rest");
    const command *near = nearly_a_command(args);
    if (near)
        return fail(args, NOT_UNDERSTOOD, "is the command %s meant? For a picture of it: lazuli generate %s",
                    near->name, args->words[0]);
    if (args->n_words < c->least) return fail(args, NOT_UNDERSTOOD, "%s needs a %s", c->name, c->takes);
    if (args->n_words > c->most)
        return fail(args, NOT_UNDERSTOOD, "'%s' is one word too many; 'lazuli %s --help' shows how it is used",
                    args->words[c->most], c->name);
    return c->run(args);
}

int main(int argc, char **argv) {
    signal(SIGXFSZ, SIG_IGN); /* a file that grows too large is an error like any other */
    signal(SIGPIPE, SIG_IGN); /* a reader of stdout that went away too: flush_output tells */
    arguments args = {0};
    int code = parse(argc, argv, &args);
    end_on_shrunk_files(args.json);
    if (code == DONE) code = run(&args);
    for (size_t i = 0; i < COUNT(args.sources); i++) json_decref(args.sources[i]);
    if (code == STOPPED) return stop_code();
    return code == DONE ? flush_output(&args) : code;
}
