/* Answers sampling cases: with two arguments reads them from the first file and writes the answers to the second (so does
 * e2e_sampling.py, which has its own computation of the answers); without arguments it answers one case whose answer is known.
 *
 * A case is numbers between blanks:
 *   vocab temperature top_p min_p top_k repetition presence frequency seed min_tokens n_top position n_positions
 *   n_bias (id bias)...  n_stop id...  n_prompt id...  n_sampled id...  n_mask word...  logit * vocab
 * n_mask is 0 or the number of mask words. The answer is one line for each of n_positions positions:
 *   status, and if it is 0: id logprob is_stop n_top (id logprob)... */
#include "engine/eng_sample.h"

#include <inttypes.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <cmocka.h>

#define MAX_VOCAB 4096
#define MAX_LIST 4096

typedef struct sample_case {
    int32_t vocab;
    di_sampling s;
    int64_t position;
    int32_t n_positions;
    di_logit_bias bias[MAX_LIST];
    int32_t stop[MAX_LIST];
    int32_t prompt[MAX_LIST];
    int32_t sampled[MAX_LIST];
    uint32_t mask[MAX_VOCAB / 32];
    size_t n_prompt;
    size_t n_sampled;
    size_t n_mask;
    float logits[MAX_VOCAB];
} sample_case;

static bool read_count(FILE *in, size_t max, size_t *n)
{
    return fscanf(in, "%zu", n) == 1 && *n <= max;
}

static bool read_ids(FILE *in, int32_t *ids, size_t *n)
{
    bool good = read_count(in, MAX_LIST, n);
    for (size_t i = 0; good && i < *n; i++) {
        good = fscanf(in, "%" SCNd32, &ids[i]) == 1;
    }
    return good;
}

/* False at the end of the file or for something that is no case. */
static bool read_case(FILE *in, sample_case *c)
{
    memset(c, 0, sizeof *c);
    di_sampling *s = &c->s;
    if (fscanf(in, "%" SCNd32 "%f%f%f%" SCNd32 "%f%f%f%" SCNu64 "%" SCNd32 "%" SCNd32 "%" SCNd64 "%" SCNd32, &c->vocab,
               &s->temperature, &s->top_p, &s->min_p, &s->top_k, &s->repetition_penalty, &s->presence_penalty,
               &s->frequency_penalty, &s->seed, &s->min_tokens, &s->n_top_logprobs, &c->position, &c->n_positions) != 13 ||
        c->vocab < 1 || c->vocab > MAX_VOCAB) {
        return false;
    }
    bool good = read_count(in, MAX_LIST, &s->n_bias);
    for (size_t i = 0; good && i < s->n_bias; i++) {
        good = fscanf(in, "%" SCNd32 "%f", &c->bias[i].id, &c->bias[i].bias) == 2;
    }
    good = good && read_ids(in, c->stop, &s->n_stop_ids) && read_ids(in, c->prompt, &c->n_prompt) &&
           read_ids(in, c->sampled, &c->n_sampled) && read_count(in, MAX_VOCAB / 32, &c->n_mask);
    for (size_t i = 0; good && i < c->n_mask; i++) {
        good = fscanf(in, "%" SCNu32, &c->mask[i]) == 1;
    }
    for (int32_t i = 0; good && i < c->vocab; i++) {
        good = fscanf(in, "%f", &c->logits[i]) == 1;
    }
    s->bias = c->bias;
    s->stop_ids = c->stop;
    return good;
}

static void write_answer(FILE *out, di_status status, const di_sample *sample)
{
    fprintf(out, "%d", (int)status);
    if (status == DI_OK) {
        fprintf(out, " %d %.9g %d %d", sample->id, (double)sample->logprob, sample->is_stop, sample->n_top);
        for (int32_t i = 0; i < sample->n_top; i++) {
            fprintf(out, " %d %.9g", sample->top[i].id, (double)sample->top[i].logprob);
        }
    }
    fputc('\n', out);
}

static void answer(const sample_case *c, FILE *out)
{
    eng_sampler *sampler = NULL;
    di_status status = eng_sampler_new(&c->s, c->vocab, &sampler, NULL);
    if (status != DI_OK) {
        for (int32_t i = 0; i < c->n_positions; i++) {
            write_answer(out, status, NULL);
        }
        return;
    }
    for (size_t i = 0; i < c->n_prompt; i++) {
        eng_sampler_accept(sampler, c->prompt[i], true);
    }
    for (size_t i = 0; i < c->n_sampled; i++) {
        eng_sampler_accept(sampler, c->sampled[i], false);
    }
    for (int32_t i = 0; i < c->n_positions; i++) {
        di_sample sample;
        status = eng_sampler_choose(sampler, c->logits, c->position + i, c->n_mask > 0 ? c->mask : NULL, &sample, NULL);
        write_answer(out, status, &sample);
    }
    eng_sampler_free(sampler);
}

static int answer_file(const char *in_path, const char *out_path)
{
    FILE *in = fopen(in_path, "r");
    FILE *out = fopen(out_path, "w");
    sample_case *c = malloc(sizeof *c);
    const bool good = in != NULL && out != NULL && c != NULL;
    while (good && read_case(in, c)) {
        answer(c, out);
    }
    const bool complete = good && feof(in);
    free(c);
    if (in != NULL) {
        fclose(in);
    }
    if (out != NULL) {
        fclose(out);
    }
    return complete ? 0 : 1;
}

static void a_written_case_is_answered(void **state)
{
    (void)state;
    char text[] = "4 0 1 0 0 1 0 0 7 0 2 10 1  1 3 1.5  1 3  0  0  0  0 1 0x1p-1 -inf";
    FILE *in = fmemopen(text, sizeof text - 1, "r");
    char got[200] = "";
    FILE *out = fmemopen(got, sizeof got, "w");
    sample_case *c = malloc(sizeof *c);
    assert_non_null(c);
    assert_true(read_case(in, c));
    answer(c, out);
    assert_false(read_case(in, c));
    fclose(in);
    fclose(out);
    free(c);
    int id;
    int is_stop;
    int n_top;
    float logprob;
    assert_int_equal(sscanf(got, "0 %d %f %d %d", &id, &logprob, &is_stop, &n_top), 4);
    assert_int_equal(id, 1);
    assert_true(logprob > -0.68028f && logprob < -0.68026f);
    assert_int_equal(is_stop, 0);
    assert_int_equal(n_top, 2);
}

int main(int argc, char **argv)
{
    if (argc == 3) {
        return answer_file(argv[1], argv[2]);
    }
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_written_case_is_answered),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
