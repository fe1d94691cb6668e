/* Fuzzes the configuration file (tools/config_file.c, tools/options_file.c). What is accepted must print as a file that reads back as
 * the same values; what is refused has a message of one line that names the file.
 *
 * fuzz: tools */
#include "options.h"

#include "core/utf8.h"

#include <stdlib.h>
#include <string.h>

typedef struct values {
    bool flag;
    const char *text;
    int64_t number;
    double real;
    cli_list list;
    cli_parser p;
} values;

static void require(bool truth)
{
    if (!truth) {
        abort();
    }
}

static values *new_values(void)
{
    values *const v = calloc(1, sizeof *v);
    require(v != NULL);
    cli_parser_init(&v->p, "", 0, 0, "Test.");
    v->p.command = "deepinfer test";
    cli_add_flag(&v->p, "flag", &v->flag, "a flag");
    cli_add_string(&v->p, "text", "TEXT", &v->text, "a text");
    cli_add_int(&v->p, "number", "N", &v->number, -1000, INT64_C(1) << 50, "a number");
    cli_add_real(&v->p, "real", "X", &v->real, -1e300, 1e300, "a real number");
    cli_add_list(&v->p, "list", "TEXT", &v->list, "texts");
    return v;
}

static void require_equal(const values *a, const values *b)
{
    require(a->flag == b->flag && a->number == b->number && !(a->real < b->real) && !(a->real > b->real));
    require((a->text == NULL) == (b->text == NULL) && (a->text == NULL || strcmp(a->text, b->text) == 0));
    require(a->list.n == b->list.n);
    for (size_t i = 0; i < a->list.n; i++) {
        require(strcmp(a->list.items[i], b->list.items[i]) == 0);
    }
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    di_error err = {.message = ""};
    values *const v = new_values();
    if (cli_read_config_text(&v->p, (const char *)data, size, "x.yaml", &err) != DI_OK) {
        require(strncmp(err.message, "x.yaml:", 7) == 0 && strchr(err.message, '\n') == NULL);
        free(v);
        return 0;
    }
    values *const back = new_values();
    buf out;
    buf_init(&out, 1 << 20);
    cli_print_config(&v->p, true, &out);
    require(!out.failed && utf8_valid_prefix((const uint8_t *)out.data, out.size) == out.size);
    /* Escapes can make what is printed larger than a file may be. */
    const di_status status = cli_read_config_text(&back->p, out.data, out.size, "y.yaml", &err);
    require(status == DI_OK || (status == DI_E_LIMIT && out.size > CONFIG_MAX_BYTES));
    if (status == DI_OK) {
        require_equal(v, back);
    }
    buf_fini(&out);
    free(back);
    free(v);
    return 0;
}
