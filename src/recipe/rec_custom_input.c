/* rec_custom_input.c - see rec_custom_input.h.
 *
 * The value is a JSON string whose escapes are held until they are complete; two halves of a character are joined. What is no
 * valid escape passes as it is written, so that nothing of a patch is lost silently. */
#include "recipe/rec_custom_input.h"

#include "core/utf8.h"

#include <string.h>

static const char prefix[] = "{\"input\":\"";

/* Blanks may stand before any of these. */
static bool starts_token(size_t matched)
{
    return matched <= 1 || matched >= sizeof prefix - 3;
}

static bool is_blank(char c)
{
    return c == ' ' || c == '\t' || c == '\n' || c == '\r';
}

void rec_custom_init(rec_custom_input *c)
{
    *c = (rec_custom_input){.state = REC_INPUT_PREFIX};
    buf_init(&c->held, SIZE_MAX);
}

void rec_custom_fini(rec_custom_input *c)
{
    buf_fini(&c->held);
}

/* Returns how many bytes were used. */
static size_t feed_prefix(rec_custom_input *c, const char *text, size_t size, buf *out)
{
    size_t i = 0;
    while (i < size && c->matched < sizeof prefix - 1) {
        if (text[i] == prefix[c->matched]) {
            c->matched++;
        } else if (!is_blank(text[i]) || !starts_token(c->matched)) {
            c->state = REC_INPUT_RAW;
            buf_append(out, c->held.data, c->held.size);
            buf_append(out, text, i);
            return i;
        }
        i++;
    }
    if (c->matched == sizeof prefix - 1) {
        c->state = REC_INPUT_VALUE;
    } else if (!buf_append(&c->held, text, i)) {
        out->failed = true;
    }
    return i;
}

/* ---- escapes ---- */

static int hex_digit(char c)
{
    if (c >= '0' && c <= '9') {
        return c - '0';
    }
    const char lower = (char)(c | 0x20);
    return lower >= 'a' && lower <= 'f' ? lower - 'a' + 10 : -1;
}

/* The four digits behind \u. */
static uint32_t unit_of(const char *escape)
{
    uint32_t unit = 0;
    for (int i = 2; i < 6; i++) {
        unit = unit << 4 | (uint32_t)hex_digit(escape[i]);
    }
    return unit;
}

static bool is_high(uint32_t unit)
{
    return (unit & 0xFC00) == 0xD800;
}

static bool is_low(uint32_t unit)
{
    return (unit & 0xFC00) == 0xDC00;
}

static void put_character(uint32_t cp, buf *out)
{
    uint8_t bytes[4];
    const int n = utf8_encode(cp, bytes);
    buf_append(out, bytes, (size_t)n);
}

/* The first n characters are no escape. */
static void give_up(rec_custom_input *c, size_t n, buf *out)
{
    buf_append(out, c->escape, n);
    c->n_escape -= n;
    memmove(c->escape, c->escape + n, c->n_escape);
}

/* \uXXXX is complete, and alone. */
static void end_unit(rec_custom_input *c, buf *out)
{
    const uint32_t unit = unit_of(c->escape);
    if (is_high(unit)) {
        return; /* waits for the other half */
    }
    if (is_low(unit)) {
        give_up(c, 6, out);
        return;
    }
    c->n_escape = 0;
    put_character(unit, out);
}

static void end_pair(rec_custom_input *c, buf *out)
{
    const uint32_t high = unit_of(c->escape);
    const uint32_t low = unit_of(c->escape + 6);
    if (!is_low(low)) {
        give_up(c, 6, out);
        end_unit(c, out);
        return;
    }
    c->n_escape = 0;
    put_character(0x10000 + ((high - 0xD800) << 10) + (low - 0xDC00), out);
}

static void end_simple(rec_custom_input *c, char letter, buf *out)
{
    static const char letters[] = "\"\\/bfnrt";
    static const char meanings[] = "\"\\/\b\f\n\r\t";
    const char *const place = letter != '\0' ? strchr(letters, letter) : NULL;
    if (place != NULL) {
        c->n_escape = 0;
        buf_append(out, &meanings[place - letters], 1);
        return;
    }
    give_up(c, 1, out);
    buf_append(out, &letter, 1);
}

/* One more character inside an escape; false: it doesn't belong to it, which then is none. */
static bool feed_escape(rec_custom_input *c, char ch, buf *out)
{
    const size_t n = c->n_escape;
    if (n == 1 && ch != 'u') {
        end_simple(c, ch, out);
        return true;
    }
    const bool fits = n == 1 || n == 7 ? ch == 'u' : n == 6 ? ch == '\\' : hex_digit(ch) >= 0;
    if (!fits) {
        /* A backslash behind a first half begins an escape of its own. */
        const size_t lost = n == 7 ? 6 : n;
        give_up(c, lost, out);
        return c->n_escape != 0 ? feed_escape(c, ch, out) : false;
    }
    c->escape[c->n_escape++] = ch;
    if (c->n_escape == 6) {
        end_unit(c, out);
    } else if (c->n_escape == 12) {
        end_pair(c, out);
    }
    return true;
}

/* ---- value ---- */

static size_t plain_run(const char *text, size_t size)
{
    size_t i = 0;
    while (i < size && text[i] != '"' && text[i] != '\\') {
        i++;
    }
    return i;
}

static void feed_value(rec_custom_input *c, const char *text, size_t size, buf *out)
{
    size_t i = 0;
    while (i < size && c->state == REC_INPUT_VALUE) {
        if (c->n_escape != 0) {
            i += feed_escape(c, text[i], out) ? 1 : 0;
            continue;
        }
        const size_t n = plain_run(text + i, size - i);
        buf_append(out, text + i, n);
        i += n;
        if (i < size && text[i] == '"') {
            c->state = REC_INPUT_DONE;
        } else if (i < size) {
            c->escape[c->n_escape++] = text[i++];
        }
    }
}

bool rec_custom_feed(rec_custom_input *c, const char *text, size_t size, buf *out)
{
    size_t used = 0;
    if (c->state == REC_INPUT_PREFIX) {
        used = feed_prefix(c, text, size, out);
    }
    if (c->state == REC_INPUT_VALUE) {
        feed_value(c, text + used, size - used, out);
    } else if (c->state == REC_INPUT_RAW) {
        buf_append(out, text + used, size - used);
    }
    return !out->failed;
}

bool rec_custom_end(rec_custom_input *c, buf *out)
{
    if (c->state == REC_INPUT_VALUE) {
        give_up(c, c->n_escape, out);
    }
    c->state = REC_INPUT_DONE;
    return !out->failed;
}
