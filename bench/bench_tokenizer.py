#!/usr/bin/env python3
"""Speed of the tokenizer beside Hugging Face tokenizers and gigatoken, in turns.

    bench_tokenizer.py [--json] [--rounds N]

For each text every program runs in a process of its own, N times (3), one after the other; figures are medians over the
rounds, in MB/s of processor time on one core. Cold is the first pass over the whole text, warm the median of the five after
it, decode likewise. Hugging Face is given the first 1.5 MB, which take it as long as all the others need. Texts come from
DI_BENCH_TEXT, else build/bench-text, where tools/tokenizer/make_corpora.py makes them. A peer that is not installed is
skipped by name. The figures of two threads are time that passes, and mean nothing while other programs use the cores.
"""
import argparse
import json
import os
import pathlib
import statistics
import subprocess
import sys
import time

ROOT = pathlib.Path(__file__).resolve().parent.parent
CASES = ("english", "code", "chinese")
HUGGING_FACE_CHARACTERS = 1_500_000
ALLOWED_NS_A_BYTE = 60
ALLOWED_OPEN_US = 5000


def timed(work, n_bytes):
    start = time.process_time()
    result = work()
    return n_bytes / 1e6 / (time.process_time() - start), result


def run_gigatoken(tokenizer, text):
    import gigatoken

    data = text.read_bytes()
    peer = gigatoken.Tokenizer(str(tokenizer))
    cold, ids = timed(lambda: peer.encode(data), len(data))
    warm = statistics.median(timed(lambda: peer.encode(data), len(data))[0] for _ in range(5))
    decode = statistics.median(timed(lambda: peer.decode(ids), len(data))[0] for _ in range(5))
    return {"encode_cold": cold, "encode_warm": warm, "decode": decode, "bytes_per_token": len(data) / len(ids)}


def run_huggingface(tokenizer, text):
    import tokenizers

    part = text.read_text(encoding="utf-8")[:HUGGING_FACE_CHARACTERS]
    part = part.encode()[:HUGGING_FACE_CHARACTERS].decode(errors="ignore")
    peer = tokenizers.Tokenizer.from_file(str(tokenizer))
    cold, _ = timed(lambda: peer.encode(part, add_special_tokens=False), len(part.encode()))
    warm, _ = timed(lambda: peer.encode(part, add_special_tokens=False), len(part.encode()))
    return {"encode_cold": cold, "encode_warm": warm}


PEERS = {"gigatoken": run_gigatoken, "huggingface": run_huggingface}


def in_own_process(name, tokenizer, text):
    result = subprocess.run([sys.executable, "-B", __file__, "--peer", name, str(tokenizer), str(text)], check=True,
                            stdout=subprocess.PIPE, env={**os.environ, "TOKENIZERS_PARALLELISM": "false"})
    return json.loads(result.stdout)


def ours(*arguments):
    program = os.environ.get("DI_BENCH_PROGRAM", ROOT / "build/release/bench/bench_tokenizer")
    env = {name: value for name, value in os.environ.items() if name != "DI_BENCH_TEXT"}
    result = subprocess.run([program, *map(str, arguments)], check=True, stdout=subprocess.PIPE, cwd=ROOT, env=env)
    return [json.loads(line) for line in result.stdout.splitlines()]


def installed(name):
    try:
        __import__({"huggingface": "tokenizers"}.get(name, name))
        return True
    except ImportError:
        print(f"bench_tokenizer: {name} is not installed, skipped", file=sys.stderr)
        return False


def find_texts():
    folder = pathlib.Path(os.environ.get("DI_BENCH_TEXT", ROOT / "build/bench-text"))
    if "DI_BENCH_TEXT" not in os.environ and not all((folder / f"{case}.txt").exists() for case in CASES):
        subprocess.run([sys.executable, "-B", ROOT / "tools/tokenizer/make_corpora.py", folder], check=True, stdout=sys.stderr)
    return {case: folder / f"{case}.txt" for case in CASES if (folder / f"{case}.txt").exists()}


class Printer:
    def __init__(self, as_json):
        self.as_json = as_json
        if not as_json:
            print(f"{'case':14} {'metric':20} {'value':>10} {'unit':8} {'ratio':>8}  baseline")

    def line(self, case, metric, value, unit, baseline, ratio):
        if self.as_json:
            print(json.dumps({"bench": "tokenizer", "case": case, "metric": metric, "value": float(f"{value:.4g}"), "unit": unit,
                              "baseline": baseline, "ratio": ratio and float(f"{ratio:.3g}")}, ensure_ascii=False), flush=True)
        else:
            print(f"{case:14} {metric:20} {value:10.4g} {unit:8} {f'{ratio:.2f}' if ratio else '':>8}  {baseline or ''}", flush=True)


def bench_text(case, text, tokenizer, peers, rounds, printer):
    mine, others = [], {peer: [] for peer in peers}
    for _ in range(rounds):
        mine.append({line["metric"]: line["value"] for line in ours(text)})
        for peer in peers:
            others[peer].append(in_own_process(peer, tokenizer, text))
    median = {metric: statistics.median(one[metric] for one in mine) for metric in mine[0]}
    for metric in ("encode_cold", "encode_warm", "decode"):
        if rounds > 1:
            spread = (max(one[metric] for one in mine) - min(one[metric] for one in mine)) / median[metric]
            print(f"bench_tokenizer: {case} {metric}: {spread:.0%} between rounds", file=sys.stderr)
        for peer in peers:
            if metric in others[peer][0]:
                baseline = statistics.median(one[metric] for one in others[peer])
                printer.line(case, metric, median[metric], "MB/s", peer, median[metric] / baseline)
        if not peers:
            printer.line(case, metric, median[metric], "MB/s", None, None)
    for peer in peers:  # other ids would make other work
        for one in others[peer]:
            if abs(one.get("bytes_per_token", median["bytes_per_token"]) / median["bytes_per_token"] - 1) > 1e-3:
                sys.exit(f"bench_tokenizer: {peer} makes other ids of {text.name}")
    ratio, low, high = (statistics.median(one["two_threads_ratio" + end] for one in mine) for end in ("", "_quartile_1", "_quartile_3"))
    print(f"bench_tokenizer: {case} two threads: half of the pairs between {low:.2f} and {high:.2f}", file=sys.stderr)
    printer.line(case, "encode_two_threads", median["encode_two_threads"], "MB/s", "one thread", ratio)


def main():
    parser = argparse.ArgumentParser(prog="bench_tokenizer")
    parser.add_argument("--json", action="store_true")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--peer", nargs=3, help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.peer:
        name, tokenizer, text = options.peer
        print(json.dumps(PEERS[name](pathlib.Path(tokenizer), pathlib.Path(text))))
        return
    tokenizer = pathlib.Path(os.environ.get("DI_TOKENIZERS", ROOT / "build/tokenizers")) / "v41.json"
    if not tokenizer.exists():
        tokenizer = ROOT / "models/demo/tokenizer.json"
    printer = Printer(options.json)
    peers = [peer for peer in PEERS if installed(peer)]
    for case, text in find_texts().items():
        bench_text(case, text, tokenizer, peers, options.rounds, printer)
    for line in ours():
        allowed = {"ns/byte": ALLOWED_NS_A_BYTE, "µs": ALLOWED_OPEN_US if line["metric"] == "cache" else None}.get(line["unit"])
        printer.line(line["case"], line["metric"], line["value"], line["unit"], allowed and f"{allowed} {line['unit']}",
                     allowed and allowed / line["value"])


main()
