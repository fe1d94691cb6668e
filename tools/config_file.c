/* config_file.c - see config_file.h. libyaml gives events; this file checks that they are those of a flat file, with line numbers. */
#include "config_file.h"

#include "core/core.h"

#include <string.h>
#include <yaml.h>

typedef struct reader {
    yaml_parser_t yaml;
    yaml_event_t event; /* the last one */
    const char *text;
    const char *name;
    config_memory *memory;
    config_entry entry;
} reader;

static int event_line(const reader *r)
{
    return (int)r->event.start_mark.line + 1;
}

static di_status fault(const reader *r, const char *message, di_error *err)
{
    return err_set(err, DI_E_FORMAT, "%s:%d: %s", r->name, event_line(r), message);
}

static int line_of(const char *text, size_t offset)
{
    int line = 1;
    for (size_t i = 0; i < offset; i++) {
        line += text[i] == '\n';
    }
    return line;
}

static di_status yaml_fault(const reader *r, di_error *err)
{
    const yaml_parser_t *const y = &r->yaml;
    if (y->error == YAML_MEMORY_ERROR) {
        return err_memory(err, "configuration file", 0);
    }
    const int line = y->error == YAML_READER_ERROR ? line_of(r->text, y->problem_offset) : (int)y->problem_mark.line + 1;
    return err_set(err, DI_E_FORMAT, "%s:%d: not YAML: %s", r->name, line, y->problem != NULL ? y->problem : "malformed");
}

/* Steps to the next event. Refused here: what no event of a flat file has. */
static di_status next(reader *r, di_error *err)
{
    yaml_event_delete(&r->event);
    if (yaml_parser_parse(&r->yaml, &r->event) == 0) {
        memset(&r->event, 0, sizeof r->event);
        return yaml_fault(r, err);
    }
    const yaml_event_t *const e = &r->event;
    const unsigned char *anchor = NULL;
    const unsigned char *tag = NULL;
    if (e->type == YAML_ALIAS_EVENT) {
        return fault(r, "aliases are not used here", err);
    }
    if (e->type == YAML_SCALAR_EVENT) {
        anchor = e->data.scalar.anchor;
        tag = e->data.scalar.tag;
    } else if (e->type == YAML_SEQUENCE_START_EVENT) {
        anchor = e->data.sequence_start.anchor;
        tag = e->data.sequence_start.tag;
    } else if (e->type == YAML_MAPPING_START_EVENT) {
        anchor = e->data.mapping_start.anchor;
        tag = e->data.mapping_start.tag;
    }
    return anchor != NULL ? fault(r, "anchors are not used here", err) : tag != NULL ? fault(r, "tags are not used here", err) : DI_OK;
}

/* The text of the scalar at hand, kept. */
static di_status keep(reader *r, const char **out, di_error *err)
{
    const char *const text = (const char *)r->event.data.scalar.value;
    const size_t n = r->event.data.scalar.length;
    config_memory *const m = r->memory;
    if (memchr(text, '\0', n) != NULL) {
        return fault(r, "a text with a NUL character", err);
    }
    if (n >= sizeof m->text - m->n) {
        return err_set(err, DI_E_LIMIT, "%s:%d: more than %d bytes of text", r->name, event_line(r), CONFIG_MAX_BYTES);
    }
    *out = memcpy(m->text + m->n, text, n);
    m->text[m->n + n] = '\0';
    m->n += n + 1;
    return DI_OK;
}

static di_status add_value(reader *r, di_error *err)
{
    config_entry *const entry = &r->entry;
    if (entry->n == CONFIG_MAX_VALUES) {
        return err_set(err, DI_E_LIMIT, "%s:%d: %s has more than %d values", r->name, event_line(r), entry->key, CONFIG_MAX_VALUES);
    }
    config_value *const value = &entry->values[entry->n++];
    value->quoted = r->event.data.scalar.style != YAML_PLAIN_SCALAR_STYLE;
    return keep(r, &value->text, err);
}

