/* logits.c - how likely is each token of a text? logits MODEL_DIR TEXT
 *
 * Keeps the logits of every position in one pass; prints each token behind the first with its log-probability given what stands
 * before it, then the perplexity of the text. */
#include <deepinfer/engine.h>

#include <math.h>
#include <stdio.h>
#include <string.h>

#define MAX_TOKENS 1024

/* log softmax(row)[id] */
static double logprob_of(const float *row, int32_t vocab, int32_t id)
{
    double max = row[0];
    double sum = 0;
    for (int32_t i = 1; i < vocab; i++) {
        max = row[i] > max ? row[i] : max;
    }
    for (int32_t i = 0; i < vocab; i++) {
        sum += exp(row[i] - max);
    }
    return row[id] - max - log(sum);
}

static void print_logprobs(const di_model *model, const int32_t *ids, const float *rows, int32_t n_rows)
{
    di_model_info info;
    di_model_get_info(model, &info);
    double total = 0;
    for (int32_t i = 0; i + 1 < n_rows; i++) {
        size_t n_bytes = 0;
        const uint8_t *bytes = di_tokenizer_bytes(di_model_tokenizer(model), ids[i + 1], &n_bytes);
        const double logprob = logprob_of(rows + (size_t)i * (size_t)info.vocab_size, info.vocab_size, ids[i + 1]);
        printf("%9.4f  %.*s\n", logprob, (int)n_bytes, (const char *)bytes);
        total += logprob;
    }
    printf("perplexity %.2f\n", exp(-total / (n_rows - 1)));
}

static di_status run(const char *dir, const char *text, di_error *err)
{
    di_model *model = NULL;
    di_engine *engine = NULL;
    di_sequence *sequence = NULL;
    int32_t ids[MAX_TOKENS];
    size_t n = 0;
    const float *rows = NULL;
    int32_t n_rows = 0;
    di_status status = di_model_open(dir, NULL, &model, err);
    if (status == DI_OK) {
        status = di_tokenizer_encode(di_model_tokenizer(model), text, strlen(text), 0, ids, MAX_TOKENS, &n, err);
    }
    if (status == DI_OK && (n < 2 || n > MAX_TOKENS)) {
        snprintf(err->message, sizeof err->message, "the text has %zu tokens: must be 2 to %d", n, MAX_TOKENS);
        status = DI_E_ARGUMENT;
    }
    if (status == DI_OK) {
        status = di_engine_open(model, NULL, &engine, err);
    }
    if (status == DI_OK) {
        status = di_sequence_new(engine, &sequence, err);
    }
    if (status == DI_OK) {
        status = di_sequence_keep_logits(sequence, true, err);
    }
    if (status == DI_OK) {
        status = di_sequence_feed(sequence, ids, n, err);
    }
    if (status == DI_OK) {
        status = di_sequence_run(sequence, err);
    }
    if (status == DI_OK) {
        status = di_sequence_logits(sequence, &rows, &n_rows, err);
    }
    if (status == DI_OK) {
        print_logprobs(model, ids, rows, n_rows);
    }
    di_engine_close(engine);
    di_model_close(model);
    return status;
}

int main(int argc, char **argv)
{
    di_error err = {.message = "usage: logits MODEL_DIR TEXT"};
    if (argc != 3 || run(argv[1], argv[2], &err) != DI_OK) {
        fprintf(stderr, "%s\n", err.message);
        return 1;
    }
    return 0;
}
