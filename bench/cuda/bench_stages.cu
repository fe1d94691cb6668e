/* bench_stages.cu - speed of the stages at the released shapes, as a share of the run's own copy bandwidth.
 *
 * Weights are random codes made on the device in packed form: all 384 experts of a layer (7.2 GB), five copies of each dense matrix, so
 * that nothing is found in the L2 again. A time is the mean over the launches of one graph; every launch of the experts has its own
 * routing. The bytes counted are those of the weights a step needs, each once: reading them is the floor. */
#include "lab_tiles.cuh"

#include "cuda/cu_kernels.h"

#include <string>

static const int HIDDEN = 5120;
static const int INTER = 2304;
static const int EXPERTS = 384;
static const int ACTIVE = 6;

static double copy_rate;
static const char *wanted = ""; /* part of a case's name */

static void report(const char *name, double us, double bytes)
{
    lab_line("stages", name, "time", us, "us", "copy", bytes / us / copy_rate);
}

template <typename T>
static T *upload(const std::vector<T> &v)
{
    T *p;
    LAB_CHECK(cudaMalloc(&p, v.size() * sizeof(T)));
    LAB_CHECK(cudaMemcpy(p, v.data(), v.size() * sizeof(T), cudaMemcpyHostToDevice));
    return p;
}

template <typename T>
static T *device(size_t n)
{
    T *p;
    LAB_CHECK(cudaMalloc(&p, n * sizeof(T)));
    LAB_CHECK(cudaMemset(p, 0, n * sizeof(T)));
    return p;
}

/* --- Experts ------------------------------------------------------------------------------------------------------------------ */

/* Lists of n rows: uniform, or by a Zipf law over a random order of the experts. */
static std::vector<int32_t> routes(int n_rows, bool zipf, uint64_t seed)
{
    std::vector<double> sum(EXPERTS + 1, 0.0);
    for (int e = 0; e < EXPERTS; e++) {
        sum[e + 1] = sum[e] + (zipf ? 1.0 / (e + 8) : 1.0);
    }
    std::vector<int32_t> ids;
    for (int t = 0; t < n_rows; t++) {
        std::vector<int32_t> list;
        while ((int)list.size() < ACTIVE) {
            double at = (double)(lab_mix(seed++) >> 11) * 0x1p-53 * sum[EXPERTS];
            int32_t e = (int32_t)(std::upper_bound(sum.begin(), sum.end(), at) - sum.begin()) - 1;
            e = e * 77 % EXPERTS;
            if (std::find(list.begin(), list.end(), e) == list.end()) {
                list.push_back(e);
            }
        }
        std::sort(list.begin(), list.end());
        ids.insert(ids.end(), list.begin(), list.end());
    }
    return ids;
}

static void bench_experts()
{
    const int MOST = 256;
    std::vector<cu_expert> table;
    for (int e = 0; e <= EXPERTS; e++) {
        cu_format f = e < EXPERTS ? CU_FP4 : CU_FP8;
        table.push_back({lab_tiles(f, INTER, HIDDEN, 3 * e),
                         lab_tiles(f, HIDDEN, INTER, 3 * e + 1), lab_tiles(f, INTER, HIDDEN, 3 * e + 2)});
    }
    const double expert_bytes = 3.0 * INTER * HIDDEN * (0.5 + 1.0 / 32);
    const double shared_bytes = 3.0 * INTER * HIDDEN * (1.0 + 1.0 / 1024);
    std::vector<uint16_t> u;
    for (int i = 0; i < MOST * HIDDEN; i++) {
        u.push_back(lab_to_bf16((float)(lab_mix(i) & 0xFFFF) / 32768.0f - 1.0f));
    }
    cu_experts_args a = {};
    a.hidden = HIDDEN;
    a.inter = INTER;
    a.n_experts = EXPERTS;
    a.n_active = ACTIVE;
    a.limit = 10.0f;
    a.u = upload(u);
    a.weights = upload(std::vector<float>(MOST * ACTIVE, 0.25f));
    a.shared = table.back();
    a.experts = upload(table);
    a.y = device<uint16_t>((size_t)MOST * HIDDEN);
    a.work.x = device<uint16_t>((size_t)MOST * HIDDEN);
    a.work.h = device<uint16_t>((size_t)MOST * (ACTIVE + 1) * INTER);
    a.work.out = device<uint16_t>((size_t)MOST * (ACTIVE + 1) * HIDDEN);
    a.work.blocks = device<cu_token_block>(MOST * ACTIVE);
    a.work.done = device<uint32_t>(MOST * (ACTIVE + 1));
    a.work.counters = device<uint32_t>(2);
    const int sms = lab_sms();
    for (int zipf = 0; zipf < 2; zipf++) {
        for (int t : {1, 2, 4, 6, 8, 16, 32, 64, 128, 256}) {
            char name[48];
            snprintf(name, sizeof name, "experts_%s_%d", zipf ? "zipf" : "uniform", t);
            if (strstr(name, wanted) == nullptr) {
                continue;
            }
            const int n = t <= 16 ? 100 : 20;
            std::vector<int32_t *> ids;
            double distinct = 0.0;
            for (int i = 0; i < n; i++) {
                std::vector<int32_t> r = routes(t, zipf != 0, 1000000ull * t + 10000ull * i);
                std::vector<bool> seen(EXPERTS);
                for (int32_t e : r) {
                    distinct += !seen[e];
                    seen[e] = true;
                }
                ids.push_back(upload(r));
            }
            a.n_rows = t;
            double us = lab_time(n, 5, [&](cudaStream_t s, int i) {
                cu_experts_args b = a;
                b.ids = ids[i];
                LAB_CHECK((cudaError_t)cu_launch_experts(&b, sms, s));
            });
            report(name, us, distinct / n * expert_bytes + shared_bytes);
            for (int32_t *p : ids) {
                LAB_CHECK(cudaFree(p));
            }
        }
    }
    for (const cu_expert &e : table) {
        LAB_CHECK(cudaFree((void *)e.w1));
        LAB_CHECK(cudaFree((void *)e.w2));
        LAB_CHECK(cudaFree((void *)e.w3));
    }
}