static di_status read_list(reader *r, di_error *err)
{
    r->entry.is_list = true;
    for (;;) {
        di_status status = next(r, err);
        if (status != DI_OK || r->event.type == YAML_SEQUENCE_END_EVENT) {
            return status;
        }
        status = r->event.type == YAML_SCALAR_EVENT ? add_value(r, err) : fault(r, "a list holds single values only", err);
        if (status != DI_OK) {
            return status;
        }
    }
}

/* The event at hand is the key. */
static di_status read_entry(reader *r, di_error *err)
{
    if (r->event.type != YAML_SCALAR_EVENT) {
        return fault(r, "a key must be the name of an option", err);
    }
    r->entry.line = event_line(r);
    r->entry.is_list = false;
    r->entry.n = 0;
    di_status status = keep(r, &r->entry.key, err);
    if (status == DI_OK) {
        status = next(r, err);
    }
    if (status != DI_OK) {
        return status;
    }
    switch (r->event.type) {
    case YAML_SCALAR_EVENT:
        return add_value(r, err);
    case YAML_SEQUENCE_START_EVENT:
        return read_list(r, err);
    default:
        return fault(r, "options do not nest: a value is single or a list", err);
    }
}

static di_status read_mapping(reader *r, config_entry_fn fn, void *user, di_error *err)
{
    for (;;) {
        di_status status = next(r, err);
        if (status != DI_OK || r->event.type == YAML_MAPPING_END_EVENT) {
            return status;
        }
        status = read_entry(r, err);
        if (status != DI_OK) {
            return status;
        }
        status = fn(user, &r->entry, err);
        if (status != DI_OK) {
            err_prefix(err, "%s:%d", r->name, r->entry.line);
            return status;
        }
    }
}

static bool is_nothing(const yaml_event_t *e)
{
    return e->type == YAML_SCALAR_EVENT && e->data.scalar.style == YAML_PLAIN_SCALAR_STYLE && e->data.scalar.length == 0;
}

/* The event at hand is the beginning of the first document. */
static di_status read_document(reader *r, config_entry_fn fn, void *user, di_error *err)
{
    if (r->event.data.document_start.tag_directives.start != r->event.data.document_start.tag_directives.end) {
        return fault(r, "tags are not used here", err);
    }
    di_status status = next(r, err);
    if (status == DI_OK && r->event.type == YAML_MAPPING_START_EVENT) {
        status = read_mapping(r, fn, user, err);
    } else if (status == DI_OK && !is_nothing(&r->event)) {
        status = fault(r, "expected lines of the form `option: value'", err);
    }
    if (status == DI_OK) {
        status = next(r, err); /* the document's end */
    }
    if (status == DI_OK) {
        status = next(r, err);
    }
    if (status == DI_OK && r->event.type != YAML_STREAM_END_EVENT) {
        status = fault(r, "a second document: one file is one document", err);
    }
    return status;
}

di_status config_read(const char *text, size_t size, const char *name, config_memory *memory, config_entry_fn fn, void *user,
                      di_error *err)
{
    if (size > CONFIG_MAX_BYTES) {
        return err_set(err, DI_E_LIMIT, "%s: %zu bytes, at most %d", name, size, CONFIG_MAX_BYTES);
    }
    const size_t valid = utf8_valid_prefix((const uint8_t *)text, size);
    if (valid < size) {
        return err_set(err, DI_E_FORMAT, "%s:%d: not UTF-8", name, line_of(text, valid));
    }
    reader r = {.text = text, .name = name, .memory = memory};
    if (yaml_parser_initialize(&r.yaml) == 0) {
        return err_memory(err, "configuration file", sizeof r.yaml);
    }
    yaml_parser_set_encoding(&r.yaml, YAML_UTF8_ENCODING);
    yaml_parser_set_input_string(&r.yaml, (const unsigned char *)text, size);
    di_status status = next(&r, err); /* the stream's beginning */
    if (status == DI_OK) {
        status = next(&r, err);
    }
    if (status == DI_OK && r.event.type == YAML_DOCUMENT_START_EVENT) {
        status = read_document(&r, fn, user, err);
    }
    yaml_event_delete(&r.event);
    yaml_parser_delete(&r.yaml);
    return status;
}
