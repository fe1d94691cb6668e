/* rec_schema_refs.c - do the references of a schema lead to schemas? (recipe.md 3.1)
 *
 * Nothing is fetched: a reference must end inside the document, at a JSON pointer, an anchor or an identifier, or name a published
 * meta-schema. What is reached is walked once: targets wait in a list instead of being entered, so that chains of references cost no
 * stack, and a set keeps what was there before. A target outside the places of schemas ("#/x-parts/a") must be a schema too. */
#include "recipe/rec_schema.h"

#include "core/arith.h"

typedef struct target {
    const js_value *schema;
    const js_value *resource; /* what "#" means inside: the nearest schema around it with an identifier, or the root */
} target;

typedef struct name {
    rec_str text;
    const js_value *schema;
} name;

typedef struct walk {
    rec_check *check;
    const js_value *root;
    const js_value *resource; /* of the schema that is being walked */
    buf pending;              /* target[] */
    const js_value **seen;    /* [n_slots] open addressing */
    size_t n_slots;
    size_t n_seen;
    buf names;                /* name[], sorted: anchors and identifiers; filled when first asked for */
    bool has_names;
    buf token;                /* working space: a piece of a pointer */
} walk;

static bool no_memory(walk *w)
{
    w->check->no_memory = true;
    return false;
}

/* ---- what was there before ---- */

static size_t slot_of(const walk *w, const js_value *value)
{
    size_t i = (size_t)(((uint64_t)(uintptr_t)value >> 3) * 0x9E3779B97F4A7C15u >> 32) & (w->n_slots - 1);
    while (w->seen[i] != NULL && w->seen[i] != value) {
        i = (i + 1) & (w->n_slots - 1);
    }
    return i;
}

static bool grow(walk *w)
{
    const js_value **const old = w->seen;
    const size_t n_old = w->n_slots;
    const js_value **const larger = ar_calloc(n_old != 0 ? n_old * 2 : 16, sizeof *larger);
    if (larger == NULL) {
        return no_memory(w);
    }
    w->seen = larger;
    w->n_slots = n_old != 0 ? n_old * 2 : 16;
    for (size_t i = 0; i < n_old; i++) {
        if (old[i] != NULL) {
            w->seen[slot_of(w, old[i])] = old[i];
        }
    }
    free(old);
    return true;
}

/* True when the schema is new; false when it was there before or there is no memory. */
static bool note(walk *w, const js_value *schema)
{
    if (w->n_seen >= w->n_slots / 2 && !grow(w)) {
        return false;
    }
    const size_t slot = slot_of(w, schema);
    if (w->seen[slot] != NULL) {
        return false;
    }
    w->seen[slot] = schema;
    w->n_seen++;
    return true;
}

static bool add_target(walk *w, const js_value *schema, const js_value *resource)
{
    const target t = {schema, resource};
    if (w->n_slots > 0 && w->seen[slot_of(w, schema)] != NULL) {
        return true;
    }
    return buf_append(&w->pending, &t, sizeof t) || no_memory(w);
}

/* ---- anchors and identifiers ---- */

static const char *id_key(const walk *w)
{
    return w->check->draft == REC_DRAFT4 ? "id" : "$id";
}

/* Without an empty fragment at the end. */
static rec_str without_hash(rec_str text)
{
    return (rec_str){text.data, text.size > 0 && text.data[text.size - 1] == '#' ? text.size - 1 : text.size};
}

static rec_str last_segment(rec_str uri)
{
    const char *const slash = memrchr(uri.data, '/', uri.size);
    return slash != NULL ? (rec_str){slash + 1, uri.size - (size_t)(slash + 1 - uri.data)} : uri;
}

static bool add_name(walk *w, rec_str text, const js_value *schema)
{
    const name n = {text, schema};
    return text.size == 0 || buf_append(&w->names, &n, sizeof n) || no_memory(w);
}

