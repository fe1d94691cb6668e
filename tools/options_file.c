/* options_file.c - the table of options and its file: reading one, and --print-config, which writes what can be read back.
 *
 * The file is typed: a number in quotes is a text, and a text where a number belongs is a mistake. A plain word is a text as it is spelt,
 * `off` and `12` included, so that no YAML rule changes what was written; only nothing at all (`~`, `null`, an empty value) is no text. */
#include "options.h"

#include "spelling.h"

#include "core/core.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>

/* --- Reading ------------------------------------------------------------------------------------------------------------- */

static bool is_nothing(const config_value *v)
{
    return !v->quoted && (v->text[0] == '\0' || strcmp(v->text, "~") == 0 || strcasecmp(v->text, "null") == 0);
}

static di_status unknown_key(const cli_parser *p, const char *key, di_error *err)
{
    cli_nearest near;
    cli_nearest_init(&near, key);
    for (size_t i = 0; i < p->n_options; i++) {
        cli_nearest_try(&near, p->options[i].name);
    }
    if (strcmp(key, "config") == 0 || strcmp(key, "print-config") == 0) {
        return err_set(err, DI_E_FORMAT, "'%s' is for the command line", key);
    }
    if (near.name != NULL) {
        return err_set(err, DI_E_FORMAT, "unknown option '%s'; did you mean '%s'?", key, near.name);
    }
    return err_set(err, DI_E_FORMAT, "unknown option '%s'", key);
}

static cli_option *find(cli_parser *p, const char *key)
{
    for (size_t i = 0; i < p->n_options; i++) {
        if (strcmp(p->options[i].name, key) == 0) {
            return &p->options[i];
        }
    }
    return NULL;
}

/* What the file's types allow, before the value itself is looked at. */
static di_status check_type(const cli_option *o, const config_entry *e, di_error *err)
{
    static const char *const kinds[] = {"true or false", "a text", "a list", "a whole number", "a number", "a size or a share"};
    const bool text = o->kind == CLI_STRING || o->kind == CLI_LIST || o->kind == CLI_BUDGET;
    if (e->is_list != (o->kind == CLI_LIST)) {
        return err_set(err, DI_E_FORMAT, "%s takes %s%s", o->name, kinds[o->kind], e->is_list ? ", not a list" : ": [value, ...]");
    }
    for (size_t i = 0; i < e->n; i++) {
        const config_value *const v = &e->values[i];
        if (is_nothing(v)) {
            return err_set(err, DI_E_FORMAT, "%s has no value%s", o->name, text ? "; an empty text is \"\"" : "");
        }
        if (!text && v->quoted) {
            return err_set(err, DI_E_FORMAT, "%s takes %s, not a text in quotes", o->name, kinds[o->kind]);
        }
        if (o->kind == CLI_FLAG && strcmp(v->text, "true") != 0 && strcmp(v->text, "false") != 0) {
            return err_set(err, DI_E_FORMAT, "%s takes true or false, not '%s'", o->name, v->text);
        }
    }
    return DI_OK;
}

static di_status on_entry(void *user, const config_entry *e, di_error *err)
{
    cli_parser *const p = user;
    cli_option *const o = find(p, e->key);
    if (o == NULL) {
        return unknown_key(p, e->key, err);
    }
    if (o->line != 0) {
        return err_set(err, DI_E_FORMAT, "%s stands in line %d already", o->name, o->line);
    }
    o->line = e->line;
    const di_status status = check_type(o, e, err);
    if (status != DI_OK) {
        return status;
    }
    if (o->kind == CLI_LIST && o->source <= CLI_FILE) {
        o->value.list->n = 0; /* an empty list is a value too */
        o->source = CLI_FILE;
    }
    for (size_t i = 0; i < e->n; i++) {
        char why[256];
        if (!cli_store(o, e->values[i].text, CLI_FILE, why, sizeof why)) {
            return err_set(err, DI_E_FORMAT, "%s: %s", o->name, why);
        }
    }
    return DI_OK;
}

di_status cli_read_config_text(cli_parser *p, const char *text, size_t size, const char *name, di_error *err)
{
    p->config_path = name;
    return config_read(text, size, name, &p->memory, on_entry, p, err);
}

di_status cli_read_config(cli_parser *p, const char *path, di_error *err)
{
    char *text;
    size_t size;
    di_status status = file_read(path, CONFIG_MAX_BYTES, &text, &size, err);
    if (status == DI_OK) {
        status = cli_read_config_text(p, text, size, path, err);
        free(text);
    }
    return status;
}

/* --- Printing ------------------------------------------------------------------------------------------------------------ */

static bool is_utf8(const char *text)
{
    return text[utf8_valid_prefix((const uint8_t *)text, strlen(text))] == '\0';
}

