/* completions.c: `lazuli completions`: prints shell scripts, made from the tables, that complete commands, options and
 * their values. An option is offered if the command takes it; without a command, those of generate. Names of models
 * come from `lazuli completions names`, which the shell runs; it reads names of folders and opens no file. */
#include <stdlib.h>
#include <string.h>

#include "cache.h"

/* The kind of an option's value: a file, a folder, one of some words, or anything. */
static bool takes_file(const option *o) { return o->argument && strncmp(o->argument, "FILE", 4) == 0; }
static bool takes_folder(const option *o) { return o->argument && strcmp(o->argument, "DIR") == 0; }

static bool takes_model(const option *o) { return strcmp(o->name, "model") == 0; }

static void print_commands(const char *between, int bits) {
    for (size_t i = 0, n = 0; i < n_commands; i++)
        if (commands[i].bit & bits) printf("%s%s", n++ ? between : "", commands[i].name);
}

/* Prints text with a backslash before special characters, and apostrophes replaced by `apostrophe`. */
static void print_quoted(const char *text, const char *special, const char *apostrophe) {
    for (; *text; text++) {
        if (*text == '\'')
            fputs(apostrophe, stdout);
        else
            printf("%s%c", strchr(special, *text) ? "\\" : "", *text);
    }
}

/* ---- bash -------------------------------------------------------------------------------------------------------- */

static void print_bash(void) {
    puts("# bash completion for lazuli, by `lazuli completions bash`\n"
         "_lazuli_names() { \"${COMP_WORDS[0]}\" completions names 2>/dev/null; }\n"
         "_lazuli() {\n"
         "    local current=${COMP_WORDS[COMP_CWORD]} before=${COMP_WORDS[COMP_CWORD - 1]} command=generate options "
         "word");
    fputs("    for word in \"${COMP_WORDS[@]:1:COMP_CWORD-1}\"; do\n        case $word in ", stdout);
    print_commands(" | ", EVERY);
    puts(") command=$word && break ;; esac\n"
         "    done\n"
         "    COMPREPLY=()\n"
         "    case $before in");
    for (size_t i = 0; i < n_options; i++) {
        const option *o = &options[i];
        if (!o->argument) continue;
        printf("    --%s", o->name);
        if (o->letter) printf(" | -%c", o->letter);
        if (option_choices(o))
            printf(") COMPREPLY=($(compgen -W '%s' -- \"$current\")) && return ;;\n", option_choices(o));
        else if (takes_model(o))
            puts(") compopt -o filenames && mapfile -t COMPREPLY < <(compgen -W \"$(_lazuli_names)\" -- \"$current\"\n"
                 "        compgen -d -- \"$current\") && return ;;");
        else if (takes_folder(o))
            puts(") compopt -o filenames && mapfile -t COMPREPLY < <(compgen -d -- \"$current\") && return ;;");
        else if (takes_file(o))
            puts(") return ;; # a file, which is what bash completes by itself");
        else
            puts(") compopt +o default && return ;;");
    }
    puts("    esac\n    case $command in");
    for (size_t c = 0; c < n_commands; c++) {
        printf("    %s) options='", commands[c].name);
        for (size_t i = 0, n = 0; i < n_options; i++)
            if (options[i].commands & commands[c].bit) printf("%s--%s", n++ ? " " : "", options[i].name);
        puts("' ;;");
    }
    puts("    esac\n"
         "    if [[ $current == -* ]]; then\n"
         "        COMPREPLY=($(compgen -W \"$options\" -- \"$current\"))\n"
         "    elif [[ $command == completions ]]; then\n"
         "        COMPREPLY=($(compgen -W 'bash zsh fish' -- \"$current\"))\n"
         "    elif [[ $command == pull ]]; then\n"
         "        COMPREPLY=($(compgen -W \"$(_lazuli_names)\" -- \"$current\"))\n"
         "    elif ((COMP_CWORD == 1)); then");
    fputs("        COMPREPLY=($(compgen -W '", stdout);
    print_commands(" ", EVERY);
    puts("' -- \"$current\"))\n"
         "    fi\n"
         "}\n"
         "complete -o default -F _lazuli lazuli");
}

/* ---- zsh --------------------------------------------------------------------------------------------------------- */

static void print_zsh_option(const option *o, int bit) {
    static const char special[] = "[]:\\", apostrophe[] = "'\\''";
    fputs("        ", stdout);
    bool again = strcmp(o->name, "image") == 0 || strcmp(o->name, "seed") == 0 || strcmp(o->name, "verbose") == 0;
    if (again && o->letter)
        printf("'*'{-%c,--%s}'", o->letter, o->name);
    else if (o->letter)
        printf("'(-%c --%s)'{-%c,--%s}'", o->letter, o->name, o->letter, o->name);
    else
        printf("'--%s", o->name);
    putchar('[');
    print_quoted(option_help(o, bit), special, apostrophe);
    putchar(']');
    if (o->argument) {
        putchar(':');
        print_quoted(o->argument, special, apostrophe);
        fputs(":", stdout);
        if (option_choices(o)) printf("(%s)", option_choices(o));
        if (takes_model(o)) fputs("_lazuli_models", stdout);
        if (takes_folder(o) && !takes_model(o)) fputs("_files -/", stdout);
        if (takes_file(o)) fputs("_files", stdout);
    }
    puts("'");
}

