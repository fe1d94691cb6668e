/* main.c - the `deepinfer` command: finds the subcommand and hands over.
 *
 * To add a command: write cmd_<name>.c, declare it in tools.h, add a row here. Exit codes: 0 done, 1 failed, 2 usage. */
#include "spelling.h"
#include "tools.h"

#include <stdio.h>
#include <string.h>

typedef struct command {
    const char *name;
    int (*run)(int argc, char **argv);
    const char *help;
} command;

static const command commands[] = {
    {"chat", cmd_chat, "a conversation with a model"},
    {"generate", cmd_generate, "text from a prompt"},
    {"serve", cmd_serve, "a model over HTTP"},
    {"cache", cmd_cache, "the KV cache on disk: stats, verify, compact, purge"},
    {"bench", cmd_bench, "speed of a synthetic slice against what the machine can do"},
    {"inspect", cmd_inspect, "what a checkpoint consists of and needs"},
    {"verify", cmd_verify, "compare this build with golden values"},
    {"tokenize", cmd_tokenize, "text to token ids and back"},
    {"render", cmd_render, "the prompt of an API request"},
    {"grammar", cmd_grammar, "constraints on generated text"},
    {"parse", cmd_parse, "generated tokens as an API's response"},
};

enum { N_COMMANDS = sizeof commands / sizeof commands[0], MAX_NAME = 31 };

static void print_help(FILE *out)
{
    fprintf(out, "usage: deepinfer COMMAND [OPTION...]\n\n");
    for (size_t i = 0; i < N_COMMANDS; i++) {
        fprintf(out, "  %-12s %s\n", commands[i].name, commands[i].help);
    }
    fprintf(out, "\n`deepinfer COMMAND --help' explains one. Every option --some-name can also be given as DI_SOME_NAME in the\n"
                 "environment, or as a line \"some-name: value\" in the YAML file that --config FILE or DI_CONFIG names. The command\n"
                 "line wins over the environment, and both over the file. Exit codes: 0 done, 1 failed, 2 usage.\n");
}

static int unknown_command(const char *name)
{
    cli_nearest near;
    cli_nearest_init(&near, name);
    for (size_t i = 0; i < N_COMMANDS; i++) {
        cli_nearest_try(&near, commands[i].name);
    }
    fprintf(stderr, "deepinfer: unknown command '%s'", name);
    if (near.name != NULL) {
        fprintf(stderr, "; did you mean '%s'?", near.name);
    }
    fprintf(stderr, "\nTry `deepinfer --help'.\n");
    return CLI_USAGE;
}

int main(int argc, char **argv)
{
    if (argc < 2) {
        print_help(stderr);
        return CLI_USAGE;
    }
    const char *name = argv[1];
    if (strcmp(name, "--help") == 0 || strcmp(name, "-h") == 0 || strcmp(name, "help") == 0) {
        print_help(stdout);
        return CLI_OK;
    }
    if (strcmp(name, "--version") == 0) {
        printf("deepinfer %s\n", di_version());
        return CLI_OK;
    }
    for (size_t i = 0; i < N_COMMANDS; i++) {
        if (strcmp(name, commands[i].name) == 0) {
            char title[MAX_NAME + 16];
            snprintf(title, sizeof title, "deepinfer %s", name);
            argv[1] = title;
            return commands[i].run(argc - 1, argv + 1);
        }
    }
    return unknown_command(name);
}
