/* Tests of log.c and log_text.c: what arrives, what is dropped and lost, and that nobody waits. The thread sanitizer build runs them
 * too. */
#include "support/unit.h"

#include "core/json.h"
#include "core/log.h"
#include "core/log_text.h"


#include <fcntl.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#define LONG_WAIT_MS 60000 /* a deadline that only a fault reaches */

typedef struct scratch {
    char *dir;
    char path[4096];
} scratch;

static scratch new_scratch(void)
{
    scratch s = {.dir = unit_scratch_new()};
    snprintf(s.path, sizeof s.path, "%s/log", s.dir);
    return s;
}

static log_sink *open_log(const log_options *options)
{
    log_sink *log;
    di_error err;
    const di_status status = log_open(options, &log, &err);
    if (status != DI_OK) {
        fail_msg("%s", err.message);
    }
    return log;
}

static void put(log_sink *log, const char *line)
{
    assert_true(log_line(log, line, strlen(line)));
}

static log_stats stats_of(const log_sink *log)
{
    log_stats s;
    log_get_stats(log, &s);
    return s;
}

/* Everything that the file holds, malloc'ed. */
static char *read_path(const char *path)
{
    FILE *const file = fopen(path, "rb");
    assert_non_null(file);
    char *const data = calloc(1, 16 << 20);
    assert_non_null(data);
    const size_t n = fread(data, 1, (16 << 20) - 1, file);
    assert_int_equal(fclose(file), 0);
    data[n] = '\0';
    return data;
}

static void assert_file(const char *path, const char *expected)
{
    char *const data = read_path(path);
    assert_string_equal(data, expected);
    free(data);
}

static void lines_are_in_the_file_after_a_close(void **state)
{
    (void)state;
    const scratch s = new_scratch();
    log_sink *log = open_log(&(log_options){.path = s.path});
    put(log, "one");
    put(log, "");
    put(log, "three");
    log_close(log);
    assert_file(s.path, "one\n\nthree\n");
    log = open_log(&(log_options){.path = s.path});
    put(log, "appended");
    assert_true(log_flush(log, LONG_WAIT_MS));
    assert_file(s.path, "one\n\nthree\nappended\n");
    assert_int_equal(stats_of(log).n_written, 1);
    log_close(log);
    log_close(NULL);
    unit_scratch_remove(s.dir);
}

static void no_log_takes_everything(void **state)
{
    (void)state;
    assert_true(log_line(NULL, "x", 1));
    assert_true(log_flush(NULL, 0));
    assert_false(log_takes(NULL, LOG_LEVEL_ERROR));
    log_reopen(NULL);
    log_text(NULL, LOG_LEVEL_ERROR, "%s", "nobody reads this");
    assert_int_equal(stats_of(NULL).n_written, 0);
}

static void a_file_that_cannot_be_opened_is_an_error(void **state)
{
    (void)state;
    log_sink *log;
    di_error err;
    unit_expect_error(log_open(&(log_options){.path = "no/such/folder/log"}, &log, &err), DI_E_IO, &err, "no/such/folder/log", NULL);
    unit_expect_error(log_open(&(log_options){.fd = 1, .ring_bytes = SIZE_MAX}, &log, &err), DI_E_ARGUMENT, &err, "ring", NULL);
}

static void a_rotated_file_is_opened_anew(void **state)
{
    (void)state;
    const scratch s = new_scratch();
    char moved[4200];
    snprintf(moved, sizeof moved, "%s.1", s.path);
    log_sink *const log = open_log(&(log_options){.path = s.path});
    put(log, "before");
    assert_true(log_flush(log, LONG_WAIT_MS));
    assert_int_equal(rename(s.path, moved), 0);
    put(log, "still the old file");
    assert_true(log_flush(log, LONG_WAIT_MS));
    log_reopen(log);
    put(log, "after");
    log_close(log);
    assert_file(moved, "before\nstill the old file\n");
    assert_file(s.path, "after\n");
    unit_scratch_remove(s.dir);
}

