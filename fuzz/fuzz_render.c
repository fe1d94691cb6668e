/* Fuzzes normalising, rendering and encoding (recipe/rec_normalise.c, rec_render.c, rec_tool_block.c, rec_calls.c, rec_json.c,
 * rec_encode.c) with conversations that are built here, so that texts may hold any bytes.
 *
 * Input: version and modes in the first byte, effort in the second, then steps of kind, length and text. However hostile the
 * texts, the control tokens are those of the same conversation with the text "x", each spelled in full where its range says, and
 * the ids hold these added tokens alone. Arguments and schemas stay as they are: how many parameters there are is theirs to say. */
#include "recipe/rec_int.h"

#include "core/arith.h"

#include <stdio.h>
#include <stdlib.h>

#define MAX_STEPS 200
#define MAX_CALLS 8
#define MAX_TOOLS 16

static void require(bool truth)
{
    if (!truth) {
        abort();
    }
}

typedef struct fixture {
    di_tokenizer *tokenizer;
    di_recipe *recipe;
} fixture;

/* Opened by the first input and kept: the only state, and never changed. */
static const fixture *demo(void)
{
    static fixture f;
    if (f.recipe == NULL) {
        const char *const source = getenv("DI_SOURCE_DIR");
        char path[4096];
        di_error err;
        (void)snprintf(path, sizeof path, "%s/models/demo", source != NULL ? source : ".");
        if (di_tokenizer_open(path, &f.tokenizer, &err) != DI_OK || di_recipe_open(f.tokenizer, NULL, &f.recipe, &err) != DI_OK) {
            fprintf(stderr, "%s\n", err.message);
            exit(1);
        }
    }
    return &f;
}

static const js_value *parse_or_null(di_request *r, rec_str text)
{
    const js_value *root = NULL;
    return rec_parse_json(r, text.data, text.size, "fuzz", &root, NULL) == DI_OK && js_kind_of(root) == JS_OBJECT ? root : NULL;
}

static void add_tool(di_request *r, rec_str text, rec_str shown)
{
    rec_tool *const tool = arena_alloc(&r->memory, 1, sizeof *tool);
    if (r->talk.n_tools < MAX_TOOLS) {
        *tool = (rec_tool){.name = shown, .description = shown, .has_description = text.size % 2 != 0, .deferred = text.size % 5 == 1,
                           .parameters = parse_or_null(r, text)};
        r->talk.tools[r->talk.n_tools++] = tool;
    }
}

static void add_call(di_request *r, rec_str text, rec_str shown)
{
    rec_message *const message = r->talk.last;
    if (message == NULL || message->role != REC_ASSISTANT || message->n_calls == MAX_CALLS) {
        return;
    }
    if (message->calls == NULL) {
        message->calls = arena_alloc(&r->memory, MAX_CALLS, sizeof *message->calls);
    }
    message->calls[message->n_calls++] = (rec_call){.id = shown, .name = shown, .arguments = text};
}

static void add_step(di_request *r, uint8_t kind, rec_str text, bool harmless)
{
    const rec_str shown = harmless && text.size > 0 ? REC_STR("x") : text; /* an empty announcement is no entry */
    if (kind % 8 == 6) {
        add_call(r, text, shown);
    } else if (kind % 8 == 7) {
        add_tool(r, text, shown);
    } else if (kind % 8 == 5) {
        if (r->talk.last != NULL) {
            (void)rec_add_text(r, &r->talk.last->content, shown);
        }
    } else {
        rec_message *const message = rec_add_message(r, (rec_role)(kind % 8));
        (void)rec_add_text(r, &message->content, shown);
        message->has_reasoning = kind >= 128;
        message->reasoning = kind >= 128 ? shown : REC_STR("");
        message->call_id = shown;
        if (message->role == REC_SYSTEM && kind >= 192 && r->talk.n_tools > 0) {
            message->announced = r->talk.tools;
            message->n_announced = 1;
        }
    }
}

/* The conversation of an input, rendered; with "x" for every text if asked. */
static di_request *render(const uint8_t *data, size_t size, bool harmless)
{
    static const char body[] = "{\"model\":\"DeepSeek-V4.1-Flash\",\"messages\":[{\"role\":\"user\",\"content\":\"x\"}]}";
    di_request *r = NULL;
    require(di_request_read(demo()->recipe, DI_CHAT, body, sizeof body - 1, &r, NULL) == DI_OK);
    buf_fini(&r->prompt);
    r->n_ranges = 0;
    free(r->ranges);
    free(r->markers);
    r->ranges = NULL;
    r->markers = NULL;
    r->talk = (rec_conversation){
        .version = (data[0] & 1) != 0 ? DI_V4 : DI_V41,
        .thinking = (data[0] & 2) != 0,
        .choice = (rec_choice)((data[0] >> 2) % 3),
        .format = (rec_format)((data[0] >> 4) % 4),
        .effort = (rec_effort)(data[1] % 5),
        .pattern = REC_STR(""),
        .tools = arena_alloc(&r->memory, MAX_TOOLS, sizeof *r->talk.tools),
    };
    size_t at = 2;
    for (int step = 0; step < MAX_STEPS && size - at >= 2; step++) {
        const size_t length = data[at + 1] < size - at - 2 ? data[at + 1] : size - at - 2;
        add_step(r, data[at], (rec_str){(const char *)data + at + 2, length}, harmless);
        at += 2 + length;
    }
    require(rec_normalise(r, NULL) == DI_OK && rec_render(r, NULL) == DI_OK);
    return r;
}

static void check_ranges(const di_request *r)
{
    size_t last = 0;
    for (size_t i = 0; i < r->n_ranges; i++) {
        const rec_str spelling = r->recipe->spelling[r->markers[i]];
        require(r->ranges[i].begin >= last && r->ranges[i].end - r->ranges[i].begin == spelling.size);
        require(r->ranges[i].end <= r->prompt.size);
        require(memcmp(r->prompt.data + r->ranges[i].begin, spelling.data, spelling.size) == 0);
        last = r->ranges[i].end;
    }
}

static void check_ids(const di_request *r)
{
    const size_t capacity = 3 * r->prompt.size;
    int32_t *const ids = ar_calloc(capacity, sizeof *ids);
    size_t n = 0;
    size_t k = 0;
    require(ids != NULL && di_request_encode(r, 1, ids, capacity, &n, NULL) == DI_OK && n <= capacity);
    for (size_t i = 0; i < n; i++) {
        if ((di_tokenizer_flags(demo()->tokenizer, ids[i]) & DI_TOKEN_ADDED) != 0) {
            require(k < r->n_ranges && ids[i] == r->recipe->id[r->markers[k]]);
            k++;
        }
    }
    require(k == r->n_ranges);
    free(ids);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    if (size < 2) {
        return 0;
    }
    di_request *const hostile = render(data, size, false);
    di_request *const harmless = render(data, size, true);
    check_ranges(hostile);
    check_ids(hostile);
    require(hostile->n_ranges == harmless->n_ranges);
    require(memcmp(hostile->markers, harmless->markers, hostile->n_ranges) == 0);
    di_request_free(hostile);
    di_request_free(harmless);
    return 0;
}
