/* rec_int.h - inside of the conversation layer.
 *
 * The way of a request (each step a file or a family of files):
 *
 *   body text -> js_doc (core/json.h)
 *     -> rec_read_chat / rec_read_responses / rec_read_messages     fields, checks, tools, messages -> rec_conversation
 *     -> rec_normalise                                               order and merging of messages (recipe.md 2.3)
 *     -> rec_render                                                  prompt text and control ranges (2.4-2.6)
 *     -> di_request_encode                                           ids (1.3)
 *
 * All memory of a request lies in its arena and its JSON documents. Strings are rec_str: borrowed bytes that may hold NUL. A
 * function that runs out of arena says so through rec_no_memory, once. */
#ifndef RECIPE_REC_INT_H
#define RECIPE_REC_INT_H

#include "core/arena.h"
#include "core/buf.h"
#include "core/err.h"
#include "core/json.h"
#include "recipe/recipe.h"

#include <string.h>

#define REC_MAX_DEPTH 127      /* containers inside containers, in bodies and in argument texts */
#define REC_MAX_STOPS 16
#define REC_MAX_URL 8192
#define REC_MAX_THREADS 64     /* of encoding; as di_tokenizer_encode_parallel */
#define REC_DEFAULT_BOUND 393216
#define REC_DEFAULT_MEMORY ((size_t)1 << 30) /* bytes of one request */
#define REC_DEFAULT_MESSAGES 100000

/* ---- strings ---- */

typedef struct rec_str {
    const char *data; /* never NULL: "" when empty */
    size_t size;
} rec_str;

#define REC_STR(literal) ((rec_str){(literal), sizeof(literal) - 1})

static inline bool rec_str_equal(rec_str a, rec_str b)
{
    return a.size == b.size && memcmp(a.data, b.data, a.size) == 0;
}

/* ---- control tokens ---- */

typedef enum rec_marker {
    REC_BOS, REC_EOS, REC_M_SYSTEM, REC_M_USER, REC_M_ASSISTANT, REC_THINK, REC_END_THINK, REC_DSML, REC_M_REMINDER, REC_IMAGE,
    REC_GROUND, /* the first of the eight grounding tokens */
    REC_N_MARKERS = REC_GROUND + 8
} rec_marker;

struct di_recipe {
    const di_tokenizer *tokenizer; /* NULL: text only */
    di_recipe_options options;     /* image_token and aliases are owned */
    rec_str spelling[REC_N_MARKERS];
    int32_t id[REC_N_MARKERS]; /* -1: the tokenizer has none (system, image and grounding tokens only), or no tokenizer */
};

/* ---- conversation (recipe.md 2.1) ---- */

/* Content is a list of parts that are joined by "\n\n": texts and images in reading order. A message always has one part at least
 * (maybe an empty text), except an assistant's with no text. Merging two messages is appending lists (2.3). */
typedef struct rec_part {
    struct rec_part *next;
    rec_str text;        /* of a text part */
    di_image_ref *image; /* NULL: a text part */
} rec_part;

typedef struct rec_content {
    rec_part *first;
    rec_part *last;
} rec_content;

typedef struct rec_tool {
    rec_str name;              /* as the prompt spells it, namespace included */
    rec_str description;
    bool has_description;
    const js_value *parameters; /* object; NULL = {} . With `strict` already normalised (3.3) */
    const js_value *given;      /* the same as the request has them; NULL = as `parameters` */
    bool has_strict;
    bool strict;
    bool held;                  /* Messages: calls keep to the parameters; their form stays as it is */
    bool deferred;             /* not in the tool block: announced by a System message, or never */
    rec_str space;             /* Responses: the declared namespace and the name inside it; else empty */
    rec_str member;
    bool custom;               /* Responses: a custom tool, whose argument is one text `input` */
    bool search;               /* Responses: the client's tool search */
    bool barred;               /* tool_choice allows others only: it is listed, and never called */
} rec_tool;

typedef struct rec_call {
    rec_str id;
    rec_str name;
    rec_str arguments; /* JSON text as the client gave it; anything at all */
} rec_call;

typedef enum rec_role { REC_SYSTEM, REC_USER, REC_ASSISTANT, REC_TOOL, REC_REMINDER } rec_role;

typedef struct rec_message {
    struct rec_message *next;
    rec_role role;
    rec_content content;
    bool has_reasoning;    /* assistant */
    rec_str reasoning;
    rec_call *calls;       /* assistant: [n_calls] */
    size_t n_calls;
    rec_str call_id;       /* tool */
    rec_tool **announced;  /* system: [n_announced] tools that become known here (2.4) */
    size_t n_announced;
    bool prefix;           /* assistant, last: to be continued (2.10) */
} rec_message;

typedef enum rec_choice { REC_CHOICE_AUTO, REC_CHOICE_NONE, REC_CHOICE_REQUIRED } rec_choice;
typedef enum rec_effort { REC_EFFORT_ABSENT, REC_EFFORT_LOW, REC_EFFORT_HIGH, REC_EFFORT_XHIGH, REC_EFFORT_MAX } rec_effort;
typedef enum rec_format { REC_FORMAT_TEXT, REC_FORMAT_JSON_OBJECT, REC_FORMAT_JSON_SCHEMA, REC_FORMAT_REGEX } rec_format;

