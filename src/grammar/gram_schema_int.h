/* gram_schema_int.h - inside of the schema compiler (gram_schema*.c). */
#ifndef GRAMMAR_GRAM_SCHEMA_INT_H
#define GRAMMAR_GRAM_SCHEMA_INT_H

#include "grammar/gram_schema.h"

/* ANY: no "$schema" says which; then it is 2020-12 with what older drafts had besides. */
typedef enum schema_draft { DRAFT_4, DRAFT_6, DRAFT_7, DRAFT_2019, DRAFT_2020, DRAFT_ANY } schema_draft;

/* Keywords that mean something here, in alphabetical order (kw_names in gram_schema_kw.c). */
typedef enum schema_kw {
    KW_ANCHOR, KW_COMMENT, KW_DEFS, KW_DYNAMIC_ANCHOR, KW_DYNAMIC_REF, KW_ID, KW_RECURSIVE_ANCHOR, KW_RECURSIVE_REF, KW_REF, KW_SCHEMA,
    KW_VOCABULARY, KW_ADDITIONAL_ITEMS, KW_ADDITIONAL_PROPERTIES, KW_ALL_OF, KW_ANY_OF, KW_CONST, KW_CONTAINS, KW_DEFINITIONS,
    KW_DEPENDENCIES, KW_DEPENDENT_REQUIRED, KW_DEPENDENT_SCHEMAS, KW_ELSE, KW_ENUM, KW_EXCLUSIVE_MAXIMUM, KW_EXCLUSIVE_MINIMUM, KW_FORMAT,
    KW_OLD_ID, KW_IF, KW_ITEMS, KW_MAX_CONTAINS, KW_MAX_ITEMS, KW_MAX_LENGTH, KW_MAX_PROPERTIES, KW_MAXIMUM, KW_MIN_CONTAINS, KW_MIN_ITEMS,
    KW_MIN_LENGTH, KW_MIN_PROPERTIES, KW_MINIMUM, KW_MULTIPLE_OF, KW_NOT, KW_NULLABLE, KW_ONE_OF, KW_PATTERN, KW_PATTERN_PROPERTIES,
    KW_PREFIX_ITEMS, KW_PROPERTIES, KW_PROPERTY_NAMES, KW_REQUIRED, KW_THEN, KW_TYPE, KW_UNEVALUATED_ITEMS, KW_UNEVALUATED_PROPERTIES,
    KW_UNIQUE_ITEMS, N_KW
} schema_kw;

/* A schema object sorted out: what stands at each keyword, NULL = absent. */
typedef struct schema_node {
    const js_value *value;
    const js_value *kw[N_KW];
} schema_node;

/* The way to a subschema, for messages; lives on the stack. */
typedef struct schema_path {
    const struct schema_path *above;
    const char *raw; /* a pointer as it is, at the beginning */
    const char *key; /* NULL = an index */
    size_t n;
    size_t index;
} schema_path;

typedef struct schema_resource { /* a schema with an identifier of its own */
    const char *uri; /* without fragment */
    const js_value *root;
    schema_draft draft;
    uint32_t parent;
} schema_resource;

typedef struct schema_anchor {
    uint32_t resource;
    const char *name;
    const js_value *schema;
    bool dynamic;
} schema_anchor;

typedef struct schema_compiler { /* lives during one compilation */
    gram_forms *forms;
    gram_lang *lang;
    gram_mem *mem;
    const gram_schema_options *options;
    buf *warnings;
    const js_value *root;
    schema_resource *resources; /* [0] is the root */
    uint32_t n_resources;
    uint32_t resource_capacity;
    schema_anchor *anchors;
    uint32_t n_anchors;
    uint32_t anchor_capacity;
    gram_tuples targets;   /* a schema that is referred to, as two words -> number of its definition */
    uint32_t *target_refs; /* [targets.n] */
    uint32_t target_capacity;
    gram_stack todo;       /* definitions to be compiled: target, resource */
    const char **raw;      /* [targets.n] pointers that lead to them, for messages */
    uint32_t raw_capacity;
    gram_tuples embedded;  /* schemas that are resources, as two words -> embedded_resource */
    uint32_t *embedded_resource;
    uint32_t embedded_capacity;
    uint32_t n_properties;
    uint32_t n_enum;
    bool scanned; /* resources and anchors are known */
} schema_compiler;

