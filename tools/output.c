/* output.c - see output.h. Every line or piece is composed in a buffer, written with one call and flushed, so that a reader of the
 * pipe sees whole objects and a closed pipe is noticed at the next token. */
#include "output.h"

#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#define MAX_OUTPUT_BYTES ((size_t)1 << 30)

di_status cli_output_init(cli_output *o, const di_tokenizer *tokenizer, bool json, bool logprobs, int64_t n_choices, di_error *err)
{
    memset(o, 0, sizeof *o);
    o->tokenizer = tokenizer;
    o->json = json;
    o->logprobs = logprobs;
    o->n_choices = n_choices;
    buf_init(&o->text, MAX_OUTPUT_BYTES);
    buf_init(&o->ids, MAX_OUTPUT_BYTES);
    buf_init(&o->line, MAX_OUTPUT_BYTES);
    di_status status = tokenizer != NULL ? di_detokenizer_new(tokenizer, 0, &o->stream, err) : DI_OK;
    return status == DI_OK ? cli_output_stop_at(o, NULL, 0, err) : status;
}

di_status cli_output_stop_at(cli_output *o, const char *const *strings, size_t n, di_error *err)
{
    if (o->tokenizer == NULL) {
        return n == 0 ? DI_OK : err_set(err, DI_E_ARGUMENT, "the model has no tokenizer.json, so there is no text: use --stop-id");
    }
    di_stop *stop = NULL;
    const di_status status = di_stop_new(strings, NULL, n, &stop, err);
    if (status == DI_OK) {
        di_stop_free(o->stop);
        o->stop = stop;
        o->stop_strings = strings;
    }
    return status;
}

bool cli_output_stopped(const cli_output *o)
{
    return o->stop != NULL && di_stop_matched(o->stop) >= 0;
}

void cli_output_fini(cli_output *o)
{
    di_detokenizer_free(o->stream);
    di_stop_free(o->stop);
    buf_fini(&o->text);
    buf_fini(&o->ids);
    buf_fini(&o->line);
}

static di_status write_out(const char *data, size_t size, di_error *err)
{
    if (size == 0) {
        return DI_OK;
    }
    if (fwrite(data, 1, size, stdout) != size || fflush(stdout) != 0) {
        return err_set_errno(err, errno, "standard output");
    }
    return DI_OK;
}

static di_status write_line(cli_output *o, di_error *err)
{
    if (o->line.failed || o->text.failed || o->ids.failed) {
        return err_memory(err, "output", o->text.size);
    }
    return write_out(o->line.data, o->line.size, err);
}

di_status cli_output_begin(cli_output *o, int64_t choice, di_error *err)
{
    o->choice = choice;
    o->index = 0;
    if (o->stop != NULL) {
        di_stop_reset(o->stop);
    }
    buf_clear(&o->text);
    buf_clear(&o->ids);
    buf_clear(&o->line);
    if (!o->json && o->n_choices > 1) {
        buf_printf(&o->line, "%s--- choice %" PRId64 " ---\n", choice > 0 ? "\n" : "", choice);
    }
    return write_line(o, err);
}

di_status cli_output_echo(cli_output *o, const int32_t *ids, size_t n, di_error *err)
{
    if (o->json) {
        return DI_OK;
    }
    buf_clear(&o->line);
    if (o->tokenizer == NULL) {
        for (size_t i = 0; i < n; i++) {
            buf_printf(&o->line, "%" PRId32 " ", ids[i]);
        }
        return write_line(o, err);
    }
    size_t size;
    di_status status = di_tokenizer_decode(o->tokenizer, ids, n, 0, NULL, 0, &size, err);
    if (status != DI_OK) {
        return status;
    }
    char *text = malloc(size + 1);
    if (text == NULL) {
        return err_memory(err, "prompt text", size);
    }
    status = di_tokenizer_decode(o->tokenizer, ids, n, 0, text, size, &size, err);
    if (status == DI_OK) {
        status = write_out(text, size, err);
    }
    free(text);
    return status;
}

/* Text that the next id adds; "" without tokenizer. */
static di_status next_piece(cli_output *o, const di_sample *sample, const char **piece, size_t *size, di_error *err)
{
    *piece = "";
    *size = 0;
    if (o->stream == NULL || sample->is_stop) {
        return DI_OK;
    }
    const di_status status = di_detokenizer_push(o->stream, sample->id, piece, size, err);
    return status == DI_OK ? di_stop_push(o->stop, *piece, *size, piece, size, err) : status;
}

/* What was held back: an unfinished character, then the beginning of a stop string. Appends to `out`. */
static di_status last_piece(cli_output *o, buf *out, di_error *err)
{
    const char *piece;
    size_t size;
    if (o->stream == NULL) {
        return DI_OK;
    }
    di_status status = di_detokenizer_finish(o->stream, &piece, &size, err);
    if (status == DI_OK) {
        status = di_stop_push(o->stop, piece, size, &piece, &size, err);
    }
    if (status == DI_OK) {
        buf_append(out, piece, size);
        status = di_stop_finish(o->stop, &piece, &size, err);
    }
    if (status == DI_OK) {
        buf_append(out, piece, size);
    }
    return status;
}

/* A log-probability is minus infinity for a token that cannot come; JSON has no such number. */
static void put_logprob(buf *line, float logprob)
{
    if (logprob > -1e30F) {
        buf_printf(line, "%.6g", (double)logprob);
    } else {
        buf_puts(line, "null");
    }
}

