#!/usr/bin/env python3
"""One layer of FP4 experts at released shape beside kt-kernel, in turns.

    bench_experts.py [--json] [--rounds N] [--experts N]

Both run the same problem: hidden 5120, intermediate 2304, every token to six experts drawn at random of N (96) and to one more that
all share, clamps of 10. For one and two threads each program runs in a process of its own, N times (1), one after the other; a figure is
the median over the rounds of medians of eleven calls, in time that passes. kt-kernel rounds activations to BF16 and sums in its own order;
ours gives the bits of the reference.

kt-kernel 0.7.2 is used through its compiled module alone. It asks for packages of several gigabytes that the module does not need:
`build/venv-bench/bin/python -m pip install --no-deps kt-kernel==0.7.2 numpy` is enough. Where it is not installed, or the processor lacks
AVX-512 BF16, our figures come alone.
"""
import argparse
import importlib.util
import json
import os
import pathlib
import statistics
import subprocess
import sys
import time

ROOT = pathlib.Path(__file__).resolve().parent.parent
TOKENS = (1, 6, 32, 128)
HIDDEN, INTER, ACTIVE, CALLS = 5120, 2304, 6, 11


def kt_module():
    package = importlib.util.find_spec("kt_kernel")
    if package is None or importlib.util.find_spec("numpy") is None:
        return None
    files = sorted(pathlib.Path(package.submodule_search_locations[0]).glob("_kt_kernel_ext_avx512_bf16.*.so"))
    if not files or "avx512_bf16" not in pathlib.Path("/proc/cpuinfo").read_text():
        return None
    return files[0]


def run_kt(path, threads, n_experts):
    import numpy as np

    spec = importlib.util.spec_from_file_location("kt_kernel_ext", path)
    kt = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(kt)
    random = np.random.default_rng(1)

    def matrix(n_out, n_in):  # codes, and 2^-9 in BF16 for every 32
        return random.integers(0, 256, (n_out, n_in // 2), dtype=np.uint8), np.full((n_out, n_in // 32), 118 << 7, dtype=np.uint16)

    # The module copies what it is given, so that a few sources serve all experts.
    sources = [(matrix(INTER, HIDDEN), matrix(INTER, HIDDEN), matrix(HIDDEN, INTER)) for _ in range(4)]
    experts = [sources[e % 4] for e in range(n_experts + 1)]
    workers = kt.WorkerPoolConfig()
    workers.subpool_count, workers.subpool_numa_map, workers.subpool_thread_count = 1, [0], [threads]
    infer = kt.CPUInfer(workers)
    on_gpu = np.zeros(n_experts + 1, dtype=np.uint8)
    config = kt.moe.MOEConfig(n_experts + 1, ACTIVE + 1, HIDDEN, INTER, on_gpu.ctypes.data)
    config.layer_idx, config.pool, config.max_len, config.swiglu_limit = 0, infer.backend_, 512, 10.0
    for i, name in enumerate(("gate", "up", "down")):
        setattr(config, name + "_projs", [[e[i][0].ctypes.data for e in experts]])
        setattr(config, name + "_scales", [[e[i][1].ctypes.data for e in experts]])
    config.quant_config.bits, config.quant_config.group_size, config.quant_config.zero_point = 4, 32, False
    layer = kt.moe.AMXFP4_KGroup_MOE(config)
    order = np.arange(n_experts + 1, dtype=np.int64)
    infer.submit(layer.load_weights_task(order.ctypes.data))
    infer.sync()
    result = {}
    for n in TOKENS:
        x = (random.standard_normal((n, HIDDEN)).astype(np.float32).view(np.uint32) >> 16).astype(np.uint16)
        y = np.zeros((n, HIDDEN), dtype=np.uint16)
        weights = np.full((n, ACTIVE + 1), 0.25, dtype=np.float32)
        count = np.array([n], dtype=np.int32)
        times = []
        for _ in range(CALLS + 2):
            drawn = [np.append(np.sort(random.choice(n_experts, ACTIVE, replace=False)), n_experts) for _ in range(n)]
            ids = np.stack(drawn).astype(np.int64)
            start = time.perf_counter()
            infer.submit(layer.forward_task(count.ctypes.data, ACTIVE + 1, ids.ctypes.data, weights.ctypes.data, x.ctypes.data,
                                            y.ctypes.data, False))
            infer.sync()
            times.append((time.perf_counter() - start) * 1e6)
        result[n] = statistics.median(times[2:])
    return result


def in_own_process(path, threads, n_experts):
    command = [sys.executable, "-B", __file__, "--peer", str(path), str(threads), str(n_experts)]
    lines = subprocess.run(command, check=True, stdout=subprocess.PIPE).stdout.splitlines()
    return {int(n): us for n, us in json.loads(next(line for line in lines if line.startswith(b"{"))).items()}


def ours(threads, n_experts):
    program = os.environ.get("DI_BENCH_PROGRAM", ROOT / "build/release/bench/bench_experts")
    lines = subprocess.run([program, str(threads), str(n_experts)], check=True, stdout=subprocess.PIPE).stdout.splitlines()
    return {line["tokens"]: line["median_us"] for line in map(json.loads, lines)}


def main():
    parser = argparse.ArgumentParser(prog="bench_experts")
    parser.add_argument("--json", action="store_true")
    parser.add_argument("--rounds", type=int, default=1)
    parser.add_argument("--experts", type=int, default=96)
    parser.add_argument("--peer", nargs=3, help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.peer:
        path, threads, n_experts = options.peer
        print(json.dumps(run_kt(path, int(threads), int(n_experts))), flush=True)
        return
    path = kt_module()
    if path is None:
        print("bench_experts: kt-kernel is not installed or does not run here, skipped", file=sys.stderr)
    for threads in (1, 2):
        mine, others = [], []
        for _ in range(options.rounds):
            mine.append(ours(threads, options.experts))
            if path is not None:
                others.append(in_own_process(path, threads, options.experts))
        for n in TOKENS:
            value = statistics.median(one[n] for one in mine)
            ratio = statistics.median(one[n] for one in others) / value if others else None
            line = {"bench": "experts", "case": f"x{n}/{threads}", "metric": "time", "value": float(f"{value:.4g}"), "unit": "µs",
                    "baseline": "kt-kernel" if others else None, "ratio": ratio and float(f"{ratio:.3g}")}
            if options.json:
                print(json.dumps(line, ensure_ascii=False), flush=True)
            else:
                print(f"{n:4} tokens  {threads} threads {value:10.0f} µs  {f'{ratio:.2f} x kt-kernel' if ratio else ''}", flush=True)


if __name__ == "__main__":
    main()
