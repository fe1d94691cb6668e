/* rec_reply.c - replies: one output parser for each choice, whose pieces become the events and the body of the request's API
 * (recipe.md 5; the parts are in rec_reply_int.h).
 *
 * When memory ends in the middle of a call, nobody can tell which events are whole: the queue is emptied and the reply takes
 * nothing more, but di_reply_fail still tries to say so to the client. */
#include "recipe/rec_reply_int.h"

#include "core/arith.h"

#include <stdlib.h>

static const rec_writer *writer_of(di_protocol protocol)
{
    switch (protocol) {
    case DI_CHAT:
        return &rec_chat_writer;
    case DI_RESPONSES:
        return &rec_responses_writer;
    case DI_MESSAGES:
        return &rec_messages_writer;
    }
    return NULL;
}

/* ---- making ---- */

static bool copy_text(const char *text, char **out)
{
    *out = text != NULL ? strdup(text) : NULL;
    return text == NULL || *out != NULL;
}

/* FNV-1a; where call ids begin. */
static uint64_t hash(const char *text)
{
    uint64_t h = 0xCBF29CE484222325u;
    for (; *text != '\0'; text++) {
        h = (h ^ (unsigned char)*text) * 0x100000001B3u;
    }
    return h;
}

static di_status open_choices(di_reply *r, const di_output_options *output, int32_t n, di_error *err)
{
    r->choices = ar_calloc((size_t)n, sizeof *r->choices);
    if (r->choices == NULL) {
        return err_memory(err, "choices of a reply", (size_t)n * sizeof *r->choices);
    }
    for (int32_t i = 0; i < n; i++) {
        rec_reply_choice *const c = &r->choices[i];
        c->index = i;
        buf_init(&c->delta.head, SIZE_MAX);
        buf_init(&c->delta.tail, SIZE_MAX);
        const di_status status = di_output_new(r->recipe, output, &c->output, err);
        r->n_choices = i + 1;
        if (status != DI_OK) {
            return status;
        }
    }
    return DI_OK;
}

static void set_options(di_reply *r, const di_request *request, const di_reply_options *options)
{
    r->request = request;
    r->protocol = request != NULL ? request->protocol : options->protocol;
    r->writer = writer_of(r->protocol);
    r->thinking = request != NULL ? request->talk.thinking : options->output.stage != DI_STAGE_NONE;
    r->usage = request != NULL ? request->include_usage : !options->no_usage;
    r->created = options->created;
    r->now = options->created;
    r->seed = hash(options->id);
    buf_init(&r->queue.frames, SIZE_MAX);
    buf_init(&r->body, SIZE_MAX);
}

di_status di_reply_new(const di_recipe *recipe, const di_request *request, const di_reply_options *options, di_reply **out,
                       di_error *err)
{
    const char *const model = options->model != NULL ? options->model : request != NULL ? request->model : NULL;
    if (options->id == NULL || model == NULL) {
        return err_set(err, DI_E_ARGUMENT, "a reply needs %s", options->id == NULL ? "an id" : "the model's name");
    }
    if (request == NULL && writer_of(options->protocol) == NULL) {
        return err_set(err, DI_E_ARGUMENT, "unknown protocol %d", (int)options->protocol);
    }
    di_reply *const r = ar_calloc(1, sizeof *r);
    if (r == NULL) {
        return err_memory(err, "reply", sizeof *r);
    }
    r->recipe = recipe;
    set_options(r, request, options);
    di_status status = DI_OK;
    if (!copy_text(options->id, &r->id) || !copy_text(options->fingerprint, &r->fingerprint) || !copy_text(model, &r->model)) {
        status = err_memory(err, "names of a reply", strlen(model));
    }
    if (status == DI_OK) {
        const int32_t n = request != NULL && r->protocol == DI_CHAT ? request->inference.n : 1;
        status = open_choices(r, request != NULL ? &request->output : &options->output, n, err);
    }
    if (status != DI_OK) {
        di_reply_free(r);
        return status;
    }
    *out = r;
    return DI_OK;
}

void di_reply_free(di_reply *r)
{
    if (r == NULL) {
        return;
    }
    for (int32_t i = 0; i < r->n_choices; i++) {
        rec_choice_fini(&r->choices[i]);
    }
    free(r->choices);
    free(r->by_name);
    free(r->id);
    free(r->fingerprint);
    free(r->model);
    rec_queue_fini(&r->queue);
    buf_fini(&r->body);
    free(r);
}

/* ---- taking in ---- */

static di_status usable(const di_reply *r, di_error *err)
{
    return r->broken ? err_set(err, DI_E_STATE, "the reply ran out of memory before") : DI_OK;
}

static di_status check_choice(const di_reply *r, int32_t choice, di_error *err)
{
    if (choice < 0 || choice >= r->n_choices) {
        return err_set(err, DI_E_ARGUMENT, "choice %d of %d", (int)choice, (int)r->n_choices);
    }
    return usable(r, err);
}

static void start(di_reply *r)
{
    if (!r->started) {
        r->started = true;
        r->writer->start(r);
    }
}

static void break_off(di_reply *r)
{
    r->broken = true;
    rec_queue_clear(&r->queue);
}

/* Behind everything that writes; `c` is the only choice that was written to. */
static di_status settle(di_reply *r, const rec_reply_choice *c, di_error *err)
{
    if (!r->queue.frames.failed && !rec_choice_failed(c)) {
        return DI_OK;
    }
    break_off(r);
    return err_memory(err, "events of a reply", r->queue.frames.capacity);
}

