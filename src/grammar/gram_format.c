/* gram_format.c - the named formats of JSON Schema as languages.
 *
 * Most are regular expressions after the RFC that the format refers to. Deliberate restrictions: fractions of a second have at most 30
 * digits, numbers of a duration 100; host names have no label with "--" in third and fourth place, because whether such a label is
 * a valid Punycode one (IDNA 2008) is not a regular question; a local part of a mail address has at most 64 characters. */
#include "grammar/gram_schema.h"

#include "grammar/gram_regex.h"

#include <stdio.h>

#define ALPHA "A-Za-z"
#define HEX "[0-9A-Fa-f]"
#define OCTET "(?:25[0-5]|2[0-4][0-9]|1[0-9][0-9]|[1-9]?[0-9])"
#define IPV4 OCTET "(?:\\." OCTET "){3}"
#define H16 HEX "{1,4}"
#define LS32 "(?:" H16 ":" H16 "|" IPV4 ")"
#define IPV6 \
    "(?:(?:" H16 ":){6}" LS32 "|::(?:" H16 ":){5}" LS32 "|(?:" H16 ")?::(?:" H16 ":){4}" LS32 \
    "|(?:(?:" H16 ":){0,1}" H16 ")?::(?:" H16 ":){3}" LS32 "|(?:(?:" H16 ":){0,2}" H16 ")?::(?:" H16 ":){2}" LS32 \
    "|(?:(?:" H16 ":){0,3}" H16 ")?::" H16 ":" LS32 "|(?:(?:" H16 ":){0,4}" H16 ")?::" LS32 \
    "|(?:(?:" H16 ":){0,5}" H16 ")?::" H16 "|(?:(?:" H16 ":){0,6}" H16 ")?::)"

/* RFC 3339 */
#define DATE \
    "(?:[0-9]{4}-(?:(?:0[13578]|1[02])-(?:0[1-9]|[12][0-9]|3[01])|(?:0[469]|11)-(?:0[1-9]|[12][0-9]|30)|02-(?:0[1-9]|1[0-9]|2[0-8]))" \
    "|(?:[0-9]{2}(?:0[48]|[2468][048]|[13579][26])|(?:[02468][048]|[13579][26])00)-02-29)"
#define FRACTION "(?:\\.[0-9]{1,30})?"
#define HOUR "(?:[01][0-9]|2[0-3])"
#define MINUTE "[0-5][0-9]"
#define TIME HOUR ":" MINUTE ":" MINUTE FRACTION "(?:[Zz]|[+-]" HOUR ":" MINUTE ")"
#define LEAP_UTC "23:59:60" FRACTION "[Zz]"
#define NUMBER "[0-9]{1,100}"
#define DURATION_TIME "(?:T(?:" NUMBER "H(?:" NUMBER "M(?:" NUMBER "S)?)?|" NUMBER "M(?:" NUMBER "S)?|" NUMBER "S))"
#define DURATION \
    "P(?:" NUMBER "W|(?:" NUMBER "Y(?:" NUMBER "M(?:" NUMBER "D)?)?|" NUMBER "M(?:" NUMBER "D)?|" \
    NUMBER "D)" DURATION_TIME "?|" DURATION_TIME ")"

/* RFC 1123, and no "--" in places three and four */
#define LD "[0-9A-Za-z]"
#define LDH "[0-9A-Za-z-]"
#define LABEL LD "(?:" LD "|" LDH "{1,2}" LD "|" LDH "(?:" LD LDH "|-" LD ")" LDH "{0,58}" LD ")?"

/* RFC 5321, 6531 */
#define ATEXT "0-9A-Za-z!#$%&'*+/=?^_`{|}~\\-"
#define MAIL(more) \
    "(?:[" ATEXT more "]+(?:\\.[" ATEXT more "]+)*|\"(?:[ !#-\\[\\]-~" more "]|\\\\[ -~])*\")"
#define DOMAIN(more) \
    "(?:[0-9A-Za-z" more "](?:[0-9A-Za-z" more "-]{0,61}[0-9A-Za-z" more "])?" \
    "(?:\\.[0-9A-Za-z" more "](?:[0-9A-Za-z" more "-]{0,61}[0-9A-Za-z" more \
    "])?)*|\\[" IPV4 "\\]|\\[IPv6:" IPV6 "\\])"
