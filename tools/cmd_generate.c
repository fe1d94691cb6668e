/* cmd_generate.c - `deepinfer generate`: a prompt through the model, and tokens out of it as they come.
 *
 * The heart is run_choice: feed, step until the prompt is through, then sample and step. Each choice of --n is a sequence of its
 * own whose seed is --seed + i (architecture.md, sampling); with --draft it is a task of a scheduler (draft_run.h). SIGINT is not
 * handled but blocked and asked for between steps: no handler, no global, and a second one ends the program at once. */
#include "constraint.h"
#include "draft_run.h"
#include "interrupt.h"
#include "logits.h"
#include "open.h"
#include "options.h"
#include "output.h"
#include "prompt.h"
#include "sampling.h"
#include "tools.h"

#include "core/core.h"

#include <deepinfer/engine.h>

#include <inttypes.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#define DEFAULT_MAX_TOKENS 512
#define PROGRESS_AFTER_NS 1000000000

typedef struct generation {
    /* options */
    cli_engine_options engine_options;
    cli_prompt_options prompt_options;
    int64_t max_context; /* 0 = the model's limit */
    cli_sampling sampling;
    cli_constraint constraint;
    int64_t max_tokens;
    int64_t min_tokens;
    int64_t n_choices;
    int64_t logprobs; /* -1 = off */
    const char *stop_id_list;
    cli_list stop_strings;
    const char *dump_logits;
    bool all_logits;
    bool ignore_eos;
    bool json;
    bool echo;
    bool quiet;
    cli_draft draft;
    bool stats;
    /* what the run holds; all owned */
    di_model *model;
    di_engine *engine;
    di_sequence *sequence;
    cli_prompt prompt;
    int32_t *stop_ids;
    size_t n_stop_ids;
    cli_output output;
    cli_draft_run *drafting; /* NULL = no drafts */
    cli_logits logits;
    cli_figures figures;
    int64_t context;  /* longest sequence */
    int64_t first_ns; /* when the first token of a choice was out */
    bool interrupted;
} generation;

static void add_options(cli_parser *p, generation *g)
{
    cli_add_model(p, &g->engine_options);
    cli_add_prompt(p, &g->prompt_options);
    cli_add_int(p, "max-tokens", "N", &g->max_tokens, 0, INT64_C(1) << 40, "most tokens to generate (512); 0 = until the context is full");
    cli_add_sampling(p, &g->sampling);
    cli_add_int(p, "min-tokens", "N", &g->min_tokens, 0, INT32_MAX, "no stop token before so many");
    cli_add_string(p, "stop-id", "IDS", &g->stop_id_list, "token ids that end the output, besides the model's own");
    cli_add_list(p, "stop", "STRING", &g->stop_strings, "text that ends the output and is no part of it; may be repeated");
    cli_add_constraint(p, &g->constraint);
    cli_add_flag(p, "ignore-eos", &g->ignore_eos, "go on after the model's end token");
    cli_add_int(p, "n", "N", &g->n_choices, 1, 1 << 20, "so many outputs, with seeds seed, seed+1 ...");
    cli_add_int(p, "logprobs", "K", &g->logprobs, 0, DI_MAX_TOP_LOGPROBS,
                "with --json: log-probabilities of the token and of the K likeliest");
    cli_add_string(p, "dump-logits", "FILE", &g->dump_logits, "write ids, positions, logits to a safetensors file");
    cli_add_flag(p, "all-logits", &g->all_logits, "with --dump-logits: also those of every prompt position");
    cli_add_flag(p, "echo", &g->echo, "print the prompt before the output");
    cli_add_flag(p, "json", &g->json, "JSON lines: one object a token, one at the end of an output");
    cli_add_flag(p, "quiet", &g->quiet, "no summary, no progress");
    cli_add_draft(p, &g->draft, true);
    cli_add_flag(p, "stats", &g->stats, "with --draft: how many drafts were right by place, tokens a step, what was wasted");
    cli_add_engine(p, &g->engine_options);
    cli_add_replay(p, &g->engine_options);
    cli_add_int(p, "max-context", "N", &g->max_context, 0, INT64_C(1) << 40, "longest sequence in tokens; 0 = the model's limit");
}

static const char help[] =
    "Generate text from a prompt.\v"
    "Without a prompt option, standard input is read. Text is taken as it is: no begin-of-sequence token is put in front "
    "(--bos does), and special tokens in it are plain text (--special recognises them). --chat makes one user message of it. "
    "The summary goes to standard error. Ctrl-C ends the output cleanly with exit code 130.";