di_status di_reply_ready(di_reply *r, int64_t prompt_tokens, int64_t cached_tokens, di_error *err)
{
    const di_status status = usable(r, err);
    if (status != DI_OK) {
        return status;
    }
    if (r->started || r->failed) {
        return err_set(err, DI_E_STATE, "the reply has begun");
    }
    if (prompt_tokens < 0 || cached_tokens < 0) {
        return err_set(err, DI_E_ARGUMENT, "a negative number of tokens");
    }
    r->prompt_tokens = prompt_tokens;
    r->cached_tokens = cached_tokens;
    start(r);
    return settle(r, &r->choices[0], err);
}

static void fail(di_reply *r, int http_status, const char *message)
{
    r->failed = true;
    r->writer->fail(r, http_status, message);
}

/* What an output said to a push or a finish, then its pieces. */
static di_status take(di_reply *r, rec_reply_choice *c, di_status status, di_error *err)
{
    if (status == DI_E_MEMORY) {
        break_off(r);
    }
    if (status != DI_OK) {
        return status;
    }
    start(r);
    const di_finish before = c->finish;
    rec_take_pieces(r, c);
    if (c->finish == DI_FINISH_CUT && before != DI_FINISH_CUT) {
        fail(r, 500, "The generation broke off inside a tool call.");
    }
    return settle(r, c, err);
}

di_status di_reply_push_text(di_reply *r, int32_t choice, const char *text, size_t n, int64_t n_tokens, di_error *err)
{
    const di_status status = check_choice(r, choice, err);
    if (status != DI_OK || r->failed) {
        return status;
    }
    rec_queue_trim(&r->queue);
    rec_reply_choice *const c = &r->choices[choice];
    return take(r, c, di_output_push_text(c->output, text, n, n_tokens, err), err);
}

di_status di_reply_push_ids(di_reply *r, int32_t choice, const int32_t *ids, size_t n, const di_token_logprobs *logprobs,
                            di_error *err)
{
    const di_status status = check_choice(r, choice, err);
    if (status != DI_OK || r->failed) {
        return status;
    }
    rec_queue_trim(&r->queue);
    rec_reply_choice *const c = &r->choices[choice];
    return take(r, c, di_output_push_ids(c->output, ids, n, logprobs, err), err);
}

di_status di_reply_finish(di_reply *r, int32_t choice, di_finish reason, di_error *err)
{
    const di_status status = check_choice(r, choice, err);
    if (status != DI_OK || r->failed) {
        return status;
    }
    rec_queue_trim(&r->queue);
    rec_reply_choice *const c = &r->choices[choice];
    return take(r, c, di_output_finish(c->output, reason, err), err);
}

di_status di_reply_fail(di_reply *r, int http_status, const char *message, di_error *err)
{
    if (r->failed || r->n_finished == r->n_choices) {
        return err_set(err, DI_E_STATE, "the reply has ended");
    }
    rec_queue_trim(&r->queue);
    fail(r, http_status, message);
    if (!r->queue.frames.failed) {
        return DI_OK;
    }
    break_off(r);
    return err_memory(err, "events of a reply", r->queue.frames.capacity);
}

/* ---- giving out ---- */

di_finish di_reply_finished(const di_reply *r, int32_t choice)
{
    if (r->failed) {
        return DI_FINISH_CUT;
    }
    return choice >= 0 && choice < r->n_choices ? r->choices[choice].finish : DI_FINISH_NONE;
}

void di_reply_set_time(di_reply *r, int64_t now)
{
    r->now = now;
}

void di_reply_usage(const di_reply *r, di_usage *out)
{
    *out = (di_usage){.prompt_tokens = r->prompt_tokens, .cached_tokens = r->cached_tokens};
    for (int32_t i = 0; i < r->n_choices; i++) {
        di_usage one;
        di_output_usage(r->choices[i].output, &one);
        out->completion_tokens += one.completion_tokens;
        out->reasoning_tokens += one.reasoning_tokens;
    }
}

int64_t rec_fresh_tokens(const di_reply *r)
{
    return r->prompt_tokens > r->cached_tokens ? r->prompt_tokens - r->cached_tokens : 0;
}

bool di_reply_next_event(di_reply *r, di_event *out)
{
    rec_queue *const q = &r->queue;
    if (q->next == q->n) {
        return false;
    }
    const rec_event *const e = &q->events[q->next++];
    char *const data = q->frames.data + e->at;
    data[e->size] = '\0';
    *out = (di_event){.name = e->name, .data = data, .size = e->size};
    return true;
}

di_status di_reply_frames(di_reply *r, const char **out, size_t *n, di_error *err)
{
    rec_queue *const q = &r->queue;
    const di_status status = r->failed ? DI_OK : usable(r, err);
    if (status != DI_OK) {
        return status;
    }
    const rec_event *const before = q->next != 0 ? &q->events[q->next - 1] : NULL;
    const size_t from = before != NULL ? before->at + before->size + 2 : 0;
    *out = q->next < q->n ? q->frames.data + from : "";
    *n = q->next < q->n ? q->frames.size - from : 0;
    q->next = q->n;
    return DI_OK;
}

di_status di_reply_body(di_reply *r, const char **out, size_t *n, di_error *err)
{
    if (r->failed || r->n_finished < r->n_choices) {
        return err_set(err, DI_E_STATE, r->failed ? "the generation failed: there is no response" : "the reply has not ended");
    }
    const di_status status = usable(r, err);
    if (status != DI_OK) {
        return status;
    }
    buf_clear(&r->body);
    r->writer->body(r, &r->body);
    if (r->body.failed) {
        return err_memory(err, "response", r->body.capacity);
    }
    *out = r->body.data;
    *n = r->body.size;
    return DI_OK;
}