/* Old drafts name a place by an identifier that is only a fragment: "#here". */
static bool collect_names(void *arg, const js_value *schema, const rec_path *at)
{
    walk *const w = arg;
    const rec_str id = without_hash(rec_string(js_get(schema, id_key(w))));
    const rec_str segment = last_segment(id);
    const rec_str place = id.size > 0 && id.data[0] == '#' ? (rec_str){id.data + 1, id.size - 1} : id;
    return add_name(w, place, schema) && (segment.size == id.size || add_name(w, segment, schema)) &&
           add_name(w, rec_string(js_get(schema, "$anchor")), schema) &&
           add_name(w, rec_string(js_get(schema, "$dynamicAnchor")), schema) &&
           rec_schema_inside(w->check->draft, schema, at, false, collect_names, w);
}

static int compare_names(const void *a, const void *b)
{
    const rec_str x = ((const name *)a)->text;
    const rec_str y = ((const name *)b)->text;
    const int order = memcmp(x.data, y.data, x.size < y.size ? x.size : y.size);
    return order != 0 ? order : (x.size > y.size) - (x.size < y.size);
}

/* NULL also when there is no memory. */
static const js_value *find_name(walk *w, rec_str text)
{
    if (!w->has_names) {
        w->has_names = true;
        if (!collect_names(w, w->root, NULL)) {
            return NULL;
        }
        if (w->names.size > 0) {
            qsort(w->names.data, w->names.size / sizeof(name), sizeof(name), compare_names);
        }
    }
    const name key = {text, NULL};
    const name *const found =
        w->names.size > 0 ? bsearch(&key, w->names.data, w->names.size / sizeof key, sizeof key, compare_names) : NULL;
    return found != NULL ? found->schema : NULL;
}

/* ---- following one reference ---- */

static int hex_digit(char c)
{
    const char lower = (char)(c | 0x20);
    return c >= '0' && c <= '9' ? c - '0' : lower >= 'a' && lower <= 'f' ? lower - 'a' + 10 : -1;
}

/* One piece of a JSON pointer, its escapes of both kinds undone, into w->token. */
static bool read_token(walk *w, const char *p, const char *end)
{
    buf_clear(&w->token);
    bool good = buf_append(&w->token, "", 0);
    while (p < end && good) {
        char c = *p++;
        if (c == '%' && end - p >= 2 && hex_digit(p[0]) >= 0 && hex_digit(p[1]) >= 0) {
            c = (char)(hex_digit(p[0]) * 16 + hex_digit(p[1]));
            p += 2;
        }
        if (c == '~' && p < end && (*p == '0' || *p == '1')) {
            c = *p++ == '0' ? '~' : '/';
        }
        good = buf_append(&w->token, &c, 1);
    }
    return good || no_memory(w);
}

/* Position in an array; SIZE_MAX for what is none. */
static size_t read_index(const buf *token)
{
    size_t i = 0;
    if (token->size == 0 || token->size > 9 || (token->data[0] == '0' && token->size > 1)) {
        return SIZE_MAX;
    }
    for (size_t k = 0; k < token->size; k++) {
        if (token->data[k] < '0' || token->data[k] > '9') {
            return SIZE_MAX;
        }
        i = i * 10 + (size_t)(token->data[k] - '0');
    }
    return i;
}

/* NULL when it leads nowhere. */
static const js_value *follow_pointer(walk *w, const js_value *from, rec_str pointer)
{
    const char *p = pointer.data;
    const char *const end = pointer.data + pointer.size;
    const js_value *value = from;
    while (p < end && value != NULL) {
        const char *const next = memchr(p + 1, '/', (size_t)(end - p) - 1);
        const char *const stop = next != NULL ? next : end;
        if (!read_token(w, p + 1, stop)) {
            return NULL;
        }
        value = js_kind_of(value) == JS_ARRAY ? js_at(value, read_index(&w->token)) : js_get(value, w->token.data);
        p = stop;
    }
    return value;
}

