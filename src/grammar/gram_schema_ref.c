/* gram_schema_ref.c - identifiers, anchors and references inside of one schema document. Nothing is ever fetched.
 *
 * Most documents have none but "#/$defs/..."; only when a schema below the root has an identifier or a reference needs one is the whole
 * document walked for identifiers and anchors (scan). References are resolved as RFC 3986 says, against the identifier around them. */
#include "grammar/gram_schema_int.h"

static uint32_t pointer_id(schema_compiler *c, gram_tuples *t, const js_value *value, bool *is_new)
{
    uint32_t words[2] = {0, 0};
    const uintptr_t address = (uintptr_t)value;
    memcpy(words, &address, sizeof address < sizeof words ? sizeof address : sizeof words);
    return gram_tuple(c->mem, t, words, 2, is_new);
}

/* --- URIs --------------------------------------------------------------------------------------------------------- */

static size_t scheme_length(const char *uri)
{
    const size_t n = strcspn(uri, ":/?#");
    return uri[n] == ':' ? n + 1 : 0;
}

/* Where the path begins: behind scheme and authority. */
static size_t path_start(const char *uri)
{
    const size_t n = scheme_length(uri);
    return strncmp(uri + n, "//", 2) == 0 ? n + 2 + strcspn(uri + n + 2, "/?#") : n;
}

/* Takes "." and ".." segments out of the path of a URI, in place. */
static void remove_dots(char *uri)
{
    char *const path = uri + path_start(uri);
    const size_t length = strcspn(path, "?#");
    char *out = path;
    size_t i = 0;
    while (i < length) {
        size_t n = 1 + strcspn(path + i + 1, "/?#"); /* a segment with the slash before it */
        n = i + n > length ? length - i : n;
        const bool one = n == 2 && memcmp(path + i, "/.", 2) == 0;
        const bool two = n == 3 && memcmp(path + i, "/..", 3) == 0;
        if (two) {
            while (out > path && *--out != '/') {
            }
        }
        if (one || two) {
            if (i + n == length) {
                *out++ = '/';
            }
        } else {
            memmove(out, path + i, n);
            out += n;
        }
        i += n;
    }
    memmove(out, path + length, strlen(path + length) + 1);
}

/* `relative` without its fragment, against `base`. */
static char *resolve_uri(schema_compiler *c, const char *base, const char *relative)
{
    const size_t n = strcspn(relative, "#");
    size_t kept = 0; /* of the base */
    if (n == 0) {
        kept = strlen(base);
    } else if (scheme_length(relative) != 0) {
        kept = 0;
    } else if (strncmp(relative, "//", 2) == 0) {
        kept = scheme_length(base);
    } else if (relative[0] == '/') {
        kept = path_start(base);
    } else if (relative[0] == '?') {
        kept = strcspn(base, "?");
    } else {
        kept = strcspn(base, "?");
        while (kept > path_start(base) && base[kept - 1] != '/') {
            kept--;
        }
    }
    char *uri = gram_alloc(c->mem, kept + n + 2, 1);
    if (uri != NULL) {
        memcpy(uri, base, kept);
        memcpy(uri + kept, relative, n);
        remove_dots(uri);
    }
    return uri;
}

/* --- Identifiers and anchors -------------------------------------------------------------------------------------- */

static bool add_resource(schema_compiler *c, const char *uri, const js_value *schema, schema_draft draft, uint32_t parent)
{
    schema_resource *list = gram_grow(c->mem, c->resources, c->n_resources, &c->resource_capacity, sizeof *list);
    bool is_new;
    const uint32_t id = pointer_id(c, &c->embedded, schema, &is_new);
    uint32_t *embedded = gram_grow(c->mem, c->embedded_resource, id, &c->embedded_capacity, sizeof *embedded);
    if (list == NULL || embedded == NULL || uri == NULL) {
        return false;
    }
    c->resources = list;
    c->embedded_resource = embedded;
    embedded[id] = c->n_resources;
    list[c->n_resources++] = (schema_resource){uri, schema, draft, parent};
    return true;
}

static void add_anchor(schema_compiler *c, uint32_t resource, const js_value *name, size_t skip, const js_value *schema, bool dynamic)
{
    if (js_kind_of(name) != JS_STRING) {
        return;
    }
    schema_anchor *list = gram_grow(c->mem, c->anchors, c->n_anchors, &c->anchor_capacity, sizeof *list);
    if (list != NULL) {
        c->anchors = list;
        list[c->n_anchors++] = (schema_anchor){resource, js_string(name, NULL) + skip, schema, dynamic};
    }
}

static const js_value *identifier(const js_value *schema, schema_draft draft)
{
    const js_value *id = js_get(schema, draft == DRAFT_4 ? "id" : "$id");
    const bool hidden = draft <= DRAFT_7 && js_get(schema, "$ref") != NULL;
    return js_kind_of(id) == JS_STRING && !hidden ? id : NULL;
}