static void a_path_that_went_away_keeps_the_old_file(void **state)
{
    (void)state;
    const scratch s = new_scratch();
    char folder[4100];
    char path[4200];
    char moved[4200];
    int report[2];
    snprintf(folder, sizeof folder, "%s/sub", s.dir);
    snprintf(path, sizeof path, "%s/log", folder);
    snprintf(moved, sizeof moved, "%s/moved", s.dir);
    assert_int_equal(mkdir(folder, 0700), 0);
    assert_int_equal(pipe(report), 0);
    log_sink *const log = open_log(&(log_options){.path = path, .report_fd = report[1]});
    assert_int_equal(rename(folder, moved), 0);
    log_reopen(log);
    put(log, "kept");
    assert_true(log_flush(log, LONG_WAIT_MS));
    assert_int_equal(stats_of(log).n_errors, 1);
    log_close(log);
    char said[512] = "";
    assert_true(read(report[0], said, sizeof said - 1) > 0);
    assert_non_null(strstr(said, "cannot be opened anew"));
    close(report[0]);
    close(report[1]);
    strcat(moved, "/log");
    assert_file(moved, "kept\n");
    unit_scratch_remove(s.dir);
}

static void a_full_disk_loses_lines_and_says_so_once(void **state)
{
    (void)state;
    int report[2];
    assert_int_equal(pipe(report), 0);
    log_sink *const log = open_log(&(log_options){.path = "/dev/full", .report_fd = report[1]});
    for (int i = 0; i < 5; i++) {
        put(log, "lost");
        assert_true(log_flush(log, LONG_WAIT_MS));
    }
    const log_stats stats = stats_of(log);
    assert_int_equal(stats.n_lost, 5);
    assert_int_equal(stats.n_errors, 5);
    assert_int_equal(stats.n_written, 0);
    assert_true(stats.failing);
    log_close(log);
    char said[1024] = "";
    assert_true(read(report[0], said, sizeof said - 1) > 0);
    assert_string_equal(said, "deepinfer: log /dev/full: lines are lost until it can be written again: No space left on device\n");
    close(report[0]);
    close(report[1]);
}

static void a_closed_pipe_loses_lines_until_the_file_is_opened_anew(void **state)
{
    (void)state;
    const scratch s = new_scratch();
    int report[2];
    assert_int_equal(pipe(report), 0);
    assert_int_equal(mkfifo(s.path, 0600), 0);
    const int reader = open(s.path, O_RDONLY | O_NONBLOCK | O_CLOEXEC);
    assert_true(reader >= 0);
    log_sink *const log = open_log(&(log_options){.path = s.path, .report_fd = report[1]});
    put(log, "read");
    assert_true(log_flush(log, LONG_WAIT_MS));
    char got[64] = "";
    assert_int_equal(read(reader, got, sizeof got - 1), 5);
    assert_string_equal(got, "read\n");
    close(reader);
    put(log, "to nobody");
    put(log, "to nobody");
    assert_true(log_flush(log, LONG_WAIT_MS));
    assert_true(stats_of(log).failing);
    assert_int_equal(remove(s.path), 0);
    log_reopen(log);
    put(log, "again");
    log_close(log);
    assert_file(s.path, "again\n");
    char said[1024] = "";
    assert_true(read(report[0], said, sizeof said - 1) > 0);
    assert_non_null(strstr(said, "Broken pipe\n"));
    assert_non_null(strstr(said, "can be written again; 2 lines were lost\n"));
    close(report[0]);
    close(report[1]);
    unit_scratch_remove(s.dir);
}

