/* Passes that leave the draft model's context out (mdl_draft_rest): what the backbone says has the bits of passes that do not; blocks behind
 * them see the rows written since and no other; behind a window of such rows they are as if no pass had rested. */
#include "engine/eng_model.h"
#include "engine/engine_int.h"
#include "support/unit.h"

#include <stdlib.h>
#include <string.h>

enum { BEFORE = 30, RESTING = 11, MOST_DRAFTS = 16, PIECE = 3 };

typedef struct side {
    di_engine *engine;
    di_sequence *seq;
} side;

static void open_side(side *s, const di_model *model)
{
    assert_int_equal(di_engine_open(model, &(di_engine_options){.n_threads = 1, .draft = true}, &s->engine, NULL), DI_OK);
    assert_int_equal(di_sequence_new(s->engine, &s->seq, NULL), DI_OK);
}

static void close_side(side *s)
{
    di_sequence_free(s->seq);
    di_engine_close(s->engine);
}

/* n random tokens through both in pieces; the last logits are the same bits. */
static void run(side *a, side *b, int32_t n, uint64_t *seed)
{
    for (int32_t done = 0; done < n; done += PIECE) {
        int32_t ids[PIECE];
        for (int32_t i = 0; i < PIECE; i++) {
            ids[i] = (int32_t)(unit_random(seed) % (uint64_t)a->engine->c->vocab);
        }
        for (int k = 0; k < 2; k++) {
            di_sequence *const s = k == 0 ? a->seq : b->seq;
            assert_int_equal(di_sequence_feed(s, ids, PIECE, NULL), DI_OK);
            assert_int_equal(di_sequence_run(s, NULL), DI_OK);
        }
        assert_memory_equal(a->seq->logits, b->seq->logits, (size_t)a->engine->c->vocab * sizeof(float));
    }
}

static bool same_drafts(side *a, side *b)
{
    int32_t ids[2][MOST_DRAFTS];
    float confidence[2][MOST_DRAFTS];
    int32_t n[2];
    for (int k = 0; k < 2; k++) {
        assert_int_equal(di_sequence_draft(k == 0 ? a->seq : b->seq, 7, ids[k], confidence[k], MOST_DRAFTS, &n[k], NULL), DI_OK);
    }
    assert_int_equal(n[0], n[1]);
    return memcmp(ids[0], ids[1], (size_t)n[0] * sizeof ids[0][0]) == 0 &&
           memcmp(confidence[0], confidence[1], (size_t)n[0] * sizeof confidence[0][0]) == 0;
}

static void blocks_see_what_was_written_since(void **state)
{
    (void)state;
    di_model *const model = eng_model_open("tests/data/model/t6");
    side always;
    side rests;
    uint64_t seed = 3;
    open_side(&always, model);
    open_side(&rests, model);
    const int32_t window = always.engine->c->window;
    run(&always, &rests, BEFORE, &seed);
    assert_true(same_drafts(&always, &rests));
    mdl_draft_rest(rests.engine->runner, true);
    run(&always, &rests, RESTING, &seed);
    mdl_draft_rest(rests.engine->runner, false);
    const int64_t from = rests.seq->caches.n_tokens;
    assert_int_equal(rests.seq->caches.draft_from, from);
    assert_false(same_drafts(&always, &rests));
    for (int32_t n = 0; n < window; n += PIECE) {
        always.seq->caches.draft_from = from; /* sees no more than the other has */
        assert_true(same_drafts(&always, &rests));
        always.seq->caches.draft_from = 0;
        run(&always, &rests, PIECE, &seed);
    }
    assert_int_equal(rests.seq->caches.draft_from, from);
    assert_true(same_drafts(&always, &rests));
    close_side(&always);
    close_side(&rests);
    di_model_close(model);
}

/* Tokens that are taken back were never fed. */
static void what_is_taken_back_is_not_missing(void **state)
{
    (void)state;
    mdl_seq seq = {.n_tokens = 20, .draft_from = 20};
    mdl_seq_rewind(&seq, 3);
    assert_int_equal(seq.draft_from, 17);
    seq.n_tokens = 30;
    mdl_seq_rewind(&seq, 3);
    assert_int_equal(seq.draft_from, 17);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(blocks_see_what_was_written_since),
        cmocka_unit_test(what_is_taken_back_is_not_missing),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