bool gram_schema_refs_init(schema_compiler *c, const js_value *root, schema_draft draft)
{
    const js_value *id = identifier(root, draft);
    return add_resource(c, id != NULL ? resolve_uri(c, "", js_string(id, NULL)) : "", root, draft, 0);
}

static void scan(schema_compiler *c, const js_value *schema, uint32_t resource);

static void scan_below(schema_compiler *c, const js_value *schema, uint32_t resource)
{
    for (size_t i = 0; i < js_length(schema); i++) {
        const char *key;
        schema_kw kw;
        const js_value *value = js_member(schema, i, &key);
        if (!gram_schema_kw_find(key, strlen(key), &kw)) {
            continue;
        }
        const schema_shape shape = gram_schema_kw_shape(kw);
        const js_kind kind = js_kind_of(value);
        if (kind == JS_OBJECT && (shape == SHAPE_ONE || shape == SHAPE_ONE_OR_LIST)) {
            scan(c, value, resource);
        } else if (kind == JS_ARRAY && (shape == SHAPE_LIST || shape == SHAPE_ONE_OR_LIST)) {
            for (size_t k = 0; k < js_length(value); k++) {
                scan(c, js_at(value, k), resource);
            }
        } else if (kind == JS_OBJECT && shape == SHAPE_MAP) {
            for (size_t k = 0; k < js_length(value); k++) {
                scan(c, js_member(value, k, &key), resource);
            }
        }
    }
}

static void scan(schema_compiler *c, const js_value *schema, uint32_t resource)
{
    if (js_kind_of(schema) != JS_OBJECT || !gram_spend(c->mem, 2) || !gram_enter(c->mem)) {
        return;
    }
    schema_draft draft = c->resources[resource].draft;
    (void)gram_schema_draft(js_string(js_get(schema, "$schema"), NULL), &draft);
    const js_value *id = schema == c->root ? NULL : identifier(schema, draft);
    const char *text = js_string(id, NULL);
    if (id != NULL && text[0] == '#' && draft <= DRAFT_7) {
        add_anchor(c, resource, id, 1, schema, false);
    } else if (id != NULL && add_resource(c, resolve_uri(c, c->resources[resource].uri, text), schema, draft, resource)) {
        resource = c->n_resources - 1;
    }
    add_anchor(c, resource, js_get(schema, "$anchor"), 0, schema, false);
    add_anchor(c, resource, js_get(schema, "$dynamicAnchor"), 0, schema, true);
    scan_below(c, schema, resource);
    gram_leave(c->mem);
}

static void ensure_scanned(schema_compiler *c)
{
    if (!c->scanned) {
        c->scanned = true;
        scan(c, c->root, 0);
    }
}

uint32_t gram_schema_resource(schema_compiler *c, const js_value *schema, uint32_t outer)
{
    if (identifier(schema, c->resources[outer].draft) == NULL) {
        return outer;
    }
    ensure_scanned(c);
    uint32_t words[2] = {0, 0};
    const uintptr_t address = (uintptr_t)schema;
    memcpy(words, &address, sizeof address < sizeof words ? sizeof address : sizeof words);
    const uint32_t id = gram_tuple_find(c->mem, &c->embedded, words, 2);
    return id != GRAM_NONE ? c->embedded_resource[id] : outer;
}

/* --- References --------------------------------------------------------------------------------------------------- */

static int hex_value(char x)
{
    if (x >= '0' && x <= '9') {
        return x - '0';
    }
    return (x | 0x20) >= 'a' && (x | 0x20) <= 'f' ? (x | 0x20) - 'a' + 10 : -1;
}

/* One token of a pointer, up to '/' or the end: %XX, then ~0 and ~1. Returns what is left. */
static const char *pointer_token(const char *at, char *out, size_t *n)
{
    size_t length = 0;
    while (*at != '\0' && *at != '/') {
        const bool encoded = at[0] == '%' && hex_value(at[1]) >= 0 && hex_value(at[2]) >= 0;
        const int byte = encoded ? hex_value(at[1]) << 4 | hex_value(at[2]) : at[0];
        out[length++] = (char)byte;
        at += encoded ? 3 : 1;
    }
    *n = 0;
    for (size_t i = 0; i < length; i++) {
        const bool escaped = out[i] == '~' && i + 1 < length && (out[i + 1] == '0' || out[i + 1] == '1');
        out[(*n)++] = !escaped ? out[i] : out[i + 1] == '0' ? '~' : '/';
        i += escaped;
    }
    out[*n] = '\0';
    return at;
}

