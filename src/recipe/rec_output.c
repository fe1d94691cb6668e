/* rec_output.c - the output parser: generated ids or text to reasoning, text and tool calls (recipe.md 4).
 *
 * Ids and text take one way: UTF-8 is made whole, the machine of rec_stages.h reads it, and every byte gets an action as soon as it
 * can't become part of a marker any more. With ids the two markers are control ids; the same characters out of ordinary ids stay
 * text (4.1). How the input is cut changes nothing but where pieces are cut.
 *
 * When memory ends inside a call the parser can't tell what it has given, so it takes nothing more. */
#include "recipe/rec_output_int.h"

#include "core/arith.h"
#include "core/utf8.h"

#include <stdlib.h>

#define REPLACEMENT "\xEF\xBF\xBD"

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

/* ---- bytes to actions ---- */

/* Gives the next `count` unassigned bytes an action: those held first, then those at *text. */
static bool give(di_output *o, rec_action action, size_t count, const char **text)
{
    const size_t held = o->held.size - o->held_at;
    const size_t old = count < held ? count : held;
    if (old != 0) {
        if (!rec_assign(o, action, o->held.data + o->held_at, old)) {
            return false;
        }
        o->held_at += old;
        if (o->held_at == o->held.size) {
            buf_clear(&o->held);
            o->held_at = 0;
        }
    }
    if (!rec_assign(o, action, *text, count - old)) {
        return false;
    }
    *text += count - old;
    return true;
}

/* Keeps the rest for the next call. What was given is moved out of the way once it is the larger half. */
static bool hold_back(di_output *o, const char *text, size_t n)
{
    if (o->held_at > o->held.size / 2) {
        const size_t left = o->held.size - o->held_at;
        memmove(o->held.data, o->held.data + o->held_at, left);
        o->held.size = left;
        o->held_at = 0;
    }
    return n == 0 || buf_append(&o->held, text, n);
}

/* The machine has read up to `end`; what was unassigned before begins in `held` and goes on at `text`. */
static bool settle(di_output *o, const char *text, const char *end, const rec_match *match)
{
    rec_machine *const m = &o->machine;
    const rec_action idle = m->stages[m->at].idle;
    const size_t unassigned = o->held.size - o->held_at + (size_t)(end - text);
    if (match->pattern == NULL) {
        return give(o, idle, unassigned - m->hold, &text) && hold_back(o, text, (size_t)(end - text));
    }
    const rec_pattern *const p = match->pattern;
    if (!give(o, idle, unassigned - match->size, &text) || !give(o, p->action, match->size, &text) || !rec_fire(o, p)) {
        return false;
    }
    rec_machine_enter(m, p->next);
    return true;
}

/* Whole characters. */
static bool feed(di_output *o, const char *text, size_t n)
{
    const char *const end = text + n;
    while (text < end && o->finish == DI_FINISH_NONE) {
        rec_match match;
        const char *const next = text + rec_machine_bytes(&o->machine, text, (size_t)(end - text), &match);
        if (!settle(o, text, next, &match)) {
            return false;
        }
        text = next;
    }
    return true;
}

static bool feed_marker(di_output *o, rec_marker marker)
{
    const rec_str spelling = o->recipe->spelling[marker];
    rec_match match;
    rec_machine_marker(&o->machine, marker, &match);
    return settle(o, spelling.data, spelling.data + spelling.size, &match);
}

/* ---- UTF-8 ---- */

/* Position of the next byte that is fed. */
static uint64_t position(const di_output *o)
{
    return o->assigned + (o->held.size - o->held_at);
}

/* The incomplete character turned out to be these bytes; `n_spans` ids have a part in it. */
static bool feed_cut(di_output *o, const char *text, size_t n, size_t n_spans)
{
    o->n_cut = 0;
    if (n_spans != 0) {
        rec_spans_close(o, n_spans, position(o) + n);
    }
    return feed(o, text, n);
}