static di_status put_top(cli_output *o, const di_sample *sample, di_error *err)
{
    buf *line = &o->line;
    buf_puts(line, ",\"logprob\":");
    put_logprob(line, sample->logprob);
    buf_puts(line, ",\"top\":[");
    for (int32_t i = 0; i < sample->n_top; i++) {
        buf_printf(line, "%s{\"id\":%" PRId32, i > 0 ? "," : "", sample->top[i].id);
        if (o->tokenizer != NULL) {
            char text[1024];
            size_t size;
            const di_status status =
                di_tokenizer_decode(o->tokenizer, &sample->top[i].id, 1, 0, text, sizeof text, &size, err);
            if (status != DI_OK) {
                return status;
            }
            buf_puts(line, ",\"text\":");
            buf_json_string(line, text, size < sizeof text ? size : sizeof text);
        }
        buf_puts(line, ",\"logprob\":");
        put_logprob(line, sample->top[i].logprob);
        buf_puts(line, "}");
    }
    buf_puts(line, "]");
    return DI_OK;
}

di_status cli_output_token(cli_output *o, const di_sample *sample, di_error *err)
{
    const char *piece;
    size_t size;
    di_status status = next_piece(o, sample, &piece, &size, err);
    if (status != DI_OK) {
        return status;
    }
    const int64_t index = o->index++;
    buf_clear(&o->line);
    if (!o->json) {
        if (o->tokenizer != NULL) {
            buf_append(&o->line, piece, size);
        } else if (!sample->is_stop) {
            buf_printf(&o->line, "%" PRId32 " ", sample->id);
        }
        return write_line(o, err);
    }
    buf_append(&o->text, piece, size);
    buf_printf(&o->ids, "%s%" PRId32, index > 0 ? "," : "", sample->id);
    buf_printf(&o->line, "{\"choice\":%" PRId64 ",\"index\":%" PRId64 ",\"id\":%" PRId32, o->choice, index, sample->id);
    if (o->tokenizer != NULL) {
        buf_puts(&o->line, ",\"text\":");
        buf_json_string(&o->line, piece, size);
    }
    if (o->logprobs) {
        status = put_top(o, sample, err);
        if (status != DI_OK) {
            return status;
        }
    }
    buf_puts(&o->line, "}\n");
    return write_line(o, err);
}

static double per_second(int64_t n, double seconds)
{
    return seconds > 0 && n > 0 ? (double)n / seconds : 0.0;
}

di_status cli_output_end(cli_output *o, cli_finish finish, const cli_figures *f, di_error *err)
{
    static const char *const names[] = {"stop", "length", "context", "interrupted"};
    buf *line = &o->line;
    buf_clear(line);
    const di_status status = last_piece(o, o->json ? &o->text : line, err);
    if (status != DI_OK) {
        return status;
    }
    if (!o->json) {
        buf_puts(line, "\n");
        return write_line(o, err);
    }
    if (cli_output_stopped(o)) {
        finish = CLI_STOP; /* an unfinished character at the end may complete a stop string */
    }
    buf_printf(line, "{\"choice\":%" PRId64 ",\"done\":true,\"finish\":\"%s\"", o->choice, names[finish]);
    if (o->tokenizer != NULL) {
        buf_puts(line, ",\"text\":");
        buf_json_string(line, o->text.size > 0 ? o->text.data : "", o->text.size);
    }
    if (cli_output_stopped(o)) {
        const char *string = o->stop_strings[di_stop_matched(o->stop)];
        buf_puts(line, ",\"stop_string\":");
        buf_json_string(line, string, strlen(string));
    }
    buf_printf(line, ",\"ids\":[%s]", o->ids.size > 0 ? o->ids.data : "");
    buf_printf(line, ",\"prompt_tokens\":%" PRId64 ",\"generated_tokens\":%" PRId64, f->prompt_tokens, f->generated_tokens);
    buf_printf(line, ",\"prompt_tokens_per_s\":%.1f,\"generated_tokens_per_s\":%.1f,\"first_token_s\":%.4f,\"load_s\":%.4f",
               per_second(f->prompt_tokens, f->prompt_s), per_second(f->generated_tokens - 1, f->generate_s), f->first_token_s,
               f->load_s);
    buf_printf(line, ",\"peak_bytes\":%" PRId64 ",\"backend\":\"%s\",\"threads\":%" PRId32 "}\n", f->peak_bytes, f->backend,
               f->n_threads);
    return write_line(o, err);
}

void cli_print_figures(const cli_figures *f)
{
    fprintf(stderr, "prompt      %8" PRId64 " tokens %9.1f tok/s, first token after %.3f s, model opened in %.3f s\n",
            f->prompt_tokens, per_second(f->prompt_tokens, f->prompt_s), f->first_token_s, f->load_s);
    fprintf(stderr, "generation  %8" PRId64 " tokens %9.1f tok/s\n", f->generated_tokens,
            per_second(f->generated_tokens - 1, f->generate_s));
    fprintf(stderr, "memory      %8.1f MiB at the peak; backend %s, %" PRId32 " thread%s\n",
            (double)f->peak_bytes / (double)(1 << 20), f->backend, f->n_threads, f->n_threads == 1 ? "" : "s");
}

int64_t cli_peak_bytes(void)
{
    FILE *file = fopen("/proc/self/status", "re");
    char line[256];
    int64_t kib = 0;
    while (file != NULL && fgets(line, sizeof line, file) != NULL) {
        if (sscanf(line, "VmHWM: %" SCNd64, &kib) == 1) {
            break;
        }
    }
    if (file != NULL) {
        fclose(file);
    }
    return kib * 1024;
}