#define WIDE "\\u0080-\\u{10FFFF}"

/* RFC 3986 and 3987; `ucs` are the characters an IRI has besides, `priv` those of its query */
#define PCT "%" HEX HEX
#define UNRESERVED ALPHA "0-9._~\\-"
#define SUB "!$&'()*+,;="
#define UCS "\\u00A0-\\uD7FF\\uF900-\\uFDCF\\uFDF0-\\uFFEF\\u{10000}-\\u{1FFFD}\\u{20000}-\\u{2FFFD}" \
    "\\u{30000}-\\u{3FFFD}\\u{40000}-\\u{4FFFD}\\u{50000}-\\u{5FFFD}\\u{60000}-\\u{6FFFD}\\u{70000}-\\u{7FFFD}" \
    "\\u{80000}-\\u{8FFFD}\\u{90000}-\\u{9FFFD}\\u{A0000}-\\u{AFFFD}" \
    "\\u{B0000}-\\u{BFFFD}\\u{C0000}-\\u{CFFFD}\\u{D0000}-\\u{DFFFD}\\u{E1000}-\\u{EFFFD}"
#define PRIV "\\uE000-\\uF8FF\\u{F0000}-\\u{FFFFD}\\u{100000}-\\u{10FFFD}"
#define PCHAR(ucs) "(?:[" UNRESERVED SUB ":@" ucs "]|" PCT ")"
#define AUTHORITY(ucs) \
    "(?:(?:[" UNRESERVED SUB ":" ucs "]|" PCT ")*@)?(?:\\[(?:" IPV6 "|[vV]" HEX "+\\.[" UNRESERVED SUB ":]+)\\]" \
    "|(?:[" UNRESERVED SUB ucs "]|" PCT ")*)(?::[0-9]*)?"
#define TAIL(ucs, priv) "(?:\\?(?:" PCHAR(ucs priv) "|[/?])*)?(?:#(?:" PCHAR(ucs) "|[/?])*)?"
#define ABEMPTY(ucs) "(?:/" PCHAR(ucs) "*)*"
#define ABSOLUTE(ucs) "/(?:" PCHAR(ucs) "+" ABEMPTY(ucs) ")?"
#define HIER(ucs) "(?://" AUTHORITY(ucs) ABEMPTY(ucs) "|" ABSOLUTE(ucs) "|" PCHAR(ucs) "+" ABEMPTY(ucs) ")?"
#define NOSCHEME(ucs) "(?:[" UNRESERVED SUB "@" ucs "]|" PCT ")+" ABEMPTY(ucs)
#define RELATIVE(ucs) "(?://" AUTHORITY(ucs) ABEMPTY(ucs) "|" ABSOLUTE(ucs) "|" NOSCHEME(ucs) ")?"
#define URI(ucs, priv) "[" ALPHA "][" ALPHA "0-9+.-]*:" HIER(ucs) TAIL(ucs, priv)
#define REFERENCE(ucs, priv) "(?:" URI(ucs, priv) "|" RELATIVE(ucs) TAIL(ucs, priv) ")"

/* RFC 6570 */
#define VARCHAR "(?:[" ALPHA "0-9_]|" PCT ")"
#define VARSPEC VARCHAR "+(?:\\." VARCHAR "+)*(?::[1-9][0-9]{0,3}|\\*)?"
#define URI_TEMPLATE "(?:[!#-$&-;=?-\\[\\]_a-z~" UCS PRIV "]|" PCT "|\\{[+#./;?&]?" VARSPEC "(?:," VARSPEC ")*\\})*"

/* RFC 6901 */
#define POINTER "(?:/(?:[^~/]|~[01])*)*"

static const struct {
    const char *name;
    const char *regex;
} formats[] = {
    {"date", DATE},
    {"duration", DURATION},
    {"hostname", "(?=.{1,253}$)" LABEL "(?:\\.(?:" LABEL "))*"},
    {"ipv4", IPV4},
    {"ipv6", IPV6},
    {"uuid", HEX "{8}-" HEX "{4}-" HEX "{4}-" HEX "{4}-" HEX "{12}"},
    {"uri", URI("", "")},
    {"uri-reference", REFERENCE("", "")},
    {"iri", URI(UCS, PRIV)},
    {"iri-reference", REFERENCE(UCS, PRIV)},
    {"uri-template", URI_TEMPLATE},
    {"json-pointer", "(?s)" POINTER},
    {"relative-json-pointer", "(?s)(?:0|[1-9][0-9]{0,30})(?:#|" POINTER ")"},
    {"email", "(?=[^@\"]{1,64}@|\"(?:[^\"\\\\]|\\\\.){0,62}\"@)" MAIL("") "@" DOMAIN("")},
    {"idn-email", MAIL(WIDE) "@" DOMAIN(WIDE)},
};