static int check_options(const cli_parser *p, generation *g)
{
    if (g->logprobs >= 0 && !g->json) {
        return cli_usage(p, "--logprobs needs --json");
    }
    if (g->dump_logits != NULL && g->n_choices > 1) {
        return cli_usage(p, "--dump-logits is for one output: leave --n away");
    }
    if (g->all_logits && g->dump_logits == NULL) {
        return cli_usage(p, "--all-logits needs --dump-logits");
    }
    if (cli_draft_on(&g->draft) && g->dump_logits != NULL) {
        return cli_usage(p, "--dump-logits shows single steps: leave --draft away");
    }
    if (g->stats && !cli_draft_on(&g->draft)) {
        return cli_usage(p, "--stats is about drafts: it needs --draft");
    }
    int code = cli_check_replay(p, &g->engine_options);
    if (code == CLI_OK) {
        code = cli_check_constraint(p, &g->constraint);
    }
    if (code == CLI_OK) {
        code = cli_check_sampling(p, &g->sampling);
    }
    if (code == CLI_OK) {
        code = cli_check_draft(p, &g->draft);
    }
    return code == CLI_OK ? cli_check_prompt(p, &g->prompt_options) : code;
}

/* --- Opening ---------------------------------------------------------------------------------------------------------- */

static di_status open_model(generation *g, di_error *err)
{
    const int64_t start = clock_now_ns();
    di_status status = cli_open_model(g->engine_options.model, &g->model, err);
    if (status == DI_OK) {
        status = cli_find_draft(&g->draft, g->model, err);
    }
    g->figures.load_s = (double)(clock_now_ns() - start) * 1e-9;
    return status;
}

/* A second Ctrl-C ends the program at once. */
static bool take_interrupt(generation *g)
{
    if (!g->interrupted && cli_take_interrupt()) {
        g->interrupted = true;
        cli_block_interrupt(false);
    }
    return g->interrupted;
}

static di_status open_engine(generation *g, di_error *err)
{
    di_engine_options options;
    cli_get_engine(&g->engine_options, &options);
    options.max_tokens = g->max_context;
    options.draft = cli_draft_on(&g->draft);
    di_model_info info;
    di_model_get_info(g->model, &info);
    g->context = g->max_context > 0 && g->max_context < info.max_tokens ? g->max_context : info.max_tokens;
    cli_logits_init(&g->logits, info.vocab_size);
    di_status status = di_engine_open(g->model, &options, &g->engine, err);
    if (status == DI_OK && !g->quiet) {
        cli_say_engine_weights(g->engine);
    }
    if (status == DI_OK && cli_draft_on(&g->draft)) {
        status = cli_draft_run_new(g->engine, &g->draft, g->constraint.vocabulary, &g->output, &g->drafting, err);
    }
    if (status == DI_OK) {
        di_engine_stats stats;
        di_engine_get_stats(g->engine, &stats);
        g->figures.backend = di_engine_backend(g->engine);
        g->figures.n_threads = stats.n_threads;
    }
    return status;
}

static di_status read_stop_ids(generation *g, di_error *err)
{
    int32_t *listed = NULL;
    size_t n = 0;
    if (g->stop_id_list != NULL) {
        const di_status status = cli_read_ids(g->stop_id_list, &listed, &n, err);
        if (status != DI_OK) {
            err_prefix(err, "--stop-id");
            return status;
        }
    }
    di_model_info info;
    di_model_get_info(g->model, &info);
    int32_t *ids = ar_calloc(n + 1, sizeof *ids);
    if (ids == NULL) {
        free(listed);
        return err_memory(err, "stop ids", n * sizeof *ids);
    }
    if (!g->ignore_eos) {
        ids[g->n_stop_ids++] = info.eos_token_id;
    }
    if (n > 0) {
        memcpy(ids + g->n_stop_ids, listed, n * sizeof *ids);
        g->n_stop_ids += n;
    }
    g->stop_ids = ids;
    free(listed);
    return DI_OK;
}

/* --- Running ---------------------------------------------------------------------------------------------------------- */

static di_sampling sampling_of(const generation *g, int64_t choice)
{
    di_sampling s;
    cli_sampling_get(&g->sampling, &s);
    s.seed += (uint64_t)choice;
    s.min_tokens = (int32_t)g->min_tokens;
    s.stop_ids = g->stop_ids;
    s.n_stop_ids = g->n_stop_ids;
    s.n_top_logprobs = g->logprobs > 0 ? (int32_t)g->logprobs : 0;
    return s;
}

static di_status set_sampling(generation *g, int64_t choice, di_error *err)
{
    const di_sampling s = sampling_of(g, choice);
    return di_sequence_set_sampling(g->sequence, &s, err);
}

