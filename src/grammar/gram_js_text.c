/* gram_js_text.c - reads back what was just written: the name or value whose end the JSON machine has come to. The text is known
 * to be JSON, so its beginning is found from its end: a quote that opens a string has an even number of backslashes before it. */
#include "grammar/gram_machine.h"

#include "grammar/gram_schema.h"

#include "core/json_scan.h"
#include "core/utf8.h"

static uint8_t at(const gram_before *before, size_t i)
{
    return i < before->n_head ? before->head[i] : before->tail[i - before->n_head];
}

/* The quote that opens the string whose closing quote is (or would be) at `end`. */
static size_t string_start(const gram_before *before, size_t end)
{
    size_t i = end;
    while (i > 0) {
        i--;
        size_t n_backslashes = 0;
        while (at(before, i) == '"' && n_backslashes < i && at(before, i - 1 - n_backslashes) == '\\') {
            n_backslashes++;
        }
        if (at(before, i) == '"' && n_backslashes % 2 == 0) {
            return i;
        }
    }
    return 0;
}

/* The bracket that opens the container whose closing one is at `end`. */
static size_t container_start(const gram_before *before, size_t end)
{
    size_t depth = 1;
    size_t i = end;
    while (i > 0 && depth > 0) {
        const uint8_t byte = at(before, --i);
        if (byte == '"') {
            i = string_start(before, i);
        } else if (byte == '}' || byte == ']') {
            depth++;
        } else if (byte == '{' || byte == '[') {
            depth--;
        }
    }
    return i;
}

/* Part of a number or literal. */
static bool is_word(uint8_t byte)
{
    const uint8_t letter = byte | 0x20;
    return (byte >= '0' && byte <= '9') || (letter >= 'a' && letter <= 'z') || byte == '-' || byte == '+' || byte == '.';
}

static size_t value_start(const gram_before *before, size_t n, int byte)
{
    if (byte == '"') {
        return string_start(before, n);
    }
    if (byte == '}' || byte == ']') {
        return container_start(before, n);
    }
    while (n > 0 && is_word(at(before, n - 1))) {
        n--;
    }
    return n;
}

gram_form gram_js_value_before(gram_machine *m, const gram_before *before, int byte)
{
    const size_t n = before->n_head + before->n_tail;
    const size_t start = value_start(before, n, byte);
    char *text = gram_alloc(m->mem, n - start + 2, 1);
    js_doc *doc = NULL;
    gram_form form = GRAM_FALSE;
    if (text == NULL) {
        return form;
    }
    for (size_t i = start; i < n; i++) {
        text[i - start] = (char)at(before, i);
    }
    size_t length = n - start;
    if (byte >= 0) {
        text[length++] = (char)byte;
    }
    di_error err;
    if (js_parse(text, length, "item", &(const js_limits){.max_depth = JSC_MAX_DEPTH, .numbers_any_size = true}, &doc, &err) == DI_OK) {
        form = gram_schema_const(m->forms, js_root(doc));
    } else {
        gram_fail(m->mem, err.code, "%s", err.message);
    }
    js_free(doc);
    return form;
}

static uint32_t hex(const gram_before *before, size_t i)
{
    uint32_t value = 0;
    for (size_t k = 0; k < 4; k++) {
        const uint8_t digit = at(before, i + k);
        value = value << 4 | (digit <= '9' ? digit - (uint32_t)'0' : (digit | 0x20u) - 'a' + 10);
    }
    return value;
}

uint32_t gram_js_name_before(gram_machine *m, const gram_before *before)
{
    static const char escapes[] = "bfnrt";
    static const char controls[] = "\b\f\n\r\t";
    const size_t n = before->n_head + before->n_tail;
    gram_stack *work = &m->lang->work;
    const uint32_t base = work->n;
    for (size_t i = string_start(before, n) + 1; i < n;) {
        uint32_t c = at(before, i);
        if (c == '\\') {
            c = at(before, i + 1);
            const char *found = strchr(escapes, (int)c);
            i += 2;
            if (c == 'u') {
                c = hex(before, i);
                i += 4;
                if (c >= 0xD800 && c <= 0xDBFF) { /* its other half follows */
                    c = 0x10000 + ((c - 0xD800) << 10) + (hex(before, i + 2) - 0xDC00);
                    i += 6;
                }
            } else if (found != NULL) {
                c = (uint32_t)controls[found - escapes];
            }
        } else {
            uint8_t bytes[4];
            size_t length = 0;
            while (length < 4 && i + length < n) {
                bytes[length] = at(before, i + length);
                length++;
            }
            i += (size_t)utf8_decode(bytes, length, &c);
        }
        (void)gram_push(m->mem, work, c);
    }
    const uint32_t name = gram_tuple(m->mem, &m->forms->names, work->words + base, work->n - base, NULL);
    work->n = base;
    return name;
}
