/* chat_input.c - see chat_input.h. The only file that knows libedit. */
#include "chat_input.h"

#include "interrupt.h"

#include "core/core.h"

#include <histedit.h>
#include <locale.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#define HISTORY_LINES 1000
#define QUOTES "\"\"\""
#define MORE_PROMPT ". "

struct chat_input {
    EditLine *line;
    History *history;
    FILE *out;
    char *history_file; /* NULL: not kept */
    const char *prompt; /* of the line that is typed now */
    bool abandoned;
};

static char *show_prompt(EditLine *line)
{
    chat_input *input = NULL;
    el_get(line, EL_CLIENTDATA, &input);
    return (char *)(uintptr_t)input->prompt; /* libedit's type lacks a const */
}

/* Key: Ctrl-Z. The terminal makes no signals while a line is typed; libedit's handler of this one puts it in order first. */
static unsigned char on_suspend(EditLine *line, wint_t key)
{
    (void)line;
    (void)key;
    (void)kill(0, SIGTSTP);
    return CC_REFRESH;
}

/* Key: the NUL that the terminal makes of a Ctrl-D that was typed before the prompt stood there. */
static unsigned char on_early_end(EditLine *line, wint_t key)
{
    const LineInfo *typed = el_line(line);
    (void)key;
    return typed->lastchar == typed->buffer ? CC_EOF : CC_NORM;
}

/* Key: Ctrl-C. */
static unsigned char on_interrupt(EditLine *line, wint_t key)
{
    chat_input *input = NULL;
    (void)key;
    el_get(line, EL_CLIENTDATA, &input);
    input->abandoned = true;
    return CC_EOF;
}

/* --- History file -------------------------------------------------------------------------------------------------------- */

/* Makes every folder above the file, for this user alone. */
static void make_folders(char *path)
{
    for (char *slash = strchr(path + 1, '/'); slash != NULL; slash = strchr(slash + 1, '/')) {
        *slash = '\0';
        (void)mkdir(path, 0700); /* mostly it is there; what fails shows when the file is written */
        *slash = '/';
    }
}

/* malloc'ed, NULL when there is no place for it. */
static char *history_path(void)
{
    const char *state = getenv("XDG_STATE_HOME");
    const char *home = getenv("HOME");
    if (state != NULL && state[0] == '/') { /* a relative one is to be ignored, as the XDG specification says */
        return file_path_join(state, "deepinfer/chat_history");
    }
    return home != NULL && home[0] == '/' ? file_path_join(home, ".local/state/deepinfer/chat_history") : NULL;
}

static void open_history(chat_input *input, bool keep)
{
    HistEvent event;
    history(input->history, &event, H_SETSIZE, HISTORY_LINES);
    history(input->history, &event, H_SETUNIQUE, 1);
    input->history_file = keep ? history_path() : NULL;
    if (input->history_file != NULL) {
        history(input->history, &event, H_LOAD, input->history_file);
    }
}

static void save_history(chat_input *input)
{
    HistEvent event;
    if (input->history_file != NULL) {
        make_folders(input->history_file);
        history(input->history, &event, H_SAVE, input->history_file); /* libedit makes it readable for its owner alone */
    }
}

/* --- Opening --------------------------------------------------------------------------------------------------------------- */

static void set_up(chat_input *input)
{
    el_set(input->line, EL_CLIENTDATA, input);
    el_set(input->line, EL_PROMPT, show_prompt);
    el_set(input->line, EL_EDITOR, "emacs");
    el_set(input->line, EL_SIGNAL, 1); /* restores the terminal before a deadly signal, follows its size */
    el_set(input->line, EL_HIST, history, input->history);
    /* The wide form: the other one leaks the copies that it makes of these strings. */
    el_wset(input->line, EL_ADDFN, L"cli-interrupt", L"Abandon the line", on_interrupt);
    el_wset(input->line, EL_ADDFN, L"cli-suspend", L"Stop the program until it is continued", on_suspend);
    el_wset(input->line, EL_ADDFN, L"cli-early-end", L"End of input on an empty line", on_early_end);
    el_set(input->line, EL_SETTY, "-d", "-isig", NULL);
    el_set(input->line, EL_BIND, "^C", "cli-interrupt", NULL);
    el_set(input->line, EL_BIND, "^@", "cli-early-end", NULL);
    el_set(input->line, EL_BIND, "^Z", "cli-suspend", NULL);
    el_set(input->line, EL_BIND, "^R", "em-inc-search-prev", NULL);
    el_source(input->line, NULL); /* the user's ~/.editrc wins */
}

