/* lab.cuh - what the laboratory programs share: checks, random data made on the device, times of graph replays, JSON lines.
 *
 * A time is the mean over the launches of one CUDA graph, the median of several replays. Each program measures the device's copy
 * bandwidth in the same run and gives its own figures as a share of it. A line has the keys of every bench of this tree. */
#ifndef BENCH_CUDA_LAB_CUH
#define BENCH_CUDA_LAB_CUH

#include <cuda_runtime.h>

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <functional>
#include <vector>

#define LAB_CHECK(call) lab_check((call), #call, __FILE__, __LINE__)

static inline void lab_check(cudaError_t status, const char *call, const char *file, int line)
{
    if (status != cudaSuccess) {
        fprintf(stderr, "%s:%d: %s: %s\n", file, line, call, cudaGetErrorString(status));
        exit(1);
    }
}

static inline __host__ __device__ uint64_t lab_mix(uint64_t x)
{
    x += 0x9E3779B97F4A7C15ull;
    x = (x ^ (x >> 30)) * 0xBF58476D1CE4E5B9ull;
    x = (x ^ (x >> 27)) * 0x94D049BB133111EBull;
    return x ^ (x >> 31);
}

/* Bytes of a pseudo-random sequence; `span` > 0 confines each to base .. base + span - 1. */
static __global__ void lab_fill_kernel(uint8_t *p, size_t n, uint64_t seed, int base, int span)
{
    size_t step = (size_t)gridDim.x * blockDim.x * 8;
    for (size_t i = ((size_t)blockIdx.x * blockDim.x + threadIdx.x) * 8; i < n; i += step) {
        uint64_t r = lab_mix(seed + i);
        for (size_t k = 0; k < 8 && i + k < n; k++) {
            int v = (int)(r >> (8 * k) & 255);
            p[i + k] = (uint8_t)(span > 0 ? base + v % span : v);
        }
    }
}

static inline uint8_t *lab_bytes(size_t n, uint64_t seed, int base = 0, int span = 0)
{
    uint8_t *p;
    LAB_CHECK(cudaMalloc(&p, n));
    lab_fill_kernel<<<1024, 256>>>(p, n, seed, base, span);
    LAB_CHECK(cudaGetLastError());
    return p;
}

/* Mean time in microseconds of one call: `n` calls in one graph, the median of `repeats` replays after one more to warm up. */
static inline double lab_time(int n, int repeats, const std::function<void(cudaStream_t, int)> &work)
{
    cudaStream_t stream;
    cudaGraph_t graph;
    cudaGraphExec_t exec;
    cudaEvent_t from, to;
    LAB_CHECK(cudaStreamCreate(&stream));
    LAB_CHECK(cudaStreamBeginCapture(stream, cudaStreamCaptureModeGlobal));
    for (int i = 0; i < n; i++) {
        work(stream, i);
    }
    LAB_CHECK(cudaStreamEndCapture(stream, &graph));
    LAB_CHECK(cudaGraphInstantiate(&exec, graph, 0));
    LAB_CHECK(cudaEventCreate(&from));
    LAB_CHECK(cudaEventCreate(&to));
    std::vector<float> ms;
    for (int r = 0; r <= repeats; r++) {
        float t;
        LAB_CHECK(cudaEventRecord(from, stream));
        LAB_CHECK(cudaGraphLaunch(exec, stream));
        LAB_CHECK(cudaEventRecord(to, stream));
        LAB_CHECK(cudaStreamSynchronize(stream));
        LAB_CHECK(cudaEventElapsedTime(&t, from, to));
        if (r > 0) {
            ms.push_back(t);
        }
    }
    std::sort(ms.begin(), ms.end());
    LAB_CHECK(cudaGraphExecDestroy(exec));
    LAB_CHECK(cudaGraphDestroy(graph));
    LAB_CHECK(cudaStreamDestroy(stream));
    return (double)ms[ms.size() / 2] * 1000.0 / n;
}

static inline void lab_line(const char *bench, const char *name, const char *metric, double value, const char *unit,
                            const char *baseline, double ratio)
{
    printf("{\"bench\":\"%s\",\"case\":\"%s\",\"metric\":\"%s\",\"value\":%.6g,\"unit\":\"%s\",\"baseline\":\"%s\",\"ratio\":%.4g}\n",
           bench, name, metric, value, unit, baseline, ratio);
    fflush(stdout);
}

/* Device copy, bytes read and written, in bytes a microsecond (MB/s): the best of several, timed one by one, since copy nodes of a graph
 * run slower. */
static inline double lab_copy_bandwidth(const char *bench)
{
    const size_t n = (size_t)4 << 30;
    uint8_t *a = lab_bytes(n, 1);
    uint8_t *b = lab_bytes(n, 2);
    cudaEvent_t from, to;
    LAB_CHECK(cudaEventCreate(&from));
    LAB_CHECK(cudaEventCreate(&to));
    float best = 1e30f;
    for (int r = 0; r < 6; r++) {
        float ms;
        LAB_CHECK(cudaEventRecord(from));
        LAB_CHECK(cudaMemcpyAsync(b, a, n, cudaMemcpyDeviceToDevice));
        LAB_CHECK(cudaEventRecord(to));
        LAB_CHECK(cudaEventSynchronize(to));
        LAB_CHECK(cudaEventElapsedTime(&ms, from, to));
        best = std::min(best, ms);
    }
    double rate = 2.0 * (double)n / (best * 1000.0);
    lab_line(bench, "copy", "bandwidth", rate, "MB/s", "none", 1.0);
    LAB_CHECK(cudaFree(a));
    LAB_CHECK(cudaFree(b));
    return rate;
}

static inline int lab_sms()
{
    int n;
    LAB_CHECK(cudaDeviceGetAttribute(&n, cudaDevAttrMultiProcessorCount, 0));
    return n;
}

/* Ends a check: prints what was compared and makes the program fail when it differs. */
static inline void lab_expect(bool ok, const char *what)
{
    fprintf(stderr, "%s: %s\n", ok ? "ok" : "FAILED", what);
    if (!ok) {
        exit(1);
    }
}

static inline float lab_bf16(uint16_t v)
{
    uint32_t u = (uint32_t)v << 16;
    float f;
    memcpy(&f, &u, 4);
    return f;
}

static inline uint16_t lab_to_bf16(float f)
{
    uint32_t u;
    memcpy(&u, &f, 4);
    return (uint16_t)((u + 0x7FFFu + ((u >> 16) & 1u)) >> 16);
}

static inline float lab_e2m1(int code)
{
    static const float v[8] = {0, 0.5f, 1, 1.5f, 2, 3, 4, 6};
    return code & 8 ? -v[code & 7] : v[code & 7];
}

#endif