/* --- Dense products ------------------------------------------------------------------------------------------------------------- */

static void bench_linear()
{
    const lab_shape shapes[] = {
        {"wq_a_wkv", CU_FP8, {1280, 512}, 5120, 4, 1, false}, {"wq_b", CU_FP8, {32768, 0}, 1280, 1, 1, false},
        {"wo_a", CU_FP8, {8192, 0}, 4096, 4, 8, false},      {"wo_b", CU_FP8, {5120, 0}, 8192, 4, 1, false},
        {"router", CU_BF16, {384, 0}, 5120, 4, 1, true},     {"lm_head", CU_BF16, {129280, 0}, 5120, 4, 1, true}};
    const int MOST = 64;
    const int sms = lab_sms();
    for (const lab_shape &s : shapes) {
        const double weights = s.format == CU_FP8 ? 1.0 + 1.0 / 1024 : 2.0;
        const double bytes = (double)(s.n_out[0] + s.n_out[1]) * s.n_in * weights;
        bool any = false;
        for (const char *t : {"_1", "_2", "_4", "_8", "_16", "_32", "_64"}) {
            any = any || strstr((std::string(s.name) + t).c_str(), wanted) != nullptr;
        }
        if (!any) {
            continue;
        }
        const int copies = (int)std::max(1.0, std::ceil(3.0 * 62e6 / bytes));
        std::vector<uint8_t *> w[2];
        for (int c = 0; c < copies; c++) {
            for (int j = 0; j < 2; j++) {
                w[j].push_back(s.n_out[j] > 0 ? lab_tiles(s.format, s.n_out[j], s.n_in, 100 * c + j) : nullptr);
            }
        }
        uint16_t *x = (uint16_t *)lab_bytes((size_t)MOST * s.n_in * s.groups * 2, 9, 0x3C, 4);
        float *y = device<float>((size_t)MOST * (s.n_out[0] + s.n_out[1]));
        uint8_t *arranged = device<uint8_t>(cu_arranged_bytes(MOST, (int64_t)s.n_in * s.groups));
        for (int t : {1, 2, 4, 8, 16, 32, 64}) {
            char name[48];
            snprintf(name, sizeof name, "%s_%d", s.name, t);
            if (strstr(name, wanted) == nullptr) {
                continue;
            }
            cu_linear_set set = {};
            set.n_rows = t;
            set.format = s.format;
            for (int j = 0; j < 2 && s.n_out[j] > 0; j++) {
                cu_linear &job = set.jobs[set.n_jobs++];
                job.n_out = s.n_out[j];
                job.n_in = s.n_in;
                job.split = s.split;
                job.group_rows = s.groups > 1 ? s.n_out[j] / s.groups : 0;
                job.x = x;
                job.ldx = (int64_t)s.n_in * s.groups;
                job.ldy = s.n_out[j];
                (s.wide ? job.y32 = y : (float *)(job.y16 = (uint16_t *)y + j * (size_t)MOST * s.n_out[0]));
            }
            double us = lab_time(s.n_out[0] > 100000 ? 10 : 100, 5, [&](cudaStream_t stream, int i) {
                if (t > 16) {
                    LAB_CHECK((cudaError_t)cu_launch_arrange(x, t, set.jobs[0].ldx, arranged, stream));
                }
                for (int j = 0; j < set.n_jobs; j++) {
                    set.jobs[j].packed = w[j][i % copies];
                    set.jobs[j].arranged = t > 16 ? arranged : nullptr;
                }
                LAB_CHECK((cudaError_t)cu_launch_linear(&set, sms, stream));
            });
            report(name, us, bytes);
        }
        for (int j = 0; j < 2; j++) {
            for (uint8_t *p : w[j]) {
                LAB_CHECK(cudaFree(p));
            }
        }
        LAB_CHECK(cudaFree(x));
        LAB_CHECK(cudaFree(y));
        LAB_CHECK(cudaFree(arranged));
    }
}