di_status chat_input_open(bool keep_history, chat_input **out, di_error *err)
{
    /* libedit needs to know that bytes are UTF-8. Numbers stay as they are: only LC_CTYPE is set. */
    if (setlocale(LC_CTYPE, "") == NULL || MB_CUR_MAX < 4) {
        (void)setlocale(LC_CTYPE, "C.UTF-8");
    }
    chat_input *input = calloc(1, sizeof *input);
    if (input == NULL) {
        return err_memory(err, "terminal input", sizeof *input);
    }
    input->prompt = "";
    input->out = isatty(STDOUT_FILENO) ? stdout : stderr;
    input->history = history_init();
    if (input->history != NULL) {
        input->line = el_init("deepinfer", stdin, input->out, stderr);
    }
    if (input->line == NULL) {
        chat_input_close(input);
        return err_set(err, DI_E_IO, "the terminal can't be used for input");
    }
    open_history(input, keep_history);
    set_up(input);
    *out = input;
    return DI_OK;
}

void chat_input_close(chat_input *input)
{
    if (input == NULL) {
        return;
    }
    if (input->line != NULL) {
        save_history(input);
        el_end(input->line);
    }
    if (input->history != NULL) {
        history_end(input->history);
    }
    free(input->history_file);
    free(input);
}

/* --- Reading ----------------------------------------------------------------------------------------------------------------- */

/* One line without its newline, borrowed until the next. */
static chat_typed read_line(chat_input *input, const char *prompt, const char **text, size_t *size)
{
    HistEvent event;
    int n = 0;
    input->prompt = prompt;
    input->abandoned = false;
    el_set(input->line, EL_PREP_TERM, 1); /* else the prompt stands there before its keys work */
    (void)cli_take_interrupt();           /* one that came too late to stop anything */
    const char *line = el_gets(input->line, &n);
    if (line == NULL || n <= 0) {
        fputs(input->abandoned ? "^C\n" : "\n", input->out);
        return input->abandoned ? CHAT_ABANDONED : CHAT_CLOSED;
    }
    if (strspn(line, " \t\n") < (size_t)n) {
        history(input->history, &event, H_ENTER, line);
    }
    *text = line;
    *size = line[n - 1] == '\n' ? (size_t)n - 1 : (size_t)n;
    return CHAT_TYPED;
}

static bool ends_with(const char *text, size_t size, const char *end)
{
    const size_t n = strlen(end);
    return size >= n && memcmp(text + size - n, end, n) == 0;
}

/* Lines up to one that ends with quotes; the first one has lost its opening quotes. */
static chat_typed read_block(chat_input *input, const char *line, size_t size, buf *text)
{
    for (;;) {
        if (ends_with(line, size, QUOTES)) {
            size -= strlen(QUOTES);
            if (size == 0 && text->size > 0) {
                text->data[--text->size] = '\0'; /* quotes alone on a line: the newline before is no part of the message */
            }
            buf_append(text, line, size);
            return CHAT_TYPED;
        }
        if (size > 0 || text->size > 0) {
            buf_append(text, line, size);
            buf_puts(text, "\n");
        }
        const chat_typed typed = read_line(input, MORE_PROMPT, &line, &size);
        if (typed != CHAT_TYPED) {
            return typed;
        }
    }
}

chat_typed chat_input_read(chat_input *input, const char *prompt, buf *text)
{
    const char *line;
    size_t size;
    buf_clear(text);
    chat_typed typed = read_line(input, prompt, &line, &size);
    if (typed == CHAT_TYPED && size >= strlen(QUOTES) && memcmp(line, QUOTES, strlen(QUOTES)) == 0) {
        return read_block(input, line + strlen(QUOTES), size - strlen(QUOTES), text);
    }
    while (typed == CHAT_TYPED && ends_with(line, size, "\\")) {
        buf_append(text, line, size - 1);
        buf_puts(text, "\n");
        typed = read_line(input, MORE_PROMPT, &line, &size);
    }
    if (typed == CHAT_TYPED) {
        buf_append(text, line, size);
    }
    return typed;
}
