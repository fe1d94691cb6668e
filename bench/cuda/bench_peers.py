#!/usr/bin/env python3
"""The GPU's stages beside what ships with PyTorch, in one run.

    bench_peers.py [--json] [--stages PROGRAM] [--only PART]

Problems and names are those of bench_stages.cu; PROGRAM (build/gpu/bench_stages) is run first, and its lines stand beside the peers'.
Peers: cuBLAS through torch on weights expanded to BF16 beforehand (twice the bytes of FP8, four times those of FP4), torch.topk, gather and
scaled dot product of torch, and Triton kernels written here for the comparison, which expand FP8 and FP4 codes as they go. Random data;
inputs change over more than three times the L2; a time is the mean over the launches of one CUDA graph, the median of seven replays. A peer
whose result is wrong is reported as failing and not timed. Needs torch with Triton and a GPU; says so and ends where they are missing.
"""
import argparse
import json
import math
import statistics
import subprocess
import sys

try:
    import torch
    import triton
    import triton.language as tl
except ImportError as problem:
    print(f"skipped: {problem}")
    sys.exit(0)

L2_BYTES = 62e6
HIDDEN, INTER, EXPERTS, ACTIVE = 5120, 2304, 384, 6
DENSE = {"wq_a_wkv": (1792, 5120), "wq_b": (32768, 1280), "wo_b": (5120, 8192)}  # outputs, inputs
FEW, MANY = (1, 8, 64), (1024, 8192)


def graph_time(launch, n):
    """Microseconds of one of launch(0) .. launch(n - 1), captured as one graph."""
    launch(0)
    torch.cuda.synchronize()
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        for i in range(n):
            launch(i)
    times = []
    for replay in range(8):
        start, end = torch.cuda.Event(enable_timing=True), torch.cuda.Event(enable_timing=True)
        start.record()
        graph.replay()
        end.record()
        torch.cuda.synchronize()
        if replay > 0:
            times.append(start.elapsed_time(end) * 1000 / n)
    return statistics.median(times)


def relative_error(value, reference):
    value, reference = value.float(), reference.float()
    return (torch.linalg.vector_norm(value - reference) / torch.linalg.vector_norm(reference)).item()


# --- Triton: products whose weights are codes --------------------------------------------------------------------------------------


