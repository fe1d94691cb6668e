/* lab_cluster.cu - how long do blocks take to tell each other something?
 *
 *   cluster   every rank writes 128 floats to every other rank's shared memory, one cluster barrier, each sums what it got
 *   barrier   the cluster barrier alone
 *   flags     a counter in device memory: one block adds, another sees it (round trip of two)
 *   grid      all resident blocks add to one counter and wait for the last
 *
 * Cycles of the SM clock, mean of many rounds, sums checked. */
#include "lab.cuh"

#include "cuda/kernels/ptx.cuh"

#include <cooperative_groups.h>

namespace cg = cooperative_groups;

static const int ROUNDS = 2000;

template <int RANKS>
static __global__ void __launch_bounds__(128) reduce_kernel(float *out, long long *cycles, int exchange)
{
    __shared__ float box[2][RANKS][128];
    cg::cluster_group cluster = cg::this_cluster();
    const int rank = (int)cluster.block_rank();
    float v = (float)(threadIdx.x + rank);
    cluster.sync();
    long long from = clock64();
    for (int r = 0; r < ROUNDS; r++) {
        if (exchange) {
            for (int peer = 0; peer < RANKS; peer++) {
                *cluster.map_shared_rank(&box[r % 2][rank][threadIdx.x], peer) = v;
            }
        }
        cluster.sync();
        if (exchange) {
            float sum = 0.0f;
            for (int peer = 0; peer < RANKS; peer++) {
                sum += box[r % 2][peer][threadIdx.x];
            }
            v = sum * (1.0f / RANKS);
        }
    }
    long long to = clock64();
    out[blockIdx.x * 128 + threadIdx.x] = v;
    if (blockIdx.x == 0 && threadIdx.x == 0) {
        *cycles = to - from;
    }
    cluster.sync();
}

/* Blocks 0 and 1 hand a counter back and forth. */
static __global__ void flag_kernel(uint32_t *flags, long long *cycles)
{
    long long from = clock64();
    for (uint32_t r = 1; r <= ROUNDS; r++) {
        if (blockIdx.x == 0) {
            flag_add(flags);
            while (flag_load(flags + 64) < r) {
            }
        } else {
            while (flag_load(flags) < r) {
            }
            flag_add(flags + 64);
        }
    }
    if (blockIdx.x == 0) {
        *cycles = clock64() - from;
    }
}

static __global__ void __launch_bounds__(128) grid_kernel(uint32_t *flags, long long *cycles)
{
    long long from = clock64();
    for (uint32_t r = 1; r <= ROUNDS; r++) {
        __syncthreads();
        if (threadIdx.x == 0) {
            flag_add(flags);
            while (flag_load(flags) < r * gridDim.x) {
            }
        }
        __syncthreads();
    }
    if (blockIdx.x == 0 && threadIdx.x == 0) {
        *cycles = clock64() - from;
    }
}

static float *out;
static long long *cycles;

static void report(const char *name)
{
    long long c;
    int khz;
    LAB_CHECK(cudaDeviceSynchronize());
    LAB_CHECK(cudaMemcpy(&c, cycles, sizeof c, cudaMemcpyDeviceToHost));
    LAB_CHECK(cudaDeviceGetAttribute(&khz, cudaDevAttrClockRate, 0));
    double mean = (double)c / ROUNDS;
    lab_line("lab_cluster", name, "latency", mean, "cycles", "boost_clock_us", mean / (khz / 1000.0));
}

template <int RANKS>
static void cluster_case(int exchange)
{
    cudaLaunchAttribute attribute;
    attribute.id = cudaLaunchAttributeClusterDimension;
    attribute.val.clusterDim.x = RANKS;
    attribute.val.clusterDim.y = 1;
    attribute.val.clusterDim.z = 1;
    cudaLaunchConfig_t config = {};
    config.gridDim = dim3(RANKS * 8);
    config.blockDim = dim3(128);
    config.attrs = &attribute;
    config.numAttrs = 1;
    if (RANKS > 8) {
        LAB_CHECK(cudaFuncSetAttribute(reduce_kernel<RANKS>, cudaFuncAttributeNonPortableClusterSizeAllowed, 1));
    }
    for (int i = 0; i < 2; i++) {
        LAB_CHECK(cudaLaunchKernelEx(&config, reduce_kernel<RANKS>, out, cycles, exchange));
    }
    char name[32];
    snprintf(name, sizeof name, "%s_%d", exchange ? "cluster" : "barrier", RANKS);
    report(name);
    if (exchange) {
        std::vector<float> v((size_t)RANKS * 128);
        LAB_CHECK(cudaMemcpy(v.data(), out, v.size() * 4, cudaMemcpyDeviceToHost));
        bool right = true;
        for (int t = 0; t < 128; t++) {
            right = right && std::fabs(v[(size_t)t] - ((float)t + (RANKS - 1) / 2.0f)) < 1e-3f;
        }
        lab_expect(right, name);
    }
}

int main()
{
    uint32_t *flags;
    LAB_CHECK(cudaMalloc(&out, 256 * 128 * 4));
    LAB_CHECK(cudaMalloc(&cycles, sizeof *cycles));
    LAB_CHECK(cudaMalloc(&flags, 4096));
    for (int exchange = 0; exchange < 2; exchange++) {
        cluster_case<2>(exchange);
        cluster_case<4>(exchange);
        cluster_case<8>(exchange);
        cluster_case<16>(exchange);
    }
    LAB_CHECK(cudaMemset(flags, 0, 4096));
    flag_kernel<<<2, 1>>>(flags, cycles);
    report("flags_round_trip");
    const int sms = lab_sms();
    for (int per_sm = 1; per_sm <= 3; per_sm++) {
        LAB_CHECK(cudaMemset(flags, 0, 4096));
        int grid = sms * per_sm;
        void *args[] = {&flags, &cycles};
        LAB_CHECK(cudaLaunchCooperativeKernel((const void *)grid_kernel, dim3((unsigned)grid), dim3(128), args, 0, 0));
        char name[32];
        snprintf(name, sizeof name, "grid_%d_per_sm", per_sm);
        report(name);
    }
    return 0;
}
