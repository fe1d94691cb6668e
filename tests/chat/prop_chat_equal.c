/* The promise of a service: whoever runs beside a request changes no byte of its answer. 64 different requests of all four APIs, greedy and
 * seeded, in one piece and streamed, are asked alone on a service without a cache; then together in random order, between calls that
 * are cancelled or freed at random moments, with prefix-cache hits, with one thread and with two.
 * ctest: timeout=600 */
#include "chat_support.h"

#include <stdio.h>

#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
enum { N_REQUESTS = 8, N_VICTIMS = 4, MAX_TOKENS = 3, LONG_EVERY = 100 }; /* ten times slower there */
#else
enum { N_REQUESTS = 64, N_VICTIMS = 32, MAX_TOKENS = 12, LONG_EVERY = 7 };
#endif

#define LONGEST 330

typedef struct question {
    di_route route;
    char *body;
    char *alone; /* the answer */
} question;

typedef struct asked {
    di_call *call;
    buf answer;
} asked;

static question questions[N_REQUESTS];

/* --- Questions ------------------------------------------------------------------------------------------------------------------- */

static char *make_body(size_t i, const char *fields, const char *rest)
{
    static const char *const samplings[] = {
        "\"temperature\":0,\"seed\":%zu", /* with thinking the recipe makes it 1 */
        "\"temperature\":1,\"seed\":%zu",
        "\"temperature\":0.7,\"top_p\":0.9,\"seed\":%zu",
        "\"temperature\":1,\"seed\":%zu,\"stop\":[\". \",\"zz\"]",
    };
    char sampling[128];
    buf body;
    buf_init(&body, 1 << 20);
    snprintf(sampling, sizeof sampling, samplings[i % 4], i);
    buf_printf(&body, "{%s,%s,\"stream\":%s,", fields, sampling, i % 3 == 1 ? "true" : "false");
    buf_puts(&body, rest);
    assert_false(body.failed);
    return body.data;
}

static void ask_chat(question *q, size_t i, const char *line)
{
    char fields[128];
    const char *const request = strstr(line, "\"request\":{") + strlen("\"request\":{");
    const char *const end = strstr(request, ",\"check\":");
    char *const rest = strndup(request, (size_t)(end - request));
    assert_non_null(rest);
    const int n = snprintf(fields, sizeof fields, "\"max_tokens\":%d", MAX_TOKENS);
    if (i % 4 == 2) {
        snprintf(fields + n, sizeof fields - (size_t)n, ",\"n\":2");
    } else if (i % 4 == 1) {
        snprintf(fields + n, sizeof fields - (size_t)n, ",\"logprobs\":true,\"top_logprobs\":2");
    }
    q->route = DI_ROUTE_CHAT;
    q->body = make_body(i, fields, rest);
    free(rest);
}

static void ask_completion(question *q, size_t i, const char *line)
{
    char fields[128];
    const char *const ids = strstr(line, "\"prompt_ids\":[") + strlen("\"prompt_ids\":");
    char *const list = strndup(ids, (size_t)(strchr(ids, ']') + 1 - ids));
    buf rest;
    buf_init(&rest, 1 << 20);
    assert_non_null(list);
    buf_printf(&rest, "\"model\":\"demo\",\"prompt\":%s}", list);
    snprintf(fields, sizeof fields, "\"max_tokens\":%d%s", MAX_TOKENS, i % 2 == 0 ? ",\"logprobs\":2" : ",\"n\":3");
    q->route = DI_ROUTE_COMPLETIONS;
    q->body = make_body(i, fields, rest.data);
    buf_fini(&rest);
    free(list);
}

