/* chat_null.c - the backend "null": no model runs, every request gets the same text, so that what is measured is all around a model.
 *
 * The passage ends with the end-of-sentence id; a request with thinking gets one sentence of reasoning in front of it. */
#include "chat/chat_int.h"

static const char reasoning[] = "No model runs here, so there is little to think about.";

static const char passage[] =
    "The lighthouse stands where the river meets the sea. Every evening the keeper climbs two hundred and eleven steps, cleans the "
    "glass, and lights the lamp before the first boats come home. He has counted the steps so often that his feet know them without "
    "his help. In the old days he wrote down each ship that passed, with its name, its flag and the hour; the books fill a shelf in "
    "the room below the lamp. Today the ships report themselves by radio, and nobody asks for the books. Still he writes, because a "
    "night without a line seems to him a night that did not happen. In winter the storms come from the north and throw water against "
    "the windows of the third floor. In summer children from the village row across the bay and ask him for stories. He tells them "
    "about the year in which the river froze, about the whale that lost its way, and about the captain who paid for a loaf of bread "
    "with a parrot. The parrot lived in the tower for twenty years, learned the whole weather report by heart, and repeated it at "
    "sunrise, right or wrong. When the children row back, the lamp is already turning behind them, two flashes and a pause, two "
    "flashes and a pause, as it has done on every night for more than a hundred years.";

struct chat_null {
    int32_t *ids;     /* [n] reasoning, </think>, passage, end of sentence */
    size_t n;
    size_t n_thinking; /* where the passage begins */
};

static di_status encode(const di_tokenizer *tokenizer, const char *text, int32_t *out, size_t capacity, size_t *n, di_error *err)
{
    return di_tokenizer_encode(tokenizer, text, strlen(text), 0, out, capacity, n, err);
}

di_status chat_null_new(const di_tokenizer *tokenizer, int32_t eos, chat_null **out, di_error *err)
{
    const size_t capacity = sizeof reasoning + sizeof passage;
    const int32_t think_end = di_tokenizer_find(tokenizer, "</think>", strlen("</think>"));
    size_t n_passage = 0;
    chat_null *const null = ar_calloc(1, sizeof *null);
    int32_t *const ids = ar_calloc(capacity, sizeof *ids);
    if (null == NULL || ids == NULL) {
        free(null);
        free(ids);
        return err_memory(err, "null backend", capacity * sizeof *ids);
    }
    null->ids = ids;
    di_status status = encode(tokenizer, reasoning, ids, capacity, &null->n, err);
    if (status == DI_OK) {
        ids[null->n++] = think_end;
        null->n_thinking = null->n;
        status = encode(tokenizer, passage, ids + null->n, capacity - null->n, &n_passage, err);
    }
    if (status != DI_OK) {
        chat_null_free(null);
        return status;
    }
    null->n += n_passage;
    ids[null->n++] = eos;
    *out = null;
    return DI_OK;
}

void chat_null_free(chat_null *null)
{
    if (null != NULL) {
        free(null->ids);
        free(null);
    }
}

/* A request that ignores the end begins again. */
int32_t chat_null_script(void *user, void *task_user, int32_t choice, int64_t n)
{
    const chat_null *const null = user;
    const size_t first = chat_script_call(task_user)->thinking ? 0 : null->n_thinking;
    (void)choice;
    return null->ids[first + (size_t)n % (null->n - first)];
}
