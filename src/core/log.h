/* log.h - a log that never holds anybody up: threads hand complete lines over, one thread writes them.
 *
 * log_line copies a line into a bounded ring without a lock and returns. When the ring is full, because the disk or the reader of a pipe
 * is slow, the line is dropped and counted. What cannot be written (a full disk, a closed pipe) is lost and counted; that it began
 * and that it is over is said once each on standard error, and nothing else stops. Lines of one thread keep their order.
 *
 * What lines look like is log_text.h: text with levels for people, JSON lines for programs. */
#ifndef CORE_LOG_H
#define CORE_LOG_H

#include <deepinfer/base.h>

/* Owner: who opened it. All functions but log_close may be called from any thread. */
typedef struct log_sink log_sink;

#define LOG_MAX_LINE 16384 /* bytes without the newline; longer ones are dropped */

typedef enum log_level { LOG_LEVEL_ERROR, LOG_LEVEL_WARN, LOG_LEVEL_INFO, LOG_LEVEL_DEBUG } log_level;

typedef struct log_options {
    const char *path;  /* a file to append to, made when it is not there; NULL = fd */
    int fd;            /* borrowed; must outlive the log */
    log_level level;   /* of log_text: what is less important is left out */
    size_t ring_bytes; /* lines that wait, rounded up to a power of two; 0 = 1 MiB */
    int64_t close_ms;  /* longest wait of log_close for a reader that does not read; 0 = 2000 */
    int report_fd;     /* where trouble with the log is reported; 0 = standard error */
} log_options;

/* Copies the options and starts the writer. Errors: DI_E_IO (the file), DI_E_MEMORY, DI_E_ARGUMENT (more than 1 GiB). */
di_status log_open(const log_options *options, log_sink **out, di_error *err);

/* Writes what is there and ends the writer. Nobody may use the log any more. NULL is ignored. */
void log_close(log_sink *log);

/* Hands over a line of n bytes without a newline. False: it was dropped. NULL takes and forgets everything. Never waits. */
bool log_line(log_sink *log, const char *line, size_t n);

/* The file is opened anew by its path before the next line: for rotation. A path that cannot be opened is reported and the old file
 * kept. Nothing happens to a log without a path. */
void log_reopen(log_sink *log);

/* Waits until every line handed over before has been written or lost; false when timeout_ms passed first. */
bool log_flush(log_sink *log, int64_t timeout_ms);

void log_set_level(log_sink *log, log_level level);
bool log_takes(const log_sink *log, log_level level); /* false for NULL */

typedef struct log_stats {
    uint64_t n_written; /* lines */
    uint64_t n_dropped; /* the ring was full, or they were too long */
    uint64_t n_lost;    /* could not be written */
    uint64_t n_errors;  /* failed writes and reopenings */
    bool failing;       /* the last write failed */
} log_stats;

void log_get_stats(const log_sink *log, log_stats *out); /* zeros for NULL */

#endif
