/* rec_output.c - the output parser: generated ids or text to reasoning, text and tool calls (recipe.md 4).
 *
 * Ids and text take one way: UTF-8 is made whole, the machine of rec_stages.h reads it, and every byte gets an
 * action as soon as it can't become part of a marker any more. With ids the two markers are control ids; the same
 * characters out of ordinary ids stay text (4.1). How the input is cut changes nothing but where pieces are cut.
 *
 * When memory ends inside a call the parser can't tell what it has given, so it takes nothing more. */
#include "recipe/rec_output_int.h"

#include "core/arith.h"

#include <stdlib.h>

static rec_stage_id first_stage(const di_output_options *options)
{
    if (options->in_tools) {
        return REC_S_TOOL_CALLS;
    }
    switch (options->stage) {
    case DI_STAGE_REASONING_START: return REC_S_REASONING_START;
    case DI_STAGE_REASONING: return REC_S_REASONING;
    case DI_STAGE_CONTENT: return REC_S_CONTENT;
    default: return REC_S_CONTENT_START;
    }
}

di_status di_output_new(const di_recipe *recipe, const di_output_options *options, di_output **out, di_error *err)
{
    di_output *const o = ar_calloc(1, sizeof *o);
    if (o == NULL) {
        return err_memory(err, "output parser", sizeof *o);
    }
    o->recipe = recipe;
    buf_init(&o->held, SIZE_MAX);
    buf_init(&o->name, SIZE_MAX);
    buf_init(&o->pieces.text, SIZE_MAX);
    const di_status status = rec_machine_init(&o->machine, recipe, options, err);
    if (status != DI_OK) {
        di_output_free(o);
        return status;
    }
    rec_machine_enter(&o->machine, first_stage(options));
    *out = o;
    return DI_OK;
}

void di_output_free(di_output *o)
{
    if (o == NULL) {
        return;
    }
    rec_machine_fini(&o->machine);
    rec_pieces_fini(o);
    buf_fini(&o->held);
    buf_fini(&o->name);
    free(o);
}

/* ---- pushing ---- */

static di_status begin(di_output *o, rec_input input, di_error *err)
{
    if (o->broken) {
        return err_set(err, DI_E_STATE, "the output ran out of memory before");
    }
    if (o->ended) {
        return err_set(err, DI_E_STATE, "the output has been finished");
    }
    if (input != REC_IN_NOTHING && o->input != input) {
        if (o->input != REC_IN_NOTHING) {
            return err_set(err, DI_E_STATE, "one output takes text or ids, not both");
        }
        o->input = input;
    }
    if (o->machine.n_patterns == 0) {
        rec_machine_spell(&o->machine, o->recipe, o->input == REC_IN_IDS);
    }
    rec_pieces_clear(o);
    return DI_OK;
}

static di_status end(di_output *o, bool done, di_error *err)
{
    if (done && (o->logprobs.n_attached == 0 || rec_logprobs_publish(o))) {
        return DI_OK;
    }
    o->broken = true;
    rec_pieces_clear(o);
    return err_memory(err, "generated text", o->pieces.text.capacity);
}

static bool is_reasoning(const di_output *o)
{
    return o->machine.at == REC_S_REASONING_START || o->machine.at == REC_S_REASONING;
}

static void count(di_output *o, int64_t n_tokens)
{
    o->completion_tokens += n_tokens;
    o->reasoning_tokens += is_reasoning(o) ? n_tokens : 0;
}

di_status di_output_push_text(di_output *o, const char *text, size_t n, int64_t n_tokens, di_error *err)
{
    if (n_tokens < 0 || n_tokens > INT64_MAX - o->completion_tokens) {
        return err_set(err, DI_E_ARGUMENT, "a text of %lld tokens", (long long)n_tokens);
    }
    const di_status status = begin(o, REC_IN_TEXT, err);
    if (status != DI_OK || o->finish != DI_FINISH_NONE) {
        return status;
    }
    count(o, n_tokens);
    return end(o, rec_feed_bytes(o, text, n, 0), err);
}

static bool is_marker(const di_recipe *r, int32_t id)
{
    return id == r->id[REC_DSML] || id == r->id[REC_END_THINK];
}

static bool push_id(di_output *o, int32_t id, const di_token_logprobs *logprobs)
{
    const di_recipe *const r = o->recipe;
    const size_t n_spans = o->logprobs.n_spans;
    const uint64_t at = rec_position(o);
    size_t n;
    count(o, 1);
    if (logprobs != NULL && !rec_span_open(o, at, logprobs)) {
        return false;
    }
    if (is_marker(r, id)) {
        if (!rec_feed_cut(o, n_spans)) {
            return false;
        }
        if (o->finish == DI_FINISH_NONE && !rec_feed_marker(o, id == r->id[REC_DSML] ? REC_DSML : REC_END_THINK)) {
            return false;
        }
    } else {
        const char *const text = (const char *)di_tokenizer_bytes(r->tokenizer, id, &n);
        if (n != 0 && !rec_feed_bytes(o, text, n, n_spans)) {
            return false;
        }
    }
    if (o->logprobs.n_spans != 0 && o->n_cut == 0) {
        rec_spans_close(o, o->logprobs.n_spans, rec_position(o));
    }
    return true;
}

