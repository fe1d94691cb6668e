/* rec_json.c - JSON text in the three styles of recipe.md 2.7. What the model reads must have the very digits that it was trained
 * on, so numbers are the hard part:
 *
 *   integers within 64 bits     as they were spelled
 *   every other number          the shortest decimal digits that read back as the same double, in Python's form or the compact one
 *
 * A spelling of at most 15 digits in the normal range is its own shortest form: two different decimals of so few digits never share
 * a double. So most numbers need no conversion at all; the others are found by trying 15, 16 and 17 digits. */
#include "recipe/rec_int.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>

#define MAX_DIGITS 17
#define SURE_DIGITS 15

/* 0.d1d2d3... * 10^point; no zero at either end; n == 0 is zero. */
typedef struct decimal {
    bool negative;
    int n;
    int point;
    char digits[MAX_DIGITS + 1];
} decimal;

/* ---- shortest digits ---- */

static void strip_zeros(decimal *d)
{
    while (d->n > 0 && d->digits[d->n - 1] == '0') {
        d->n--;
    }
}

/* Value of the digits, read as an integer times a power of ten: no decimal point, which depends on the process's locale. */
static double read_back(const decimal *d)
{
    char text[MAX_DIGITS + 16];
    snprintf(text, sizeof text, "%.*se%d", d->n, d->digits, d->point - d->n);
    return strtod(text, NULL);
}

/* The n digits nearest to a positive value. */
static void nearest(double value, int n, decimal *d)
{
    char text[64];
    snprintf(text, sizeof text, "%.*e", n - 1, value);
    d->n = 0;
    const char *p = text;
    for (; *p != 'e' && d->n < MAX_DIGITS; p++) {
        if (*p >= '0' && *p <= '9') {
            d->digits[d->n++] = *p;
        }
    }
    d->point = (int)strtol(strchr(p, 'e') + 1, NULL, 10) + 1;
}

static bool step_up(decimal *d)
{
    int i = d->n - 1;
    while (i >= 0 && d->digits[i] == '9') {
        i--;
    }
    if (i < 0) {
        return false;
    }
    d->digits[i]++;
    d->n = i + 1;
    return true;
}

/* Do these digits, or (when asked) the next larger ones, read back as value? */
static bool fits(double value, bool try_larger, decimal *d)
{
    if (read_back(d) == value) {
        return true;
    }
    decimal larger = *d;
    if (try_larger && step_up(&larger) && read_back(&larger) == value) {
        *d = larger;
        return true;
    }
    return false;
}

static void shortest(double value, decimal *d)
{
    d->negative = signbit(value) != 0;
    d->n = 0;
    d->point = 0;
    const double positive = fabs(value);
    if (positive == 0.0) {
        return;
    }
    /* Below a power of two doubles lie twice as close, so that the nearest digits may miss where the next larger ones hit. */
    int exponent;
    const bool power = frexp(positive, &exponent) == 0.5;
    /* Subnormal numbers have fewer digits than 15, each a chance. */
    int n = positive < 2.3e-308 ? 1 : SURE_DIGITS;
    do {
        nearest(positive, n, d);
    } while (!fits(positive, power, d) && ++n <= MAX_DIGITS);
    strip_zeros(d);
}

/* The digits of a spelling, when they are surely the shortest. */
static bool spelled(const char *text, size_t size, decimal *d)
{
    size_t i = 0;
    int point = 0;
    int zeros = 0; /* waiting: they count only when another digit follows */
    bool fraction = false;
    d->negative = text[0] == '-';
    d->n = 0;
    for (i = d->negative ? 1 : 0; i < size && text[i] != 'e' && text[i] != 'E'; i++) {
        if (text[i] == '.') {
            fraction = true;
            continue;
        }
        if (i > 300) {
            return false;
        }
        if (text[i] == '0' && d->n == 0) {
            point -= fraction ? 1 : 0;
            continue;
        }
        point += fraction ? 0 : 1;
        if (text[i] == '0') {
            zeros++;
            continue;
        }
        if (d->n + zeros >= SURE_DIGITS) {
            return false;
        }
        while (zeros > 0) {
            d->digits[d->n++] = '0';
            zeros--;
        }
        d->digits[d->n++] = text[i];
    }
    if (i < size) {
        if (size - i > 5) {
            return false;
        }
        point += (int)strtol(text + i + 1, NULL, 10);
    }
    d->point = d->n > 0 ? point : 0;
    return d->n == 0 || (d->point > -290 && d->point < 290);
}

