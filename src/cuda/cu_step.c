/* cu_step.c - passes that repeat, as CUDA graphs. A pass with the same number of rows and sequences asks for the same launches; all that
 * differs lies in device memory: ids, positions, hashes, and the tables of sequences, which these passes have at a fixed place. So the
 * first of a kind runs plainly, the second is captured, and from then on the host starts one graph a pass. Programmatic dependents stay
 * what they are inside a graph. What cannot be captured runs plainly for ever.
 *
 * The one number of a pass that launches do depend on is the length of the longest sequence (selection makes room for its scores): it is
 * rounded up to a power of two, so a growing sequence meets a new kind of pass each time it doubles.
 *
 * Owner: the device; its thread. A pass ends with a sync, so the pinned table is free when the next one begins. */
#include "core/err.h"
#include "cuda/cu_int.h"

#include <cuda_runtime_api.h>

#include <string.h>

#define LEAST_REACH 1024

int64_t cu_reach(const cu_device *dev, int64_t tokens)
{
    int64_t reach = LEAST_REACH;
    if (!dev->planning && dev->steps.recording == NULL) {
        return tokens;
    }
    while (reach < tokens) {
        reach *= 2;
    }
    return dev->planning ? reach : dev->steps.recording->reach;
}

static int64_t reach_of(const ops_step *step)
{
    int64_t reach = LEAST_REACH;
    for (int32_t i = 0; i < step->n_seqs; i++) {
        while (reach < step->seqs[i].pos0 + step->seqs[i].n_rows) {
            reach *= 2;
        }
    }
    return reach;
}

static void drop(cu_graph *g)
{
    if (g->exec != NULL) {
        cudaGraphExecDestroy(g->exec);
        g->exec = NULL;
    }
}

void cu_steps_forget(cu_device *dev)
{
    for (int i = 0; i < CU_GRAPHS; i++) {
        drop(&dev->steps.graphs[i]);
    }
}

void cu_steps_free(cu_device *dev)
{
    cu_steps_forget(dev);
    cudaFreeHost(dev->steps.host);
    cudaFree(dev->steps.device);
}

/* The pass among those that were seen, NULL = it is new; then it takes the place of the one that was not used for longest. */
static cu_graph *find_graph(cu_device *dev, const ops_step *step, int64_t reach)
{
    cu_steps *s = &dev->steps;
    cu_graph *oldest = &s->graphs[0];
    s->clock++;
    for (int i = 0; i < CU_GRAPHS; i++) {
        cu_graph *g = &s->graphs[i];
        if (g->n_rows == step->n_rows && g->n_seqs == step->n_seqs && g->reach == reach && g->key == step->key) {
            g->used = s->clock;
            return g;
        }
        oldest = g->used < oldest->used ? g : oldest;
    }
    drop(oldest);
    *oldest = (cu_graph){.n_rows = step->n_rows, .n_seqs = step->n_seqs, .reach = reach, .key = step->key, .used = s->clock};
    return NULL;
}

static bool reserve_tables(cu_device *dev, size_t bytes)
{
    cu_steps *s = &dev->steps;
    void *host = NULL;
    void *device = NULL;
    if (bytes <= s->capacity) {
        return true;
    }
    const size_t capacity = 2 * bytes > (size_t)1 << 20 ? 2 * bytes : (size_t)1 << 20;
    cu_steps_forget(dev);
    if (!cu_ok(dev, (int)cudaMallocHost(&host, capacity), "table of a step") ||
        !cu_ok(dev, (int)cudaMalloc(&device, capacity), "table of a step")) {
        cudaFreeHost(host);
        return false;
    }
    if (s->capacity > 0) {
        memcpy(host, s->host, s->capacity); /* the first table, when it is the second that needs more */
    }
    cudaFreeHost(s->host);
    cudaFree(s->device);
    s->host = host;
    s->device = device;
    s->capacity = capacity;
    return true;
}

/* Both tables of the pass to where its graph reads them. */
static bool place_tables(cu_device *dev, const ops_step *step)
{
    cu_steps *s = &dev->steps;
    for (int i = 0; i < 2; i++) {
        size_t row_seq_at;
        s->at[i] = i == 0 ? 0 : (s->size[0] + 255) / 256 * 256; /* the same in all passes of so many rows and sequences */
        if (!cu_seqs_build(dev, step->seqs, step->n_seqs, i == 0 ? 0 : step->page_tokens, &s->size[i], &row_seq_at) ||
            !reserve_tables(dev, s->at[i] + s->size[i])) {
            return false;
        }
        memcpy(s->host + s->at[i], dev->building.host, s->size[i]);
    }
    return cu_ok(dev, (int)cudaMemcpyAsync(s->device, s->host, s->at[1] + s->size[1], cudaMemcpyHostToDevice, dev->stream),
                 "table of a step");
}

bool cu_step_begin(ops_device *device, const ops_step *step)
{
    cu_device *dev = cu_of(device);
    cu_select(dev);
    if (step->n_rows > CU_STEP_ROWS || dev->error.code != DI_OK) {
        return false;
    }
    cu_graph *g = find_graph(dev, step, reach_of(step));
    if (g == NULL || g->never || !place_tables(dev, step)) {
        return false;
    }
    if (g->exec != NULL) {
        cu_ok(dev, (int)cudaGraphLaunch(g->exec, dev->stream), "graph of a step");
        return true;
    }
    if (cu_ok(dev, (int)cudaStreamBeginCapture(dev->stream, cudaStreamCaptureModeThreadLocal), "capture")) {
        dev->steps.recording = g;
    }
    return false;
}

bool cu_step_end(ops_device *device)
{
    cu_device *dev = cu_of(device);
    cu_graph *g = dev->steps.recording;
    cudaGraph_t graph = NULL;
    if (g == NULL) {
        return true;
    }
    dev->steps.recording = NULL;
    bool good = cudaStreamEndCapture(dev->stream, &graph) == cudaSuccess && dev->error.code == DI_OK;
    good = good && cudaGraphInstantiate(&g->exec, graph, 0) == cudaSuccess;
    good = good && cudaGraphLaunch(g->exec, dev->stream) == cudaSuccess;
    if (graph != NULL) {
        cudaGraphDestroy(graph);
    }
    if (!good) {
        /* Nothing has run; what went wrong shows again, if it does, when the stages run. */
        (void)cudaGetLastError();
        dev->error.code = DI_OK;
        drop(g);
        g->never = true;
    }
    return good;
}
