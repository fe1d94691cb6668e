/* bench_gemm.cu - speed of products with many tokens at the released shapes, as a share of a BF16 matrix product's rate, and that they give
 * the bits of the products with few tokens.
 *
 * bench_gemm [CEILING [PART]]: CEILING is the rate of an 8192^3 BF16 product in TFLOP/s read in the same run (0 = none: ratios are then 0);
 * only the cases whose name holds PART. Weights are random codes, rows random values of both signs. A time counts the product alone;
 * the packing of its rows has a line of its own. */
#include "lab_tiles.cuh"

#include "cuda/cu_kernels.h"

#include <string>

static double ceiling;
static const char *wanted = "";

static void report(const std::string &name, double us, double flops)
{
    lab_line("gemm", name.c_str(), "rate", flops / us * 1e-6, "TFLOP/s", "bf16 8192^3", ceiling > 0 ? flops / us * 1e-6 / ceiling : 0.0);
}

/* Values of some binades around one, both signs. */
static __global__ void fill_rows(uint16_t *p, size_t n, uint64_t seed)
{
    for (size_t i = (size_t)blockIdx.x * blockDim.x + threadIdx.x; i < n; i += (size_t)gridDim.x * blockDim.x) {
        uint32_t r = (uint32_t)lab_mix(seed + i);
        p[i] = (uint16_t)((r & 0x8070u) | (0x3C00u + (r >> 16 & 0x0380u)));
    }
}

static __global__ void count_differences(const uint32_t *a, const uint32_t *b, size_t n, unsigned long long *differing)
{
    for (size_t i = (size_t)blockIdx.x * blockDim.x + threadIdx.x; i < n; i += (size_t)gridDim.x * blockDim.x) {
        if (a[i] != b[i]) {
            atomicAdd(differing, 1ull);
        }
    }
}

static void expect_equal(const std::string &name, const void *a, const void *b, size_t bytes)
{
    unsigned long long *differing;
    LAB_CHECK(cudaMallocManaged(&differing, sizeof *differing));
    *differing = 0;
    count_differences<<<1024, 256>>>((const uint32_t *)a, (const uint32_t *)b, bytes / 4, differing);
    LAB_CHECK(cudaDeviceSynchronize());
    fprintf(stderr, "%s: %llu of %zu words differ\n", name.c_str(), *differing, bytes / 4);
    lab_expect(*differing == 0, (name + " has the bits of the products with few tokens").c_str());
    LAB_CHECK(cudaFree(differing));
}

static void bench_shape(const lab_shape &s, int rows, bool timed)
{
    const std::string name = std::string(s.name) + "_" + std::to_string(rows);
    if (name.find(wanted) == std::string::npos) {
        return;
    }
    const int sms = lab_sms();
    const size_t width = (size_t)s.n_in * s.groups;
    const size_t outs = (size_t)s.n_out[0] + s.n_out[1];
    const size_t bytes = (size_t)rows * outs * (s.wide ? 4 : 2);
    uint16_t *x;
    uint8_t *packed, *y[2];
    LAB_CHECK(cudaMalloc(&x, rows * width * 2));
    LAB_CHECK(cudaMalloc(&packed, cu_padded_rows(rows) * width * 2));
    fill_rows<<<1024, 256>>>(x, rows * width, 7);
    cu_linear_set set[2] = {};
    for (int k = 0; k < 2; k++) {
        LAB_CHECK(cudaMalloc(&y[k], bytes));
        LAB_CHECK(cudaMemset(y[k], 0xA5 + k, bytes));
        set[k].n_rows = rows;
        set[k].format = s.format;
        set[k].packed_rows = packed;
        set[k].padded_rows = cu_padded_rows(rows);
    }
    for (int j = 0; j < 2 && s.n_out[j] > 0; j++) {
        uint8_t *w = lab_tiles(s.format, s.n_out[j], s.n_in, 31 + j);
        for (int k = 0; k < 2; k++) {
            cu_linear &job = set[k].jobs[set[k].n_jobs++];
            uint8_t *out = y[k] + (size_t)rows * (j > 0 ? s.n_out[0] : 0) * (s.wide ? 4 : 2);
            job = {w, s.n_out[j], s.n_in, s.split, s.groups > 1 ? s.n_out[j] / s.groups : 0, x, (int64_t)width,
                   s.wide ? nullptr : (uint16_t *)out, s.wide ? (float *)out : nullptr, s.n_out[j]};
        }
    }
    const cu_pack_rows pack = {x, (int64_t)width, rows, cu_padded_rows(rows), (int32_t)width, false, packed};
    LAB_CHECK(cudaDeviceSynchronize());
    LAB_CHECK((cudaError_t)cu_launch_linear(&set[0], sms, 0));
    LAB_CHECK((cudaError_t)cu_launch_pack_rows(&pack, 0));
    LAB_CHECK((cudaError_t)cu_launch_gemm(&set[1], sms, 0));
    LAB_CHECK(cudaDeviceSynchronize());
    expect_equal(name, y[0], y[1], bytes);
    if (timed) {
        const double flops = 2.0 * rows * s.n_in * (double)outs;
        const int n = flops > 4e11 ? 4 : 20;
        report(name, lab_time(n, 5, [&](cudaStream_t t, int) { LAB_CHECK((cudaError_t)cu_launch_gemm(&set[1], sms, t)); }), flops);
        if (rows <= 512) {
            report(name + "_few", lab_time(n, 5, [&](cudaStream_t t, int) { LAB_CHECK((cudaError_t)cu_launch_linear(&set[1], sms, t)); }),
                   flops);
        }
        const double us = lab_time(n, 5, [&](cudaStream_t t, int) { LAB_CHECK((cudaError_t)cu_launch_pack_rows(&pack, t)); });
        lab_line("gemm", (name + "_pack").c_str(), "time", us, "us", "none", 0.0);
    }
    for (int k = 0; k < 2; k++) {
        LAB_CHECK(cudaFree(y[k]));
    }
    for (int j = 0; j < set[0].n_jobs; j++) {
        LAB_CHECK(cudaFree((void *)set[0].jobs[j].packed));
    }
    LAB_CHECK(cudaFree(x));
    LAB_CHECK(cudaFree(packed));
}

