/* cpu_place.c - threads on processors of their own, weights on all memory nodes (--cpu-pin).
 *
 * With one memory node the system's own placement is as good, and beside other programs better, since a pinned thread waits for its
 * processor though others are free: "auto" pins where there are several nodes. Which thread reads which weights is decided while
 * stages run, so weights lie on all nodes in turn, and every thread has the bandwidth of all. */
#include "core/arith.h"
#include "core/err.h"
#include "cpu/cpu_int.h"

#include <stdio.h>
#include <string.h>

static di_status pin_threads(cpu_device *dev, di_error *err)
{
    const size_t n = (size_t)dev->ref.n_threads;
    int *const chosen = ar_calloc(n, sizeof *chosen);
    if (chosen == NULL) {
        return err_memory(err, "processors of threads", n * sizeof *chosen);
    }
    const size_t found = cpus_choose(dev->cpus, n, chosen);
    if (found < n) {
        (void)snprintf(dev->placement, sizeof dev->placement, "threads are not pinned: %zu threads on %zu processors", n, found);
    } else if (!pool_pin(dev->ref.pool, chosen, found)) {
        (void)snprintf(dev->placement, sizeof dev->placement, "threads are not all pinned: the system does not permit it");
    } else {
        (void)snprintf(dev->placement, sizeof dev->placement, "%zu threads, all but the first pinned; %d cores, %d memory node%s", n,
                       cpus_cores(dev->cpus), cpus_nodes(dev->cpus), cpus_nodes(dev->cpus) == 1 ? "" : "s");
    }
    free(chosen);
    return DI_OK;
}

di_status cpu_place(cpu_device *dev, const char *pin, di_error *err)
{
    const bool automatic = pin == NULL || strcmp(pin, "auto") == 0;
    di_error why = {.message = ""};
    if (!automatic && strcmp(pin, "on") != 0 && strcmp(pin, "off") != 0) {
        return err_set(err, DI_E_ARGUMENT, "cpu_pin is '%s': must be auto, on or off", pin);
    }
    if (automatic ? !cpus_several_nodes() : strcmp(pin, "off") == 0) {
        return DI_OK;
    }
    if (cpus_open(NULL, &dev->cpus, &why) != DI_OK) {
        (void)snprintf(dev->placement, sizeof dev->placement, "threads are not pinned: %.120s", why.message);
        return DI_OK;
    }
    dev->store.spread = cpus_nodes(dev->cpus) > 1 ? dev->cpus : NULL;
    return pin_threads(dev, err);
}
