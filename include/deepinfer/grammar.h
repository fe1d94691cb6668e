/* deepinfer/grammar.h - constraints on generated text: regular expressions, JSON Schema, grammars, tagged text.
 *
 *   di_vocabulary_new(tokenizer, end ids)          once: what the tokens spell
 *   di_grammar_compile(kind, text, options)        once for each constraint; shared by any number of sequences
 *   di_matcher_new(grammar, vocabulary)            one for each sequence
 *     loop: di_matcher_mask -> sampler; di_matcher_accept(the token that was chosen)
 *
 * A grammar defines a set of texts. The contract: a token is allowed exactly when some text of the set goes on with what was
 * accepted and then the token's bytes; an end id exactly when what was accepted is a text of the set. So there is always an
 * allowed token, and a text that ends by an end id is in the set. Nothing is weakened silently: what can't be enforced is an
 * error, or with `lenient` a warning. docs/structured_output.md says keyword by keyword what is supported. */
#ifndef DEEPINFER_GRAMMAR_H
#define DEEPINFER_GRAMMAR_H

#include <deepinfer/tokenizer.h>

#ifdef __cplusplus
extern "C" {
#endif

/* --- Vocabulary --------------------------------------------------------------------------------------------------- */

/* The tokens of a tokenizer as a tree of bytes. Immutable but for tables that fill up behind a lock; any thread. */
typedef struct di_vocabulary di_vocabulary;

/* `end_ids` end a sequence; each is allowed where the text may end. Added tokens are allowed only where a grammar names them.
 * The tokenizer must outlive the vocabulary. Errors: DI_E_ARGUMENT, DI_E_MEMORY. */
DI_API di_status di_vocabulary_new(const di_tokenizer *tokenizer, const int32_t *end_ids, size_t n_end_ids, di_vocabulary **out,
                                   di_error *err);
DI_API void di_vocabulary_free(di_vocabulary *vocabulary);

/* Words of a mask: bit id % 32 of word id / 32 stands for an id. */
DI_API size_t di_vocabulary_mask_words(const di_vocabulary *vocabulary);

/* --- Grammars ----------------------------------------------------------------------------------------------------- */

typedef enum di_grammar_kind {
    DI_GRAMMAR_REGEX,       /* the whole text matches */
    DI_GRAMMAR_SCHEMA,      /* JSON text that a JSON Schema accepts */
    DI_GRAMMAR_JSON_OBJECT, /* any JSON object; the text is not looked at */
    DI_GRAMMAR_CHOICE,      /* a JSON array of strings: one of them */
    DI_GRAMMAR_EBNF,        /* GBNF when a line has "::=", else Lark */
    DI_GRAMMAR_GBNF,
    DI_GRAMMAR_LARK,
    DI_GRAMMAR_TAGS,        /* structural tags, as JSON */
    DI_GRAMMAR_TOOLS        /* made by di_grammar_compile_tools; not taken by di_grammar_compile */
} di_grammar_kind;

typedef enum di_grammar_order {
    DI_ORDER_AUTO,  /* schema order for closed objects, any order for others */
    DI_ORDER_ANY,
    DI_ORDER_SCHEMA /* declared members in the order of the schema, others behind them */
} di_grammar_order;

typedef enum di_grammar_whitespace {
    DI_WHITESPACE_NATURAL, /* in each gap nothing, one space, or a newline and at most 64 spaces or tabs */
    DI_WHITESPACE_COMPACT, /* none */
    DI_WHITESPACE_ANY,     /* at most 256 of space, tab, newline, carriage return */
    DI_WHITESPACE_PATTERN  /* what a regular expression says, which must match nothing but these four */
} di_grammar_whitespace;

typedef enum di_grammar_formats {
    DI_FORMATS_ASSERT,   /* known formats are enforced, unknown ones are a warning */
    DI_FORMATS_ANNOTATE, /* none is enforced, as JSON Schema 2020-12 has it by default */
    DI_FORMATS_STRICT    /* an unknown format is an error */
} di_grammar_formats;

/* 0 = the default given here. */
typedef struct di_grammar_limits {
    size_t max_text_bytes;    /* of the schema or grammar; 4 MiB */
    size_t max_memory_bytes;  /* of the compiled grammar and all that it grows to; 256 MiB */
    int64_t compile_work;     /* units, some 50 ns each; 4,000,000 */
    int64_t compile_ms;       /* 2,000 */
    int64_t step_work;        /* units for one mask or one accepted token; 4,000,000 */
    int32_t max_depth;        /* containers of generated JSON inside of each other; 512, at most 1,000 */
} di_grammar_limits;

typedef struct di_grammar_options {
    di_grammar_order order;
    di_grammar_whitespace whitespace;
    const char *whitespace_pattern; /* with DI_WHITESPACE_PATTERN */
    di_grammar_formats formats;
    bool integers_any;  /* an integer may be written 1.0 or 1e2; else where integers are asked for they are written as such */
    bool escapes_all;   /* strings may spell any character \uXXXX, else only those that need it */
    bool lenient;       /* what is not supported is left out, with a warning */
    bool closed;        /* objects that say nothing of additionalProperties forbid them */
    const char *root;   /* of grammars: the rule to start from; NULL = "root" (GBNF), "start" (Lark) */
    di_grammar_limits limits;
    bool (*cancelled)(void *user); /* asked now and then while compiling; true ends it with DI_E_CANCELLED. NULL = never */
    void *user;
} di_grammar_options;

/* What was wrong with a constraint, for programs; the message is for people. */
typedef struct di_grammar_fault {
    char kind[32];    /* "invalid_schema", "unsupported_keyword", "unsatisfiable_schema", "invalid_regex", "unsupported_regex",
                       * "invalid_grammar", "undefined_rule", "too_complex", "compile_timeout", "limit_exceeded"; "" = none of these */
    char where[256];  /* JSON pointer into a schema, else "" */
    int64_t offset;   /* byte of an expression or grammar, -1 = none */
} di_grammar_fault;

typedef struct di_grammar di_grammar;

/* Compiles `text` (UTF-8). `options`, `fault` may be NULL. On success the caller holds one reference. Errors: DI_E_FORMAT and
 * DI_E_UNSUPPORTED (see fault), DI_E_LIMIT, DI_E_CANCELLED, DI_E_ARGUMENT, DI_E_MEMORY. */
DI_API di_status di_grammar_compile(di_grammar_kind kind, const char *text, size_t n, const di_grammar_options *options, di_grammar **out,
                                    di_grammar_fault *fault, di_error *err);

/* --- Tool calls --------------------------------------------------------------------------------------------------- */

typedef enum di_grammar_tool_choice {
    DI_TOOL_CHOICE_AUTO,     /* an answer, or an answer with a block of calls behind it */
    DI_TOOL_CHOICE_REQUIRED, /* a block of calls and nothing else */
    DI_TOOL_CHOICE_NONE      /* an answer without calls: the marker never comes */
} di_grammar_tool_choice;

/* One tool. All strings are UTF-8 and need to live only as long as the call. */
typedef struct di_grammar_tool {
    const char *name;
    const char *parameters; /* JSON Schema of its arguments, an object; NULL = any */
    size_t n_parameters;
    bool strict;            /* the arguments follow the schema; else names and values are free, and only the block is well-formed */
} di_grammar_tool;

/* The model's own form of calls, around one added token, the marker M:
 *
 *   "\n\n<" M block ">\n"  call ("\n" call)*  "\n</" M block ">"
 *   call  = "<" M call ' name="' NAME '">\n' param ("\n" param)* "\n</" M call ">"
 *   param = "<" M parameter ' name="' KEY '" string="true">' TEXT "</" M parameter ">"    strings, as they are
 *         | "<" M parameter ' name="' KEY '" string="false">' JSON "</" M parameter ">"   all other values
 *
 * For a named choice give that tool alone, with DI_TOOL_CHOICE_REQUIRED. */
typedef struct di_grammar_tools {
    const di_grammar_tool *tools; /* [n_tools], at least one unless the choice is none; no two of one name */
    size_t n_tools;
    di_grammar_tool_choice choice;
    bool single;               /* at most one call in the block (parallel_tool_calls: false) */
    bool opened;               /* with DI_TOOL_CHOICE_REQUIRED: the prompt ends with the first line of the block already */
    bool old_empty;            /* calls without parameters have one line end between their tags (V4), not two (V4.1) */
    const char *marker;        /* spelling of the added token, "｜DSML｜" */
    const char *block;         /* what stands behind it in the tags: " calls", " invoke", " parameter" (V4.1) or */
    const char *call;          /* "tool_calls", "invoke", "parameter" (V4) */
    const char *parameter;
    bool has_answer_kind;      /* the answer follows the constraint below, and is either that or a block; else it is free text */
    di_grammar_kind answer_kind; /* all but DI_GRAMMAR_TOOLS */
    const char *answer;
    size_t n_answer;
} di_grammar_tools;

/* As di_grammar_compile. In the fault, `where` begins with the index of the tool: "/0/properties/x". A matcher of this grammar needs a
 * vocabulary whose tokenizer has the marker (di_matcher_new, DI_E_ARGUMENT). */
DI_API di_status di_grammar_compile_tools(const di_grammar_tools *tools, const di_grammar_options *options, di_grammar **out,
                                          di_grammar_fault *fault, di_error *err);

/* References are counted; any thread. */
DI_API void di_grammar_retain(di_grammar *grammar);
DI_API void di_grammar_free(di_grammar *grammar); /* NULL is ignored */

/* What was weakened or ignored, one line each; NULL behind the last. */
DI_API const char *di_grammar_warning(const di_grammar *grammar, size_t i);

typedef struct di_grammar_stats {
    int64_t compile_ns;
    int64_t compile_work;  /* units */
    int64_t work;          /* units since */
    size_t memory_bytes;   /* held now */
    int64_t n_states;      /* of automata */
    int64_t n_frames;      /* containers in some state */
    int64_t n_masks;       /* asked for */
    int64_t n_mask_hits;   /* of these, found in the cache */
    int64_t worst_mask_ns;
} di_grammar_stats;

DI_API void di_grammar_get_stats(const di_grammar *grammar, di_grammar_stats *out);

/* --- Matching ----------------------------------------------------------------------------------------------------- */

/* Where one sequence is in its grammar. One thread at a time. */
typedef struct di_matcher di_matcher;

/* The vocabulary may be NULL, then only bytes can be matched. It must outlive the matcher; the grammar is retained. */
DI_API di_status di_matcher_new(di_grammar *grammar, di_vocabulary *vocabulary, di_matcher **out, di_error *err);
DI_API void di_matcher_free(di_matcher *matcher); /* NULL is ignored */
DI_API di_status di_matcher_fork(const di_matcher *matcher, di_matcher **out, di_error *err);

/* The mask for the next token: [di_vocabulary_mask_words]. *restricts (may be NULL) is false when every ordinary token and every end id is
 * allowed. Errors: DI_E_STATE (an end id was accepted), DI_E_LIMIT (the budget of a step or of the grammar), DI_E_MEMORY. */
DI_API di_status di_matcher_mask(di_matcher *matcher, uint32_t *mask, bool *restricts, di_error *err);

/* Takes a token. *accepted is false, and nothing has changed, when it is not allowed. Errors: as above. */
DI_API di_status di_matcher_accept(di_matcher *matcher, int32_t id, bool *accepted, di_error *err);

/* Takes bytes, as one step; *n_accepted is how many of them go on with a text of the grammar, and nothing has changed unless all do. */
DI_API di_status di_matcher_accept_bytes(di_matcher *matcher, const char *bytes, size_t n, size_t *n_accepted, di_error *err);

/* Undoes the last n steps. Errors: DI_E_ARGUMENT (there were fewer). */
DI_API di_status di_matcher_rollback(di_matcher *matcher, size_t n, di_error *err);
DI_API size_t di_matcher_steps(const di_matcher *matcher);

/* How many of the tokens would be accepted one after the other; nothing changes. */
DI_API di_status di_matcher_validate(di_matcher *matcher, const int32_t *ids, size_t n, size_t *n_valid, di_error *err);

/* Masks for a chain of draft tokens: row i is the mask behind the first i of them, for i = 0..*n_valid, where n_valid is that of
 * di_matcher_validate; rows behind are left alone. `rows` has (n + 1) masks. Nothing changes. */
DI_API di_status di_matcher_mask_chain(di_matcher *matcher, const int32_t *ids, size_t n, uint32_t *rows, size_t *n_valid, di_error *err);

/* The same for a tree of drafts: parent[i] < i is the index of the token before, -1 = none. Row 0 is the mask before all, row i + 1
 * the mask behind token i; valid[i] tells whether it is allowed there, and where it is not the row is left alone. */
DI_API di_status di_matcher_mask_tree(di_matcher *matcher, const int32_t *ids, const int32_t *parent, size_t n, uint32_t *rows, bool *valid,
                                      di_error *err);

/* The text so far is one of the grammar: an end id is allowed. */
DI_API di_status di_matcher_is_complete(di_matcher *matcher, bool *out, di_error *err);
/* Nothing can follow: only an end id is allowed. */
DI_API di_status di_matcher_is_final(di_matcher *matcher, bool *out, di_error *err);

/* The bytes that every text of the grammar goes on with; at most `capacity` of them. */
DI_API di_status di_matcher_forced(di_matcher *matcher, char *bytes, size_t capacity, size_t *n, di_error *err);

/* --- Ending in time ----------------------------------------------------------------------------------------------- */

/* The shortest text that completes what was accepted, the first in the order of bytes among equally short ones: "" when it is complete.
 * *n is its length, of which at most `capacity` bytes are written; *n_tokens (may be NULL) the least number of tokens that spell it, the
 * end id not counted. Added tokens that the grammar names count as one byte and are written as their spelling. Errors: DI_E_LIMIT
 * (it is too far away: more than 4,096 bytes, or more work than a step may take), DI_E_STATE, DI_E_MEMORY. */
DI_API di_status di_matcher_completion(di_matcher *matcher, char *bytes, size_t capacity, size_t *n, size_t *n_tokens, di_error *err);

/* As di_matcher_mask, when only n_left more tokens may come, the end id included. When n_left is at most 64 and twice what the shortest
 * completion needs, tokens are left out behind which the text could no longer be completed in time; and where none can be, all but the
 * first of the shortest completion. So texts end by an end id, unless a token taken before made the completion longer than what was
 * left. Where di_matcher_completion is DI_E_LIMIT nothing is left out. *closing (may be NULL) tells that something was. */
DI_API di_status di_matcher_mask_within(di_matcher *matcher, size_t n_left, uint32_t *mask, bool *restricts, bool *closing, di_error *err);

#ifdef __cplusplus
}
#endif
#endif