di_status di_output_push_ids(di_output *o, const int32_t *ids, size_t n, const di_token_logprobs *logprobs,
                             di_error *err)
{
    if (o->recipe->tokenizer == NULL) {
        return err_set(err, DI_E_STATE, "ids need a recipe with a tokenizer");
    }
    const di_status status = begin(o, REC_IN_IDS, err);
    if (status != DI_OK) {
        return status;
    }
    if (o->finish != DI_FINISH_NONE) {
        return DI_OK;
    }
    size_t i = 0;
    bool done = true;
    for (; i < n && done && o->finish == DI_FINISH_NONE; i++) {
        done = push_id(o, ids[i], logprobs != NULL ? &logprobs[i] : NULL);
    }
    /* The rest of the run of ordinary ids in which a stop string ended counts with it, as does that of a text. */
    for (; i < n && done && !is_marker(o->recipe, ids[i]); i++) {
        count(o, 1);
    }
    return end(o, done, err);
}

/* ---- the end ---- */

/* A value that the end cuts off loses the beginning of a closing marker; any other text that was held back is what
 * it looks like. */
static bool release(di_output *o, di_finish reason)
{
    if (!rec_feed_cut(o, o->logprobs.n_spans)) {
        return false;
    }
    const rec_stage_id at = o->machine.at;
    const bool value = at == REC_S_VALUE_STRING || at == REC_S_VALUE_RAW;
    const rec_action action = value && reason != DI_FINISH_STOP ? REC_A_SKIP : o->machine.stages[at].idle;
    return rec_give_held(o, action);
}

static bool inside_call(const di_output *o)
{
    return o->machine.at >= REC_S_TOOL_NAME && o->machine.at <= REC_S_VALUE_RAW;
}

/* recipe.md 4.5 and decision 8 of section 6. */
static di_finish settled_reason(const di_output *o, di_finish reason)
{
    if (reason == DI_FINISH_STOP && o->n_calls > 0) {
        return DI_FINISH_TOOL_CALLS;
    }
    if (reason == DI_FINISH_CUT) {
        return o->n_calls == 0 ? DI_FINISH_STOP : inside_call(o) ? DI_FINISH_CUT : DI_FINISH_TOOL_CALLS;
    }
    return reason;
}

di_status di_output_finish(di_output *o, di_finish reason, di_error *err)
{
    if (reason != DI_FINISH_STOP && reason != DI_FINISH_LENGTH && reason != DI_FINISH_FILTER &&
        reason != DI_FINISH_CUT) {
        return err_set(err, DI_E_ARGUMENT, "an output is finished by stop, length, filter or cut");
    }
    const di_status status = begin(o, REC_IN_NOTHING, err);
    if (status != DI_OK) {
        return status;
    }
    o->ended = true;
    if (o->finish != DI_FINISH_NONE) {
        return DI_OK;
    }
    bool done = release(o, reason);
    if (done && o->finish == DI_FINISH_NONE) {
        o->finish = settled_reason(o, reason);
        done = rec_finish_piece(o);
    }
    return end(o, done, err);
}

bool di_output_next(di_output *o, di_piece *out)
{
    if (o->pieces.next == o->pieces.n) {
        return false;
    }
    const rec_piece *const piece = &o->pieces.items[o->pieces.next++];
    const bool last = piece->kind == DI_PIECE_FINISH;
    *out = (di_piece){.kind = piece->kind,
                      .text = piece->size != 0 ? o->pieces.text.data + piece->text : "",
                      .size = piece->size,
                      .call = piece->call,
                      .finish = last ? o->finish : DI_FINISH_NONE};
    if (last && o->finish == DI_FINISH_STOP_STRING) {
        out->stop = o->stop.data;
        out->stop_size = o->stop.size;
    }
    if (piece->n_logprobs != 0) {
        out->logprobs = o->logprobs.public + piece->first_logprob;
        out->n_logprobs = piece->n_logprobs;
    }
    return true;
}

di_finish di_output_finished(const di_output *o)
{
    return o->finish;
}

void di_output_usage(const di_output *o, di_usage *out)
{
    *out = (di_usage){.completion_tokens = o->completion_tokens, .reasoning_tokens = o->reasoning_tokens};
}