/* ---- forms ---- */

static size_t put_zeros(char *out, int n)
{
    memset(out, '0', (size_t)n);
    return (size_t)n;
}

static size_t put_digits(char *out, const decimal *d, int from, int to)
{
    memcpy(out, d->digits + from, (size_t)(to - from));
    return (size_t)(to - from);
}

/* Without an exponent: 0.00123, 12.5, 1200.0 */
static size_t plain_form(const decimal *d, char *out)
{
    size_t n = 0;
    if (d->point <= 0) {
        n += put_zeros(out, 1);
        out[n++] = '.';
        n += put_zeros(out + n, -d->point);
        return n + put_digits(out + n, d, 0, d->n);
    }
    if (d->n <= d->point) {
        n += put_digits(out, d, 0, d->n);
        n += put_zeros(out + n, d->point - d->n);
        out[n++] = '.';
        return n + put_zeros(out + n, 1);
    }
    n += put_digits(out, d, 0, d->point);
    out[n++] = '.';
    return n + put_digits(out + n, d, d->point, d->n);
}

static size_t exponent_form(const decimal *d, int exponent_digits, char *out)
{
    size_t n = put_digits(out, d, 0, 1);
    if (d->n > 1) {
        out[n++] = '.';
        n += put_digits(out + n, d, 1, d->n);
    }
    const int exponent = d->point - 1;
    const int written = snprintf(out + n, 8, "e%c%0*d", exponent < 0 ? '-' : '+', exponent_digits, abs(exponent));
    return n + (size_t)written;
}

static bool put_decimal(buf *out, const decimal *d, rec_json_style style)
{
    char text[MAX_DIGITS + 32];
    size_t n = 0;
    const int least = style == REC_JSON_PYTHON ? -3 : -4; /* Python ends plain numbers at 0.0001, the compact form at 0.00001 */
    if (d->negative) {
        text[n++] = '-';
    }
    if (d->n == 0) {
        memcpy(text + n, "0.0", 3);
        n += 3;
    } else if (d->point >= least && d->point <= 16) {
        n += plain_form(d, text + n);
    } else {
        n += exponent_form(d, style == REC_JSON_PYTHON ? 2 : 1, text + n);
    }
    return buf_append(out, text, n);
}

bool rec_json_double(buf *out, double value, rec_json_style style)
{
    decimal d;
    shortest(value, &d);
    return put_decimal(out, &d, style);
}

/* An integer spelled without a sign that fits 64 bits; what fits int64_t is JS_INT already. */
static bool fits_unsigned(const char *text, size_t size)
{
    const char *const largest = "18446744073709551615";
    if (text[0] == '-' || memchr(text, '.', size) != NULL || memchr(text, 'e', size) != NULL || memchr(text, 'E', size) != NULL) {
        return false;
    }
    return size < 20 || (size == 20 && memcmp(text, largest, 20) <= 0);
}

static bool put_number(buf *out, const js_value *value, rec_json_style style)
{
    size_t size;
    const char *const text = js_spelling(value, &size);
    decimal d;
    if (js_kind_of(value) == JS_INT || fits_unsigned(text, size)) {
        return buf_append(out, text, size);
    }
    if (spelled(text, size, &d)) {
        return put_decimal(out, &d, style);
    }
    return rec_json_double(out, js_number(value), style);
}