typedef struct rec_conversation {
    di_prompt_version version;
    rec_message *first;
    rec_message *last;
    bool thinking;
    rec_tool **tools;         /* [n_tools] in declaration order, deferred ones included; after the choice was applied (3.3) */
    size_t n_tools;
    rec_choice choice;
    const js_value *allowed;  /* tool_choice allowed_tools: what holds its mode and tools; NULL = all may be called */
    rec_effort effort;
    rec_format format;
    const js_value *schema;   /* of JSON_SCHEMA, as the prompt shows it */
    bool strict;              /* JSON_SCHEMA: the answer keeps to the strict form of the schema, the prompt shows it as given */
    const js_value *enforced; /* JSON_SCHEMA: what the answer keeps to */
    rec_str pattern;          /* of REGEX */
} rec_conversation;

/* ---- a request ---- */

typedef struct rec_docs { /* JSON documents that values are borrowed from */
    struct rec_docs *next;
    js_doc *doc;
} rec_docs;

struct di_request {
    const di_recipe *recipe;
    arena memory;
    rec_docs *docs;
    const js_value *body;       /* root of the request; the response echoes parts of it */
    di_protocol protocol;
    const char *model;
    bool stream;
    bool include_usage;         /* Chat */
    rec_conversation talk;
    rec_tool **declared;        /* [n_declared] every tool of the request before the choice, in order; what writers split names by.
                                 * Responses: behind those of `tools` the ones that tool searches found. */
    size_t n_declared;
    di_inference inference;
    float asked_temperature;    /* as the request says; NaN = it does not (rec_read_sampling) */
    float asked_top_p;
    di_output_options output;
    di_image_ref *images;       /* [n_images] in the order of the placeholders (rec_render) */
    size_t n_images;
    buf prompt;
    di_range *ranges;           /* [n_ranges] */
    uint8_t *markers;           /* [n_ranges] rec_marker of each */
    size_t n_ranges;
    rec_refusal refusal;        /* while it is read */
};

/* "out of memory" or, when the arena's budget is what ended, DI_E_LIMIT with its size. Returns the status. */
di_status rec_no_memory(const di_request *r, di_error *err);

/* Bytes of the budget that nothing holds yet. */
size_t rec_memory_left(const di_request *r);

/* Parses text into a document that lives as long as the request. Depth REC_MAX_DEPTH, the last duplicate wins. */
di_status rec_parse_json(di_request *r, const char *text, size_t size, const char *name, const js_value **root, di_error *err);

static inline rec_str rec_string(const js_value *v)
{
    rec_str s;
    s.data = js_string(v, &s.size);
    return s;
}

/* Arena copies. data NULL on failure. */
rec_str rec_copy(di_request *r, const void *data, size_t size);
rec_str rec_from_buf(di_request *r, buf *b);                          /* takes the text, frees the buffer */
rec_str rec_join(di_request *r, rec_str a, const char *between, rec_str b);

/* Conversation building; NULL on failure. */
rec_message *rec_add_message(di_request *r, rec_role role);           /* appended to r->talk */
rec_part *rec_add_text(di_request *r, rec_content *content, rec_str text);
rec_part *rec_add_image(di_request *r, rec_content *content, const di_image_ref *image); /* V4: its replacement text */
bool rec_content_empty(const rec_content *content);                   /* its text, parts joined, is empty */

/* ---- readers: fill r->talk, r->inference, r->output, r->stream from r->body ---- */

di_status rec_read_chat(di_request *r, di_error *err);
di_status rec_read_responses(di_request *r, di_error *err);
di_status rec_read_messages(di_request *r, di_error *err);

/* ---- prompt ---- */

di_status rec_normalise(di_request *r, di_error *err);  /* recipe.md 2.3, in place */
/* Stable, by id in byte order. */
di_status rec_sort_calls(di_request *r, rec_call *calls, size_t n, di_error *err);
di_status rec_render(di_request *r, di_error *err);     /* prompt, ranges, markers, images */

/* ---- JSON text (rec_json.c) ---- */

typedef enum rec_json_style {
    REC_JSON_PYTHON,      /* ", " and ": ", Python's repr of doubles (V4.1 prompts) */
    REC_JSON_PYTHON_V4,   /* ", " and ": ", compact numbers (V4 prompts) */
    REC_JSON_COMPACT      /* no blanks, compact numbers (events, constraints) */
} rec_json_style;

bool rec_json_value(buf *out, const js_value *value, rec_json_style style); /* recipe.md 2.7; false when the buffer is full */
bool rec_json_string(buf *out, const char *text, size_t size);              /* UTF-8; the same escapes in all styles */
bool rec_json_double(buf *out, double value, rec_json_style style);         /* finite; shortest digits that read back the same */

/* ---- small dictionary of names (rec_names.c): string -> index, sized at the start, no input makes it slow ---- */

typedef struct rec_names {
    rec_str *keys;   /* [capacity] */
    uint32_t *slots; /* [n_slots] index + 1; 0 is free */
    size_t n_slots;
    size_t n;
    uint64_t seed;
} rec_names;

bool rec_names_init(rec_names *names, di_request *r, size_t capacity);
size_t rec_names_find(const rec_names *names, rec_str name);  /* SIZE_MAX when absent */
size_t rec_names_add(rec_names *names, rec_str name);         /* index of the new name; SIZE_MAX when it was there already */

#endif