/* What YAML does not take raw inside double quotes, or reads as the end of a line. */
static bool needs_escape(uint32_t cp)
{
    return cp < 0x20 || (cp >= 0x7F && cp < 0xA0) || cp == 0x2028 || cp == 0x2029 || cp == 0xFEFF || cp == 0xFFFE || cp == 0xFFFF;
}

/* Valid UTF-8 in double quotes. */
static void put_text(buf *out, const char *text)
{
    const uint8_t *const s = (const uint8_t *)text;
    const size_t n = strlen(text);
    buf_puts(out, "\"");
    for (size_t i = 0; i < n;) {
        uint32_t cp;
        const int length = utf8_decode(s + i, n - i, &cp);
        if (length <= 0) {
            return; /* the caller has looked: not reached */
        }
        if (needs_escape(cp)) {
            buf_printf(out, "\\u%04" PRIx32, cp);
        } else {
            buf_append(out, "\\", cp == '"' || cp == '\\');
            buf_append(out, text + i, (size_t)length);
        }
        i += (size_t)length;
    }
    buf_puts(out, "\"");
}

/* Why this value cannot be in a file, or NULL. */
static const char *unprintable(const cli_option *o, bool all)
{
    const char *reason = NULL;
    switch (o->kind) {
    case CLI_FLAG:
        break;
    case CLI_STRING:
        reason = *o->value.string == NULL ? "not set" : !is_utf8(*o->value.string) ? "not UTF-8" : NULL;
        break;
    case CLI_LIST:
        reason = o->value.list->n == 0 && o->source == CLI_DEFAULT ? "not set" : NULL;
        for (size_t i = 0; i < o->value.list->n; i++) {
            reason = is_utf8(o->value.list->items[i]) ? reason : "not UTF-8";
        }
        break;
    case CLI_INT:
        reason = (double)*o->value.integer < o->min || (double)*o->value.integer > o->max ? "not set" : NULL;
        break;
    case CLI_REAL:
        reason = !(*o->value.real >= o->min && *o->value.real <= o->max) ? "not set" : NULL;
        break;
    case CLI_BUDGET:
        reason = o->value.budget->text == NULL ? "not set" : NULL;
        break;
    }
    return reason == NULL && o->secret && !all ? "*** (a secret: --print-config=all shows it)" : reason;
}

static void put_value(buf *out, const cli_option *o)
{
    switch (o->kind) {
    case CLI_FLAG:
        buf_puts(out, *o->value.flag ? "true" : "false");
        break;
    case CLI_STRING:
        put_text(out, *o->value.string);
        break;
    case CLI_LIST:
        buf_puts(out, "[");
        for (size_t i = 0; i < o->value.list->n; i++) {
            buf_puts(out, i > 0 ? ", " : "");
            put_text(out, o->value.list->items[i]);
        }
        buf_puts(out, "]");
        break;
    case CLI_INT:
        buf_printf(out, "%" PRId64, *o->value.integer);
        break;
    case CLI_REAL:
        buf_real(out, *o->value.real);
        break;
    case CLI_BUDGET:
        put_text(out, o->value.budget->text);
        break;
    }
}

/* A file name in a comment: whatever it holds, the comment ends with the line. */
static void put_name(buf *out, const char *name)
{
    for (const char *p = name; *p != '\0'; p++) {
        buf_append(out, (unsigned char)*p < 0x20 || (unsigned char)*p >= 0x7F ? "?" : p, 1);
    }
}

static void put_source(buf *out, const cli_parser *p, const cli_option *o)
{
    char name[64];
    switch (o->source) {
    case CLI_DEFAULT:
        buf_puts(out, "default");
        break;
    case CLI_FILE:
        put_name(out, p->config_path);
        buf_printf(out, ":%d", o->line);
        break;
    case CLI_ENVIRONMENT:
        cli_environment_name(o, name, sizeof name);
        buf_printf(out, "environment variable %s", name);
        break;
    case CLI_COMMAND_LINE:
        buf_puts(out, "command line");
        break;
    }
}

void cli_print_config(const cli_parser *p, bool all, buf *out)
{
    buf_printf(out, "# Options of %s. Command line wins over environment, environment over file, file over default.\n", p->command);
    for (size_t i = 0; i < p->n_options; i++) {
        const cli_option *const o = &p->options[i];
        const char *const reason = unprintable(o, all);
        if (reason != NULL) {
            buf_printf(out, "# %s: %s", o->name, reason);
        } else {
            buf_printf(out, "%s: ", o->name);
            put_value(out, o);
        }
        if (reason == NULL || o->source != CLI_DEFAULT) {
            buf_puts(out, " # ");
            put_source(out, p, o);
        }
        buf_puts(out, "\n");
    }
}
