#!/usr/bin/env python3
"""Speed of constraints beside llguidance and xgrammar, in one run.

    bench_grammar.py [--json] [--rounds N] [--schemas N]

Schemas and instances are those of MaskBench's sample (DI_TEST_DATA/grammar, else ../shared/fixtures/grammar), tokenised once. Every program
goes through the instances token by token in a process of its own, as the head of bench_grammar.c says, one thread, N times (3); figures are
medians over the rounds. Our own figures are over all schemas, with the bars beside them. A peer gets every so manieth schema, N (60) in all,
because xgrammar compiles for seconds; it is compared over those of them that it compiles, and there its refusals and wrong verdicts count.
Ratios are times faster. Peers are called from Python, which costs them about a microsecond a mask. A peer that is not installed is skipped by
name; one that takes longer than ten minutes is stopped, and what it did until then counts.
"""
import argparse
import json
import os
import pathlib
import statistics
import subprocess
import sys
import tempfile
import time

ROOT = pathlib.Path(__file__).resolve().parent.parent
END_ID = 1
PEER_SECONDS = 600
BARS = {"mask_average": 10, "mask_p50": 4, "mask_p99": 80, "compile_and_first_mask_average": 300, "compile_and_first_mask_p99": 5000}


def find_tokenizer():
    path = pathlib.Path(os.environ.get("DI_TOKENIZERS", ROOT / "build/tokenizers")) / "v41.json"
    return path if path.exists() else ROOT / "models/demo/tokenizer.json"


def make_work(path):
    """The sample with the ids of its instances, in the form that bench_grammar.c reads."""
    import tokenizers

    folder = pathlib.Path(os.environ["DI_TEST_DATA"]) if "DI_TEST_DATA" in os.environ else ROOT.parent / "shared/fixtures"
    sample = folder / "grammar/maskbench_sample.jsonl"
    if not sample.exists():
        sys.exit(f"bench_grammar: {sample} is not there")
    tokenizer = tokenizers.Tokenizer.from_file(str(find_tokenizer()))
    with open(path, "w", encoding="utf-8") as out:
        for line in open(sample, encoding="utf-8"):
            one = json.loads(line)
            tests = [{"valid": test["valid"],
                      "ids": tokenizer.encode(json.dumps(test["data"], ensure_ascii=False), add_special_tokens=False).ids}
                     for test in one["tests"]]
            schema = json.dumps(one["schema"], ensure_ascii=False)
            out.write(json.dumps({"id": one["id"], "schema": schema, "tests": tests}, ensure_ascii=False) + "\n")


# --- Peers: compile(schema) gives a function that starts a matcher; that has mask(), which fills `row`, and accept(id) ----------------


class Llguidance:
    def __init__(self):
        import llguidance
        import llguidance.numpy

        self.lib = llguidance
        self.fill = llguidance.numpy.fill_next_token_bitmask
        self.tokenizer = llguidance.LLTokenizer(str(find_tokenizer()), eos_token=END_ID)
        self.bits = llguidance.numpy.allocate_token_bitmask(1, self.tokenizer.vocab_size)
        self.row = self.bits[0]

    def compile(self, schema):
        matcher = self.lib.LLMatcher(self.tokenizer, self.lib.LLMatcher.grammar_from_json_schema(schema))
        if matcher.is_error():
            raise ValueError(matcher.get_error())
        return matcher

    def start(self, compiled):
        compiled.reset()
        return (lambda: self.fill(compiled, self.bits)), compiled.consume_token


