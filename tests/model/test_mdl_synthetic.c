/* Checkpoints of released shapes with random weights: the bytes that a step reads are those of the released model, in memory and on disk
 * the same tensors, and bad options are named. */
#include "model/model_int.h"
#include "support/unit.h"

#include <deepinfer/model.h>

#include <string.h>

static void a_step_reads_what_the_released_layers_hold(void **state)
{
    const di_synthetic options = {.n_experts = 6};
    di_model *model = NULL;
    di_step_bytes bytes;
    (void)state;
    assert_int_equal(di_synthetic_open(&options, &model, NULL), DI_OK);
    di_model_get_step_bytes(model, &bytes);
    assert_int_equal(bytes.expert, 3 * (5120 * 2304 / 2 + 5120 * 2304 / 32));
    assert_int_equal(bytes.expert_values, 3 * 5120 * 2304);
    assert_int_equal(bytes.head, 4096 * 5120 * 2);
    assert_in_range(bytes.dense, 2 * 170 * 1000 * 1000, 2 * 190 * 1000 * 1000);
    di_model_close(model);
}

static const st_tensor *tensor_of(const di_model *model, const char *name)
{
    const st_tensor *const t = mdl_checkpoint_find(model->checkpoint, name);
    assert_non_null(t);
    return t;
}

static void a_draft_model_has_the_released_shapes(void **state)
{
    const di_synthetic options = {.n_layers = 2, .n_experts = 6, .n_drafts = 3};
    di_model *model = NULL;
    di_model_info info;
    (void)state;
    assert_int_equal(di_synthetic_open(&options, &model, NULL), DI_OK);
    di_model_get_info(model, &info);
    assert_int_equal(info.n_layers, 2);
    assert_int_equal(model->config.draft.block_size, 5);
    assert_int_equal(model->config.draft.n_experts, 6);
    assert_int_equal(tensor_of(model, "mtp.0.main_proj.weight")->size, 5120 * 2 * 5120); /* taps of both layers */
    assert_int_equal(tensor_of(model, "mtp.1.ffn.experts.5.w1.weight")->size, 2304 * 5120 / 2);
    assert_int_equal(tensor_of(model, "mtp.2.markov_head.head.weight")->size, 4096 * 256 * 2);
    di_model_close(model);
}

static void memory_and_disk_hold_the_same_tensors(void **state)
{
    const di_synthetic options = {.n_layers = 1, .n_experts = 6};
    di_model *memory = NULL;
    di_model *disk = NULL;
    char *const dir = unit_scratch_new();
    (void)state;
    assert_int_equal(di_synthetic_open(&options, &memory, NULL), DI_OK);
    assert_int_equal(di_synthetic_write(&options, dir, NULL), DI_OK);
    assert_int_equal(di_model_open(dir, NULL, &disk, NULL), DI_OK);
    assert_int_equal(mdl_checkpoint_count(memory->checkpoint), mdl_checkpoint_count(disk->checkpoint));
    for (size_t i = 0; i < mdl_checkpoint_count(disk->checkpoint); i++) {
        const st_tensor *const a = mdl_checkpoint_at(disk->checkpoint, i);
        const st_tensor *const b = tensor_of(memory, a->name);
        assert_int_equal(a->dtype, b->dtype);
        assert_int_equal(a->size, b->size);
        assert_int_equal(memcmp(a->data, b->data, a->size), 0);
    }
    di_model_close(disk);
    di_model_close(memory);
    unit_scratch_remove(dir);
}

static void a_model_without_files_has_no_fingerprint(void **state)
{
    const di_synthetic options = {.n_layers = 1, .n_experts = 6};
    di_model *model = NULL;
    di_error err;
    uint8_t digest[MDL_FINGERPRINT_BYTES];
    (void)state;
    assert_int_equal(di_synthetic_open(&options, &model, NULL), DI_OK);
    const mdl_runner runner = {.model = model, .ops = ops_backends()[0]};
    unit_expect_error(mdl_fingerprint(&runner, digest, &err), DI_E_UNSUPPORTED, &err, "only in memory", "to a folder", NULL);
    di_model_close(model);
}

static void bad_options_are_named(void **state)
{
    const di_synthetic few = {.n_experts = 5};
    const di_synthetic deep = {.n_layers = 41};
    const di_synthetic many = {.n_drafts = 4};
    di_model *model = NULL;
    di_error err;
    (void)state;
    unit_expect_error(di_synthetic_open(&few, &model, &err), DI_E_ARGUMENT, &err, "experts is 5", "6 to 384", NULL);
    unit_expect_error(di_synthetic_open(&deep, &model, &err), DI_E_ARGUMENT, &err, "layers is 41", "1 to 40", NULL);
    unit_expect_error(di_synthetic_open(&many, &model, &err), DI_E_ARGUMENT, &err, "drafts is 4", "0 to 3", NULL);
    unit_expect_error(di_synthetic_write(&deep, "nowhere", &err), DI_E_ARGUMENT, &err, "layers is 41", NULL);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_step_reads_what_the_released_layers_hold),
        cmocka_unit_test(a_draft_model_has_the_released_shapes),
        cmocka_unit_test(memory_and_disk_hold_the_same_tensors),
        cmocka_unit_test(a_model_without_files_has_no_fingerprint),
        cmocka_unit_test(bad_options_are_named),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