/* --- Experts ------------------------------------------------------------------------------------------------------------------------ */

enum { HIDDEN = 5120, INTER = 2304, EXPERTS = 384, ACTIVE = 6 };

template <typename T>
static T *device(size_t n)
{
    T *p;
    LAB_CHECK(cudaMalloc(&p, n * sizeof(T)));
    LAB_CHECK(cudaMemset(p, 0x5A, n * sizeof(T)));
    return p;
}

/* Ascending lists of ACTIVE experts for each token: uniform, or with `hot` most of them among a few. */
static int32_t *routes(int rows, bool hot, uint64_t seed)
{
    std::vector<int32_t> ids;
    for (int t = 0; t < rows; t++) {
        std::vector<int32_t> list;
        while ((int)list.size() < ACTIVE) {
            const uint64_t r = lab_mix(seed++);
            const int32_t e = (int32_t)(r % (hot && r >> 60 > 3 ? 24 : EXPERTS));
            if (std::find(list.begin(), list.end(), e) == list.end()) {
                list.push_back(e);
            }
        }
        std::sort(list.begin(), list.end());
        ids.insert(ids.end(), list.begin(), list.end());
    }
    int32_t *p = device<int32_t>(ids.size());
    LAB_CHECK(cudaMemcpy(p, ids.data(), ids.size() * 4, cudaMemcpyHostToDevice));
    return p;
}

