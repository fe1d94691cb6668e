/* slow_gram_ends.c - a million random steps under the mask: never is nothing allowed, and what ends is valid. A short hunt is part of
 * prop_gram_brute.c. */
#include "gram_hunt.h"
#include "gram_support.h"

#include <stdio.h>

enum { END_ID = 1, STEPS = 1000000 };

static void a_million_steps_meet_no_dead_end(void **state)
{
    (void)state;
    di_tokenizer *tokenizer;
    di_vocabulary *vocabulary;
    gram_hunt_counts counts;
    assert_int_equal(gram_open_demo(&tokenizer, END_ID, &vocabulary), 0);
    gram_hunt(vocabulary, tokenizer, END_ID, STEPS, 99, &counts);
    printf("slow_gram_ends: %lld steps through %lld schemas, %lld texts ended, %lld of them judged, %lld given up\n",
           (long long)counts.steps, (long long)counts.schemas, (long long)counts.texts, (long long)counts.judged,
           (long long)counts.given_up);
    assert_true(counts.judged > counts.texts / 10);
    assert_true(counts.given_up < counts.schemas / 20);
    di_vocabulary_free(vocabulary);
    di_tokenizer_close(tokenizer);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_million_steps_meet_no_dead_end),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