/* Greedy, because these APIs have no seed. */
static void ask_message(question *q, size_t i)
{
    static const char *const cities[] = {"Cairo", "Paris", "Oslo", "Lima"};
    const bool responses = i % 2 == 0;
    buf body;
    buf_init(&body, 4096);
    buf_printf(&body, "{\"model\":\"demo\",\"temperature\":0,\"stream\":%s,\"%s\":%d,%s\"Which country has %s as its capital?\"%s",
               i % 3 == 1 ? "true" : "false", responses ? "max_output_tokens" : "max_tokens", MAX_TOKENS,
               responses ? "\"reasoning\":{\"effort\":\"none\"},\"input\":"
                         : "\"thinking\":{\"type\":\"disabled\"},\"messages\":[{\"role\":\"user\",\"content\":",
               cities[i / 2 % 4], responses ? "}" : "}]}");
    q->route = responses ? DI_ROUTE_RESPONSES : DI_ROUTE_MESSAGES;
    q->body = body.data;
}

/* The next line whose prompt has so many tokens, as a copy; *at moves on. */
static char *next_line(const char **at, long least, long most)
{
    static const char key[] = "\"prompt_tokens\":";
    for (;;) {
        const char *const line = *at;
        const char *const end = strchr(line, '\n');
        assert_non_null(end);
        const long n = strtol(strstr(line, key) + sizeof key - 1, NULL, 10);
        *at = end + 1;
        if (n >= least && n <= most) {
            char *const copy = strndup(line, (size_t)(end - line));
            assert_non_null(copy);
            return copy;
        }
    }
}

/* Lines of the evaluation set. Every LONG_EVERY-th question takes one of two prompts of several units, each time under another seed, so
 * that the cache has hits. */
static void make_questions(void)
{
    char path[1024];
    char *text = NULL;
    size_t size;
    const char *root = getenv("DI_SOURCE_DIR");
    snprintf(path, sizeof path, "%s/tests/data/demo_model/eval.jsonl", root != NULL ? root : ".");
    assert_int_equal(file_read(path, 1 << 24, &text, &size, NULL), DI_OK);
    const char *shorts = text;
    const char *longs = text;
    char *const two[2] = {next_line(&longs, 270, LONGEST), next_line(&longs, 270, LONGEST)};
    for (size_t i = 0; i < N_REQUESTS; i++) {
        char *const line = next_line(&shorts, 1, 60);
        if (i % LONG_EVERY == LONG_EVERY - 1) {
            ask_completion(&questions[i], i, two[i / LONG_EVERY % 2]);
        } else if (i % 8 == 5) {
            ask_message(&questions[i], i / 8);
        } else if (i % 8 == 2) {
            ask_completion(&questions[i], i, line);
        } else {
            ask_chat(&questions[i], i, line);
        }
        free(line);
    }
    free(two[0]);
    free(two[1]);
    free(text);
}

/* --- Answers --------------------------------------------------------------------------------------------------------------------- */

/* Numbers that may differ from one time to the next: when it was, and how much the cache had. */
static void blank(char *text)
{
    static const char *const keys[] = {
        "\"created\":",       "\"created_at\":",           "\"completed_at\":",         "\"cached_tokens\":",
        "\"input_tokens\":",  "\"prompt_cache_hit_tokens\":", "\"prompt_cache_miss_tokens\":", "\"cache_read_input_tokens\":",
        "\"total_tokens\":",
    };
    for (size_t k = 0; k < sizeof keys / sizeof keys[0]; k++) {
        char *at = text;
        while ((at = strstr(at, keys[k])) != NULL) {
            at += strlen(keys[k]);
            const size_t n = strspn(at, "0123456789");
            memmove(at, at + n, strlen(at + n) + 1);
        }
    }
}

static di_service *open_service(int32_t n_threads, bool no_cache)
{
    di_error err = {0};
    di_service *s = NULL;
    const di_service_options o = {
        .engine = {.n_threads = n_threads, .kv_bytes = (int64_t)256 << 20}, .model_name = "demo", .no_cache = no_cache};
    if (di_service_open(chat_model(), chat_tokenizer(), &o, &s, &err) != DI_OK) {
        fail_msg("%s", err.message);
    }
    return s;
}

static di_call *submit(di_service *s, const question *q, const char *id)
{
    return chat_submit_with(s, &(di_call_options){.route = q->route, .body = q->body, .n = strlen(q->body), .id = id});
}