/* ---- strings ---- */

/* The eight bytes at p hold none that needs an escape. A control, quote or backslash sets the top bit of its byte; borrows only make
 * the test more careful than it must be, and so do bytes above 0x7F. */
static bool eight_are_plain(const char *p)
{
    const uint64_t ones = 0x0101010101010101u;
    uint64_t v;
    memcpy(&v, p, sizeof v);
    const uint64_t high = v & ones * 0x80;
    const uint64_t quote = v ^ ones * '"';
    const uint64_t slash = v ^ ones * '\\';
    return (((v - ones * 0x20) | (quote - ones) | (slash - ones)) & ~high & ones * 0x80) == 0;
}

static bool needs_escape(char c)
{
    return (unsigned char)c < 0x20 || c == '"' || c == '\\';
}

static bool put_escape(buf *out, char c)
{
    static const char letters[0x20] = {['\b'] = 'b', ['\f'] = 'f', ['\n'] = 'n', ['\r'] = 'r', ['\t'] = 't'};
    const char *const hex = "0123456789abcdef";
    const unsigned char byte = (unsigned char)c;
    if (byte >= 0x20) {
        return buf_append(out, (const char[]){'\\', c}, 2);
    }
    if (letters[byte] != 0) {
        return buf_append(out, (const char[]){'\\', letters[byte]}, 2);
    }
    return buf_append(out, (const char[]){'\\', 'u', '0', '0', hex[byte >> 4], hex[byte & 15]}, 6);
}

bool rec_json_string(buf *out, const char *text, size_t size)
{
    buf_append(out, "\"", 1);
    size_t done = 0; /* everything before it has been written */
    size_t i = 0;
    while (i < size) {
        if (size - i >= 8 && eight_are_plain(text + i)) {
            i += 8;
        } else if (needs_escape(text[i])) {
            buf_append(out, text + done, i - done);
            put_escape(out, text[i]);
            done = ++i;
        } else {
            i++;
        }
    }
    buf_append(out, text + done, size - done);
    return buf_append(out, "\"", 1);
}

/* ---- values ---- */

static bool put_separator(buf *out, size_t i, rec_json_style style)
{
    return i == 0 || buf_append(out, ", ", style == REC_JSON_COMPACT ? 1 : 2);
}

static void put_array(buf *out, const js_value *array, rec_json_style style)
{
    buf_append(out, "[", 1);
    for (size_t i = 0; i < js_length(array) && !out->failed; i++) {
        put_separator(out, i, style);
        rec_json_value(out, js_at(array, i), style);
    }
    buf_append(out, "]", 1);
}

static void put_object(buf *out, const js_value *object, rec_json_style style)
{
    buf_append(out, "{", 1);
    for (size_t i = 0; i < js_length(object) && !out->failed; i++) {
        const js_value *const member = js_member(object, i, NULL);
        size_t size;
        const char *const key = js_key(member, &size);
        put_separator(out, i, style);
        rec_json_string(out, key, size);
        buf_append(out, ": ", style == REC_JSON_COMPACT ? 1 : 2);
        rec_json_value(out, member, style);
    }
    buf_append(out, "}", 1);
}

/* Recursion is as deep as documents are: REC_MAX_DEPTH. */
bool rec_json_value(buf *out, const js_value *value, rec_json_style style)
{
    size_t size;
    const char *text;
    switch (js_kind_of(value)) {
    case JS_NULL:
        buf_append(out, "null", 4);
        break;
    case JS_BOOL:
        buf_puts(out, js_bool(value) ? "true" : "false");
        break;
    case JS_INT:
    case JS_NUMBER:
        put_number(out, value, style);
        break;
    case JS_STRING:
        text = js_string(value, &size);
        rec_json_string(out, text, size);
        break;
    case JS_ARRAY:
        put_array(out, value, style);
        break;
    case JS_OBJECT:
        put_object(out, value, style);
        break;
    }
    return !out->failed;
}