@triton.jit
def fp8_product(x, w, s, y, m, n, k, BM: tl.constexpr, BN: tl.constexpr, BK: tl.constexpr):
    """y[m, n] = x[m, k] w[n, k]^T; w in E4M3, s[n / 32, k / 32] exponents with bias 127."""
    rows = tl.program_id(1) * BM + tl.arange(0, BM)
    outs = tl.program_id(0) * BN + tl.arange(0, BN)
    acc = tl.zeros((BM, BN), dtype=tl.float32)
    for at in range(0, k, BK):
        ins = at + tl.arange(0, BK)
        xv = tl.load(x + rows[:, None].to(tl.int64) * k + ins[None, :], mask=rows[:, None] < m, other=0.0)
        code = tl.load(w + outs[:, None].to(tl.int64) * k + ins[None, :])
        exponent = tl.load(s + (outs[:, None] // 32) * (k // 32) + ins[None, :] // 32).to(tl.int32)
        wv = (code.to(tl.float32) * (exponent << 23).to(tl.float32, bitcast=True)).to(tl.bfloat16)
        acc = tl.dot(xv, tl.trans(wv), acc)
    tl.store(y + rows[:, None].to(tl.int64) * n + outs[None, :], acc.to(tl.bfloat16), mask=rows[:, None] < m)


@triton.jit
def fp4_product(x, w, s, y, block_expert, block_rows, n, k, DIVIDE: tl.constexpr, BM: tl.constexpr, BN: tl.constexpr, BK: tl.constexpr):
    """For the block's expert e and its rows r (-1 for none): y[r] = x[r / DIVIDE] w[e]^T; w[e][n, k / 2] pairs of E2M1, s[e][n, k / 32]."""
    expert = tl.load(block_expert + tl.program_id(1)).to(tl.int64)
    rows = tl.load(block_rows + tl.program_id(1) * BM + tl.arange(0, BM)).to(tl.int64)
    outs = tl.program_id(0) * BN + tl.arange(0, BN)
    live = rows >= 0
    acc = tl.zeros((BM, BN), dtype=tl.float32)
    for at in range(0, k, BK):
        ins = at + tl.arange(0, BK)
        pairs = at // 2 + tl.arange(0, BK // 2)
        xv = tl.load(x + (rows // DIVIDE)[:, None] * k + ins[None, :], mask=live[:, None], other=0.0)
        pair = tl.load(w + (expert * n + outs[:, None]) * (k // 2) + pairs[None, :]).to(tl.int32)
        code = tl.reshape(tl.join(pair & 15, pair >> 4), (BN, BK))
        # Two bits of exponent and one of mantissa at their places in an fp32, a subnormal one included, times 2^126.
        bits = ((code & 7) << 22) | ((code & 8) << 28)
        exponent = tl.load(s + (expert * n + outs[:, None]) * (k // 32) + ins[None, :] // 32).to(tl.int32)
        wv = bits.to(tl.float32, bitcast=True) * 8.507059173023462e37 * (exponent << 23).to(tl.float32, bitcast=True)
        acc = tl.dot(xv, tl.trans(wv.to(tl.bfloat16)), acc)
    tl.store(y + rows[:, None] * n + outs[None, :], acc.to(tl.bfloat16), mask=live[:, None])


def expand_fp4(w, s):
    """BF16 values of packed codes w[..., k / 2] and exponents s[..., k / 32]."""
    table = torch.tensor([0, 0.5, 1, 1.5, 2, 3, 4, 6, -0.0, -0.5, -1, -1.5, -2, -3, -4, -6], device="cuda")
    codes = torch.stack((w & 15, w >> 4), dim=-1).flatten(-2)
    return (table[codes.long()] * torch.exp2(s.float() - 127).repeat_interleave(32, dim=-1)).bfloat16()


# --- Cases -------------------------------------------------------------------------------------------------------------------------


def best_of(candidates, check):
    """The fastest candidate (launch, n) whose result passes; None when all fail. A variant that does not compile or fit is left out."""
    best = None
    for launch, n in candidates:
        try:
            launch(0)
            torch.cuda.synchronize()
        except Exception as problem:  # Triton raises many kinds: too much shared memory, no such layout
            print(f"bench_peers: a variant is left out: {str(problem).splitlines()[0][:120]}", file=sys.stderr)
            continue
        if not check():
            return math.nan
        time = graph_time(launch, n)
        best = time if best is None else min(best, time)
    return best


def dense(report, only):
    for name, (n_out, n_in) in DENSE.items():
        copies = max(1, math.ceil(3 * L2_BYTES / (n_out * n_in)))
        codes = [torch.randn(n_out, n_in, device="cuda").mul_(32).to(torch.float8_e4m3fn) for _ in range(copies)]
        scales = [torch.randint(110, 114, (n_out // 32, n_in // 32), device="cuda", dtype=torch.uint8) for _ in range(copies)]
        expand = lambda w, s: (w.float() * torch.exp2(s.float() - 127).repeat_interleave(32, 0).repeat_interleave(32, 1)).bfloat16()
        wide = [expand(w, s) for w, s in zip(codes, scales)]
        for m in FEW + MANY:
            case = f"{name}_{m}"
            if only not in case:
                continue
            x = torch.randn(m, n_in, device="cuda", dtype=torch.bfloat16)
            y = torch.empty(m, n_out, device="cuda", dtype=torch.bfloat16)
            reference = x.float() @ wide[0].float().T
            n = 40 if m <= 64 else 8
            report(case, "cublas_bf16", graph_time(lambda i: torch.matmul(x, wide[i % copies].T, out=y), n))

            def launcher(bm, bn, bk, warps, stages):
                grid = (n_out // bn, triton.cdiv(m, bm))
                return lambda i: fp8_product[grid](x, codes[i % copies], scales[i % copies], y, m, n_out, n_in, BM=bm, BN=bn, BK=bk,
                                                   num_warps=warps, num_stages=stages)

            shapes = [(16, 32, 256, 4, 4), (16, 64, 128, 4, 4)] if m <= 16 else [(64, 64, 128, 4, 4)] if m <= 64 else [(128, 128, 64, 8, 3)]
            report(case, "triton_fp8", best_of([(launcher(*s), n) for s in shapes], lambda: relative_error(y, reference) < 1e-2))


def token_blocks(ids, bm):
    """Blocks of at most bm (row, choice) pairs that share an expert."""
    flat = ids.flatten().tolist()
    lists = {}
    for at, expert in enumerate(flat):
        lists.setdefault(expert, []).append(at)
    experts, rows = [], []
    for expert in sorted(lists):
        for start in range(0, len(lists[expert]), bm):
            part = lists[expert][start:start + bm]
            experts.append(expert)
            rows += part + [-1] * (bm - len(part))
    return torch.tensor(experts, device="cuda", dtype=torch.int32), torch.tensor(rows, device="cuda", dtype=torch.int32)


def experts(report, only):
    """The routed products of a layer: gate and up as one, SwiGLU, down; without the shared expert, which the peer is spared."""
    if "experts" not in only and only not in "experts_uniform_":
        return
    w13 = torch.randint(0, 256, (EXPERTS, 2 * INTER, HIDDEN // 2), device="cuda", dtype=torch.uint8)
    w2 = torch.randint(0, 256, (EXPERTS, HIDDEN, INTER // 2), device="cuda", dtype=torch.uint8)
    s13 = torch.randint(117, 120, (EXPERTS, 2 * INTER, HIDDEN // 32), device="cuda", dtype=torch.uint8)
    s2 = torch.randint(117, 120, (EXPERTS, HIDDEN, INTER // 32), device="cuda", dtype=torch.uint8)
    for m in (1, 8, 64, 256, 8192):
        case = f"experts_uniform_{m}"
        bm = 16 if m <= 256 else 128
        sets = 8 if m <= 256 else 1
        ids = [torch.stack([torch.randperm(EXPERTS, device="cuda")[:ACTIVE] for _ in range(m)]) for _ in range(sets)]
        blocks = [token_blocks(i, bm) for i in ids]
        x = torch.randn(m, HIDDEN, device="cuda", dtype=torch.bfloat16)
        both = torch.empty(m * ACTIVE, 2 * INTER, device="cuda", dtype=torch.bfloat16)
        inner = torch.empty(m * ACTIVE, INTER, device="cuda", dtype=torch.bfloat16)
        y = torch.empty(m * ACTIVE, HIDDEN, device="cuda", dtype=torch.bfloat16)

        def launcher(bn, bk, warps, stages):
            def launch(i):
                expert, rows = blocks[i % sets]
                fp4_product[(2 * INTER // bn, len(expert))](x, w13, s13, both, expert, rows, 2 * INTER, HIDDEN, DIVIDE=ACTIVE, BM=bm, BN=bn,
                                                            BK=bk, num_warps=warps, num_stages=stages)
                torch.mul(torch.nn.functional.silu(both[:, :INTER]), both[:, INTER:], out=inner)
                fp4_product[(HIDDEN // bn, len(expert))](inner, w2, s2, y, expert, rows, HIDDEN, INTER, DIVIDE=1, BM=bm, BN=bn, BK=bk,
                                                         num_warps=warps, num_stages=stages)
            return launch

        def check():
            expert = ids[0][0, 0].item()
            h = x[:1].float() @ expand_fp4(w13[expert], s13[expert]).float().T
            h = h.bfloat16()
            h = torch.nn.functional.silu(h[:, :INTER]) * h[:, INTER:]
            return relative_error(y[:1], h.float() @ expand_fp4(w2[expert], s2[expert]).float().T) < 2e-2

        shapes = [(64, 128, 4, 3), (32, 256, 4, 3), (128, 128, 4, 3)] if m <= 256 else [(128, 64, 8, 3)]
        report(case, "triton_fp4", best_of([(launcher(*s), 8 if m <= 256 else 2) for s in shapes], check))


def head(report, only):
    w = torch.randn(129280, HIDDEN, device="cuda", dtype=torch.bfloat16)
    for m in FEW:
        if only in f"lm_head_{m}":
            x = torch.randn(m, HIDDEN, device="cuda", dtype=torch.bfloat16)
            y = torch.empty(m, 129280, device="cuda", dtype=torch.bfloat16)
            report(f"lm_head_{m}", "cublas_bf16", graph_time(lambda i: torch.matmul(x, w.T, out=y), 8))


def attention(report, only):
    """128 + 512 keys of 512 values, the same for keys and values, 64 heads; rows already in BF16."""
    pool = torch.randn(1 << 18, 512, device="cuda", dtype=torch.bfloat16)
    for m in (1, 8, 64, 256):
        if only in f"attend_{m}":
            q = torch.randn(m, 1, 64, 512, device="cuda", dtype=torch.bfloat16)
            at = torch.randint(0, pool.shape[0], (m, 640), device="cuda")

            def launch(_):
                rows = pool[at].unsqueeze(1)
                torch.nn.functional.scaled_dot_product_attention(q, rows, rows)
            report(f"attend_{m}", "torch_gather_sdpa", graph_time(launch, 20))


def selection(report, only):
    for n in (16384, 131072, 524288):
        for m in (1, 8):
            if only in f"topk_{n}_{m}":
                scores = [torch.randn(m, n, device="cuda") for _ in range(4)]
                report(f"topk_{n}_{m}", "torch_topk", graph_time(lambda i: torch.topk(scores[i % 4], 512, dim=-1, sorted=False), 20))


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--json", action="store_true")
    parser.add_argument("--stages", help="bench_stages, whose figures are put beside the peers'")
    parser.add_argument("--only", default="", help="cases whose name holds this")
    args = parser.parse_args()
    if not torch.cuda.is_available():
        print("skipped: no GPU")
        return
    ours = {}
    if args.stages:
        for line in subprocess.run([args.stages, args.only], stdout=subprocess.PIPE, text=True, check=True).stdout.splitlines():
            figure = json.loads(line)
            if figure["metric"] == "time":
                ours[figure["case"]] = figure["value"]
    table = []

    def report(case, peer, us):
        mine = ours.get(case)
        ratio = us / mine if us and mine else None
        table.append((case, peer, us, mine, ratio))
        if args.json:
            print(json.dumps({"bench": "peers", "case": case, "metric": "time", "value": None if us is None or math.isnan(us) else us,
                              "unit": "us", "baseline": peer, "ratio": ratio, "ours": mine}), flush=True)

    torch.manual_seed(1)
    torch.backends.cuda.matmul.allow_bf16_reduced_precision_reduction = False
    square = [torch.randn(8192, 8192, device="cuda", dtype=torch.bfloat16) for _ in range(2)]
    us = graph_time(lambda i: torch.matmul(square[0], square[1]), 4)
    print(f"BF16 product 8192^3: {2 * 8192**3 / us / 1e6:.0f} TFLOP/s", file=sys.stderr)
    del square
    for part in (dense, head, attention, selection, experts):
        with torch.inference_mode():
            part(report, args.only)
    if not args.json:
        print(f"{'case':24} {'peer':20} {'peer, us':>10} {'ours, us':>10} {'times faster':>13}")
        for case, peer, us, mine, ratio in table:
            time = "wrong" if us is not None and math.isnan(us) else "none" if us is None else f"{us:.1f}"
            print(f"{case:24} {peer:20} {time:>10} {'' if mine is None else f'{mine:.1f}':>10} {'' if ratio is None else f'{ratio:.2f}':>13}")


if __name__ == "__main__":
    main()
