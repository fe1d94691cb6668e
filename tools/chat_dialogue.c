/* chat_dialogue.c - see chat.h: the prompt, and the commands that begin with a slash. A command is a row of the table. */
#include "chat.h"

#include "core/core.h"

#include <stdio.h>
#include <string.h>

#define MAX_TYPED_BYTES ((size_t)64 << 20)

typedef struct command {
    const char *name;
    const char *argument; /* for the help */
    const char *help;
    /* `argument` is without blanks around it, "" when there is none. Errors are shown and the dialogue goes on. */
    di_status (*run)(chat *c, const char *argument, di_error *err);
} command;

static di_status run_help(chat *c, const char *argument, di_error *err);

static di_status run_system(chat *c, const char *argument, di_error *err)
{
    const di_status status = chat_talk_set_system(&c->talk, argument, err);
    if (status == DI_OK) {
        chat_view_note(&c->view, argument[0] != '\0' ? "System prompt set." : "No system prompt.");
    }
    return status;
}

static di_status run_tools(chat *c, const char *argument, di_error *err)
{
    char *old = c->talk.tools;
    c->talk.tools = NULL;
    di_status status = chat_talk_set_tools(&c->talk, argument, err);
    if (status == DI_OK) {
        status = chat_check(c, err);
    }
    if (status != DI_OK) {
        free(c->talk.tools);
        c->talk.tools = old;
        return status;
    }
    free(old);
    chat_view_note(&c->view, argument[0] != '\0' ? "Tools of %s." : "No tools.", argument);
    return DI_OK;
}

static di_status run_think(chat *c, const char *argument, di_error *err)
{
    if (!chat_talk_set_thinking(&c->talk, argument[0] != '\0' ? argument : "on")) {
        return err_set(err, DI_E_ARGUMENT, "/think: '%s' is none of on, off, low, high, max", argument);
    }
    chat_view_note(&c->view, c->talk.think ? "Thinking is on." : "Thinking is off.");
    return DI_OK;
}

static di_status run_reset(chat *c, const char *argument, di_error *err)
{
    (void)argument;
    (void)err;
    chat_talk_cut(&c->talk, 0);
    chat_view_note(&c->view, "A new conversation.");
    return DI_OK;
}

static const command commands[] = {
    {"system", "TEXT", "a system prompt; without TEXT none", run_system},
    {"tools", "FILE", "tools from a JSON array, as in a Chat request; without FILE none", run_tools},
    {"think", "on|off|low|high|max", "reasoning before the answer, and how much", run_think},
    {"reset", "", "forget the conversation", run_reset},
    {"help", "", "this list", run_help},
    {"exit", "", "leave; so do Ctrl-D and a second Ctrl-C", NULL},
};

enum { N_COMMANDS = sizeof commands / sizeof commands[0] };

static di_status run_help(chat *c, const char *argument, di_error *err)
{
    (void)argument;
    (void)err;
    for (size_t i = 0; i < N_COMMANDS; i++) {
        char left[64];
        snprintf(left, sizeof left, "/%s %s", commands[i].name, commands[i].argument);
        chat_view_note(&c->view, "%-28s %s", left, commands[i].help);
    }
    chat_view_note(&c->view, "A message goes on after a \\ at the end of its line, or stands between \"\"\" and \"\"\". Two slashes begin "
                             "a message with one. Ctrl-C stops an answer.");
    return DI_OK;
}

static char *trim(char *text)
{
    text += strspn(text, " \t\n");
    size_t n = strlen(text);
    while (n > 0 && strchr(" \t\n", text[n - 1]) != NULL) {
        text[--n] = '\0';
    }
    return text;
}

/* `text` without its slash. *leave is set by /exit. */
static di_status run_command(chat *c, char *text, bool *leave, di_error *err)
{
    const size_t n = strcspn(text, " \t\n");
    const command *found = NULL;
    for (size_t i = 0; i < N_COMMANDS; i++) {
        if (strlen(commands[i].name) == n && memcmp(commands[i].name, text, n) == 0) {
            found = &commands[i];
        }
    }
    if (found == NULL) {
        return err_set(err, DI_E_ARGUMENT, "there is no command /%.*s; /help lists them", (int)(n < 40 ? n : 40), text);
    }
    if (found->run == NULL) {
        *leave = true;
        return DI_OK;
    }
    return found->run(c, trim(text + n), err);
}

/* A message or a command. What it fails with is shown here, unless nothing can be shown any more. */
static di_status take(chat *c, buf *typed, bool *leave, di_error *err)
{
    chat_outcome outcome;
    di_error problem;
    di_status status;
    char *text = typed->data;
    size_t n = typed->size;
    if (text == NULL || strspn(text, " \t\n") == n) {
        return DI_OK;
    }
    if (text[0] == '/' && text[1] != '/') {
        status = run_command(c, text + 1, leave, &problem);
    } else {
        const size_t slash = text[0] == '/' ? 1 : 0;
        status = chat_ask(c, text + slash, n - slash, &outcome, &problem);
    }
    if (status != DI_OK) {
        fprintf(stderr, "%s\n", problem.message);
    }
    return ferror(stdout) ? err_set(err, DI_E_IO, "standard output: write failed") : DI_OK;
}

di_status chat_dialogue(chat *c, di_error *err)
{
    di_status status = DI_OK;
    bool leave = false;
    bool warned = false; /* the last thing typed was a Ctrl-C */
    buf typed;
    buf_init(&typed, MAX_TYPED_BYTES);
    while (status == DI_OK && !leave) {
        switch (chat_input_read(c->input, "> ", &typed)) {
        case CHAT_TYPED:
            warned = false;
            status = take(c, &typed, &leave, err);
            break;
        case CHAT_ABANDONED:
            leave = warned;
            warned = true;
            if (!leave) {
                chat_view_note(&c->view, "Ctrl-C again leaves, as do Ctrl-D and /exit.");
            }
            break;
        case CHAT_CLOSED:
            leave = true;
            break;
        }
    }
    buf_fini(&typed);
    return status;
}
