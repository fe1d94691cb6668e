/* lab_chain.cu - what does the boundary between dependent kernels cost, and how much of it do early launches hide?
 *
 * A chain of kernels, each of which streams its own megabytes through per-warp rings (lab_ring.cuh) and needs the
 * result of the kernel before it. Ways: plain launches in a graph; the programmatic attribute alone; dependents released at the
 * kernel's start; and besides that the ring filled before waiting. The floor is one kernel that streams the same bytes. */
#include "lab.cuh"

#include "cuda/kernels/ptx.cuh"

static const int STAGES = 4;
static const int CHUNK = 4096;

enum { RELEASE_EARLY = 1, FILL_EARLY = 2 };

/* n_chunks of CHUNK bytes, dealt to all warps in turn. out[cta] = xor of what it read, folded with the sum of in[0 .. n_in). */
static __global__ void __launch_bounds__(128) stream_kernel(const uint8_t *w, int n_chunks, const uint32_t *in, int n_in, uint32_t *out,
                                                              int how)
{
    extern __shared__ __align__(128) uint8_t memory[];
    __shared__ uint64_t bars[4 * STAGES];
    __shared__ uint32_t sums[4];
    const int warp = threadIdx.x / 32;
    const int lane = threadIdx.x % 32;
    const int n_warps = gridDim.x * 4;
    uint8_t *slots = memory + warp * STAGES * CHUNK;
    const uint32_t bar = smem_address(bars + warp * STAGES);
    if (how & RELEASE_EARLY) {
        pdl_release();
    }
    if (lane == 0) {
        for (int i = 0; i < STAGES; i++) {
            mbar_init(bar + 8 * i, 1);
        }
        mbar_init_fence();
    }
    __syncwarp();
    int next = blockIdx.x + warp * gridDim.x;
    uint32_t issued = 0;
    auto issue = [&]() {
        if (next < n_chunks) {
            if (lane == 0) {
                mbar_expect(bar + issued % STAGES * 8, CHUNK);
                bulk_load(smem_address(slots + issued % STAGES * CHUNK), w + (size_t)next * CHUNK, CHUNK, bar + issued % STAGES * 8);
            }
            issued++;
            next += n_warps;
        }
    };
    if (how & FILL_EARLY) {
        for (int i = 0; i < STAGES; i++) {
            issue();
        }
    }
    pdl_wait();
    uint32_t sum = 0;
    for (int i = threadIdx.x; i < n_in; i += 128) {
        sum += in[i];
    }
    if (!(how & FILL_EARLY)) {
        for (int i = 0; i < STAGES; i++) {
            issue();
        }
    }
    for (uint32_t used = 0; used < issued; used++) {
        mbar_wait(bar + used % STAGES * 8, used / STAGES & 1);
        const uint4 *p = (const uint4 *)(slots + used % STAGES * CHUNK);
        for (int i = 0; i < CHUNK / 512; i++) {
            uint4 v = p[i * 32 + lane];
            sum += v.x ^ v.y ^ v.z ^ v.w;
        }
        __syncwarp();
        issue();
    }
    for (int i = 16; i > 0; i /= 2) {
        sum += __shfl_down_sync(0xFFFFFFFFu, sum, i);
    }
    if (lane == 0) {
        sums[warp] = sum;
    }
    __syncthreads();
    if (threadIdx.x == 0) {
        out[blockIdx.x] = sums[0] + sums[1] + sums[2] + sums[3];
    }
}

static void launch(cudaStream_t stream, bool programmatic, int grid, const uint8_t *w, int n_chunks, const uint32_t *in, int n_in,
                   uint32_t *out, int how)
{
    cudaLaunchAttribute attribute;
    attribute.id = cudaLaunchAttributeProgrammaticStreamSerialization;
    attribute.val.programmaticStreamSerializationAllowed = 1;
    cudaLaunchConfig_t config = {};
    config.gridDim = dim3((unsigned)grid);
    config.blockDim = dim3(128);
    config.dynamicSmemBytes = 4 * STAGES * CHUNK;
    config.stream = stream;
    config.attrs = &attribute;
    config.numAttrs = programmatic ? 1 : 0;
    LAB_CHECK(cudaLaunchKernelEx(&config, stream_kernel, w, n_chunks, in, n_in, out, how));
}

int main()
{
    const double copy = lab_copy_bandwidth("lab_chain");
    const int sms = lab_sms();
    const size_t total = (size_t)10 * 42 << 20;
    uint8_t *w = lab_bytes(total, 5);
    uint32_t *values;
    LAB_CHECK(cudaMalloc(&values, 2 * 4096 * 4));
    LAB_CHECK(cudaMemset(values, 0, 2 * 4096 * 4));
    LAB_CHECK(cudaFuncSetAttribute(stream_kernel, cudaFuncAttributeMaxDynamicSharedMemorySize, 4 * STAGES * CHUNK));
    const int per_sm[] = {1, 2, 3};
    const int megabytes[] = {42, 10, 2};
    const struct { const char *name; bool programmatic; int how; } ways[] = {
        {"plain", false, 0},
        {"attribute", true, 0},
        {"released", true, RELEASE_EARLY},
        {"released_filled", true, RELEASE_EARLY | FILL_EARLY}};
    for (int ctas : per_sm) {
        for (int mb : megabytes) {
            const int n_chunks = (mb << 20) / CHUNK;
            const int n_kernels = 10;
            char name[64];
            double whole = lab_time(1, 9, [&](cudaStream_t s, int) {
                launch(s, false, sms * ctas, w, n_chunks * n_kernels, values, 0, values + 4096, FILL_EARLY);
            });
            snprintf(name, sizeof name, "one_kernel_%dmb_ctas%d", mb * n_kernels, ctas);
            lab_line("lab_chain", name, "time", whole, "us", "copy", (double)(n_chunks * n_kernels) * CHUNK / whole / copy);
            uint32_t first = 0;
            for (auto &way : ways) {
                auto chain = [&](cudaStream_t s, int i) {
                    const uint8_t *part = w + (size_t)(i % n_kernels) * n_chunks * CHUNK;
                    launch(s, way.programmatic && i > 0, sms * ctas, part, n_chunks, values + i % 2 * 4096, sms * ctas,
                           values + (i + 1) % 2 * 4096, way.how);
                };
                LAB_CHECK(cudaMemset(values, 0, 2 * 4096 * 4));
                for (int i = 0; i < n_kernels; i++) {
                    chain(0, i);
                }
                std::vector<uint32_t> out((size_t)(sms * ctas));
                LAB_CHECK(cudaMemcpy(out.data(), values, out.size() * 4, cudaMemcpyDeviceToHost));
                uint32_t sum = 0;
                for (uint32_t v : out) {
                    sum += v;
                }
                first = way.how == 0 && !way.programmatic ? sum : first;
                lab_expect(sum == first, way.name);
                double us = lab_time(n_kernels * 4, 9, chain);
                snprintf(name, sizeof name, "%s_%dmb_ctas%d", way.name, mb, ctas);
                lab_line("lab_chain", name, "time", us, "us", "one_kernel", whole / n_kernels / us);
            }
        }
    }
    return 0;
}