static void ask_alone(void)
{
    di_service *const s = open_service(1, true);
    for (size_t i = 0; i < N_REQUESTS; i++) {
        char id[32];
        snprintf(id, sizeof id, "id-%zu", i);
        di_call *const c = submit(s, &questions[i], id);
        questions[i].alone = chat_read_all(c);
        if (chat_info(c).http_status != 200) {
            fail_msg("%s\n%s", questions[i].body, questions[i].alone);
        }
        blank(questions[i].alone);
        di_call_free(c);
    }
    di_service_close(s);
}

static void expect_same(const char *body, const char *alone, const char *together)
{
    size_t at = 0;
    while (alone[at] != '\0' && alone[at] == together[at]) {
        at++;
    }
    if (alone[at] != together[at]) {
        const size_t from = at < 100 ? 0 : at - 100;
        fail_msg("%.300s\nalone:    ...%.250s\ntogether: ...%.250s", body, alone + from, together + from);
    }
}

/* Reads what is there; true at the end. */
static bool look_at(asked *a, const question *q)
{
    char part[512];
    size_t n;
    const bool ended = chat_info(a->call).phase == DI_CALL_ENDED;
    while ((n = di_call_read(a->call, part, sizeof part)) > 0) {
        assert_true(buf_append(&a->answer, part, n));
    }
    if (ended) {
        blank(a->answer.data);
        expect_same(q->body, q->alone, a->answer.data);
        di_call_free(a->call);
        buf_fini(&a->answer);
        a->call = NULL;
    }
    return ended;
}

static void ask_together(int32_t n_threads, uint64_t seed)
{
    static asked all[N_REQUESTS];
    di_service *const s = open_service(n_threads, false);
    di_call *victims[N_VICTIMS] = {NULL};
    size_t order[N_REQUESTS];
    size_t n_begun = 0;
    size_t n_ended = 0;
    size_t n_victims = 0;
    for (size_t i = 0; i < N_REQUESTS; i++) {
        const size_t j = (size_t)(unit_random(&seed) % (i + 1));
        order[i] = order[j];
        order[j] = i;
    }
    while (n_ended < N_REQUESTS) {
        const size_t i = (size_t)(unit_random(&seed) % N_REQUESTS);
        if (n_begun < N_REQUESTS && n_begun < n_ended + 24) {
            char id[32];
            snprintf(id, sizeof id, "id-%zu", order[n_begun]);
            buf_init(&all[order[n_begun]].answer, SIZE_MAX);
            all[order[n_begun]].call = submit(s, &questions[order[n_begun]], id);
            n_begun++;
        }
        if (n_victims < N_VICTIMS && unit_random(&seed) % 4 == 0) {
            victims[n_victims++] = submit(s, &questions[i], NULL);
        }
        if (n_victims > 0 && unit_random(&seed) % 8 == 0) {
            di_call **const victim = &victims[unit_random(&seed) % n_victims];
            if (*victim != NULL && unit_random(&seed) % 2 == 0) {
                di_call_cancel(*victim);
            }
            di_call_free(*victim);
            *victim = NULL;
        }
        if (all[i].call != NULL) {
            (void)di_call_wait(all[i].call, 1);
            n_ended += look_at(&all[i], &questions[i]) ? 1 : 0;
        }
    }
    for (size_t i = 0; i < n_victims; i++) {
        di_call_free(victims[i]);
    }
    di_service_stats stats;
    di_service_get_stats(s, &stats);
    print_message("%d threads: %lld of %lld prompt tokens did not run, %lld steps\n", (int)n_threads, (long long)stats.kv.resumed_tokens,
                  (long long)stats.kv.lookup_tokens, (long long)stats.scheduler.n_steps);
    if (LONG_EVERY < N_REQUESTS) {
        assert_true(stats.kv.resumed_tokens > 0);
    }
    di_service_close(s);
}

static void company_changes_no_byte(void **state)
{
    (void)state;
    make_questions();
    ask_alone();
    ask_together(1, 1);
    ask_together(2, 2);
    for (size_t i = 0; i < N_REQUESTS; i++) {
        free(questions[i].body);
        free(questions[i].alone);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(company_changes_no_byte)};
    return cmocka_run_group_tests(tests, chat_setup, chat_teardown);
}