/* One line on a terminal that overwrites itself; erased when done == total. */
static void show_progress(const generation *g, int64_t start_ns, int64_t done, int64_t total)
{
    if (g->quiet || clock_now_ns() - start_ns < PROGRESS_AFTER_NS || !isatty(STDERR_FILENO)) {
        return;
    }
    if (done < total) {
        fprintf(stderr, "\rprompt: %" PRId64 " of %" PRId64 " tokens", done, total);
    } else {
        fprintf(stderr, "\r\033[K");
    }
}

static di_status run_prompt(generation *g, di_error *err)
{
    const int64_t start = clock_now_ns();
    const int64_t total = (int64_t)g->prompt.n;
    int64_t done = 0;
    di_status status = DI_OK;
    if (g->all_logits) {
        status = di_sequence_keep_logits(g->sequence, true, err);
    }
    if (status == DI_OK) {
        status = di_sequence_feed(g->sequence, g->prompt.ids, g->prompt.n, err);
    }
    while (status == DI_OK && !di_sequence_ready(g->sequence) && !take_interrupt(g)) {
        int32_t n;
        status = di_engine_step(g->engine, &n, err);
        done += status == DI_OK ? n : 0;
        show_progress(g, start, done, total);
    }
    show_progress(g, start, total, total);
    g->figures.prompt_s = (double)(clock_now_ns() - start) * 1e-9;
    g->figures.prompt_tokens = done; /* none after an error at the start: then there is no summary */
    return status;
}

/* Keeps the logits of the ids that just went through. */
static di_status collect_logits(generation *g, const int32_t *ids, size_t n, di_error *err)
{
    const float *rows;
    int32_t n_rows;
    if (g->dump_logits == NULL) {
        return DI_OK;
    }
    di_status status = cli_logits_add_ids(&g->logits, ids, n, err);
    if (status == DI_OK) {
        status = di_sequence_logits(g->sequence, &rows, &n_rows, err);
    }
    if (status == DI_OK) {
        status = cli_logits_add_rows(&g->logits, rows, (size_t)n_rows, err);
    }
    return status;
}

/* One step of decoding: chooses a token, shows it, and runs it unless it is the last. *finish is set when *last is. */
static di_status run_token(generation *g, bool *last, cli_finish *finish, di_error *err)
{
    const bool context_full = di_sequence_length(g->sequence) >= g->context;
    const int64_t left = g->max_tokens > 0 ? g->max_tokens - g->figures.generated_tokens : INT64_MAX;
    *last = true;
    if (context_full || left <= 0 || take_interrupt(g)) {
        *finish = context_full ? CLI_CONTEXT : left <= 0 ? CLI_LENGTH : CLI_CANCELLED;
        return DI_OK;
    }
    di_sample sample;
    di_status status = cli_constraint_sample(&g->constraint, g->sequence, &sample, err);
    if (status == DI_OK) {
        status = cli_output_token(&g->output, &sample, err);
        g->figures.generated_tokens++;
        g->first_ns = g->figures.generated_tokens == 1 ? clock_now_ns() : g->first_ns;
    }
    if (status != DI_OK) {
        return status;
    }
    const bool stopped = sample.is_stop || cli_output_stopped(&g->output);
    if (stopped || left == 1) {
        *finish = stopped ? CLI_STOP : CLI_LENGTH;
        return g->dump_logits != NULL ? cli_logits_add_ids(&g->logits, &sample.id, 1, err) : DI_OK;
    }
    *last = false;
    while (status == DI_OK && !di_sequence_ready(g->sequence)) {
        int32_t n;
        status = di_engine_step(g->engine, &n, err);
    }
    return status == DI_OK ? collect_logits(g, &sample.id, 1, err) : status;
}

/* A choice as a task with drafts. */
static di_status run_drafted(generation *g, int64_t choice, di_error *err)
{
    const di_sampling sampling = sampling_of(g, choice);
    const di_task_options task = {.prompt = g->prompt.ids,
                                  .n_prompt = g->prompt.n,
                                  .sampling = &sampling,
                                  .max_tokens = g->max_tokens,
                                  .no_cache = true,
                                  .grammar = g->constraint.grammar,
                                  .verify = cli_draft_verify(&g->draft, DI_VERIFY_COUPLED)};
    cli_finish finish = CLI_CANCELLED;
    di_status status = cli_output_begin(&g->output, choice, err);
    if (status == DI_OK && g->echo) {
        status = cli_output_echo(&g->output, g->prompt.ids, g->prompt.n, err);
    }
    if (status == DI_OK) {
        status = cli_draft_run_task(g->drafting, &task, &g->figures, &finish, &g->interrupted, err);
    }
    if (status == DI_OK) {
        status = cli_output_end(&g->output, finish, &g->figures, err);
    }
    if (status == DI_OK && !g->quiet) {
        cli_print_figures(&g->figures);
    }
    return status;
}

