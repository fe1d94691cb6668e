/* cpus.c - see cpus.h. */
#include "core/cpus.h"

#include "core/arith.h"
#include "core/err.h"

#include <stdlib.h>
#include <string.h>
#include <unistd.h>

bool cpus_several_nodes(void)
{
    return access("/sys/devices/system/node/node1", F_OK) == 0;
}

#if defined(DI_HWLOC)
#include <hwloc.h>

/* A hardware thread. */
typedef struct place {
    int cpu;     /* the system's number */
    int node;    /* from 0, only nodes that have processors */
    int core;    /* within its node */
    int sibling; /* within its core */
} place;

struct cpus {
    hwloc_topology_t topology;
    hwloc_bitmap_t allowed;
    place *places; /* [n] by node, core, sibling */
    size_t n;
    int n_nodes;
    int n_cores;
};

/* The hardware threads of one core that may be used. True when there is one. */
static bool add_core(cpus *c, hwloc_const_cpuset_t set, int node, int core)
{
    const size_t before = c->n;
    for (int cpu = hwloc_bitmap_first(set); cpu >= 0; cpu = hwloc_bitmap_next(set, cpu)) {
        if (hwloc_bitmap_isset(c->allowed, (unsigned)cpu)) {
            c->places[c->n] = (place){.cpu = cpu, .node = node, .core = core, .sibling = (int)(c->n - before)};
            c->n++;
        }
    }
    return c->n > before;
}

/* Memory nodes without processors (memory that hangs on a bus) have no threads. */
static void list_places(cpus *c)
{
    const int nodes = hwloc_get_nbobjs_by_type(c->topology, HWLOC_OBJ_NUMANODE);
    for (int i = 0; i < nodes; i++) {
        const hwloc_obj_t node = hwloc_get_obj_by_type(c->topology, HWLOC_OBJ_NUMANODE, (unsigned)i);
        const int cores = hwloc_get_nbobjs_inside_cpuset_by_type(c->topology, node->cpuset, HWLOC_OBJ_CORE);
        const size_t before = c->n;
        int used = 0;
        for (int k = 0; k < cores; k++) {
            const hwloc_obj_t core =
                hwloc_get_obj_inside_cpuset_by_type(c->topology, node->cpuset, HWLOC_OBJ_CORE, (unsigned)k);
            used += add_core(c, core->cpuset, c->n_nodes, used) ? 1 : 0;
        }
        if (cores == 0 && add_core(c, node->cpuset, c->n_nodes, 0)) { /* a system that does not know of cores */
            used = (int)(c->n - before);
            for (size_t at = before; at < c->n; at++) {
                c->places[at].core = (int)(at - before);
                c->places[at].sibling = 0;
            }
        }
        c->n_cores += used;
        c->n_nodes += used > 0 ? 1 : 0;
    }
}

static di_status find_out(cpus *c, const char *synthetic, di_error *err)
{
    c->allowed = hwloc_bitmap_alloc();
    if (c->allowed == NULL || hwloc_topology_init(&c->topology) != 0) {
        return err_memory(err, "processors", sizeof *c);
    }
    if (synthetic != NULL && hwloc_topology_set_synthetic(c->topology, synthetic) != 0) {
        return err_set(err, DI_E_ARGUMENT, "'%s' describes no machine", synthetic);
    }
    if (hwloc_topology_load(c->topology) != 0) {
        return err_set(err, DI_E_UNSUPPORTED, "hwloc finds out nothing about this machine");
    }
    const bool here = hwloc_topology_is_thissystem(c->topology) != 0;
    if (!here || hwloc_get_cpubind(c->topology, c->allowed, HWLOC_CPUBIND_THREAD) != 0) {
        hwloc_bitmap_copy(c->allowed, hwloc_topology_get_allowed_cpuset(c->topology));
    }
    const int most = hwloc_get_nbobjs_by_type(c->topology, HWLOC_OBJ_PU);
    c->places = ar_calloc(most > 0 ? (size_t)most : 0, sizeof *c->places);
    if (c->places == NULL) {
        return err_memory(err, "processors", (size_t)most * sizeof *c->places);
    }
    list_places(c);
    return c->n > 0 ? DI_OK : err_set(err, DI_E_UNSUPPORTED, "hwloc finds no processor that this process may use");
}

di_status cpus_open(const char *synthetic, cpus **out, di_error *err)
{
    cpus *const c = ar_calloc(1, sizeof *c);
    if (c == NULL) {
        return err_memory(err, "processors", sizeof *c);
    }
    const di_status status = find_out(c, synthetic, err);
    if (status != DI_OK) {
        cpus_close(c);
        return status;
    }
    *out = c;
    return DI_OK;
}

void cpus_close(cpus *c)
{
    if (c != NULL) {
        if (c->topology != NULL) {
            hwloc_topology_destroy(c->topology);
        }
        hwloc_bitmap_free(c->allowed);
        free(c->places);
        free(c);
    }
}

int cpus_nodes(const cpus *c) { return c->n_nodes; }
int cpus_cores(const cpus *c) { return c->n_cores; }
int cpus_processors(const cpus *c) { return (int)c->n; }

/* First siblings of all cores come before second ones, and core by core each node has its turn. */
static int by_turn(const void *a, const void *b)
{
    const place *const x = a;
    const place *const y = b;
    const int d = x->sibling != y->sibling ? x->sibling - y->sibling : x->core != y->core ? x->core - y->core : x->node - y->node;
    return d != 0 ? d : x->cpu - y->cpu;
}

static int by_place(const void *a, const void *b)
{
    const place *const x = a;
    const place *const y = b;
    return x->node != y->node ? x->node - y->node : x->core != y->core ? x->core - y->core : x->sibling - y->sibling;
}

size_t cpus_choose(const cpus *c, size_t n, int *out)
{
    const size_t chosen = n < c->n ? n : c->n;
    place *const all = ar_calloc(c->n, sizeof *all);
    if (all == NULL) {
        return 0;
    }
    memcpy(all, c->places, c->n * sizeof *all);
    qsort(all, c->n, sizeof *all, by_turn);
    qsort(all, chosen, sizeof *all, by_place);
    for (size_t i = 0; i < chosen; i++) {
        out[i] = all[i].cpu;
    }
    free(all);
    return chosen;
}

bool cpus_interleave(const cpus *c, void *memory, size_t bytes)
{
    if (c->n_nodes < 2 || hwloc_topology_is_thissystem(c->topology) == 0) {
        return false;
    }
    return hwloc_set_area_membind(c->topology, memory, bytes, hwloc_topology_get_allowed_nodeset(c->topology), HWLOC_MEMBIND_INTERLEAVE,
                                  HWLOC_MEMBIND_BYNODESET) == 0;
}

#else /* no hwloc */

di_status cpus_open(const char *synthetic, cpus **out, di_error *err)
{
    (void)synthetic;
    (void)out;
    return err_set(err, DI_E_UNSUPPORTED, "this program was built without hwloc");
}

void cpus_close(cpus *c) { (void)c; }
int cpus_nodes(const cpus *c) { return c != NULL ? 1 : 0; }
int cpus_cores(const cpus *c) { return c != NULL ? 1 : 0; }
int cpus_processors(const cpus *c) { return c != NULL ? 1 : 0; }

size_t cpus_choose(const cpus *c, size_t n, int *out)
{
    (void)c;
    (void)n;
    (void)out;
    return 0;
}

bool cpus_interleave(const cpus *c, void *memory, size_t bytes)
{
    (void)c;
    (void)memory;
    (void)bytes;
    return false;
}
#endif