static void print_zsh(void) {
    puts("#compdef lazuli\n"
         "# zsh completion for lazuli, by `lazuli completions zsh`\n"
         "_lazuli_names() { compadd -- ${(f)\"$($words[1] completions names 2>/dev/null)\"}; }\n"
         "_lazuli_models() { _lazuli_names; _files -/; }\n"
         "_lazuli() {\n"
         "    local command=generate word\n"
         "    local -a commands options\n"
         "    commands=(");
    for (size_t i = 0; i < n_commands; i++) {
        printf("        '%s:", commands[i].name);
        print_quoted(commands[i].help, ":\\", "'\\''");
        puts("'");
    }
    fputs("    )\n    for word in ${words[2,CURRENT-1]}; do\n        case $word in (", stdout);
    print_commands("|", EVERY);
    puts(") command=$word; break ;; esac\n    done\n    case $command in");
    for (size_t c = 0; c < n_commands; c++) {
        printf("    (%s) options=(\n", commands[c].name);
        for (size_t i = 0; i < n_options; i++)
            if (options[i].commands & commands[c].bit) print_zsh_option(&options[i], commands[c].bit);
        puts("    ) ;;");
    }
    puts("    esac\n"
         "    if ((CURRENT == 2)) && [[ $words[2] != -* ]]; then\n"
         "        _describe command commands\n"
         "    elif [[ $command == completions && $words[CURRENT] != -* ]]; then\n"
         "        compadd bash zsh fish\n"
         "    elif [[ $command == pull && $words[CURRENT] != -* && $words[CURRENT-1] != -* ]]; then\n"
         "        _lazuli_names\n"
         "    else\n"
         "        _arguments -s -S $options '*:file:_files'\n"
         "    fi\n"
         "}\n"
         "if [[ $funcstack[1] == _lazuli ]]; then _lazuli \"$@\"; else compdef _lazuli lazuli; fi");
}

/* ---- fish -------------------------------------------------------------------------------------------------------- */

static void print_fish(void) {
    static const char special[] = "\\", apostrophe[] = "\\'";
    fputs("# fish completion for lazuli, by `lazuli completions fish`\n"
          "function __lazuli_is\n"
          "    for word in (commandline -opc)[2..]\n"
          "        if contains -- $word ",
          stdout);
    print_commands(" ", EVERY);
    puts("\n"
         "            contains -- $word $argv\n"
         "            return\n"
         "        end\n"
         "    end\n"
         "    contains generate $argv\n"
         "end\n"
         "function __lazuli_names\n"
         "    set -l program (commandline -opc)[1]\n"
         "    $program completions names 2>/dev/null\n"
         "end\n"
         "function __lazuli_none\n"
         "    test (count (commandline -opc)) = 1\n"
         "end");
    for (size_t i = 0; i < n_commands; i++) {
        printf("complete -c lazuli -n __lazuli_none -a %s -d '", commands[i].name);
        print_quoted(commands[i].help, special, apostrophe);
        puts("'");
    }
    puts("complete -c lazuli -n '__lazuli_is completions' -f -a 'bash zsh fish'\n"
         "complete -c lazuli -n '__lazuli_is pull' -f -a '(__lazuli_names)'");
    for (size_t i = 0; i < n_options; i++) {
        const option *o = &options[i];
        fputs("complete -c lazuli -n '__lazuli_is ", stdout);
        print_commands(" ", o->commands);
        printf("' -l %s", o->name);
        if (o->letter) printf(" -s %c", o->letter);
        if (option_choices(o))
            printf(" -x -a '%s'", option_choices(o));
        else if (takes_model(o))
            fputs(" -x -a '(__lazuli_names; __fish_complete_directories)'", stdout);
        else if (takes_folder(o))
            fputs(" -x -a '(__fish_complete_directories)'", stdout);
        else if (o->argument)
            fputs(takes_file(o) ? " -r -F" : " -x", stdout);
        fputs(" -d '", stdout);
        print_quoted(o->help, special, apostrophe);
        puts("'");
    }
}

/* ---- all --------------------------------------------------------------------------------------------------------- */

static void print_name(void *user, const char *repo) {
    (void)user;
    if (!known_by(repo)) puts(repo);
}

/* Names of models that -m and pull take. */
static void print_names(void) {
    char *cache = hub_cache();
    for (size_t i = 0; i < n_known_models; i++) puts(known_models[i].name);
    each_cached(cache, print_name, NULL);
    free(cache);
}

int completions_command(const arguments *args) {
    static const struct {
        const char *name;
        void (*print)(void);
    } shells[] = {{"bash", print_bash}, {"zsh", print_zsh}, {"fish", print_fish}, {"names", print_names}};
    for (size_t i = 0; i < COUNT(shells); i++)
        if (strcmp(args->words[0], shells[i].name) == 0) {
            shells[i].print();
            return DONE;
        }
    return fail(args, NOT_UNDERSTOOD, "there are completions for bash, zsh and fish, not for '%s'", args->words[0]);
}