/* --- Seams ----------------------------------------------------------------------------------------------------------------------- */

static void bench_seams()
{
    const int MOST = 256;
    const int STREAMS = CU_SEAM_STREAMS;
    uint16_t *x = (uint16_t *)lab_bytes((size_t)MOST * STREAMS * HIDDEN * 2, 41, 0x3C, 3);
    uint16_t *y = (uint16_t *)lab_bytes((size_t)MOST * HIDDEN * 2, 42, 0x3C, 3);
    float *values = upload(std::vector<float>((size_t)STREAMS * HIDDEN * CU_SEAM_MIXES, 0.01f));
    float *out = device<float>((size_t)MOST * 64);
    for (int t : {1, 8, 64, 256}) {
        cu_seam_open_job open = {t, HIDDEN, 20, 1e-6f, 1e-20f, x, values, values, values, values, values, out, nullptr, nullptr, y};
        open.post = out + MOST * 8;
        open.comb = out + MOST * 16;
        cu_seam_close_job close = {t, HIDDEN, y, values, values, x};
        const double bytes = (double)t * HIDDEN * 2 * (STREAMS + 1);
        char name[32];
        snprintf(name, sizeof name, "seam_open_%d", t);
        if (strstr(name, wanted) != nullptr) {
            double us = lab_time(100, 5, [&](cudaStream_t s, int) { LAB_CHECK((cudaError_t)cu_launch_seam_open(&open, s)); });
            report(name, us, bytes + 4.0 * STREAMS * HIDDEN * CU_SEAM_MIXES);
        }
        snprintf(name, sizeof name, "seam_close_%d", t);
        if (strstr(name, wanted) != nullptr) {
            double us = lab_time(100, 5, [&](cudaStream_t s, int) { LAB_CHECK((cudaError_t)cu_launch_seam_close(&close, s)); });
            report(name, us, bytes + (double)t * HIDDEN * 2 * STREAMS);
        }
    }
    LAB_CHECK(cudaFree(x));
    LAB_CHECK(cudaFree(y));
    LAB_CHECK(cudaFree(values));
    LAB_CHECK(cudaFree(out));
}

/* --- Selection ------------------------------------------------------------------------------------------------------------------- */

/* Scores and the best of t rows that see `tokens` / ratio entries each: bytes of the keys once, of the scores once. The pages of all
 * sequences are the same ones, as those of a common prefix are. */
