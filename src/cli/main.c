/* main.c: the command line. It calls lazuli.h like any other program would, and is the only place that prints.
 *
 * Exit codes: 0 done, 1 failed (one sentence on stderr says why), 2 not understood, 128 and the signal's number when stopped
 * (130 by Ctrl-C), 141 when nobody reads stdout any more. */
#include <limits.h>
#include <signal.h>
#include <string.h>
#include <unistd.h>

#include "progress.h"

const command commands[] = {
    {GENERATE, "generate", "[WORDS]", "a picture from words", 0, INT_MAX, generate_command},
    {PLAN, "plan", "[WORDS]", "what a picture will take, before anything runs", 0, INT_MAX, plan_command},
    {INFO, "info", "[MODEL]", "what a model's folder or a .safetensors file holds, and what will run", 0, 1,
     info_command},
    {TOKENIZE, "tokenize", "[WORDS]", "text to token ids; without words JSON lines from stdin", 0, INT_MAX,
     tokenize_command},
    {ENCODE, "encode", "IMAGE", "a picture to latents, through the autoencoder", 1, 1, encode_command},
    {DECODE, "decode", "FILE", "the tensor 'latents' of a .safetensors file to a picture", 1, 1, decode_command},
    {TENSORS, "tensors", "PATH",
     "what a .safetensors file, an index.json, the folder of a model's part or of a model holds", 1, 1,
     tensors_command},
    {DEVICES, "devices", "", "what this machine can compute on", 0, 0, devices_command},
    {PULL, "pull", "NAME", "a model from the Hugging Face hub: OWNER/REPO or a short name", 1, 1, pull_command},
    {MODELS, "models", "", "which models are here, and whether they are complete", 0, 0, models_command},
    {CONVERT, "convert", "IN OUT", "weights in another type: a file, a part of a model, or a model", 2, 2,
     convert_command},
    {BATCH, "batch", "FILE", "many pictures: a prompt or JSON settings a line; goes on where it stopped", 1, 1,
     batch_command},
    {COMPLETIONS, "completions", "SHELL", "what bash, zsh or fish needs to complete all of this", 1, 1,
     completions_command},
    {MAN, "man", "", "the manual page", 0, 0, man_command},
};
const size_t n_commands = COUNT(commands);

/* `lazuli help`, `lazuli version`: no picture of help. */
static bool asks_for(const arguments *args, const char *word) {
    return !args->only_words && !args->prompt && args->n_words && strcmp(args->words[0], word) == 0;
}

/* `help`, `help TOPIC`, --help; "help a fox" is a prompt. */
static bool asks_for_help(const arguments *args) {
    if (args->help) return true;
    return asks_for(args, "help") && (args->n_words == 1 || (args->n_words == 2 && !has_blank(args->words[1])));
}

/* The topic is the one word of `help TOPIC`, `--help TOPIC` and `TOPIC --help`: "all" or a command. */
static int help_on_request(const arguments *args) {
    bool word = asks_for(args, "help"), bare = args->command == &commands[0] && !args->only_words && !args->prompt;
    const char *topic = args->n_words == 1 + word && bare ? args->words[word] : "", *meant;
    bool all = strcmp(topic, "all") == 0;
    if (!*topic || has_blank(topic)) {
        print_help(word ? NULL : args->command, false);
        return DONE;
    }
    if (all || find_command(topic)) {
        print_help(find_command(topic), all);
        return DONE;
    }
    if ((meant = slip_of(topic)))
        return fail(args, NOT_UNDERSTOOD, "there is no command '%s'; is '%s' meant?", topic, meant);
    return fail(args, NOT_UNDERSTOOD, "there is no command '%s'; 'lazuli --help' lists them", topic);
}

static int check_words(const arguments *args) {
    const command *c = args->command;
    if (args->n_words < c->least)
        return fail(args, NOT_UNDERSTOOD, "%s needs %s %s", c->name, strchr("AEIOU", *c->takes) ? "an" : "a", c->takes);
    if (args->n_words > c->most)
        return fail(args, NOT_UNDERSTOOD, "'%s' is one word too many; 'lazuli %s --help' shows how it is used",
                    args->words[c->most], c->name);
    bool blank = args->n_words && !args->prompt && c->bit & (GENERATE | PLAN);
    for (int i = 0; i < args->n_words && blank; i++) blank = is_blank(args->words[i]);
    return blank ? fail(args, NOT_UNDERSTOOD, "the prompt is empty; if that is meant: --prompt ''") : DONE;
}

static int run(arguments *args) {
    char hint[1000];
    int code = DONE;
    if (args->version || (asks_for(args, "version") && args->n_words == 1)) {
        printf("lazuli %s\n", lz_version());
        return DONE;
    }
    if (asks_for_help(args)) return help_on_request(args);
    if (is_hardly_a_prompt(args, hint, sizeof hint)) code = refuse_or_ask(args, hint);
    if (code == DONE) code = check_options(args);
    if (code != DONE) return code;
    if (!args->command && is_interactive(args)) return interactive_command(args);
    if (!args->command)
        return fail(args, NOT_UNDERSTOOD,
                    "what shall be shown? lazuli \"a red fox\" -o fox.png; 'lazuli --help' tells the rest%s",
                    isatty(STDIN_FILENO) ? "" : "; 'lazuli -' reads the prompt from stdin");
    code = check_words(args);
    return code == DONE ? args->command->run(args) : code;
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
