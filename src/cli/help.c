/* help.c: the help, printed from the tables: examples first, then commands, then options by group. */
#include <string.h>

#include "cli.h"

const explained exit_codes[] = {
    {"0", "done"},
    {"1", "failed; one sentence says what and why; of a batch: some lines failed, the others are done"},
    {"2", "not understood: a command, an option or a value"},
    {"130", "stopped by Ctrl-C (143: by SIGTERM, 129: by SIGHUP); nothing half-written stays, and a batch can go on"},
    {"141", "stdout was closed by its reader before all was said"},
    {NULL, NULL},
};

const explained variables[] = {
    {"LAZULI_MODEL", "the folder of the model, where -m names none"},
    {"NO_COLOR", "if it is not empty, there are no colours on a terminal either"},
    {NULL, NULL},
};

const example examples[] = {
    {GENERATE, "lazuli \"a fox in 3d style on a blue background\" -o fox.png", "a first picture, by the demo model"},
    {GENERATE, "lazuli \"a red fox in the snow\" -m models/klein -o fox.png", "by a model of yours"},
    {GENERATE, "export LAZULI_MODEL=models/klein", "from here on it is taken without -m"},
    {GENERATE, "lazuli a red fox -S 1,2,3 -W 768 -H 512", "three of them, wide: lazuli-1.png ..."},
    {GENERATE, "lazuli -p \"make the sky purple\" -i photo.jpg -o new.png", "look at a picture"},
    {GENERATE, "lazuli -p \"an oil painting\" -i photo.jpg --strength 0.6", "start from a picture"},
    {GENERATE, "lazuli --from fox.png -o again.png", "the same once more; on a CPU the same bytes"},
    {GENERATE, "lazuli --from fox.png -S 8 -s 20", "the same with another seed and more steps"},
    {GENERATE, "echo a red fox | lazuli - --json | jq .pictures[0].file", "for scripts"},
    {GENERATE, "lazuli a red fox --preview --show", "seen as it forms, and when it is done"},
    {GENERATE, "lazuli a red fox --count 9 --sheet foxes.jpg", "nine, and all of them on one picture"},
    {GENERATE, "lazuli", "on a terminal: asks for prompts, and keeps the model open"},
    {PLAN, "lazuli plan a red fox -W 2048 -H 2048", "will it fit? nothing runs"},
    {INFO, "lazuli info -m models/klein", "what is in the folder, what will run"},
    {TOKENIZE, "lazuli tokenize -m models/klein a red fox", "the prompt as the model reads it"},
    {TOKENIZE, "lazuli tokenize -m models/klein <prompts.jsonl",
     "{\"text\": ...} in, {\"ids\": [...]} out, line by line"},
    {ENCODE, "lazuli encode -m models/klein in.png -o latents.safetensors", "a picture as latents"},
    {DECODE, "lazuli decode -m models/klein latents.safetensors -o out.png", "and back"},
    {TENSORS, "lazuli tensors model.safetensors", "names, types, shapes, bytes; reads the header only"},
    {TENSORS, "lazuli tensors --json models/klein/vae | jq .bytes", ""},
    {DEVICES, "lazuli devices", "instruction sets, threads and GPUs"},
    {PULL, "lazuli pull flux2-klein-4b", "from then on: lazuli -m flux2-klein-4b \"a red fox\""},
    {PULL, "lazuli pull Qwen/Qwen-Image --to models/qwen", "into a folder of its own"},
    {MODELS, "lazuli models", "what is here, its size, what is missing"},
    {BATCH, "lazuli batch prompts.txt -o 'out/{line}-{seed}.png'", "a prompt a line; run it again to go on"},
    {BATCH, "lazuli batch prompts.txt -o out/", "into a folder, under names of their own"},
    {BATCH, "lazuli batch jobs.jsonl -m models/klein -s 4", "{\"prompt\": ..., \"seed\": 7, \"width\": 512} a line"},
    {COMPLETIONS, "eval \"$(lazuli completions bash)\"", "for this shell; `make install` does it for good"},
    {MAN, "lazuli man | man -l -", "read it without installing it"},
};
const size_t n_examples = COUNT(examples);

static void print_examples(const command *only) {
    for (size_t i = 0; i < n_examples; i++)
        if (!only || examples[i].command == only->bit) {
            int gap = 62 - (int)strlen(examples[i].line);
            printf("  %s%*s  %s\n", examples[i].line, gap > 0 ? gap : 0, "", examples[i].why);
        }
}

static void print_title(const char *title) {
    printf("\n%s%s:%s\n", colour(stdout, "\033[1m"), title, colour(stdout, "\033[0m"));
}

static void print_options(const command *only) {
    const char *group = NULL;
    for (size_t i = 0; i < n_options; i++) {
        const option *o = &options[i];
        if (only && !(o->commands & only->bit)) continue;
        if (o->group != group) print_title(group = o->group);
        char letter[8] = "   ", name[40];
        if (o->letter) snprintf(letter, sizeof letter, "-%c,", o->letter);
        snprintf(name, sizeof name, "--%s%s%s", o->name, o->argument ? " " : "", o->argument ? o->argument : "");
        printf("  %s %-18s %s\n", letter, name, o->help);
    }
}

void print_help(const command *only) {
    if (only)
        printf("lazuli %s: %s\n\n", only->name, only->help);
    else
        puts("Lazuli makes pictures from words, on its own lazy array runtime.\n");
    print_examples(only);
    printf("\nusage: lazuli %s [OPTIONS] %s\n", only ? only->name : "[COMMAND]", only ? only->takes : "[WORDS]");
    if (!only) {
        print_title("commands");
        for (size_t i = 0; i < n_commands; i++)
            printf("  %-11s %-8s  %s%s\n", commands[i].name, commands[i].takes, commands[i].help,
                   i ? "" : " (the command when none is named)");
    }
    print_options(only);
    puts("\nExit code 0: done, 1: failed, 2: not understood, 130: stopped.");
}