/* Where a schema is compiled. */
typedef struct schema_place {
    uint32_t resource;
    const schema_path *path;
} schema_place;

/* --- gram_schema.c ------------------------------------------------------------------------------------------------ */

gram_form gram_schema_compile(schema_compiler *c, const js_value *schema, schema_place at);

/* The subschema at a keyword, with the keyword in its path. */
gram_form gram_schema_under(schema_compiler *c, const schema_node *node, schema_kw kw, schema_place at);
gram_form gram_schema_index(schema_compiler *c, const js_value *list, size_t i, schema_kw kw, schema_place at);
gram_form gram_schema_member(schema_compiler *c, const js_value *object, size_t i, schema_kw kw, schema_place at);

/* Failures at a keyword (N_KW: at the schema itself). */
void gram_schema_invalid(schema_compiler *c, schema_place at, schema_kw kw, const char *what);
/* In lenient mode a warning, then the keyword is to be left out. */
void gram_schema_unsupported(schema_compiler *c, schema_place at, schema_kw kw, const char *what);
void gram_schema_warn(schema_compiler *c, schema_place at, schema_kw kw, const char *what);
/* Puts the pointer of a place into a failure that has none yet. */
void gram_schema_where(schema_compiler *c, schema_place at, schema_kw kw);

/* --- gram_schema_kw.c --------------------------------------------------------------------------------------------- */

const char *gram_schema_kw_name(schema_kw kw);
/* False when it is no keyword. */
bool gram_schema_kw_find(const char *name, size_t n, schema_kw *out);
void gram_schema_sort(const js_value *schema, schema_node *out);
/* How a keyword holds subschemas. */
typedef enum schema_shape { SHAPE_NONE, SHAPE_ONE, SHAPE_LIST, SHAPE_MAP, SHAPE_ONE_OR_LIST } schema_shape;
schema_shape gram_schema_kw_shape(schema_kw kw);
/* Whether a draft knows the keyword. */
bool gram_schema_kw_known(schema_kw kw, schema_draft draft);
/* Draft that a "$schema" names; false when it names none. */
bool gram_schema_draft(const char *uri, schema_draft *out);

/* --- gram_schema_ref.c -------------------------------------------------------------------------------------------- */

bool gram_schema_refs_init(schema_compiler *c, const js_value *root, schema_draft draft);
/* The resource that a schema is in: its own when it has an identifier, else `outer`. */
uint32_t gram_schema_resource(schema_compiler *c, const js_value *schema, uint32_t outer);
/* What a reference means, NULL after a failure or a leniency. *resource is the target's. */
const js_value *gram_schema_resolve(schema_compiler *c, const schema_node *node, schema_kw kw, schema_place at, uint32_t *resource);
/* A reference to a schema that is compiled later. */
gram_form gram_schema_defer(schema_compiler *c, const js_value *schema, uint32_t resource, const char *raw);

/* --- gram_schema_types.c ------------------------------------------------------------------------------------------ */

gram_form gram_schema_type(schema_compiler *c, const schema_node *node, schema_place at);
gram_form gram_schema_numbers(schema_compiler *c, const schema_node *node, schema_place at);
gram_form gram_schema_strings(schema_compiler *c, const schema_node *node, schema_place at);
gram_form gram_schema_arrays(schema_compiler *c, const schema_node *node, schema_place at);
gram_form gram_schema_objects(schema_compiler *c, const schema_node *node, schema_place at);
/* A whole number that is not negative, at most GRAM_INF - 1. */
uint32_t gram_schema_whole(schema_compiler *c, const schema_node *node, schema_kw kw, uint32_t otherwise, schema_place at);
gram_ex gram_schema_pattern(schema_compiler *c, const char *text, size_t n, schema_place at, schema_kw kw);

/* --- gram_schema_value.c ------------------------------------------------------------------------------------------ */

gram_form gram_schema_enum(schema_compiler *c, const schema_node *node, schema_place at);

/* --- gram_schema_uneval.c ----------------------------------------------------------------------------------------- */

gram_form gram_schema_unevaluated(schema_compiler *c, const schema_node *node, schema_place at);

#endif
