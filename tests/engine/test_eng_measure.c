/* The copy ceiling of a backend, and memory that it does not have. */
#include "eng_model.h"

#include <deepinfer/engine.h>

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

static void copies_are_measured_and_too_much_memory_is_an_error(void **state)
{
    (void)state;
    di_model *const model = eng_model_open("models/demo");
    di_engine *e = NULL;
    di_error err;
    double rate = -1.0;
    assert_int_equal(di_engine_open(model, &(di_engine_options){.backend = "ref"}, &e, &err), DI_OK);
    assert_int_equal(di_engine_measure_copy(e, SIZE_MAX / 4, &rate, &err), DI_E_MEMORY);
    assert_true(rate == -1.0);
    assert_int_equal(di_engine_measure_copy(e, (size_t)1 << 20, &rate, &err), DI_OK);
    assert_true(rate > 1e6 && rate < 1e14); /* bytes a second, of whatever machine */
    di_engine_close(e);
    di_model_close(model);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(copies_are_measured_and_too_much_memory_is_an_error),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
