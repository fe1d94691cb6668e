/* Fuzzes the output parser (recipe/rec_output.c, rec_stages.c, rec_pieces.c). The first bytes of an input choose
 * the options, the finish and the cuts; the rest is generated text, or ids of the demo model's tokenizer, two
 * bytes each.
 *
 * Whole and cut, the pieces join to the same, every piece is whole characters, and there is one finish, at the
 * end. */
#include "core/buf.h"
#include "core/utf8.h"

#include <deepinfer/recipe.h>

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { N_HEAD = 4, MAX_IDS = 4096 };

typedef struct input {
    di_output_options options;
    di_finish reason;
    const char *text; /* NULL: ids */
    const int32_t *ids;
    const di_token_logprobs *logprobs;
    size_t n;
} input;

static void require(bool truth)
{
    if (!truth) {
        abort();
    }
}

/* Opened by the first input and kept: the only state, and never changed. */
static const di_recipe *demo(void)
{
    static di_recipe *recipe;
    if (recipe == NULL) {
        const char *const source = getenv("DI_SOURCE_DIR");
        char path[4096];
        di_tokenizer *tokenizer;
        di_error err;
        (void)snprintf(path, sizeof path, "%s/models/demo", source != NULL ? source : ".");
        if (di_tokenizer_open(path, &tokenizer, &err) != DI_OK ||
            di_recipe_open(tokenizer, NULL, &recipe, &err) != DI_OK) {
            fprintf(stderr, "%s\n", err.message);
            exit(1);
        }
    }
    return recipe;
}

/* Pieces as text: the kind in front of each stretch of one kind. */
static void take(di_output *output, buf *out, char *last)
{
    di_piece p;
    while (di_output_next(output, &p)) {
        require(*last != 'F' && utf8_valid_prefix((const uint8_t *)p.text, p.size) == p.size);
        const char kind = "RTCAF"[p.kind];
        if (kind != *last || kind == 'C') {
            buf_printf(out, "\x01%c%d ", kind, kind == 'C' || kind == 'A' ? p.call : 0);
        }
        *last = kind;
        buf_append(out, p.text, p.size);
        if (kind == 'F') {
            buf_printf(out, "%d ", (int)p.finish);
            buf_append(out, p.stop != NULL ? p.stop : "", p.stop_size);
        }
    }
}

static void parse(const input *in, size_t most, unsigned seed, buf *out)
{
    di_output *output = NULL;
    char last = '\0';
    require(di_output_new(demo(), &in->options, &output, NULL) == DI_OK);
    buf_init(out, SIZE_MAX);
    for (size_t at = 0; at < in->n;) {
        seed = seed * 1103515245u + 12345u;
        const size_t left = in->n - at;
        const size_t size = most == 0 ? left : 1 + (seed >> 16) % most;
        const size_t group = size < left ? size : left;
        const di_status status = in->text != NULL
                                     ? di_output_push_text(output, in->text + at, group, 1, NULL)
                                     : di_output_push_ids(output, in->ids + at, group, in->logprobs + at, NULL);
        require(status == DI_OK);
        take(output, out, &last);
        at += group;
    }
    di_usage usage;
    require(di_output_finish(output, in->reason, NULL) == DI_OK);
    take(output, out, &last);
    di_output_usage(output, &usage);
    require(last == 'F' && usage.reasoning_tokens <= usage.completion_tokens);
    di_output_free(output);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    static const char *const stops[] = {"END", "aab", "\n\n", "</think>"};
    static const di_finish reasons[] = {DI_FINISH_STOP, DI_FINISH_LENGTH, DI_FINISH_FILTER, DI_FINISH_CUT};
    if (size < N_HEAD) {
        return 0;
    }
    input in = {.options = {.tools = (data[0] & 1) != 0, .json = (data[0] & 2) != 0, .in_tools = (data[0] & 4) != 0,
                            .stage = (di_output_stage)(data[0] >> 3 & 3), .stops = stops, .n_stops = data[1] % 5},
                .reason = reasons[data[1] >> 4 & 3], .n = size - N_HEAD};
    int32_t ids[MAX_IDS];
    di_token_logprobs logprobs[MAX_IDS];
    if (data[0] < 128) {
        in.text = (const char *)data + N_HEAD;
    } else {
        in.ids = ids;
        in.logprobs = logprobs;
        in.n = in.n / 2 < MAX_IDS ? in.n / 2 : MAX_IDS;
        for (size_t i = 0; i < in.n; i++) {
            ids[i] = (data[N_HEAD + 2 * i] | data[N_HEAD + 2 * i + 1] << 8) % 3080;
            logprobs[i] = (di_token_logprobs){.id = ids[i]};
        }
    }
    buf whole;
    buf cut;
    parse(&in, 0, 0, &whole);
    parse(&in, 1 + data[2] % 32u, data[3], &cut);
    require(whole.size == cut.size && memcmp(whole.data, cut.data, whole.size) == 0);
    buf_fini(&cut);
    buf_fini(&whole);
    return 0;
}