static void a_pipe_that_nobody_reads_costs_lines_and_no_time(void **state)
{
    (void)state;
    int ends[2];
    char line[1000];
    memset(line, 'x', sizeof line);
    assert_int_equal(pipe(ends), 0);
    log_sink *const log = open_log(&(log_options){.fd = ends[1], .ring_bytes = 1, .close_ms = 1});
    int n_taken = 0;
    int n_dropped = 0;
    while (n_dropped < 100) {
        if (log_line(log, line, sizeof line)) {
            n_taken++;
        } else {
            n_dropped++;
        }
    }
    assert_false(log_flush(log, 1));
    const log_stats stats = stats_of(log);
    assert_int_equal(stats.n_dropped, n_dropped);
    assert_true(n_taken >= 64); /* the ring alone holds 64 KiB */
    log_close(log); /* gives up after close_ms */
    close(ends[0]);
    close(ends[1]);
}

static void a_burst_beyond_the_ring_is_dropped_in_whole_lines(void **state)
{
    (void)state;
    enum { N = 20000 };
    const scratch s = new_scratch();
    log_sink *const log = open_log(&(log_options){.path = s.path, .ring_bytes = 1});
    static bool taken[N];
    uint64_t n_taken = 0;
    for (int i = 0; i < N; i++) {
        char line[256];
        const int n = snprintf(line, sizeof line, "%d %0*d", i, i % 200 + 1, 0);
        taken[i] = log_line(log, line, (size_t)n);
        n_taken += taken[i];
    }
    assert_true(log_flush(log, LONG_WAIT_MS));
    const log_stats stats = stats_of(log);
    assert_int_equal(stats.n_written, n_taken);
    assert_int_equal(stats.n_dropped, N - n_taken);
    log_close(log);
    char *const data = read_path(s.path);
    char *line = data;
    for (int i = 0; i < N; i++) {
        char expected[256];
        if (taken[i]) {
            const size_t n = (size_t)snprintf(expected, sizeof expected, "%d %0*d\n", i, i % 200 + 1, 0);
            assert_memory_equal(line, expected, n);
            line += n;
        }
    }
    assert_int_equal(*line, '\0');
    free(data);
    unit_scratch_remove(s.dir);
}

static void the_longest_line_passes_and_a_longer_one_is_dropped(void **state)
{
    (void)state;
    const scratch s = new_scratch();
    log_sink *const log = open_log(&(log_options){.path = s.path});
    char *const line = calloc(1, LOG_MAX_LINE + 3);
    memset(line, 'y', LOG_MAX_LINE + 1);
    assert_false(log_line(log, line, LOG_MAX_LINE + 1));
    for (int i = 0; i < 100; i++) {
        assert_true(log_line(log, line, LOG_MAX_LINE));
        assert_true(log_flush(log, LONG_WAIT_MS));
    }
    log_close(log);
    line[LOG_MAX_LINE] = '\n';
    char *const data = read_path(s.path);
    assert_int_equal(strlen(data), 100 * (LOG_MAX_LINE + 1));
    assert_memory_equal(data, line, LOG_MAX_LINE + 1);
    free(data);
    free(line);
    unit_scratch_remove(s.dir);
}

enum { N_THREADS = 4, N_LINES = 3000 };

typedef struct producer {
    log_sink *log;
    int index;
    int n_taken;
} producer;

static void *produce(void *arg)
{
    producer *const p = arg;
    for (int i = 0; i < N_LINES; i++) {
        char line[64];
        const int n = snprintf(line, sizeof line, "%d %d", p->index, i);
        p->n_taken += log_line(p->log, line, (size_t)n);
        if (i % 500 == 0) {
            log_reopen(p->log);
        }
    }
    return p;
}

