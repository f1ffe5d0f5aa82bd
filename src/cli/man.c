/* man.c: `lazuli man`: the manual page, in roff, printed from the tables. */
#include <string.h>

#include "cache.h"

/* Prints a line of text with roff's special characters escaped; hyphens are printed such that they can be copied into a
 * shell. */
static void print_text(const char *text) {
    if (*text == '.' || *text == '\'') fputs("\\&", stdout);
    for (; *text; text++) {
        if (*text == '\\')
            fputs("\\e", stdout);
        else if (*text == '-')
            fputs("\\-", stdout);
        else if (*text == '\'')
            fputs("\\(aq", stdout);
        else if (*text == '~')
            fputs("\\(ti", stdout);
        else if (*text == '`')
            fputs("\\(ga", stdout);
        else
            putchar(*text);
    }
}

static void print_paragraph(const char *text) {
    print_text(text);
    putchar('\n');
}

static void print_options(void) {
    const char *group = NULL;
    puts(".SH OPTIONS");
    for (size_t i = 0; i < n_options; i++) {
        const option *o = &options[i];
        if (o->group != group) {
            fputs(".SS ", stdout);
            print_paragraph(group = o->group);
        }
        puts(".TP");
        if (o->letter) printf("\\fB\\-%c\\fR, ", o->letter);
        fputs("\\fB\\-\\-", stdout);
        print_text(o->name);
        fputs("\\fR", stdout);
        if (o->argument) printf(" \\fI%s\\fR", o->argument);
        putchar('\n');
        print_paragraph(o->help);
        if ((o->commands & EVERY) != EVERY) {
            fputs("(", stdout);
            for (size_t c = 0, n = 0; c < n_commands; c++)
                if (o->commands & commands[c].bit) printf("%s%s", n++ ? ", " : "", commands[c].name);
            puts(")");
        }
        for (size_t c = 0; c < n_commands; c++)
            if (o->commands & commands[c].bit && option_help(o, commands[c].bit) != o->help) {
                printf(".br\n\\fB%s\\fR: ", commands[c].name);
                print_paragraph(option_help(o, commands[c].bit));
            }
    }
}

static void print_explained(const char *title, const explained *list) {
    printf(".SH %s\n", title);
    for (; list->name; list++) {
        printf(".TP\n.B %s\n", list->name);
        print_paragraph(list->text);
    }
}

static void print_order(const char *name, const char *takes, const char *text) {
    fputs(".TP\n\\fB", stdout);
    print_text(name);
    printf("\\fR%s", *takes ? " " : "");
    print_paragraph(takes);
    print_paragraph(text);
}

static void print_session(void) {
    puts(".SH SESSION");
    print_paragraph("lazuli without a prompt starts a session if stdin and stdout are a terminal. A session asks for "
                    "prompts, and the model stays open. Each line is a prompt or one of these commands:");
    each_order(print_order);
    puts(".PP");
    print_paragraph(
        "If a prompt contains the word $1, the model looks at picture 1. Ctrl-C stops a picture, and Ctrl-D "
        "ends the session.");
    puts(".PP");
    print_paragraph(
        "The folder $XDG_STATE_HOME/lazuli/ (default ~/.local/state/lazuli/) holds the history of sessions and the "
        "pictures that were not saved.");
}

static void print_models(void) {
    puts(".SH MODELS");
    print_paragraph(
        "-m takes a folder with a model_index.json, OWNER/REPO of a model in the Hugging Face cache, or one "
        "of these short names:");
    for (size_t i = 0; i < n_known_models; i++) {
        fputs(".TP\n\\fB", stdout);
        print_text(known_models[i].name);
        puts("\\fR");
        print_text(known_repo(&known_models[i]));
        printf("%s, %s, %s\n", known_models[i].repo ? "" : " and others", show_bytes(known_models[i].bytes).text,
               known_models[i].licence);
    }
}

static void print_examples(void) {
    puts(".SH EXAMPLES");
    for (size_t i = 0; i < n_examples; i++) {
        puts(".PP");
        if (*examples[i].why) {
            print_text(examples[i].why);
            puts(":");
        }
        puts(".PP\n.nf\n.RS");
        print_paragraph(examples[i].line);
        puts(".RE\n.fi");
    }
}

int man_command(const arguments *args) {
    (void)args;
    printf(".TH LAZULI 1 \"\" \"Lazuli %s\" \"User Commands\"\n", lz_version());
    puts(".SH NAME\nlazuli \\- makes pictures from text\n"
         ".SH SYNOPSIS\n.B lazuli\n[\\fICOMMAND\\fR] [\\fIOPTIONS\\fR] [\\fIWORDS\\fR]\n"
         ".SH DESCRIPTION\nLazuli makes pictures from text. It runs open diffusion transformers from the folders in\n"
         "which they are published, on a CPU or an NVIDIA GPU.\n"
         "Results go to the standard output, and messages to the standard error.\n"
         "Colours are used on a terminal only.\n"
         ".SH COMMANDS");
    for (size_t i = 0; i < n_commands; i++) {
        printf(".TP\n\\fB%s\\fR \\fI%s\\fR\n", commands[i].name, commands[i].takes);
        print_text(commands[i].help);
        puts(i ? "" : " (the default command)");
    }
    print_options();
    puts(".SH SETTINGS");
    print_paragraph(
        "The file of --settings, and a line of batch, is a JSON object whose keys are the names of options:");
    puts(".PP\n.nf\n.RS");
    print_paragraph("{\"prompt\": \"a red fox\", \"seed\": 7, \"width\": 512, \"image\": [\"a.png\", \"b.png\"]}");
    puts(".RE\n.fi\n.PP");
    print_paragraph("PNG, JPEG and WebP files contain their settings, under the key \"" SETTINGS_KEY
                    "\". --from makes a picture again from these. Options on the command line come first, then "
                    "--settings, then --from. A line of batch comes before all of them.");
    print_session();
    print_models();
    print_explained("ENVIRONMENT", variables);
    print_explained("EXIT STATUS", exit_codes);
    print_examples();
    return DONE;
}