/* Adds one byte to the incomplete character. *taken is false when the byte begins something new. */
static bool complete(di_output *o, char byte, size_t n_spans, bool *taken)
{
    uint32_t cp;
    o->cut[o->n_cut] = (uint8_t)byte;
    const int length = utf8_decode(o->cut, o->n_cut + 1, &cp);
    *taken = length >= 0;
    if (length == 0) {
        o->n_cut++;
        return true;
    }
    if (length > 0) {
        return feed_cut(o, (const char *)o->cut, (size_t)length, n_spans);
    }
    return feed_cut(o, REPLACEMENT, 3, n_spans);
}

/* Any bytes; invalid ones become U+FFFD. `n_spans`: of the ids before these bytes. */
static bool feed_bytes(di_output *o, const char *text, size_t n, size_t n_spans)
{
    size_t i = 0;
    while (i < n && o->n_cut != 0) {
        bool taken;
        if (!complete(o, text[i], n_spans, &taken)) {
            return false;
        }
        i += taken ? 1 : 0;
    }
    while (i < n && o->finish == DI_FINISH_NONE) {
        const uint8_t *const s = (const uint8_t *)text;
        const size_t valid = utf8_valid_prefix(s + i, n - i);
        if (!feed(o, text + i, valid)) {
            return false;
        }
        i += valid;
        if (i == n) {
            break;
        }
        uint32_t cp;
        const int length = utf8_decode(s + i, n - i, &cp);
        if (length == 0) {
            o->n_cut = n - i;
            memcpy(o->cut, s + i, o->n_cut);
            break;
        }
        if (!feed(o, REPLACEMENT, 3)) {
            return false;
        }
        i += (size_t)-length;
    }
    return true;
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
    return end(o, feed_bytes(o, text, n, 0), err);
}

static bool is_marker(const di_recipe *r, int32_t id)
{
    return id == r->id[REC_DSML] || id == r->id[REC_END_THINK];
}

static bool push_id(di_output *o, int32_t id, const di_token_logprobs *logprobs)
{
    const di_recipe *const r = o->recipe;
    const size_t n_spans = o->logprobs.n_spans;
    const uint64_t at = position(o);
    size_t n;
    count(o, 1);
    if (logprobs != NULL && !rec_span_open(o, at, logprobs)) {
        return false;
    }
    if (is_marker(r, id)) {
        if (o->n_cut != 0 && !feed_cut(o, REPLACEMENT, 3, n_spans)) {
            return false;
        }
        if (o->finish == DI_FINISH_NONE && !feed_marker(o, id == r->id[REC_DSML] ? REC_DSML : REC_END_THINK)) {
            return false;
        }
    } else {
        const char *const text = (const char *)di_tokenizer_bytes(r->tokenizer, id, &n);
        if (n != 0 && !feed_bytes(o, text, n, n_spans)) {
            return false;
        }
    }
    if (o->logprobs.n_spans != 0 && o->n_cut == 0) {
        rec_spans_close(o, o->logprobs.n_spans, position(o));
    }
    return true;
}

di_status di_output_push_ids(di_output *o, const int32_t *ids, size_t n, const di_token_logprobs *logprobs, di_error *err)
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

/* A value that the end cuts off loses the beginning of a closing marker; any other text that was held back is what it looks like. */
static bool release(di_output *o, di_finish reason)
{
    const char *none = "";
    if (o->n_cut != 0 && !feed_cut(o, REPLACEMENT, 3, o->logprobs.n_spans)) {
        return false;
    }
    const rec_stage_id at = o->machine.at;
    const bool value = at == REC_S_VALUE_STRING || at == REC_S_VALUE_RAW;
    const rec_action action = value && reason != DI_FINISH_STOP ? REC_A_SKIP : o->machine.stages[at].idle;
    return give(o, action, o->held.size - o->held_at, &none);
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
    if (reason != DI_FINISH_STOP && reason != DI_FINISH_LENGTH && reason != DI_FINISH_FILTER && reason != DI_FINISH_CUT) {
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
    *out = (di_piece){.kind = piece->kind, .text = piece->size != 0 ? o->pieces.text.data + piece->text : "", .size = piece->size,
                      .call = piece->call, .finish = last ? o->finish : DI_FINISH_NONE};
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
