#!/usr/bin/env python3
"""Speed of the conversation layer beside the official package deepseek-recipe, in turns.

    bench_recipe.py [--json] [--rounds N]

Prompts: sixteen conversations of 270 KB, English with code and Chinese. The first one warms up; each of the others is read once
by every program. `render_encode` is conversation to ids (what the package calls encoding), `request_to_ids` starts from the
request's body. Events: the ids of an answer with reasoning and tool calls, pushed one at a time, every event made into JSON text.
Every program runs in a process of its own, N times (3), in turns; figures are medians over the rounds, processor time on one
thread. Both must make the same number of ids. Texts come from DI_BENCH_TEXT, else build/bench-text, where
tools/tokenizer/make_corpora.py makes them; requests go to build/bench-recipe.
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
FOLDER = ROOT / "build/bench-recipe"
MODEL = "DeepSeek-V4.1-Flash"
CASES = {"english_code": ("english", "code"), "chinese": ("chinese", "chinese")}
CONVERSATIONS = 16
CONVERSATION_BYTES = 270_000
USER_BYTES = 3_000
ANSWER_BYTES = 6_000
EVENT_WORDS = 4_000
BARS = {("english_code", "render_encode"): 30, ("chinese", "render_encode"): 7, ("stream", "token_to_events"): 8}


def pieces(path, size):
    """Texts of about `size` bytes out of a long file, cut at characters."""
    with open(path, "rb") as file:
        while part := file.read(size):
            yield part.decode(errors="ignore")


def write_requests(case, texts):
    users, answers = (pieces(texts / f"{name}.txt", size) for name, size in zip(CASES[case], (USER_BYTES, ANSWER_BYTES)))
    with open(FOLDER / f"{case}.jsonl", "w", encoding="utf-8") as out:
        for _ in range(CONVERSATIONS):
            messages, size = [{"role": "system", "content": "You are a helpful assistant."}], 0
            while size < CONVERSATION_BYTES:
                messages.append({"role": "user", "content": next(users)})
                messages.append({"role": "assistant", "content": next(answers)})
                size += sum(len(message["content"].encode()) for message in messages[-2:])
            messages.append({"role": "user", "content": "Go on."})
            out.write(json.dumps({"model": MODEL, "messages": messages}, ensure_ascii=False) + "\n")


def write_stream(texts):
    words = next(pieces(texts / "english.txt", 12 * EVENT_WORDS)).split(" ")
    tool = {"type": "function", "function": {"name": "edit", "parameters": {"type": "object"}}}
    request = {"model": MODEL, "stream": True, "messages": [{"role": "user", "content": "Go on."}], "tools": [tool]}
    code = next(pieces(texts / "code.txt", 8_000))
    calls = "".join(f'<｜DSML｜ invoke name="edit">\n<｜DSML｜ parameter name="text" string="true">{part}</｜DSML｜ parameter>\n'
                    f'<｜DSML｜ parameter name="line" string="false">{i}</｜DSML｜ parameter>\n</｜DSML｜ invoke>\n'
                    for i, part in enumerate((code[:4_000], code[4_000:])))
    (FOLDER / "stream.json").write_text(json.dumps(request), encoding="utf-8")
    (FOLDER / "stream.txt").write_text(" ".join(words[:EVENT_WORDS]) + "</think>\n\n" + " ".join(words[EVENT_WORDS:]) +
                                       f"\n\n<｜DSML｜ calls>\n{calls}</｜DSML｜ calls>", encoding="utf-8")


def peer_prompts(tokenizer, path):
    import deepseek_recipe as peer

    options = peer.ConversionOptions()
    encodings = [peer.DeepseekV41Encoding().with_tokenizer(peer.Tokenizer.from_file(tokenizer)) for _ in range(2)]
    lines = pathlib.Path(path).read_bytes().splitlines()
    spent, whole, n_bytes, n_ids = 0.0, 0.0, 0, 0
    for number, line in enumerate(lines):
        start = time.process_time()
        ids = encodings[0].encode(peer.ChatCompletionRequest(line).convert(options).conversation)
        end = time.process_time()
        conversation = peer.ChatCompletionRequest(line).convert(options).conversation
        again = time.process_time()
        encodings[1].encode(conversation)
        done = time.process_time()
        if number > 0:
            whole += end - start
            spent += done - again
            n_ids += len(ids)
            n_bytes += len(encodings[0].render_conversation(conversation).prompt.encode())
    return {"request_to_ids": n_bytes / 1e6 / whole, "render_encode": n_bytes / 1e6 / spent, "ids": n_ids, "bytes": n_bytes}


def peer_events(tokenizer, request_path, output_path):
    import deepseek_recipe as peer

    body = pathlib.Path(request_path).read_bytes()
    loaded = peer.Tokenizer.from_file(tokenizer)
    ids = loaded.encode(pathlib.Path(output_path).read_bytes().decode())
    chunks = [peer.InferenceChunk.tokens([one]) for one in ids]
    times, n_bytes, n_events = [], 0, 0
    for _ in range(5):
        request = peer.ChatCompletionRequest(body).convert(peer.ConversionOptions())
        generator = peer.ChatCompletionRequest.chunk_generator(request, "R", MODEL)
        processor = peer.StreamProcessor(generator, request.parsing_options, loaded)
        n_bytes, n_events = 0, 0
        start = time.process_time()
        for chunk in chunks:
            for event in processor.push(chunk):
                n_bytes += len(event.to_json())
                n_events += 1
        for event in processor.push(peer.InferenceChunk.finish(peer.InferenceFinishReason.Stop)):
            n_bytes += len(event.to_json())
            n_events += 1
        times.append(time.process_time() - start)
    return {"token_to_events": statistics.median(times) / len(ids) * 1e6, "ids": len(ids), "events": n_events, "event_bytes": n_bytes}


def in_own_process(*arguments):
    env = {**os.environ, "TOKENIZERS_PARALLELISM": "false", "RAYON_NUM_THREADS": "1"}
    result = subprocess.run([sys.executable, "-B", __file__, "--peer", *map(str, arguments)], check=True, stdout=subprocess.PIPE, env=env)
    return json.loads(result.stdout)


def ours(*arguments):
    program = os.environ.get("DI_BENCH_PROGRAM", ROOT / "build/release/bench/bench_recipe")
    result = subprocess.run([program, *map(str, arguments)], check=True, stdout=subprocess.PIPE, cwd=ROOT)
    return {line["metric"]: line["value"] for line in map(json.loads, result.stdout.splitlines())}


def installed():
    try:
        import deepseek_recipe  # noqa: F401
        return True
    except ImportError:
        print("bench_recipe: deepseek-recipe is not installed, skipped", file=sys.stderr)
        return False


class Printer:
    def __init__(self, as_json):
        self.as_json = as_json
        if not as_json:
            print(f"{'case':14} {'metric':16} {'value':>10} {'unit':6} {'peer':>10} {'ratio':>7}  bar")

    def line(self, case, metric, value, unit, peer):
        ratio = None if peer is None else peer / value if unit == "µs" else value / peer
        if self.as_json:
            print(json.dumps({"bench": "recipe", "case": case, "metric": metric, "value": float(f"{value:.4g}"), "unit": unit,
                              "baseline": "deepseek-recipe 0.2.0" if peer else None, "ratio": ratio and float(f"{ratio:.3g}")},
                             ensure_ascii=False), flush=True)
        else:
            print(f"{case:14} {metric:16} {value:10.4g} {unit:6} {f'{peer:.4g}' if peer else '':>10} {f'{ratio:.1f}' if ratio else '':>7}  "
                  f"{BARS.get((case, metric), '')}", flush=True)


def compare(case, metrics, mine, others, printer):
    for one in others:
        if one["ids"] != mine[0]["ids"]:
            sys.exit(f"bench_recipe: {case}: the package makes {one['ids']} ids, we {mine[0]['ids']:.0f}")
    for metric, unit in metrics:
        peer = statistics.median(one[metric] for one in others) if others else None
        printer.line(case, metric, statistics.median(one[metric] for one in mine), unit, peer)


def main():
    parser = argparse.ArgumentParser(prog="bench_recipe")
    parser.add_argument("--json", action="store_true")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--peer", nargs="+", help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.peer:
        name, *arguments = options.peer
        print(json.dumps({"prompt": peer_prompts, "events": peer_events}[name](*arguments)))
        return
    texts = pathlib.Path(os.environ.get("DI_BENCH_TEXT", ROOT / "build/bench-text"))
    if "DI_BENCH_TEXT" not in os.environ and not all((texts / f"{name}.txt").exists() for name in ("english", "code", "chinese")):
        subprocess.run([sys.executable, "-B", ROOT / "tools/tokenizer/make_corpora.py", texts], check=True, stdout=sys.stderr)
    tokenizer = pathlib.Path(os.environ.get("DI_TOKENIZERS", ROOT / "build/tokenizers")) / "v41_recipe.json"
    FOLDER.mkdir(parents=True, exist_ok=True)
    write_stream(texts)
    printer, with_peer = Printer(options.json), installed() and tokenizer.exists()
    work = []
    for case in CASES:
        write_requests(case, texts)
        work.append((case, ("prompt", FOLDER / f"{case}.jsonl"), [("render_encode", "MB/s"), ("request_to_ids", "MB/s")]))
    work.append(("stream", ("events", FOLDER / "stream.json", FOLDER / "stream.txt"), [("token_to_events", "µs")]))
    for case, (mode, *files), metrics in work:
        mine, others = [], []
        for _ in range(options.rounds):
            mine.append(ours(mode, *files))
            if with_peer:
                others.append(in_own_process(mode, tokenizer, *files))
        compare(case, metrics, mine, others, printer)


main()
