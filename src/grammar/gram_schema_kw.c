/* gram_schema_kw.c - the keywords of JSON Schema and where they hold subschemas. */
#include "grammar/gram_schema_int.h"

static const struct {
    const char *name;
    schema_shape shape;
} kws[N_KW] = {
    [KW_ANCHOR] = {"$anchor", SHAPE_NONE},
    [KW_COMMENT] = {"$comment", SHAPE_NONE},
    [KW_DEFS] = {"$defs", SHAPE_MAP},
    [KW_DYNAMIC_ANCHOR] = {"$dynamicAnchor", SHAPE_NONE},
    [KW_DYNAMIC_REF] = {"$dynamicRef", SHAPE_NONE},
    [KW_ID] = {"$id", SHAPE_NONE},
    [KW_RECURSIVE_ANCHOR] = {"$recursiveAnchor", SHAPE_NONE},
    [KW_RECURSIVE_REF] = {"$recursiveRef", SHAPE_NONE},
    [KW_REF] = {"$ref", SHAPE_NONE},
    [KW_SCHEMA] = {"$schema", SHAPE_NONE},
    [KW_VOCABULARY] = {"$vocabulary", SHAPE_NONE},
    [KW_ADDITIONAL_ITEMS] = {"additionalItems", SHAPE_ONE},
    [KW_ADDITIONAL_PROPERTIES] = {"additionalProperties", SHAPE_ONE},
    [KW_ALL_OF] = {"allOf", SHAPE_LIST},
    [KW_ANY_OF] = {"anyOf", SHAPE_LIST},
    [KW_CONST] = {"const", SHAPE_NONE},
    [KW_CONTAINS] = {"contains", SHAPE_ONE},
    [KW_DEFINITIONS] = {"definitions", SHAPE_MAP},
    [KW_DEPENDENCIES] = {"dependencies", SHAPE_MAP},
    [KW_DEPENDENT_REQUIRED] = {"dependentRequired", SHAPE_NONE},
    [KW_DEPENDENT_SCHEMAS] = {"dependentSchemas", SHAPE_MAP},
    [KW_ELSE] = {"else", SHAPE_ONE},
    [KW_ENUM] = {"enum", SHAPE_NONE},
    [KW_EXCLUSIVE_MAXIMUM] = {"exclusiveMaximum", SHAPE_NONE},
    [KW_EXCLUSIVE_MINIMUM] = {"exclusiveMinimum", SHAPE_NONE},
    [KW_FORMAT] = {"format", SHAPE_NONE},
    [KW_OLD_ID] = {"id", SHAPE_NONE},
    [KW_IF] = {"if", SHAPE_ONE},
    [KW_ITEMS] = {"items", SHAPE_ONE_OR_LIST},
    [KW_MAX_CONTAINS] = {"maxContains", SHAPE_NONE},
    [KW_MAX_ITEMS] = {"maxItems", SHAPE_NONE},
    [KW_MAX_LENGTH] = {"maxLength", SHAPE_NONE},
    [KW_MAX_PROPERTIES] = {"maxProperties", SHAPE_NONE},
    [KW_MAXIMUM] = {"maximum", SHAPE_NONE},
    [KW_MIN_CONTAINS] = {"minContains", SHAPE_NONE},
    [KW_MIN_ITEMS] = {"minItems", SHAPE_NONE},
    [KW_MIN_LENGTH] = {"minLength", SHAPE_NONE},
    [KW_MIN_PROPERTIES] = {"minProperties", SHAPE_NONE},
    [KW_MINIMUM] = {"minimum", SHAPE_NONE},
    [KW_MULTIPLE_OF] = {"multipleOf", SHAPE_NONE},
    [KW_NOT] = {"not", SHAPE_ONE},
    [KW_NULLABLE] = {"nullable", SHAPE_NONE},
    [KW_ONE_OF] = {"oneOf", SHAPE_LIST},
    [KW_PATTERN] = {"pattern", SHAPE_NONE},
    [KW_PATTERN_PROPERTIES] = {"patternProperties", SHAPE_MAP},
    [KW_PREFIX_ITEMS] = {"prefixItems", SHAPE_LIST},
    [KW_PROPERTIES] = {"properties", SHAPE_MAP},
    [KW_PROPERTY_NAMES] = {"propertyNames", SHAPE_ONE},
    [KW_REQUIRED] = {"required", SHAPE_NONE},
    [KW_THEN] = {"then", SHAPE_ONE},
    [KW_TYPE] = {"type", SHAPE_NONE},
    [KW_UNEVALUATED_ITEMS] = {"unevaluatedItems", SHAPE_ONE},
    [KW_UNEVALUATED_PROPERTIES] = {"unevaluatedProperties", SHAPE_ONE},
    [KW_UNIQUE_ITEMS] = {"uniqueItems", SHAPE_NONE},
};