static void bench_selection(int t, int64_t tokens, int ratio, bool blocks)
{
    const int KEY_BYTES = 68;
    const int PER_PAGE = 256;
    const int n = (int)(tokens / ratio);
    const int n_pages = n / PER_PAGE + 1;
    char name[2][48];
    for (int i = 0; i < 2; i++) {
        snprintf(name[i], sizeof name[i], "%s%s_%d_%d", i == 0 ? "scores" : "select", blocks ? "_blocks" : "", n, t);
    }
    if (strstr(name[0], wanted) == nullptr && strstr(name[1], wanted) == nullptr) {
        return;
    }
    uint8_t *pages = lab_bytes((size_t)n_pages * PER_PAGE * KEY_BYTES, 51, 0x78, 4);
    std::vector<uint8_t> table((size_t)t * sizeof(cu_seq) + (size_t)(t + t % 2) * 4 + (size_t)n_pages * 8);
    const size_t pages_at = table.size() - (size_t)n_pages * 8;
    for (int i = 0; i < t; i++) {
        cu_seq seq = {};
        seq.row0 = i;
        seq.n_rows = 1;
        seq.pos0 = tokens - 1;
        seq.pages_at = (int64_t)pages_at;
        memcpy(&table[(size_t)i * sizeof seq], &seq, sizeof seq);
        memcpy(&table[(size_t)t * sizeof seq + (size_t)i * 4], &i, 4);
    }
    for (int i = 0; i < n_pages; i++) {
        const uint8_t *page = pages + (size_t)i * PER_PAGE * KEY_BYTES;
        memcpy(&table[pages_at + (size_t)i * 8], &page, 8);
    }
    cu_index_job a = {};
    a.n_rows = a.n_group = t;
    a.ratio = ratio;
    a.n_heads = 64;
    a.index_dim = 128;
    a.topk = 512;
    a.n_blocks = 2048;
    a.block_size = 8;
    a.make_candidates = blocks;
    a.stride = (n + 8) / 8 * 8;
    a.block_stride = (a.stride / 8 + 8) / 8 * 8;
    a.cand_stride = a.block_stride / 8;
    a.seqs.table = upload(table);
    a.seqs.n_seqs = t;
    a.seqs.row_seq_at = (int64_t)((size_t)t * sizeof(cu_seq));
    a.index_keys.per_page = PER_PAGE;
    a.index_keys.row_bytes = KEY_BYTES;
    std::vector<int8_t> codes;
    std::vector<float> weights;
    for (int i = 0; i < t * 64 * 128; i++) {
        codes.push_back((int8_t)((int)(lab_mix(i) % 25) - 12));
    }
    for (int i = 0; i < t * 64; i++) {
        weights.push_back((float)(int)(lab_mix(i) % 2001) / 1000.0f - 1.0f);
    }
    a.codes = upload(codes);
    a.weights = upload(weights);
    a.scales = upload(std::vector<float>((size_t)t * 64 * 4, 0.25f));
    a.order = device<uint16_t>((size_t)t * a.stride);
    a.block_order = device<uint16_t>((size_t)t * a.block_stride);
    a.candidates = device<uint8_t>((size_t)t * a.cand_stride);
    a.list = device<int32_t>((size_t)t * a.topk);
    const int repeats = (double)t * n > 4e6 ? 5 : 40;
    double us = lab_time(repeats, 5, [&](cudaStream_t s, int) { LAB_CHECK((cudaError_t)cu_launch_index_scores(&a, s)); });
    report(name[0], us, (double)t * n * KEY_BYTES);
    us = lab_time(repeats, 5, [&](cudaStream_t s, int) { LAB_CHECK((cudaError_t)cu_launch_index_select(&a, s)); });
    report(name[1], us, (double)t * n * 2);
    for (const void *p : {(const void *)pages, (const void *)a.seqs.table, (const void *)a.codes, (const void *)a.weights,
                          (const void *)a.scales, (const void *)a.order, (const void *)a.block_order, (const void *)a.candidates,
                          (const void *)a.list}) {
        LAB_CHECK(cudaFree((void *)p));
    }
}

static void bench_selections()
{
    for (int t : {1, 8, 64}) {
        for (int64_t tokens : {8192, 131072, 1048576}) {
            bench_selection(t, tokens, 2, false);
        }
    }
    bench_selection(1, 131072, 1, true);
    bench_selection(1, 1048576, 1, true);
}

/* --- Attention ------------------------------------------------------------------------------------------------------------------- */

/* Queries of released shape behind the first window: rows that are one sequence each (decode), or a chunk of one sequence (prefill). */
struct attention_bench {
    static const int HEADS = 64, DIM = 512, ROPE = 64, WINDOW = 128, RING = 136, TOPK = 512, PER_PAGE = 64;
    static const int RING_BYTES = RING * (DIM + DIM / 32), ROW_BYTES = DIM / 2 + DIM / 16, ENTRIES = 16384;
    cu_attend_job job = {};
    int most;
    uint8_t *states, *pages;
    uint16_t *q;
    std::vector<int32_t *> lists;