static bool is_meta_schema(rec_str uri)
{
    static const char *const known[] = {
        "http://json-schema.org/draft-04/schema",       "http://json-schema.org/draft-06/schema",
        "http://json-schema.org/draft-07/schema",       "https://json-schema.org/draft/2019-09/schema",
        "https://json-schema.org/draft/2020-12/schema",
    };
    for (size_t i = 0; i < sizeof known / sizeof known[0]; i++) {
        if (strlen(known[i]) == uri.size && memcmp(known[i], uri.data, uri.size) == 0) {
            return true;
        }
    }
    return false;
}

/* The resource that a reference without its fragment names. */
static const js_value *find_resource(walk *w, rec_str base)
{
    const js_value *const found = base.size > 0 ? find_name(w, base) : w->resource;
    return found != NULL ? found : find_name(w, last_segment(base));
}

static bool follow(walk *w, rec_str reference, const char *key, const rec_path *at)
{
    const char *const hash = memchr(reference.data, '#', reference.size);
    const rec_str base = {reference.data, hash != NULL ? (size_t)(hash - reference.data) : reference.size};
    const rec_str fragment = hash != NULL ? (rec_str){hash + 1, reference.size - base.size - 1} : REC_STR("");
    if (is_meta_schema(base)) {
        return true;
    }
    const js_value *const resource = find_resource(w, base);
    const js_value *found = resource;
    if (found != NULL && fragment.size > 0) {
        found = fragment.data[0] == '/' ? follow_pointer(w, resource, fragment) : find_name(w, fragment);
    }
    if (w->check->no_memory) {
        return false;
    }
    if (found == NULL) {
        return rec_schema_fault(w->check, at, key, "`%.80s` leads nowhere", reference.data);
    }
    return add_target(w, found, resource);
}

/* ---- the walk ---- */

static bool visit(void *arg, const js_value *schema, const rec_path *at)
{
    walk *const w = arg;
    if (!note(w, schema)) {
        return !w->check->no_memory;
    }
    if (!rec_schema_keywords(w->check, schema, at)) {
        return false;
    }
    const js_value *const outer = w->resource;
    const js_value *const reference = js_get(schema, "$ref");
    const js_value *const dynamic = w->check->draft == REC_DRAFT2020 ? js_get(schema, "$dynamicRef") : NULL;
    const rec_str id = rec_string(js_get(schema, id_key(w)));
    if (id.size > 0 && id.data[0] != '#') {
        w->resource = schema;
    }
    bool good = true;
    if (js_kind_of(reference) == JS_STRING) {
        good = follow(w, rec_string(reference), "$ref", at);
    }
    if (good && js_kind_of(dynamic) == JS_STRING) {
        good = follow(w, rec_string(dynamic), "$dynamicRef", at);
    }
    /* Up to draft 7 a reference is all that counts where it stands. */
    if (good && (w->check->draft >= REC_DRAFT2019 || reference == NULL)) {
        good = rec_schema_inside(w->check->draft, schema, at, true, visit, w);
    }
    w->resource = outer;
    return good;
}

bool rec_schema_refs(rec_check *c, const js_value *root)
{
    walk w = {.check = c, .root = root};
    buf_init(&w.pending, SIZE_MAX);
    buf_init(&w.names, SIZE_MAX);
    buf_init(&w.token, SIZE_MAX);
    w.resource = root;
    bool good = visit(&w, root, NULL);
    while (good && w.pending.size > 0) {
        target t;
        w.pending.size -= sizeof t;
        memcpy(&t, w.pending.data + w.pending.size, sizeof t);
        w.resource = t.resource;
        good = visit(&w, t.schema, NULL);
    }
    free(w.seen);
    buf_fini(&w.pending);
    buf_fini(&w.names);
    buf_fini(&w.token);
    return good;
}
