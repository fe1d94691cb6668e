/* chat_view.c - see chat_view.h. */
#include "chat_view.h"

#include "chat_talk.h"
#include "terminal.h"

#include "core/core.h"

#include <errno.h>
#include <inttypes.h>
#include <stdarg.h>
#include <string.h>
#include <unistd.h>

#define MAX_LINE_BYTES ((size_t)4 << 30)

void chat_view_init(chat_view *view, bool json, bool quiet)
{
    memset(view, 0, sizeof *view);
    view->json = json;
    view->quiet = quiet;
    view->answer_terminal = isatty(STDOUT_FILENO);
    view->notes = view->answer_terminal ? stdout : stderr;
    view->notes_colour = term_has_colour(view->notes);
    buf_init(&view->line, MAX_LINE_BYTES);
}

void chat_view_fini(chat_view *view)
{
    buf_fini(&view->line);
}

/* Writes what lies in view->line. */
static di_status write_line(chat_view *view, FILE *to, di_error *err)
{
    const size_t n = view->line.size;
    if (view->line.failed) {
        return err_memory(err, "output", n);
    }
    if (n == 0) {
        return DI_OK;
    }
    const bool good = fwrite(view->line.data, 1, n, to) == n && fflush(to) == 0;
    return good || to != stdout ? DI_OK : err_set_errno(err, errno, "standard output");
}

static const char *colour_of(const chat_view *view, chat_showing showing)
{
    if (!view->notes_colour) {
        return "";
    }
    return showing == CHAT_REASONING ? TERM_DIM : showing == CHAT_CALL ? TERM_MARK : "";
}

/* Ends what is shown: colour back, call closed, line ended. Notes and answer end in a line of their own. */
static di_status leave(chat_view *view, di_error *err)
{
    const bool note = view->showing == CHAT_REASONING || view->showing == CHAT_CALL;
    buf_clear(&view->line);
    buf_puts(&view->line, view->showing == CHAT_CALL ? ")" : "");
    buf_puts(&view->line, colour_of(view, view->showing)[0] != '\0' ? TERM_RESET : "");
    buf_puts(&view->line, view->mid_line || view->showing == CHAT_CALL ? "\n" : "");
    view->showing = CHAT_NOTHING;
    view->mid_line = false;
    return write_line(view, note ? view->notes : stdout, err);
}

static di_status show(chat_view *view, chat_showing kind, const char *text, size_t size, di_error *err)
{
    const bool note = kind != CHAT_TEXT;
    if (size == 0 || (note && view->quiet)) {
        return DI_OK;
    }
    if (view->showing != kind) {
        const di_status status = leave(view, err);
        if (status != DI_OK) {
            return status;
        }
    }
    buf_clear(&view->line);
    buf_puts(&view->line, view->showing != kind ? colour_of(view, kind) : "");
    if (note || view->answer_terminal) {
        term_put(&view->line, text, size);
    } else {
        buf_append(&view->line, text, size);
    }
    view->showing = kind;
    view->mid_line = text[size - 1] != '\n';
    return write_line(view, note ? view->notes : stdout, err);
}

di_status chat_view_piece(void *user, const di_piece *piece, di_error *err)
{
    chat_view *view = user;
    if (view->json) {
        return DI_OK; /* the whole message comes at its end */
    }
    switch (piece->kind) {
    case DI_PIECE_REASONING:
        return show(view, CHAT_REASONING, piece->text, piece->size, err);
    case DI_PIECE_TEXT:
        return show(view, CHAT_TEXT, piece->text, piece->size, err);
    case DI_PIECE_CALL: {
        di_status status = leave(view, err); /* each call has its line */
        if (status == DI_OK) {
            status = show(view, CHAT_CALL, piece->text, piece->size, err);
        }
        return status == DI_OK ? show(view, CHAT_CALL, "(", 1, err) : status;
    }
    case DI_PIECE_ARGUMENTS:
        return show(view, CHAT_CALL, piece->text, piece->size, err);
    case DI_PIECE_FINISH:
        return leave(view, err);
    }
    return DI_OK;
}

static const char *finish_reason(di_finish finish)
{
    switch (finish) {
    case DI_FINISH_LENGTH:
        return "length";
    case DI_FINISH_FILTER:
        return "content_filter";
    case DI_FINISH_TOOL_CALLS:
        return "tool_calls";
    case DI_FINISH_STOP:
    case DI_FINISH_STOP_STRING:
        return "stop";
    case DI_FINISH_NONE:
    case DI_FINISH_CUT:
        break;
    }
    return "interrupted";
}

static di_status write_answer(chat_view *view, const chat_answer *answer, di_error *err)
{
    const di_usage *usage = &answer->usage;
    buf_clear(&view->line);
    chat_put_answer(&view->line, answer);
    buf_printf(&view->line, ",\"finish_reason\":\"%s\"", finish_reason(answer->finish));
    buf_printf(&view->line,
               ",\"usage\":{\"prompt_tokens\":%" PRId64 ",\"cached_tokens\":%" PRId64 ",\"completion_tokens\":%" PRId64
               ",\"reasoning_tokens\":%" PRId64 "}}\n",
               usage->prompt_tokens, usage->cached_tokens, usage->completion_tokens, usage->reasoning_tokens);
    return write_line(view, stdout, err);
}

di_status chat_view_end(chat_view *view, const chat_answer *answer, di_error *err)
{
    if (view->json) {
        return write_answer(view, answer, err);
    }
    const di_status status = leave(view, err);
    if (status != DI_OK) {
        return status;
    }
    if (answer->finish == DI_FINISH_NONE) {
        chat_view_note(view, "[stopped]");
    } else if (answer->finish == DI_FINISH_LENGTH) {
        chat_view_note(view, "[cut after %" PRId64 " tokens]", answer->usage.completion_tokens);
    }
    return DI_OK;
}

di_status chat_view_result(chat_view *view, const chat_call *call, const buf *result, di_error *err)
{
    if (view->json) {
        buf_clear(&view->line);
        buf_printf(&view->line, "{\"role\":\"tool\",\"tool_call_id\":\"call_%" PRId64 "\",\"name\":", call->number);
        buf_json_string(&view->line, call->name, strlen(call->name));
        buf_puts(&view->line, ",\"content\":");
        buf_json_string(&view->line, chat_text(result), result->size);
        buf_puts(&view->line, "}\n");
        return write_line(view, stdout, err);
    }
    di_status status = show(view, CHAT_REASONING, "= ", 2, err);
    if (status == DI_OK) {
        status = show(view, CHAT_REASONING, chat_text(result), result->size, err);
    }
    return status == DI_OK ? leave(view, err) : status;
}

void chat_view_note(chat_view *view, const char *format, ...)
{
    va_list list;
    if (view->json || view->quiet) {
        return;
    }
    va_start(list, format);
    fputs(view->notes_colour ? TERM_DIM : "", view->notes);
    vfprintf(view->notes, format, list);
    fputs(view->notes_colour ? TERM_RESET "\n" : "\n", view->notes);
    va_end(list);
    fflush(view->notes);
}