    explicit attention_bench(int rows) : most(rows)
    {
        const int sequences = std::min(rows, 256);
        states = lab_bytes((size_t)sequences * RING_BYTES, 51, 0x3A, 4);
        pages = lab_bytes((size_t)sequences * ENTRIES * ROW_BYTES, 52, 0x3A, 4);
        q = (uint16_t *)lab_bytes((size_t)rows * HEADS * DIM * 2, 53, 0x3C, 3);
        job.n_heads = HEADS;
        job.head_dim = DIM;
        job.rope_dim = ROPE;
        job.window = WINDOW;
        job.topk = TOPK;
        job.ring_slots = RING;
        job.scale = 0.044f;
        job.compressed.per_page = PER_PAGE;
        job.compressed.row_bytes = ROW_BYTES;
        job.q = q;
        job.kv = lab_bytes((size_t)rows * (DIM + DIM / 32), 54, 0x3A, 4);
        job.sink = upload(std::vector<float>(HEADS, 0.0f));
        job.rope = upload(std::vector<float>(ROPE / 2, 0.001f));
        job.o = device<uint16_t>((size_t)rows * HEADS * DIM);
        for (int i = 0; i < 4; i++) { /* ascending, spread over all entries */
            std::vector<int32_t> list;
            for (int r = 0; r < rows; r++) {
                for (int j = 0; j < TOPK; j++) {
                    list.push_back(j * (ENTRIES / TOPK) + (int)(lab_mix(((uint64_t)i * rows + r) * TOPK + j) % (ENTRIES / TOPK)));
                }
            }
            lists.push_back(upload(list));
        }
    }

    cu_seqs table(int sequences, int rows_each)
    {
        const size_t head = (size_t)sequences * sizeof(cu_seq);
        const size_t pages_at = (head + (size_t)sequences * rows_each * 4 + 7) / 8 * 8;
        const int n_pages = ENTRIES / PER_PAGE;
        std::vector<uint8_t> bytes(pages_at + (size_t)sequences * n_pages * sizeof(uint8_t *));
        for (int i = 0; i < sequences; i++) {
            cu_seq s = {};
            s.row0 = i * rows_each;
            s.n_rows = rows_each;
            s.pos0 = 2 * ENTRIES;
            s.state = states + (size_t)i * RING_BYTES;
            s.pages_at = (int64_t)(pages_at + (size_t)i * n_pages * sizeof(uint8_t *));
            memcpy(&bytes[i * sizeof s], &s, sizeof s);
            for (int t = 0; t < rows_each; t++) {
                memcpy(&bytes[head + ((size_t)i * rows_each + t) * 4], &i, 4);
            }
            for (int p = 0; p < n_pages; p++) {
                uint8_t *at = pages + ((size_t)i * ENTRIES + (size_t)p * PER_PAGE) * ROW_BYTES;
                memcpy(&bytes[(size_t)s.pages_at + p * sizeof at], &at, sizeof at);
            }
        }
        cu_seqs t = {};
        t.table = (decltype(t.table))upload(bytes);
        t.n_seqs = sequences;
        t.row_seq_at = (int64_t)head;
        return t;
    }

    void run(const char *name, int sequences, int rows_each)
    {
        const int rows = sequences * rows_each;
        if (strstr(name, wanted) == nullptr) {
            return;
        }
        job.n_rows = rows;
        job.seqs = table(sequences, rows_each);
        job.kv_seqs = job.seqs;
        double us = lab_time(rows > 1000 ? 5 : 50, 5, [&](cudaStream_t s, int i) {
            cu_attend_job a = job;
            a.list = lists[i % lists.size()];
            LAB_CHECK((cudaError_t)cu_launch_attend(&a, lab_sms(), s));
        });
        report(name, us, (double)rows * (WINDOW * (DIM + DIM / 32) + TOPK * ROW_BYTES + 4 * HEADS * DIM));
    }
};

static void bench_attention()
{
    if (wanted[0] != '\0' && strncmp(wanted, "attend", 6) != 0) {
        return;
    }
    attention_bench b(8192);
    for (int t : {1, 2, 4, 8, 16, 32, 64, 128, 256}) {
        char name[32];
        snprintf(name, sizeof name, "attend_%d", t);
        b.run(name, t, 1);
    }
    b.run("attend_draft_6", 1, 6);
    b.run("attend_prefill_8192", 1, 8192);
}

/* bench_stages [PART]: only the cases whose name holds PART. The ceiling is read again at the end: a card that throttled shows it. */
int main(int argc, char **argv)
{
    wanted = argc > 1 ? argv[1] : "";
    copy_rate = lab_copy_bandwidth("stages");
    bench_linear();
    bench_seams();
    bench_selections();
    bench_attention();
    if (wanted[0] == '\0' || strncmp(wanted, "experts", 7) == 0) {
        bench_experts();
    }
    lab_copy_bandwidth("stages");
    return 0;
}
