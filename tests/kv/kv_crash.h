/* kv_crash.h - processes that are killed while they use a directory: prop_kv_crash.c kills a few, slow_kv_crash.c many. */
#ifndef TESTS_KV_CRASH_H
#define TESTS_KV_CRASH_H

#include <stdbool.h>

/* First in main: true when this process is a child, which has then done its part. */
bool crash_is_child(int argc, char **argv, int *result);

/* A child puts records and says which were acknowledged; it is killed at a random moment, n_kills times over each directory, so that
 * recovery is interrupted as well. No byte is wrong then, and of what was acknowledged 99 % at least is found. */
void crash_writers(int n_directories, int n_kills);

/* Two children on one directory, 1,000 requests and more: each finds what the other put; one is killed, the other goes on, and who comes
 * next takes over what both left. */
void crash_sharers(void);

#endif
