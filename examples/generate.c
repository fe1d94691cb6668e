/* generate.c - answers a question, text as it comes: generate [MODEL_DIR [QUESTION]] */
#include <deepinfer/engine.h>

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static void must(di_status status, const di_error *err)
{
    if (status != DI_OK) {
        fprintf(stderr, "%s\n", err->message);
        exit(1);
    }
}

int main(int argc, char **argv)
{
    const char *question = argc > 2 ? argv[2] : "Which country has Cairo as its capital?";
    di_error err;
    di_model *model;
    must(di_model_open(argc > 1 ? argv[1] : "models/demo", NULL, &model, &err), &err);
    di_engine *engine;
    must(di_engine_open(model, NULL, &engine, &err), &err);
    di_sequence *sequence;
    must(di_sequence_new(engine, &sequence, &err), &err);

    di_model_info info;
    di_model_get_info(model, &info);
    di_sampling sampling;
    di_sampling_default(&sampling);
    sampling.temperature = 0; /* always the likeliest token */
    sampling.stop_ids = &info.eos_token_id;
    sampling.n_stop_ids = 1;
    must(di_sequence_set_sampling(sequence, &sampling, &err), &err);

    char prompt[4096];
    int32_t ids[3 * sizeof prompt];
    size_t n_ids;
    snprintf(prompt, sizeof prompt, "<｜begin▁of▁sentence｜><｜User｜>%.3900s<｜Assistant｜></think>", question);
    const di_tokenizer *tokenizer = di_model_tokenizer(model);
    must(di_tokenizer_encode(tokenizer, prompt, strlen(prompt), DI_ENCODE_SPECIAL, ids, 3 * sizeof prompt, &n_ids, &err), &err);
    must(di_sequence_feed(sequence, ids, n_ids, &err), &err);
    di_detokenizer *stream;
    must(di_detokenizer_new(tokenizer, DI_DECODE_SKIP_SPECIAL, &stream, &err), &err);
    di_sample sample = {.is_stop = false};
    for (int i = 0; i < 200 && !sample.is_stop; i++) {
        const char *text;
        size_t n;
        must(di_sequence_run(sequence, &err), &err);
        must(di_sequence_sample(sequence, &sample, &err), &err); /* chooses a token and feeds it */
        must(di_detokenizer_push(stream, sample.id, &text, &n, &err), &err);
        fwrite(text, 1, n, stdout);
        fflush(stdout);
    }
    puts("");
    di_detokenizer_free(stream);
    di_engine_close(engine); /* and its sequences */
    di_model_close(model);
    return 0;
}
