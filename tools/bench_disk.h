/* bench_disk.h - inside `deepinfer bench`: how fast the disk gives parts of a file, past the system's cache. */
#ifndef TOOLS_BENCH_DISK_H
#define TOOLS_BENCH_DISK_H

#include <deepinfer/base.h>

typedef struct bench_disk bench_disk;

/* Errors: DI_E_IO, DI_E_MEMORY. */
di_status bench_disk_new(const char *path, bench_disk **out, di_error *err);
void bench_disk_free(bench_disk *d);
/* Bytes a nanosecond of many reads of a mebibyte at random places, as many at a time as weights are read with. */
di_status bench_disk_rate(bench_disk *d, double *out, di_error *err);

#endif