static void lines_of_each_thread_keep_their_order(void **state)
{
    (void)state;
    const scratch s = new_scratch();
    log_sink *const log = open_log(&(log_options){.path = s.path, .ring_bytes = 1});
    producer producers[N_THREADS];
    pthread_t threads[N_THREADS];
    uint64_t n_taken = 0;
    for (int i = 0; i < N_THREADS; i++) {
        producers[i] = (producer){.log = log, .index = i};
        assert_int_equal(pthread_create(&threads[i], NULL, produce, &producers[i]), 0);
    }
    for (int i = 0; i < N_THREADS; i++) {
        assert_int_equal(pthread_join(threads[i], NULL), 0);
        n_taken += (uint64_t)producers[i].n_taken;
    }
    log_close(log);
    char *const data = read_path(s.path);
    int last[N_THREADS] = {-1, -1, -1, -1};
    uint64_t n = 0;
    for (const char *line = data; *line != '\0'; line = strchr(line, '\n') + 1) {
        char *end;
        const long thread = strtol(line, &end, 10);
        const long number = strtol(end, &end, 10);
        assert_in_range(thread, 0, N_THREADS - 1);
        assert_int_equal(*end, '\n');
        assert_true(number > last[thread]);
        last[thread] = (int)number;
        n++;
    }
    assert_int_equal(n, n_taken);
    free(data);
    unit_scratch_remove(s.dir);
}

static void text_has_a_time_a_level_and_no_control_characters(void **state)
{
    (void)state;
    const scratch s = new_scratch();
    log_sink *const log = open_log(&(log_options){.path = s.path, .level = LOG_LEVEL_WARN});
    log_text(log, LOG_LEVEL_ERROR, "port %d\nFORGED \x1B[31m \xC2\x9B \xFF \xC3\xA9", 80);
    log_text(log, LOG_LEVEL_INFO, "left out");
    log_set_level(log, LOG_LEVEL_INFO);
    log_text(log, LOG_LEVEL_INFO, "%05d", 42);
    log_close(log);
    char *const data = read_path(s.path);
    char *const second = strchr(data, '\n') + 1;
    second[-1] = '\0';
    assert_int_equal(strlen(data) > 24, true);
    assert_int_equal(data[4], '-');
    assert_int_equal(data[10], 'T');
    assert_int_equal(data[23], 'Z');
    assert_string_equal(data + 24, " error port 80 FORGED  [31m    ? \xC3\xA9");
    assert_string_equal(second + 24, " info  00042\n");
    free(data);
    unit_scratch_remove(s.dir);
}

static void a_text_too_long_is_cut_at_a_character(void **state)
{
    (void)state;
    const scratch s = new_scratch();
    char text[3001];
    for (size_t i = 0; i < 3000; i += 3) {
        memcpy(text + i, "\xE2\x82\xAC", 3);
    }
    text[3000] = '\0';
    log_sink *const log = open_log(&(log_options){.path = s.path});
    log_text(log, LOG_LEVEL_ERROR, "%s", text);
    log_close(log);
    char *const data = read_path(s.path);
    const size_t n = strlen(data);
    assert_in_range(n, LOG_MAX_TEXT - 2, LOG_MAX_TEXT + 1);
    assert_memory_equal(data + n - 4, "\xE2\x82\xAC\n", 4);
    free(data);
    unit_scratch_remove(s.dir);
}

static void levels_have_names(void **state)
{
    (void)state;
    log_level level = LOG_LEVEL_ERROR;
    assert_true(log_level_parse("debug", &level));
    assert_int_equal(level, LOG_LEVEL_DEBUG);
    assert_string_equal(log_level_name(level), "debug");
    assert_false(log_level_parse("loud", &level));
    assert_int_equal(level, LOG_LEVEL_DEBUG);
}

