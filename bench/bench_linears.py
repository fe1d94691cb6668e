#!/usr/bin/env python3
"""The dense FP8 products of a layer beside oneDNN's BF16 products of the same sizes, in turns.

    bench_linears.py [--json] [--rounds N] [--threads N,N]

Ours reads FP8 weights and gives the reference's bits; oneDNN, as PyTorch calls it, reads the weights expanded to BF16 beforehand, once as
they are and once in the order that it prefers for that number of rows: the faster of the two counts. Both go through more weights than
caches hold. Each of N rounds (7) measures one, then the other; figures are medians, in time that passes, and ratios are medians of
the rounds' ratios.

PyTorch is none of the benches' packages: `build/venv-bench/bin/python -m pip install torch --index-url https://download.pytorch.org/whl/cpu`
is enough. Where it is not installed our figures come alone.
"""
import argparse
import json
import os
import pathlib
import statistics
import subprocess
import sys
import time

try:
    import torch
except ImportError:
    torch = None

ROOT = pathlib.Path(__file__).resolve().parent.parent
SHAPES = {"wq_a": (1280, 5120), "wq_b": (32768, 1280), "wkv": (512, 5120), "wo_b": (5120, 8192), "shared_w1": (2304, 5120),
          "shared_w2": (5120, 2304)}
ROWS = {1: 12, 512: 1}  # rows: calls
PEER_BYTES = 384 << 20


class Ours:
    def __init__(self, threads):
        program = os.environ.get("DI_BENCH_PROGRAM", ROOT / "build/release/bench/bench_linears")
        self.process = subprocess.Popen([program, str(threads)], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)

    def measure(self, shape, rows, calls):
        print(*shape, rows, calls, file=self.process.stdin, flush=True)
        return float(self.process.stdout.readline())

    def close(self):
        self.process.stdin.close()
        self.process.wait()


class OneDnn:
    """Products of one shape and one number of rows."""

    def __init__(self, shape, rows):
        n = PEER_BYTES // (2 * shape[0] * shape[1]) + 2
        self.x = torch.randn(rows, shape[1]).bfloat16()
        self.plain = [torch.randn(shape).bfloat16() for _ in range(n)]
        self.ordered = [torch.ops.mkldnn._reorder_linear_weight(w, rows) for w in self.plain]
        self.at = 0

    def time(self, function, weights, calls):
        function(weights[self.at])
        begin = time.perf_counter()
        for _ in range(calls):
            self.at = (self.at + 1) % len(weights)
            function(weights[self.at])
        return (time.perf_counter() - begin) * 1e6 / calls

    def measure(self, calls):
        plain = self.time(lambda w: torch.nn.functional.linear(self.x, w), self.plain, calls)
        ordered = self.time(lambda w: torch.ops.mkldnn._linear_pointwise(self.x, w, None, "none", [], ""), self.ordered, calls)
        time.sleep(0.02)  # its threads go on spinning for a while
        return min(plain, ordered)


def report(line, as_json):
    if as_json:
        print(json.dumps(line), flush=True)
        return
    ratio = f"{line['ratio']:5.2f} x oneDNN BF16 ({line['low']:.2f}-{line['high']:.2f})" if line["ratio"] else ""
    print(f"{line['case']:18} {line['value']:10.1f} us {ratio}", flush=True)


def bench(name, shape, rows, threads, rounds, ours, as_json):
    peer = OneDnn(shape, rows) if torch is not None else None
    mine, ratios = [], []
    for _ in range(rounds):
        mine.append(ours.measure(shape, rows, ROWS[rows]))
        if peer:
            ratios.append(peer.measure(ROWS[rows]) / mine[-1])
    value = statistics.median(mine)
    report({"bench": "linears", "case": f"{name}_x{rows}/{threads}", "metric": "time", "value": float(f"{value:.4g}"), "unit": "us",
            "baseline": "oneDNN BF16" if peer else None, "ratio": round(statistics.median(ratios), 3) if peer else None,
            "low": round(min(ratios), 3) if peer else None, "high": round(max(ratios), 3) if peer else None}, as_json)


def main():
    parser = argparse.ArgumentParser(prog="bench_linears")
    parser.add_argument("--json", action="store_true")
    parser.add_argument("--rounds", type=int, default=7)
    parser.add_argument("--threads", default="1,2")
    parser.add_argument("--rows", default="1,512", help="of 1 and 512")
    options = parser.parse_args()
    if torch is None:
        print("bench_linears: PyTorch is not installed, oneDNN is left out", file=sys.stderr)
    for threads in map(int, options.threads.split(",")):
        if torch is not None:
            torch.set_num_threads(threads)
        ours = Ours(threads)
        for rows in map(int, options.rows.split(",")):
            for name, shape in SHAPES.items():
                bench(name, shape, rows, threads, options.rounds, ours, options.json)
        ours.close()


if __name__ == "__main__":
    main()
