/* cpus.h - which processors the threads of a pool should run on, and where memory should lie that all of them read (wraps hwloc).
 *
 * Without hwloc in the build, or where it finds nothing out, opening fails with a message and everything works as without pinning.
 * Owner: who opened it; one thread. */
#ifndef CORE_CPUS_H
#define CORE_CPUS_H

#include <deepinfer/base.h>

typedef struct cpus cpus;

/* Has this machine more than one memory node? Cheap: asks the kernel, not hwloc. */
bool cpus_several_nodes(void);

/* The processors that this process may use. `synthetic` describes another machine, as in "node:2 core:4 pu:2", for tests; NULL = this one.
 * Errors: DI_E_UNSUPPORTED, DI_E_MEMORY. */
di_status cpus_open(const char *synthetic, cpus **out, di_error *err);
void cpus_close(cpus *c); /* NULL is ignored */

int cpus_nodes(const cpus *c);
int cpus_cores(const cpus *c);      /* physical ones */
int cpus_processors(const cpus *c); /* hardware threads */

/* Processors for n threads, numbers as the system has them: as many cores of each node as of any other, two threads on one core only when
 * there are more threads than cores, neighbours in out[] close to each other. Returns how many there are: n, or all processors. */
size_t cpus_choose(const cpus *c, size_t n, int *out);

/* Spreads pages of fresh memory over all nodes, one page here, the next one there. False: not possible, they lie where they are touched. */
bool cpus_interleave(const cpus *c, void *memory, size_t bytes);

#endif