static di_status run_choice(generation *g, int64_t choice, di_error *err)
{
    const int64_t start = clock_now_ns();
    cli_finish finish = CLI_CANCELLED;
    bool last = false;
    g->figures.generated_tokens = 0;
    g->first_ns = start;
    di_status status = di_sequence_new(g->engine, &g->sequence, err);
    if (status == DI_OK) {
        status = set_sampling(g, choice, err);
    }
    if (status == DI_OK) {
        status = cli_constraint_begin(&g->constraint, err);
    }
    if (status == DI_OK) {
        status = cli_output_begin(&g->output, choice, err);
    }
    if (status == DI_OK && g->echo) {
        status = cli_output_echo(&g->output, g->prompt.ids, g->prompt.n, err);
    }
    if (status == DI_OK) {
        status = run_prompt(g, err);
    }
    if (status == DI_OK && !g->interrupted) {
        status = collect_logits(g, g->prompt.ids, g->prompt.n, err);
    }
    while (status == DI_OK && !g->interrupted && !last) {
        status = run_token(g, &last, &finish, err);
    }
    g->figures.first_token_s = (double)(g->first_ns - start) * 1e-9;
    g->figures.generate_s = (double)(clock_now_ns() - g->first_ns) * 1e-9;
    g->figures.peak_bytes = cli_peak_bytes();
    if (status == DI_OK) {
        status = cli_output_end(&g->output, finish, &g->figures, err);
    }
    if (!g->quiet && g->figures.prompt_tokens > 0) {
        cli_print_figures(&g->figures);
    }
    di_sequence_free(g->sequence);
    g->sequence = NULL;
    return status;
}

static di_status run(generation *g, di_error *err)
{
    di_status status = open_model(g, err);
    if (status == DI_OK) {
        status = cli_read_prompt(g->model, &g->prompt_options, &g->prompt, err);
    }
    if (status == DI_OK) {
        status = read_stop_ids(g, err);
    }
    if (status == DI_OK) {
        status = cli_constraint_open(&g->constraint, g->model, err);
    }
    if (status == DI_OK) {
        status = cli_output_init(&g->output, di_model_tokenizer(g->model), g->json, g->logprobs >= 0, g->n_choices, err);
    }
    if (status == DI_OK) {
        status = cli_output_stop_at(&g->output, g->stop_strings.items, g->stop_strings.n, err);
    }
    if (status != DI_OK) {
        return status;
    }
    cli_block_interrupt(true);
    status = open_engine(g, err);
    for (int64_t i = 0; status == DI_OK && i < g->n_choices && !g->interrupted; i++) {
        status = g->drafting != NULL ? run_drafted(g, i, err) : run_choice(g, i, err);
    }
    if (status == DI_OK && g->stats) {
        status = cli_draft_run_report(g->drafting, g->json, err);
    }
    if (status == DI_OK && g->dump_logits != NULL) {
        status = cli_logits_write(&g->logits, g->dump_logits, err);
    }
    return status;
}

static void release(generation *g)
{
    cli_draft_run_free(g->drafting);
    di_engine_close(g->engine);
    cli_logits_fini(&g->logits);
    cli_output_fini(&g->output);
    cli_prompt_fini(&g->prompt);
    cli_constraint_close(&g->constraint);
    free(g->stop_ids);
    di_model_close(g->model);
}

int cmd_generate(int argc, char **argv)
{
    generation g = {
        .sampling = CLI_SAMPLING_DEFAULT,
        .max_tokens = DEFAULT_MAX_TOKENS,
        .n_choices = 1,
        .logprobs = -1,
    };
    cli_parser p;
    char **args;
    size_t n_args;
    cli_parser_init(&p, "", 0, 0, help);
    add_options(&p, &g);
    cli_parse(&p, argc, argv, &args, &n_args);
    int code = check_options(&p, &g);
    if (code != CLI_OK) {
        return code;
    }
    signal(SIGPIPE, SIG_IGN); /* a closed pipe is an error of the next write */
    di_error err;
    if (run(&g, &err) != DI_OK) {
        code = cli_fail(&err);
    } else if (g.interrupted) {
        code = CLI_INTERRUPTED;
    }
    release(&g);
    return code;
}