static gram_ex whole(gram_lang *l, const char *regex) { return gram_regex(l, regex, strlen(regex), 0); }

static gram_ex two_digits(gram_lang *l, int value)
{
    char out[16];
    const int n = snprintf(out, sizeof out, "%02d", value);
    return gram_ex_text(l, out, (size_t)n);
}

/* The union of before·i·middle·second(i)·after for i in [0, n). */
static gram_ex paired(gram_lang *l, int n, int (*second)(int i), gram_ex before, gram_ex middle, gram_ex after)
{
    const uint32_t base = l->work.n;
    for (int i = 0; i < n; i++) {
        const gram_ex end = gram_ex_cat(l, middle, gram_ex_cat(l, two_digits(l, second(i)), after));
        (void)gram_push(l->mem, &l->work, gram_ex_cat(l, before, gram_ex_cat(l, two_digits(l, i), end)));
    }
    const gram_ex all = gram_ex_or(l, l->work.words + base, l->work.n - base);
    l->work.n = base;
    return all;
}

static int same(int i) { return i; }
static int next(int i) { return i + 1; }
static int next_hour(int i) { return (i + 1) % 24; }
static int minus_hour(int i) { return 23 - i; }
static int minus_minute(int i) { return 59 - i; }

/* A leap second is 23:59:60 in UTC. With an offset +h:m the local time is h later and m later, with -h:m as much earlier; hours and minutes
 * are related each for itself, but for the carry. */
static gram_ex leap_seconds(gram_lang *l)
{
    const gram_ex any = whole(l, "[0-9][0-9]");
    const gram_ex colon = whole(l, ":");
    const gram_ex second = whole(l, ":60" FRACTION);
    const gram_ex none = GRAM_EX_EPS;
    const gram_ex minutes_plus = gram_ex_cat(l, colon, gram_ex_cat(l, any, gram_ex_cat(l, second, whole(l, "\\+"))));
    const gram_ex minutes_minus = gram_ex_cat(l, colon, gram_ex_cat(l, any, gram_ex_cat(l, second, whole(l, "-"))));
    const gram_ex hours = gram_ex_cat(l, any, colon);
    const gram_ex hours_plus = gram_ex_cat(l, second, gram_ex_cat(l, whole(l, "\\+"), gram_ex_cat(l, any, colon)));
    const gram_ex hours_minus = gram_ex_cat(l, second, gram_ex_cat(l, whole(l, "-"), gram_ex_cat(l, any, colon)));
    const gram_ex rest = gram_ex_cat(l, colon, any);
    const gram_ex plus = gram_ex_and2(l, paired(l, 24, same, none, minutes_plus, rest), paired(l, 59, next, hours, hours_plus, none));
    const gram_ex full = paired(l, 24, next_hour, none, whole(l, ":59:60" FRACTION "\\+"), whole(l, ":00"));
    const gram_ex minus =
        gram_ex_and2(l, paired(l, 24, minus_hour, none, minutes_minus, rest), paired(l, 60, minus_minute, hours, hours_minus, none));
    const gram_ex kids[] = {whole(l, LEAP_UTC), plus, full, minus};
    return gram_ex_or(l, kids, 4);
}

bool gram_format(gram_lang *l, const char *name, gram_ex *out)
{
    for (size_t i = 0; i < sizeof formats / sizeof *formats; i++) {
        if (strcmp(name, formats[i].name) == 0) {
            *out = whole(l, formats[i].regex);
            return true;
        }
    }
    const bool with_date = strcmp(name, "date-time") == 0;
    if (!with_date && strcmp(name, "time") != 0) {
        return false;
    }
    const gram_ex time = gram_ex_or2(l, whole(l, TIME), leap_seconds(l));
    *out = with_date ? gram_ex_cat(l, whole(l, DATE "[Tt]"), time) : time;
    return true;
}