const char *gram_schema_kw_name(schema_kw kw) { return kws[kw].name; }

bool gram_schema_kw_known(schema_kw kw, schema_draft draft)
{
    switch (kw) {
    case KW_CONST:
    case KW_CONTAINS:
    case KW_PROPERTY_NAMES:
        return draft >= DRAFT_6;
    case KW_IF:
    case KW_THEN:
    case KW_ELSE:
        return draft >= DRAFT_7;
    case KW_DEPENDENT_REQUIRED:
    case KW_DEPENDENT_SCHEMAS:
    case KW_MIN_CONTAINS:
    case KW_MAX_CONTAINS:
    case KW_UNEVALUATED_ITEMS:
    case KW_UNEVALUATED_PROPERTIES:
    case KW_ANCHOR:
        return draft >= DRAFT_2019;
    case KW_PREFIX_ITEMS:
    case KW_DYNAMIC_REF:
    case KW_DYNAMIC_ANCHOR:
        return draft >= DRAFT_2020;
    case KW_RECURSIVE_REF:
        return draft == DRAFT_2019;
    case KW_DEPENDENCIES:
        return draft != DRAFT_2020;
    case KW_OLD_ID:
        return draft == DRAFT_4;
    default:
        return true;
    }
}

schema_shape gram_schema_kw_shape(schema_kw kw) { return kws[kw].shape; }

bool gram_schema_kw_find(const char *name, size_t n, schema_kw *out)
{
    size_t from = 0;
    size_t to = N_KW;
    while (from < to) {
        const size_t middle = from + (to - from) / 2;
        const int order = strcmp(name, kws[middle].name);
        if (order == 0) {
            *out = (schema_kw)middle;
            return strlen(name) == n;
        }
        if (order > 0) {
            from = middle + 1;
        } else {
            to = middle;
        }
    }
    return false;
}

void gram_schema_sort(const js_value *schema, schema_node *out)
{
    memset(out, 0, sizeof *out);
    out->value = schema;
    const size_t n = js_length(schema);
    for (size_t i = 0; i < n; i++) {
        const char *key;
        size_t length;
        schema_kw kw;
        const js_value *value = js_member(schema, i, &key);
        key = js_key(value, &length);
        if (gram_schema_kw_find(key, length, &kw)) {
            out->kw[kw] = value;
        }
    }
}

bool gram_schema_draft(const char *uri, schema_draft *out)
{
    static const struct {
        const char *part;
        schema_draft draft;
    } known[] = {
        {"json-schema.org/draft/2020-12/schema", DRAFT_2020}, {"json-schema.org/draft/2019-09/schema", DRAFT_2019},
        {"json-schema.org/draft-07/schema", DRAFT_7},         {"json-schema.org/draft-06/schema", DRAFT_6},
        {"json-schema.org/draft-04/schema", DRAFT_4},         {"json-schema.org/draft-03/schema", DRAFT_4},
    };
    for (size_t i = 0; i < sizeof known / sizeof *known; i++) {
        if (strstr(uri, known[i].part) != NULL) {
            *out = known[i].draft;
            return true;
        }
    }
    return false;
}
