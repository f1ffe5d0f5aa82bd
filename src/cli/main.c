/* main.c: the command line program. It uses lazuli.h like any other program.
 *
 * Exit codes: 0 done, 1 error (one sentence on stderr has the reason), 2 wrong usage, 128 + the signal's number if
 * stopped (130 by Ctrl-C), 141 if the reader of stdout is gone. */
#include <limits.h>
#include <signal.h>
#include <string.h>
#include <unistd.h>

#include "progress.h"

const command commands[] = {
    {GENERATE, "generate", "[WORDS]", "make a picture from a prompt", 0, INT_MAX, generate_command},
    {PLAN, "plan", "[WORDS]", "memory, operations and time of a picture, without making it", 0, INT_MAX, plan_command},
    {INFO, "info", "[MODEL]", "describe a model, a .safetensors file or a picture made by Lazuli", 0, 1, info_command},
    {TOKENIZE, "tokenize", "[WORDS]", "print the token ids of a text; without words, of JSON lines on stdin", 0,
     INT_MAX, tokenize_command},
    {ENCODE, "encode", "IMAGE", "encode an image to latents, by the autoencoder", 1, 1, encode_command},
    {DECODE, "decode", "FILE", "decode the tensor 'latents' of a .safetensors file to a picture", 1, 1, decode_command},
    {TENSORS, "tensors", "PATH", "list the tensors of a .safetensors file, an index.json, a model's part or a model", 1,
     1, tensors_command},
    {DEVICES, "devices", "", "list the devices that this machine can compute on", 0, 0, devices_command},
    {PULL, "pull", "NAME [FILE...]",
     "download a model from the Hugging Face hub, by OWNER/REPO or a short name, or single files of OWNER/REPO", 1,
     INT_MAX, pull_command},
    {MODELS, "models", "", "list the models on this machine, and whether they are complete", 0, 0, models_command},
    {CONVERT, "convert", "IN OUT", "write the weights of a file, a part of a model or a model in another type", 2, 2,
     convert_command},
    {BATCH, "batch", "FILE", "make many pictures, one prompt or JSON object a line; continues where it stopped", 1, 1,
     batch_command},
    {GRID, "grid", "[WORDS]", "make pictures for all values of one or two settings, side by side with labels", 0,
     INT_MAX, grid_command},
    {COMPARE, "compare", "A B", "tell how much two pictures differ, and which of their settings do", 2, 2,
     compare_command},
    {SERVE, "serve", "", "make pictures in a browser and for other programs, over HTTP", 0, 0, serve_command},
    {WORKER, "worker", "", "make the pictures of servers on other machines, with --store; serve starts one itself", 0,
     0, worker_command},
    {COMPLETIONS, "completions", "SHELL", "print completions for bash, zsh or fish", 1, 1, completions_command},
    {MAN, "man", "", "print the manual page", 0, 0, man_command},
};
const size_t n_commands = COUNT(commands);

/* Is it `lazuli help` or `lazuli version`, and not a prompt? */
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
        return fail(args, NOT_UNDERSTOOD, "there is no command '%s'; did you mean '%s'?", topic, meant);
    return fail(args, NOT_UNDERSTOOD, "there is no command '%s'; 'lazuli --help' lists them", topic);
}

static int check_words(const arguments *args) {
    const command *c = args->command;
    if (args->n_words < c->least && c->least > 1)
        return fail(args, NOT_UNDERSTOOD, "%s needs %d words: %s", c->name, c->least, c->takes);
    if (args->n_words < c->least)
        return fail(args, NOT_UNDERSTOOD, "%s needs %s %s", c->name, strchr("AEIOU", *c->takes) ? "an" : "a", c->takes);
    if (args->n_words > c->most)
        return fail(args, NOT_UNDERSTOOD, "'%s' is one word too many; 'lazuli %s --help' shows the usage",
                    args->words[c->most], c->name);
    bool blank = args->n_words && !args->prompt && c->bit & (GENERATE | PLAN | GRID);
    for (int i = 0; i < args->n_words && blank; i++) blank = is_blank(args->words[i]);
    return blank ? fail(args, NOT_UNDERSTOOD, "the prompt is empty; use --prompt '' if that is intended") : DONE;
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
                    "a prompt is needed, as in lazuli \"a red fox\" -o fox.png; 'lazuli --help' lists the options%s",
                    isatty(STDIN_FILENO) ? "" : "; 'lazuli -' reads the prompt from stdin");
    code = check_words(args);
    return code == DONE ? args->command->run(args) : code;
}

/* Ends the process without exit handlers: those of the GPU's libraries would free what the system frees faster. */
static int leave(int code) {
#ifndef LZ_FREES_AT_EXIT
    fflush(NULL);
    _exit(code);
#endif
    return code;
}

/* Has the kernel map a part of the stack now. If it has to when memory has run out, it ends the program without a word. */
static void map_stack(void) {
    volatile char room[256 << 10];
    for (size_t i = 0; i < sizeof room; i += 4096) room[i] = 0;
}

int main(int argc, char **argv) {
    map_stack();
    signal(SIGXFSZ, SIG_IGN); /* exceeding the file size limit becomes a write error */
    signal(SIGPIPE, SIG_IGN); /* so does a closed pipe: flush_output reports it */
    arguments args = {.once = json_object()};
    int code = parse(argc, argv, &args);
    end_on_shrunk_files(args.json);
    if (code == DONE) code = run(&args);
    for (size_t i = 0; i < COUNT(args.sources); i++) json_decref(args.sources[i]);
    json_decref(args.once);
    if (code == STOPPED) return leave(stop_code());
    return leave(code == DONE ? flush_output(&args) : code);
}