static void json_lines_are_json(void **state)
{
    (void)state;
    const scratch s = new_scratch();
    log_sink *const log = open_log(&(log_options){.path = s.path});
    char agent[2000];
    buf line;
    memset(agent, 'a', sizeof agent);
    memcpy(agent + LOG_MAX_STRING - 1, "\xC3\xA9", 2); /* across the cut */
    buf_init(&line, LOG_MAX_LINE);
    log_json_begin(&line);
    log_json_string(&line, "id", "a\"\n\xFF");
    log_json_string(&line, "tenant", NULL);
    log_json_string_n(&line, "agent", agent, sizeof agent);
    log_json_int(&line, "status", INT64_MIN);
    log_json_real(&line, "share", 0.1);
    log_json_real(&line, "none", 1.0 / 0.0);
    log_json_bool(&line, "stream", true);
    log_json_ms(&line, "ttft_ms", 12345678);
    log_json_ms(&line, "queue_ms", -1);
    assert_true(log_json_end(&line, log));
    log_close(log);
    buf_fini(&line);
    char *const data = read_path(s.path);
    js_doc *doc;
    di_error err;
    size_t n;
    assert_int_equal(js_parse(data, strlen(data), "line", NULL, &doc, &err), DI_OK);
    const js_value *const root = js_root(doc);
    assert_int_equal(js_length(root), 10);
    assert_int_equal(js_length(js_get(root, "time")), 24);
    assert_string_equal(js_string(js_get(root, "id"), &n), "a\"\n\xEF\xBF\xBD");
    assert_int_equal(js_kind_of(js_get(root, "tenant")), JS_NULL);
    assert_string_equal(js_string(js_get(root, "agent"), &n) + LOG_MAX_STRING - 1, "\xE2\x80\xA6");
    assert_true(js_int(js_get(root, "status")) == INT64_MIN);
    assert_string_equal(js_spelling(js_get(root, "share"), &n), "0.1");
    assert_int_equal(js_kind_of(js_get(root, "none")), JS_NULL);
    assert_true(js_bool(js_get(root, "stream")));
    assert_string_equal(js_spelling(js_get(root, "ttft_ms"), &n), "12.345");
    assert_int_equal(js_kind_of(js_get(root, "queue_ms")), JS_NULL);
    js_free(doc);
    free(data);
    unit_scratch_remove(s.dir);
}

static void a_json_line_beyond_its_buffer_is_dropped(void **state)
{
    (void)state;
    const scratch s = new_scratch();
    log_sink *const log = open_log(&(log_options){.path = s.path});
    buf line;
    buf_init(&line, 64);
    log_json_begin(&line);
    log_json_string(&line, "a", "a text that is longer than what is left of the buffer");
    assert_false(log_json_end(&line, log));
    log_json_begin(&line);
    assert_true(log_json_end(&line, log));
    log_close(log);
    buf_fini(&line);
    char *const data = read_path(s.path);
    assert_int_equal(strlen(data), strlen("{\"time\":\"2026-03-01T12:00:00.000Z\"}\n"));
    free(data);
    unit_scratch_remove(s.dir);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(lines_are_in_the_file_after_a_close),
        cmocka_unit_test(no_log_takes_everything),
        cmocka_unit_test(a_file_that_cannot_be_opened_is_an_error),
        cmocka_unit_test(a_rotated_file_is_opened_anew),
        cmocka_unit_test(a_path_that_went_away_keeps_the_old_file),
        cmocka_unit_test(a_full_disk_loses_lines_and_says_so_once),
        cmocka_unit_test(a_closed_pipe_loses_lines_until_the_file_is_opened_anew),
        cmocka_unit_test(a_pipe_that_nobody_reads_costs_lines_and_no_time),
        cmocka_unit_test(a_burst_beyond_the_ring_is_dropped_in_whole_lines),
        cmocka_unit_test(the_longest_line_passes_and_a_longer_one_is_dropped),
        cmocka_unit_test(lines_of_each_thread_keep_their_order),
        cmocka_unit_test(text_has_a_time_a_level_and_no_control_characters),
        cmocka_unit_test(a_text_too_long_is_cut_at_a_character),
        cmocka_unit_test(levels_have_names),
        cmocka_unit_test(json_lines_are_json),
        cmocka_unit_test(a_json_line_beyond_its_buffer_is_dropped),
    };
    return cmocka_run_group_tests_name("log", tests, NULL, NULL);
}
