/* chat_engine.c - see chat_engine.h. */
#include "chat_engine.h"

#include "interrupt.h"
#include "open.h"
#include "recipe_options.h"

#include "core/core.h"

#include <string.h>

#define MAX_ANSWER_BYTES ((size_t)1 << 30)

/* --- Opening --------------------------------------------------------------------------------------------------------------- */

static void set_sampling(chat_engine *e, const chat_engine_options *o)
{
    cli_sampling_get(&o->sampling, &e->sampling);
    e->sampling.stop_ids = &e->stop_id;
    e->sampling.n_stop_ids = 1;
    /* These two count what was sampled, which a kept sequence remembers from earlier answers. */
    const cli_sampling *const x = &o->sampling;
    e->use_cache = cli_replay(&o->engine) != DI_REPLAY_OFF;
    const bool looks_back = x->presence_penalty < 0 || x->presence_penalty > 0 || x->frequency_penalty < 0 || x->frequency_penalty > 0;
    e->may_reuse = !e->use_cache && !looks_back;
}

di_status chat_engine_open(chat_engine *e, const chat_engine_options *o, di_error *err)
{
    memset(e, 0, sizeof *e);
    di_engine_options options;
    cli_get_engine(&o->engine, &options);
    options.max_tokens = o->max_context;
    di_status status = cli_open_model(o->engine.model, &e->model, err);
    if (status != DI_OK) {
        return status;
    }
    if (di_model_tokenizer(e->model) == NULL) {
        return err_set(err, DI_E_ARGUMENT, "the model has no tokenizer.json, so it can't chat");
    }
    di_model_info info;
    di_model_get_info(e->model, &info);
    e->stop_id = info.eos_token_id;
    e->context = o->max_context > 0 && o->max_context < info.max_tokens ? o->max_context : info.max_tokens;
    e->max_tokens = o->max_tokens;
    set_sampling(e, o);
    status = di_recipe_open(di_model_tokenizer(e->model), NULL, &e->recipe, err);
    cli_block_interrupt(true); /* not before: loading may take long, and Ctrl-C may end it as usual */
    if (status == DI_OK) {
        status = di_engine_open(e->model, &options, &e->engine, err);
    }
    if (status == DI_OK) {
        cli_say_engine_weights(e->engine);
    }
    return status;
}

void chat_engine_close(chat_engine *e)
{
    di_engine_close(e->engine); /* and the sequence */
    di_recipe_close(e->recipe);
    di_model_close(e->model);
    free(e->ids);
}

di_status chat_engine_check(const chat_engine *e, const char *body, size_t n, di_error *err)
{
    di_request *request = NULL;
    const di_status status = di_request_read(e->recipe, DI_CHAT, body, n, &request, err);
    di_request_free(request);
    return status;
}

/* --- The sequence ---------------------------------------------------------------------------------------------------------- */

static void drop_sequence(chat_engine *e)
{
    di_sequence_free(e->sequence);
    e->sequence = NULL;
    e->n_ids = 0;
}

static di_status reserve(chat_engine *e, size_t n, di_error *err)
{
    if (n <= e->capacity) {
        return DI_OK;
    }
    const size_t capacity = n < SIZE_MAX / 2 / sizeof *e->ids ? 2 * n : n;
    int32_t *ids = capacity <= SIZE_MAX / sizeof *ids ? realloc(e->ids, capacity * sizeof *ids) : NULL;
    if (ids == NULL) {
        return err_memory(err, "token ids", n * sizeof *ids);
    }
    e->ids = ids;
    e->capacity = capacity;
    return DI_OK;
}

/* Feeds what the sequence lacks of the prompt. *n_kept = how many ids it had already. */
static di_status feed(chat_engine *e, const int32_t *ids, size_t n, size_t *n_kept, di_error *err)
{
    const bool goes_on = e->sequence != NULL && e->may_reuse && e->n_ids <= n && memcmp(e->ids, ids, e->n_ids * sizeof *ids) == 0;
    di_status status = reserve(e, n, err);
    if (status == DI_OK && !goes_on) {
        drop_sequence(e);
        status = di_sequence_new(e->engine, &e->sequence, err);
        if (status == DI_OK) {
            status = di_sequence_set_sampling(e->sequence, &e->sampling, err);
        }
        if (status == DI_OK && e->use_cache) {
            status = di_sequence_use_cache(e->sequence, NULL, 0, err);
        }
    }
    *n_kept = e->n_ids;
    if (status == DI_OK && e->n_ids < n) {
        status = di_sequence_feed(e->sequence, ids + e->n_ids, n - e->n_ids, err);
    }
    if (status == DI_OK) {
        memcpy(e->ids, ids, n * sizeof *ids);
        e->n_ids = n;
        *n_kept += (size_t)di_sequence_cached(e->sequence);
    }
    return status;
}

/* Runs what is queued. False when Ctrl-C came first; the rest stays queued. */
static di_status run_queued(chat_engine *e, bool *done, di_error *err)
{
    di_status status = DI_OK;
    *done = false;
    while (status == DI_OK && !di_sequence_ready(e->sequence)) {
        int32_t n;
        if (cli_take_interrupt()) {
            return DI_OK;
        }
        status = di_engine_step(e->engine, &n, err);
    }
    *done = status == DI_OK;
    return status;
}

/* --- Answers --------------------------------------------------------------------------------------------------------------- */