class Xgrammar:
    def __init__(self):
        import numpy
        import tokenizers
        import xgrammar

        tokenizer = tokenizers.Tokenizer.from_file(str(find_tokenizer()))
        added = tokenizer.get_added_tokens_decoder()
        letters = [*range(33, 127), *range(161, 173), *range(174, 256)]  # of byte-level BPE: these stand for themselves
        others = [byte for byte in range(256) if byte not in letters]
        byte_of = {chr(byte): byte for byte in letters} | {chr(256 + i): byte for i, byte in enumerate(others)}
        vocabulary = [b"" if i in added else bytes(byte_of[c] for c in tokenizer.id_to_token(i) or "")
                      for i in range(tokenizer.get_vocab_size())]
        self.lib = xgrammar
        info = xgrammar.TokenizerInfo(vocabulary, stop_token_ids=[END_ID])
        self.compiler = xgrammar.GrammarCompiler(info, max_threads=1, cache_enabled=False)
        self.bits = numpy.zeros((1, (len(vocabulary) + 31) // 32), dtype=numpy.int32)
        self.row = self.bits[0]

    def compile(self, schema):
        return self.compiler.compile_json_schema(schema, strict_mode=False)

    def start(self, compiled):
        matcher = self.lib.GrammarMatcher(compiled)
        return (lambda: matcher.fill_next_token_bitmask(self.bits)), matcher.accept_token


PEERS = {"llguidance": Llguidance, "xgrammar": Xgrammar}


def run_instance(peer, compiled, ids, times):
    mask, accept = peer.start(compiled)
    for i in [*ids, END_ID]:
        start = time.thread_time_ns()
        mask()
        times.append(time.thread_time_ns() - start)
        if not int(peer.row[i // 32]) >> i % 32 & 1:
            return False
        if i != END_ID:
            accept(i)
    return True


def run_peer(name, work, step):
    peer = PEERS[name]()
    for line in open(work, encoding="utf-8").readlines()[::step]:
        one = json.loads(line)
        start = time.thread_time_ns()
        try:
            compiled = peer.compile(one["schema"])
            compile_ns = time.thread_time_ns() - start
            times = []
            verdicts = [run_instance(peer, compiled, test["ids"], times) == test["valid"] for test in one["tests"]]
        except Exception:  # each peer has its own
            print(json.dumps({"id": one["id"], "refused": True}), flush=True)
            continue
        print(json.dumps({"id": one["id"], "first": compile_ns + times[0], "fine": all(verdicts), "masks": times[1:]}), flush=True)


# --- Figures --------------------------------------------------------------------------------------------------------------------------


def in_own_process(command):
    """Lines of a program, by schema; those up to its end if it takes too long."""
    with tempfile.TemporaryFile("w+") as out:
        try:
            subprocess.run([str(part) for part in command], stdout=out, check=True, cwd=ROOT, timeout=PEER_SECONDS)
        except subprocess.TimeoutExpired:
            print(f"bench_grammar: {command[-3]} was stopped after {PEER_SECONDS} s", file=sys.stderr)
        out.seek(0)
        lines = [json.loads(line) for line in out if line.endswith("\n")]
    return {line["id"]: line for line in lines}


def figures(lines, ids):
    """Microseconds."""
    result = {}
    masks = sorted(ns for i in ids for ns in lines[i]["masks"])
    firsts = sorted(lines[i]["first"] for i in ids)
    for name, times in (("mask", masks), ("compile_and_first_mask", firsts)):
        result[f"{name}_average"] = sum(times) / len(times) / 1e3
        for point, part in (("p50", 0.5), ("p90", 0.9), ("p99", 0.99), ("p999", 0.999), ("max", 1)):
            result[f"{name}_{point}"] = times[int(part * (len(times) - 1))] / 1e3
    return result


def medians(rounds):
    return {metric: statistics.median(one[metric] for one in rounds) for metric in rounds[0]}


def installed(name):
    try:
        __import__(name)
        return True
    except ImportError:
        print(f"bench_grammar: {name} is not installed, skipped", file=sys.stderr)
        return False


class Printer:
    def __init__(self, as_json):
        self.as_json = as_json
        if not as_json:
            print(f"{'case':16} {'metric':32} {'value':>10} {'unit':6} {'ratio':>8}  baseline")

    def line(self, case, metric, value, unit, baseline, ratio):
        if self.as_json:
            print(json.dumps({"bench": "grammar", "case": case, "metric": metric, "value": float(f"{value:.4g}"), "unit": unit,
                              "baseline": baseline, "ratio": ratio and float(f"{ratio:.3g}")}, ensure_ascii=False), flush=True)
        else:
            print(f"{case:16} {metric:32} {value:10.4g} {unit:6} {f'{ratio:.2f}' if ratio else '':>8}  {baseline or ''}", flush=True)


def compare(name, mine, theirs, printer):
    ids = [i for i in theirs[0] if all(i in one and "masks" in one[i] for one in [*theirs, *mine])]
    if ids:
        ours, peer = (medians([figures(one, ids) for one in rounds]) for rounds in (mine, theirs))
        for metric, value in ours.items():
            printer.line(f"as {name}", metric, value, "µs", f"{name} {peer[metric]:.4g} µs", peer[metric] / value)
    asked = list(theirs[0])
    refused = sum("masks" not in theirs[0][i] for i in asked)
    wrong = sum("masks" in theirs[0][i] and not theirs[0][i]["fine"] for i in asked)
    printer.line(f"as {name}", "refused", sum(i not in mine[0] for i in asked), "of " + str(len(asked)), f"{name} {refused}", None)
    printer.line(f"as {name}", "failing", sum(i in mine[0] and not mine[0][i]["fine"] for i in asked), "of " + str(len(asked)),
                 f"{name} {wrong}", None)


def main():
    parser = argparse.ArgumentParser(prog="bench_grammar")
    parser.add_argument("--json", action="store_true")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--schemas", type=int, default=60, help="of the peers")
    parser.add_argument("--peer", nargs=3, help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.peer:
        run_peer(options.peer[0], options.peer[1], int(options.peer[2]))
        return
    program = os.environ.get("DI_BENCH_PROGRAM", ROOT / "build/release/bench/bench_grammar")
    with tempfile.TemporaryDirectory() as folder:
        work = pathlib.Path(folder) / "work.jsonl"
        make_work(work)
        n = sum(1 for _ in open(work, encoding="utf-8"))
        step = max(1, n // options.schemas)
        peers = [peer for peer in PEERS if installed(peer)]
        mine, theirs = [], {peer: [] for peer in peers}
        for _ in range(options.rounds):
            mine.append(in_own_process([program, work, "--each"]))
            for peer in peers:
                theirs[peer].append(in_own_process([sys.executable, "-B", __file__, "--peer", peer, work, step]))
    printer = Printer(options.json)
    for metric, value in medians([figures(one, list(one)) for one in mine]).items():
        printer.line("all schemas", metric, value, "µs", f"{BARS[metric]} µs" if metric in BARS else None,
                     BARS[metric] / value if metric in BARS else None)
    printer.line("all schemas", "refused", n - len(mine[0]), f"of {n}", None, None)
    printer.line("all schemas", "failing", sum(not one["fine"] for one in mine[0].values()), f"of {n}", None, None)
    for peer in peers:
        compare(peer, mine, theirs[peer], printer)


main()
