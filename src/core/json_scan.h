/* json_scan.h - a pull scanner over JSON text: one event a call, no allocation, no recursion.
 * Documents (json.h) are built from it, and readers of large files (safetensors headers, tokenizer.json) use it directly. */
#ifndef CORE_JSON_SCAN_H
#define CORE_JSON_SCAN_H

#include <deepinfer/base.h>

#define JSC_MAX_DEPTH 1024

typedef enum jsc_event {
    JSC_ERROR, JSC_END,
    JSC_OBJECT_BEGIN, JSC_OBJECT_END, JSC_ARRAY_BEGIN, JSC_ARRAY_END,
    JSC_KEY, JSC_STRING, JSC_NUMBER, JSC_TRUE, JSC_FALSE, JSC_NULL
} jsc_event;

typedef struct jsc {
    const char *text;
    size_t size;
    size_t pos;
    const char *name;
    int max_depth;
    int depth;
    uint8_t state;
    uint8_t stack[JSC_MAX_DEPTH / 8]; /* one bit a level: object or array */
    /* The event's text without quotes, still escaped; valid as long as `text`. */
    const char *token;
    size_t token_size;
    bool token_escaped; /* the string holds at least one backslash */
    const char *fault;  /* private: what was wrong, once the scan has failed */
    bool fault_limit;   /* private */
} jsc;

/* max_depth 1..JSC_MAX_DEPTH; anything else means JSC_MAX_DEPTH. `text` and `name` are borrowed. */
void jsc_init(jsc *s, const char *text, size_t size, const char *name, int max_depth);

/* Next event. JSC_ERROR sets *err (DI_E_FORMAT or DI_E_LIMIT, with line and column) and repeats on further calls. */
jsc_event jsc_next(jsc *s, di_error *err);

/* Skips the value that starts with the event just returned (whole containers). False on error. */
bool jsc_skip(jsc *s, jsc_event begin, di_error *err);

/* Unescapes the current KEY or STRING into out (at least token_size bytes). Returns the length. */
size_t jsc_unescape(const jsc *s, char *out);

#endif
