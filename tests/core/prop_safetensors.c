/* Properties of safetensors.c on generated headers: a set of tensors that tiles the data is accepted in any order of its entries and
 * found by name; moving, growing or shrinking any one extent is refused. */
#include "support/unit.h"

#include "core/buf.h"
#include "core/safetensors.h"

#include <stdio.h>
#include <string.h>

enum { MAX_TENSORS = 40 };

typedef struct item {
    st_dtype dtype;
    int n_dims;
    int64_t dims[ST_MAX_DIMS];
    int64_t begin;
    int64_t end;
} item;

typedef struct set {
    item items[MAX_TENSORS];
    size_t order[MAX_TENSORS]; /* of the header's entries */
    size_t count;
    size_t data_size;
} set;

static void generate(set *s, uint64_t *random)
{
    s->count = unit_random(random) % (MAX_TENSORS + 1);
    int64_t offset = 0;
    for (size_t i = 0; i < s->count; i++) {
        item *const t = &s->items[i];
        t->dtype = (st_dtype)(unit_random(random) % ST_N_DTYPES);
        t->n_dims = (int)(unit_random(random) % (ST_MAX_DIMS + 1));
        int64_t size = (int64_t)st_dtype_bytes(t->dtype);
        for (int j = 0; j < t->n_dims; j++) {
            t->dims[j] = (int64_t)(unit_random(random) % 16 == 0 ? 0 : unit_random(random) % 4 + 1);
            size *= t->dims[j];
        }
        t->begin = offset;
        t->end = offset + size;
        offset += size;
        s->order[i] = i;
    }
    s->data_size = (size_t)offset;
    for (size_t i = s->count; i > 1; i--) {
        const size_t j = unit_random(random) % i;
        const size_t kept = s->order[i - 1];
        s->order[i - 1] = s->order[j];
        s->order[j] = kept;
    }
}

static void write_header(const set *s, buf *out)
{
    buf_clear(out);
    buf_puts(out, "{");
    for (size_t k = 0; k < s->count; k++) {
        const size_t i = s->order[k];
        const item *const t = &s->items[i];
        buf_printf(out, "%s\"t.%zu\":{\"dtype\":\"%s\",\"shape\":[", k > 0 ? "," : "", i, st_dtype_name(t->dtype));
        for (int j = 0; j < t->n_dims; j++) {
            buf_printf(out, "%s%lld", j > 0 ? "," : "", (long long)t->dims[j]);
        }
        buf_printf(out, "],\"data_offsets\":[%lld,%lld]}", (long long)t->begin, (long long)t->end);
    }
    buf_puts(out, "}");
}

static void good_sets_are_accepted(void **state)
{
    (void)state;
    uint64_t random = 1;
    buf header;
    buf_init(&header, 1 << 20);
    for (int round = 0; round < 2000; round++) {
        set s;
        st_file *file;
        di_error err;
        generate(&s, &random);
        write_header(&s, &header);
        if (st_open_header(header.data, header.size, s.data_size, "h", &file, &err) != DI_OK) {
            fail_msg("%s\n%s", err.message, header.data);
        }
        assert_int_equal(st_count(file), s.count);
        for (size_t i = 0; i < s.count; i++) {
            char name[32];
            snprintf(name, sizeof name, "t.%zu", i);
            const st_tensor *const t = st_find(file, name);
            assert_non_null(t);
            assert_string_equal(t->name, name);
            assert_int_equal(t->dtype, s.items[i].dtype);
            assert_int_equal(t->n_dims, s.items[i].n_dims);
            assert_memory_equal(t->dims, s.items[i].dims, (size_t)t->n_dims * sizeof t->dims[0]);
            assert_int_equal(t->size, s.items[i].end - s.items[i].begin);
        }
        assert_null(st_find(file, "t."));
        st_close(file);
    }
    buf_fini(&header);
}

static void moved_extents_are_refused(void **state)
{
    (void)state;
    uint64_t random = 2;
    buf header;
    buf_init(&header, 1 << 20);
    for (int round = 0; round < 3000; round++) {
        set s;
        generate(&s, &random);
        if (s.count == 0) {
            continue;
        }
        item *const t = &s.items[unit_random(&random) % s.count];
        const int64_t by = (int64_t)(unit_random(&random) % 9) + 1;
        switch (unit_random(&random) % 5) {
        case 0: /* an empty tensor may lie anywhere between others, so only full ones are moved */
            if (t->begin == t->end) {
                continue;
            }
            t->begin += by;
            t->end += by;
            break;
        case 1:
            t->end += by;
            break;
        case 2:
            t->begin += by;
            break;
        case 3:
            s.data_size += (size_t)by;
            break;
        default:
            if (s.data_size < (size_t)by) {
                continue;
            }
            s.data_size -= (size_t)by;
            break;
        }
        write_header(&s, &header);
        st_file *file = NULL;
        di_error err;
        unit_expect_error(st_open_header(header.data, header.size, s.data_size, "h", &file, &err), DI_E_FORMAT, &err, "h: ", NULL);
        assert_null(file);
    }
    buf_fini(&header);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(good_sets_are_accepted),
        cmocka_unit_test(moved_extents_are_refused),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