typedef struct answering {
    di_output *output;
    chat_answer *answer;
    chat_piece_fn fn;
    void *user;
} answering;

static di_status add_call(chat_answer *answer, const di_piece *piece, di_error *err)
{
    chat_call *calls = realloc(answer->calls, (answer->n_calls + 1) * sizeof *calls);
    if (calls == NULL) {
        return err_memory(err, "tool calls", (answer->n_calls + 1) * sizeof *calls);
    }
    answer->calls = calls;
    chat_call *call = &calls[answer->n_calls++];
    memset(call, 0, sizeof *call);
    buf_init(&call->arguments, MAX_ANSWER_BYTES);
    call->name = strndup(piece->text, piece->size);
    return call->name != NULL ? DI_OK : err_memory(err, "tool call", piece->size);
}

static di_status keep_piece(chat_answer *answer, const di_piece *piece, di_error *err)
{
    buf *to = NULL;
    switch (piece->kind) {
    case DI_PIECE_REASONING:
        to = &answer->reasoning;
        break;
    case DI_PIECE_TEXT:
        to = &answer->text;
        break;
    case DI_PIECE_CALL:
        return add_call(answer, piece, err);
    case DI_PIECE_ARGUMENTS:
        to = &answer->calls[answer->n_calls - 1].arguments;
        break;
    case DI_PIECE_FINISH:
        answer->finish = piece->finish;
        return DI_OK;
    }
    return buf_append(to, piece->text, piece->size) ? DI_OK : err_memory(err, "answer", to->size);
}

static di_status take_pieces(answering *a, di_error *err)
{
    di_piece piece;
    di_status status = DI_OK;
    while (status == DI_OK && di_output_next(a->output, &piece)) {
        status = keep_piece(a->answer, &piece, err);
        if (status == DI_OK) {
            status = a->fn(a->user, &piece, err);
        }
    }
    return status;
}

/* Samples until the answer ends by itself, at max_tokens, or by Ctrl-C. */
static di_status generate(chat_engine *e, answering *a, int64_t max_tokens, di_error *err)
{
    for (int64_t i = 0;; i++) {
        bool done;
        di_sample sample;
        di_status status = run_queued(e, &done, err);
        if (status != DI_OK || !done) {
            return status; /* interrupted: no finish */
        }
        if (i == max_tokens || (int64_t)e->n_ids >= e->context) {
            status = di_output_finish(a->output, DI_FINISH_LENGTH, err);
            return status == DI_OK ? take_pieces(a, err) : status;
        }
        status = di_sequence_sample(e->sequence, &sample, err);
        if (status == DI_OK) {
            status = reserve(e, e->n_ids + 1, err);
        }
        if (status != DI_OK) {
            return status;
        }
        e->ids[e->n_ids++] = sample.id;
        status = sample.is_stop ? di_output_finish(a->output, DI_FINISH_STOP, err)
                                : di_output_push_ids(a->output, &sample.id, 1, NULL, err);
        if (status == DI_OK) {
            status = take_pieces(a, err);
        }
        if (status != DI_OK || di_output_finished(a->output) != DI_FINISH_NONE) {
            return status;
        }
    }
}

di_status chat_engine_answer(chat_engine *e, const char *body, size_t n, chat_piece_fn fn, void *user, chat_answer *out, di_error *err)
{
    di_request *request = NULL;
    int32_t *ids = NULL;
    size_t n_ids = 0;
    size_t n_kept = 0;
    int64_t max_tokens = 0;
    answering a = {.answer = out, .fn = fn, .user = user};
    memset(out, 0, sizeof *out);
    buf_init(&out->reasoning, MAX_ANSWER_BYTES);
    buf_init(&out->text, MAX_ANSWER_BYTES);
    di_status status = di_request_read(e->recipe, DI_CHAT, body, n, &request, err);
    if (status == DI_OK) {
        status = cli_request_ids(request, 0, &ids, &n_ids, err);
    }
    if (status == DI_OK) {
        status = di_request_max_tokens(request, (int64_t)n_ids, e->context, &max_tokens, err);
    }
    if (status == DI_OK && e->max_tokens > 0) {
        const int64_t room = e->context - (int64_t)n_ids; /* in a request more than fits would be an error, here it is a wish */
        max_tokens = e->max_tokens < room ? e->max_tokens : room;
    }
    if (status == DI_OK) {
        status = di_output_new(e->recipe, di_request_output(request), &a.output, err);
    }
    if (status != DI_OK) {
        goto out; /* nothing was fed: the sequence is as it was */
    }
    status = feed(e, ids, n_ids, &n_kept, err);
    if (status == DI_OK) {
        status = generate(e, &a, max_tokens, err);
    }
    if (status != DI_OK) {
        drop_sequence(e);
    }
    di_output_usage(a.output, &out->usage);
    out->usage.prompt_tokens = (int64_t)n_ids;
    out->usage.cached_tokens = (int64_t)n_kept;
out:
    di_output_free(a.output);
    free(ids);
    di_request_free(request);
    return status;
}

void chat_answer_fini(chat_answer *answer)
{
    for (size_t i = 0; i < answer->n_calls; i++) {
        free(answer->calls[i].name);
        buf_fini(&answer->calls[i].arguments);
    }
    free(answer->calls);
    buf_fini(&answer->reasoning);
    buf_fini(&answer->text);
}