static void bench_experts(const std::vector<cu_expert> &table, cu_expert *experts, int rows, bool hot, bool timed)
{
    const std::string name = std::string(hot ? "experts_hot_" : "experts_") + std::to_string(rows);
    if (name.find(wanted) == std::string::npos) {
        return;
    }
    const size_t all = (size_t)rows * (ACTIVE + 1);
    const int sms = lab_sms();
    std::vector<float> weights;
    for (int i = 0; i < rows * ACTIVE; i++) {
        weights.push_back(0.1f + (float)(lab_mix(i) & 255) / 512.0f);
    }
    cu_experts_args a = {};
    a.n_rows = rows;
    a.hidden = HIDDEN;
    a.inter = INTER;
    a.n_experts = EXPERTS;
    a.n_active = ACTIVE;
    a.limit = 10.0f;
    uint16_t *u = device<uint16_t>((size_t)rows * HIDDEN);
    fill_rows<<<1024, 256>>>(u, (size_t)rows * HIDDEN, 11);
    a.u = u;
    a.ids = routes(rows, hot, 1000 + rows);
    float *w = device<float>(weights.size());
    LAB_CHECK(cudaMemcpy(w, weights.data(), weights.size() * 4, cudaMemcpyHostToDevice));
    a.weights = w;
    a.experts = experts;
    a.shared = table.back();
    a.work.out = device<uint16_t>(all * HIDDEN);
    a.work.counters = device<uint32_t>(CU_MANY_CLASSES + 1);
    cu_experts_args few = a;
    few.y = device<uint16_t>((size_t)rows * HIDDEN);
    few.work.x = device<uint16_t>((size_t)rows * HIDDEN);
    few.work.h = device<uint16_t>(all * INTER);
    few.work.blocks = device<cu_token_block>((size_t)rows * ACTIVE);
    few.work.done = device<uint32_t>(all);
    cu_experts_args many = a;
    many.y = device<uint16_t>((size_t)rows * HIDDEN);
    many.work.most_rows = (int32_t)cu_many_rows(rows, ACTIVE, EXPERTS);
    many.work.most_blocks = cu_many_blocks(rows, ACTIVE, EXPERTS);
    many.work.packed_x = device<uint8_t>((size_t)many.work.most_rows * HIDDEN * 2);
    many.work.packed_h = device<uint8_t>((size_t)many.work.most_rows * INTER * 2);
    many.work.slots = device<int32_t>((size_t)many.work.most_rows);
    many.work.slot_weight = device<float>((size_t)many.work.most_rows);
    many.work.many = device<cu_many_block>((size_t)CU_MANY_CLASSES * many.work.most_blocks);
    LAB_CHECK((cudaError_t)cu_launch_experts(&few, sms, 0));
    LAB_CHECK(cudaDeviceSynchronize());
    LAB_CHECK((cudaError_t)cu_launch_experts_many(&many, sms, 0));
    LAB_CHECK(cudaDeviceSynchronize());
    expect_equal(name, few.y, many.y, (size_t)rows * HIDDEN * 2);
    if (timed) {
        const double flops = 6.0 * HIDDEN * INTER * (double)all;
        report(name, lab_time(4, 5, [&](cudaStream_t t, int) { LAB_CHECK((cudaError_t)cu_launch_experts_many(&many, sms, t)); }), flops);
        if (rows <= 2048) {
            report(name + "_few", lab_time(4, 5, [&](cudaStream_t t, int) { LAB_CHECK((cudaError_t)cu_launch_experts(&few, sms, t)); }),
                   flops);
        }
    }
    void *memory[] = {u, (void *)a.ids, w, a.work.out, a.work.counters, few.y, few.work.x, few.work.h, few.work.blocks, few.work.done,
                      many.y, many.work.packed_x, many.work.packed_h, many.work.slots, many.work.slot_weight, many.work.many};
    for (void *p : memory) {
        LAB_CHECK(cudaFree(p));
    }
}

static void bench_all_experts()
{
    std::vector<cu_expert> table;
    for (int e = 0; e <= EXPERTS; e++) {
        cu_format f = e < EXPERTS ? CU_FP4 : CU_FP8;
        table.push_back({lab_tiles(f, INTER, HIDDEN, 3 * e), lab_tiles(f, HIDDEN, INTER, 3 * e + 1),
                         lab_tiles(f, INTER, HIDDEN, 3 * e + 2)});
    }
    cu_expert *experts = device<cu_expert>(table.size());
    LAB_CHECK(cudaMemcpy(experts, table.data(), table.size() * sizeof table[0], cudaMemcpyHostToDevice));
    for (int rows : {1, 77, 1000}) {
        bench_experts(table, experts, rows, rows != 77, false);
    }
    for (int rows : {128, 256, 512, 1024, 2048, 8192}) {
        bench_experts(table, experts, rows, false, true);
    }
    bench_experts(table, experts, 8192, true, true);
}

int main(int argc, char **argv)
{
    ceiling = argc > 1 ? atof(argv[1]) : 0.0;
    wanted = argc > 2 ? argv[2] : "";
    const lab_shape shapes[] = {
        {"wq_a_wkv", CU_FP8, {1280, 512}, 5120, 4, 1, false}, {"wq_b", CU_FP8, {32768, 0}, 1280, 1, 1, false},
        {"wo_a", CU_FP8, {8192, 0}, 4096, 4, 8, false},      {"wo_b", CU_FP8, {5120, 0}, 8192, 4, 1, false},
        {"engram", CU_FP8, {25600, 0}, 6144, 1, 1, false},   {"router", CU_BF16, {384, 0}, 5120, 4, 1, true}};
    for (const lab_shape &s : shapes) {
        for (int rows : {1, 77, 300}) {
            bench_shape(s, rows, false);
        }
        for (int rows : {64, 128, 256, 512, 2048, 8192}) {
            bench_shape(s, rows, true);
        }
    }
    if (strncmp(wanted, "experts", strlen(wanted) < 7 ? strlen(wanted) : 7) == 0) {
        bench_all_experts();
    }
    return 0;
}
