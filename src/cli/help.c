/* help.c: the help, printed from the tables, in lines of 80 columns. `lazuli --help` is one screen of 24 lines; --help all
 * has every table, and COMMAND --help has the rows of one command. */
#include <string.h>

#include "cache.h"

enum { COLUMNS = 80, TEXT_COLUMN = 23 };

const explained exit_codes[] = {
    {"0", "done"},
    {"1", "failed; one sentence says what and why; of a batch: some lines failed, the others are done"},
    {"2", "not understood: a command, an option or a value"},
    {"130", "stopped by Ctrl-C (143: by SIGTERM, 129: by SIGHUP); nothing half-written stays, and a batch can go on"},
    {"141", "stdout was closed by its reader before all was said"},
    {NULL, NULL},
};

const explained variables[] = {
    {"LAZULI_MODEL", "the folder or name of the model, if -m names none"},
    {"LAZULI_LORAS", "the folder of LoRAs that <lora:NAME:0.8> in a prompt names, if --lora-folder names none"},
    {"LAZULI_SETTINGS",
     "the settings file, which names models of several files (else lazuli/settings.toml in $XDG_CONFIG_HOME)"},
    {"LAZULI_CACHE", "the folder for compiled GPU kernels (else $XDG_CACHE_HOME/lazuli); empty: none are kept"},
    {"LAZULI_CUDA_PATH", "folders to look for NVIDIA's libraries in, with colons between them; empty: the usual ones"},
    {"LAZULI_CUDA_GEMM", "library, own or any: the matrix product that a GPU runs, instead of the faster one"},
    {"LAZULI_CUDA_SDPA", "library: attention by cuDNN, also on GPUs for which there is a kernel of our own"},
    {"LAZULI_CUDA_DNN", "0: cuDNN is not used"},
    {"LAZULI_CUDA_TRACE", "if it is set, choices, refusals and compilations of a GPU are told on stderr"},
    {"LAZULI_PULL_PAUSE", "seconds before pull tries a failed request again for the first time (else 0.5)"},
    {"LAZULI_PULL_STALL", "seconds with less than 1 KiB each after which pull tries a request again (else 60)"},
    {"HF_ENDPOINT", "the hub that pull asks (else https://huggingface.co)"},
    {"HF_TOKEN, HUGGING_FACE_HUB_TOKEN", "the token for the hub"},
    {"HF_TOKEN_PATH", "the file with the token (else $HF_HOME/token)"},
    {"HF_HUB_CACHE, HUGGINGFACE_HUB_CACHE", "where pulled models lie (else $HF_HOME/hub)"},
    {"HF_HOME", "the folder of the Hugging Face tools (else $XDG_CACHE_HOME/huggingface)"},
    {"XDG_CACHE_HOME", "the folder for caches (else ~/.cache)"},
    {"XDG_CONFIG_HOME", "the folder for settings (else ~/.config)"},
    {"XDG_STATE_HOME",
     "lazuli/ in it holds the history of the session and pictures that were not saved (else ~/.local/state)"},
    {"HOME", "your home folder, ~ above"},
    {"CURL_CA_BUNDLE, SSL_CERT_FILE", "a file with certificates of your own, for pull"},
    {"https_proxy, http_proxy, no_proxy", "proxies, for pull"},
    {"NO_COLOR", "if it is not empty, there are no colours on a terminal either"},
    {"TERM",
     "the kind of the terminal: how pictures and colours are shown on it; dumb: no colours, previews or moving lines"},
    {"LINES, COLUMNS", "the size of the terminal for pictures (else what the terminal says)"},
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
    {GENERATE, "lazuli -i photo.jpg", "the same, and the first prompt looks at this picture"},
    {PLAN, "lazuli plan a red fox -W 2048 -H 2048", "will it fit, how long will it take? nothing is painted"},
    {PLAN, "lazuli plan -m flux2-klein-4b", "the same of a model that is not here yet"},
    {INFO, "lazuli info models/klein", "what is in the folder, what will run"},
    {INFO, "lazuli info model.safetensors", "what a file of tensors holds"},
    {TOKENIZE, "lazuli tokenize -m models/klein a red fox", "the prompt as the model reads it"},
    {TOKENIZE, "lazuli tokenize -m models/klein <prompts.jsonl",
     "{\"text\": ...} in, {\"ids\": [...]} out, line by line"},
    {ENCODE, "lazuli encode -m models/klein in.png -o latents.safetensors", "a picture as latents"},
    {DECODE, "lazuli decode -m models/klein latents.safetensors -o out.png", "and back"},
    {TENSORS, "lazuli tensors models/klein", "all of a model: transformer/NAME, vae/NAME ..."},
    {TENSORS, "lazuli tensors model.safetensors", "names, types, shapes, bytes; reads the header only"},
    {TENSORS, "lazuli tensors --json models/klein/vae | jq .bytes", ""},
    {CONVERT, "lazuli convert models/klein klein-q8.gguf --part transformer --type q8_0", ""},
    {CONVERT, "lazuli convert klein.safetensors klein-q4.gguf --type q4_k", "a file, a quarter as large"},
    {CONVERT, "lazuli convert models/klein models/klein-int8 --type int8", "a whole model, into a new folder"},
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

/* Help texts of an option for one command, if they differ from the text in options.c. */
static const struct {
    int commands;
    const char *option, *help;
} differences[] = {
    {ENCODE, "output", "where to: a .safetensors file; needed"},
    {DECODE, "output", "where to: .png, .jpg, .webp, or - for stdout; needed"},
    {BATCH, "output",
     "where to: names with {file}, {line}, {n} and {seed}, or a folder (else {file}-{line}-{seed}.png)"},
    {BATCH, "seed", "of every line that has none (else the number of the line)"},
    {BATCH, "prompt", "of every line of JSON that has none"},
    {BATCH, "dump", "write text, noise, latents and image of each picture, under names as for -o but .safetensors"},
    {BATCH, "json", "each picture as a JSON object, one a line; errors too"},
    {TOKENIZE, "json", "errors as JSON on stdout, too; ids are JSON in any case"},
    {COMPLETIONS | MAN, "json", "errors as JSON on stdout"},
    {PLAN, "quiet", "the plan, and no notes"},
    {PLAN, "seed", "as for generate; changes nothing here"},
    {PLAN, "count", "as for generate; changes nothing here"},
    {PLAN, "output", "as for generate; changes nothing here"},
    {PLAN, "dump", "as for generate; changes nothing here"},
    {PLAN, "verbose", "as for generate; changes nothing here"},
    {PLAN, "profile", "as for generate; changes nothing here"},
};

const char *option_help(const option *o, int bit) {
    for (size_t i = 0; i < COUNT(differences); i++)
        if (differences[i].commands & bit && strcmp(differences[i].option, o->name) == 0) return differences[i].help;
    return o->help;
}

/* ---- lines ------------------------------------------------------------------------------------------------------- */

static void print_title(const char *title) {
    printf("\n%s%s:%s\n", colour(stdout, "\033[1m"), title, colour(stdout, "\033[0m"));
}

/* Text that begins at a column, broken at blanks; later lines begin at indent. */
static void print_text(int column, int indent, const char *text) {
    const char *between = "";
    for (size_t n; *text; text += n + strspn(text + n, " ")) {
        n = strcspn(text, " ");
        if (column + (int)(strlen(between) + n) > COLUMNS) {
            printf("\n%*s", column = indent, "");
            between = "";
        }
        column += printf("%s%.*s", between, (int)n, text);
        between = " ";
    }
    putchar('\n');
}

/* A name, and a text beside it, or below it if the name is long. */
static void print_row(const char *name, const char *text) {
    int column = printf("  %s", name);
    if (column >= TEXT_COLUMN) {
        putchar('\n');
        column = 0;
    }
    printf("%*s", TEXT_COLUMN - column, "");
    print_text(TEXT_COLUMN, TEXT_COLUMN, text);
}

static void print_example(const char *line, const char *why) {
    int width = (int)strlen(line) < 40 ? 40 : (int)strlen(line);
    if (!*why)
        printf("  %s\n", line);
    else if (2 + width + 2 + (int)strlen(why) <= COLUMNS)
        printf("  %-*s  %s\n", width, line, why);
    else
        printf("  %s\n      %s\n", line, why);
}

static void print_examples(const command *only) {
    for (size_t i = 0; i < n_examples; i++)
        if (!only || examples[i].command == only->bit) print_example(examples[i].line, examples[i].why);
}

static void print_option(const option *o, int bit) {
    char name[60];
    snprintf(name, sizeof name, "%c%c%c --%s%s%s", o->letter ? '-' : ' ', o->letter ? o->letter : ' ',
             o->letter ? ',' : ' ', o->name, o->argument ? " " : "", o->argument ? o->argument : "");
    print_row(name, option_help(o, bit));
}

static void print_options(const command *only) {
    const char *group = NULL;
    for (size_t i = 0; i < n_options; i++) {
        const option *o = &options[i];
        if (only && !(o->commands & only->bit)) continue;
        if (o->group != group) print_title(group = o->group);
        print_option(o, only ? only->bit : 0);
    }
}

static void print_models(void) {
    print_title("names that pull knows");
    for (size_t i = 0; i < n_known_models; i++)
        printf("  %-21s %9s  %s\n", known_models[i].name, show_bytes(known_models[i].bytes).text, known_models[i].repo);
}

static void print_explained(const char *title, const explained *list) {
    print_title(title);
    for (; list->name; list++) print_row(list->name, list->text);
}

/* ---- pages ------------------------------------------------------------------------------------------------------- */

static void print_command(const command *c) {
    printf("usage: lazuli %s [OPTIONS]%s%s\n", c->name, *c->takes ? " " : "", c->takes);
    print_text(0, 0, c->help);
    print_title("examples");
    print_examples(c);
    if (c->bit == PULL) print_models();
    print_options(c);
}

static void print_everything(void) {
    print_title("examples");
    print_examples(NULL);
    print_title("commands");
    for (size_t i = 0; i < n_commands; i++) {
        char name[40];
        snprintf(name, sizeof name, "%-11s %s", commands[i].name, commands[i].takes);
        print_row(name, commands[i].help);
    }
    print_options(NULL);
    print_models();
    print_explained("environment", variables);
    print_explained("exit codes", exit_codes);
}

static void print_first_screen(void) {
    static const char *const common[] = {"model", "output", "width", "height", "seed", "steps", "image", "show"};
    putchar('\n');
    print_example("lazuli \"a fox in 3d style\" -o fox.png", "a first picture, by the demo model");
    print_example("lazuli", "on a terminal: asks for prompts");
    print_example("lazuli pull flux2-klein-4b", "fetches a larger model");
    print_example("lazuli -m flux2-klein-4b \"a red fox\"", "paints with it");
    print_example("lazuli -i photo.jpg \"a purple sky\"", "looks at a picture");
    printf("\n%scommands:%s", colour(stdout, "\033[1m"), colour(stdout, "\033[0m"));
    int column = 9;
    for (size_t i = 0; i < n_commands; i++) {
        if (column + 1 + (int)strlen(commands[i].name) > COLUMNS) printf("\n%*s", column = 9, "");
        column += printf(" %s", commands[i].name);
    }
    putchar('\n');
    print_title("common options");
    for (size_t i = 0; i < COUNT(common); i++) print_option(find_option(common[i], strlen(common[i])), GENERATE);
    puts("\n'lazuli --help all' prints everything, 'lazuli COMMAND --help' one command.");
}

void print_help(const command *only, bool all) {
    if (only) {
        print_command(only);
        return;
    }
    puts("usage: lazuli [COMMAND] [OPTIONS] [WORDS]\n"
         "Makes pictures from words, on this machine. Without a command it paints WORDS.");
    if (all)
        print_everything();
    else
        print_first_screen();
}