static const js_value *follow_pointer(schema_compiler *c, const char *pointer, uint32_t *resource)
{
    const js_value *value = c->resources[*resource].root;
    char *token = gram_alloc(c->mem, strlen(pointer) + 1, 1);
    while (value != NULL && token != NULL && *pointer == '/') {
        size_t n;
        pointer = pointer_token(pointer + 1, token, &n);
        if (js_kind_of(value) == JS_ARRAY) {
            char *end;
            const unsigned long long i = strtoull(token, &end, 10);
            value = n != 0 && *end == '\0' && i < js_length(value) ? js_at(value, (size_t)i) : NULL;
        } else {
            value = js_get(value, token);
        }
        if (js_kind_of(value) == JS_OBJECT) {
            *resource = gram_schema_resource(c, value, *resource);
        }
    }
    return value;
}

static const schema_anchor *find_anchor(const schema_compiler *c, uint32_t resource, const char *name)
{
    for (uint32_t i = 0; i < c->n_anchors; i++) {
        if (c->anchors[i].resource == resource && strcmp(c->anchors[i].name, name) == 0) {
            return &c->anchors[i];
        }
    }
    return NULL;
}

/* A dynamic reference means what an ordinary one does when no other resource can put its own anchor in the way. */
static bool is_static(const schema_compiler *c, const schema_anchor *anchor)
{
    for (uint32_t i = 0; i < c->n_anchors; i++) {
        if (c->anchors[i].dynamic && &c->anchors[i] != anchor && strcmp(c->anchors[i].name, anchor->name) == 0) {
            return false;
        }
    }
    return true;
}

static const js_value *follow_anchor(schema_compiler *c, const char *name, schema_kw kw, schema_place at, uint32_t resource)
{
    ensure_scanned(c);
    const schema_anchor *anchor = find_anchor(c, resource, name);
    if (anchor == NULL) {
        gram_schema_invalid(c, at, kw, "there is no such anchor");
        return NULL;
    }
    if (kw == KW_DYNAMIC_REF && anchor->dynamic && !is_static(c, anchor)) {
        gram_schema_unsupported(c, at, kw, "a dynamic reference with more than one target is not supported");
        return NULL;
    }
    return anchor->schema;
}

/* The resource that a reference names; GRAM_NONE when it is not in this document. */
static uint32_t find_resource(schema_compiler *c, const char *text, uint32_t from)
{
    if (text[0] == '#' || text[0] == '\0') {
        return from;
    }
    ensure_scanned(c);
    const char *uri = resolve_uri(c, c->resources[from].uri, text);
    for (uint32_t i = 0; uri != NULL && i < c->n_resources; i++) {
        if (strcmp(c->resources[i].uri, uri) == 0) {
            return i;
        }
    }
    return GRAM_NONE;
}

const js_value *gram_schema_resolve(schema_compiler *c, const schema_node *node, schema_kw kw, schema_place at, uint32_t *resource)
{
    if (js_kind_of(node->kw[kw]) != JS_STRING) {
        gram_schema_invalid(c, at, kw, "a reference is a string");
        return NULL;
    }
    if (kw == KW_RECURSIVE_REF) {
        ensure_scanned(c);
        if (c->n_resources > 1) {
            gram_schema_unsupported(c, at, kw, "a recursive reference among several resources is not supported");
            return NULL;
        }
    }
    const char *text = js_string(node->kw[kw], NULL);
    *resource = find_resource(c, text, at.resource);
    if (*resource == GRAM_NONE) {
        gram_schema_unsupported(c, at, kw, "the schema that this refers to is not in this document, and nothing is fetched");
        return NULL;
    }
    const char *fragment = strchr(text, '#');
    if (fragment == NULL || fragment[1] == '\0') {
        return c->resources[*resource].root;
    }
    if (fragment[1] != '/') {
        return follow_anchor(c, fragment + 1, kw, at, *resource);
    }
    const js_value *target = follow_pointer(c, fragment + 1, resource);
    if (target == NULL) {
        gram_schema_invalid(c, at, kw, "there is nothing where this points to");
    }
    return target;
}

gram_form gram_schema_defer(schema_compiler *c, const js_value *schema, uint32_t resource, const char *raw)
{
    bool is_new;
    const uint32_t target = pointer_id(c, &c->targets, schema, &is_new);
    if (is_new) {
        uint32_t *refs = gram_grow(c->mem, c->target_refs, target, &c->target_capacity, sizeof *refs);
        c->target_refs = refs != NULL ? refs : c->target_refs;
        const char **raws = gram_grow(c->mem, c->raw, target, &c->raw_capacity, sizeof *raws);
        c->raw = raws != NULL ? raws : c->raw;
        if (refs == NULL || raws == NULL) {
            return GRAM_FALSE;
        }
        refs[target] = gram_form_define(c->forms);
        raws[target] = raw;
        (void)gram_push(c->mem, &c->todo, target);
        (void)gram_push(c->mem, &c->todo, resource);
    }
    return gram_failed(c->mem) ? GRAM_FALSE : gram_form_ref(c->forms, c->target_refs[target]);
}
