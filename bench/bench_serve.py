#!/usr/bin/env python3
"""The server under load, from the outside: many streams, ten thousand that wait, and what a streamed token costs around a model.

    bench_serve.py [--json] [--case load|held|overhead]... [--seconds N] [--requests N] [--held N]

load: 256 streams together for a minute on the demo model, and on to 10,000 requests behind a warm-up; every text must be what the
same request answered alone. Memory of the server is compared between the end of the warm-up and the end; the scheduler's share of a
step comes from the metrics page. held: 10,000 streams of a paused tenant wait, long enough for
signs of life, while one stream of another is read; the gaps between its tokens beside those of the same stream before and after.
overhead: the null backend, which runs no model; processor time of the server for each streamed token, for each API, of 64 streams (the
bar) and of one, beside the client's rate. The client is bench_serve.c, a process of its own on the same cores. A line has the bar as its
baseline where there is one; ratio > 1 is better.
"""
import argparse
import contextlib
import json
import os
import pathlib
import subprocess
import sys
import tempfile
import time

ROOT = pathlib.Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT / "tests" / "server"))
import serve  # noqa: E402

CLIENT = os.environ.get("DI_BENCH_PROGRAM", str(ROOT / "build/release/bench/bench_serve"))
APIS = {"chat": serve.CHAT, "responses": serve.RESPONSES, "messages": serve.MESSAGES}
TICK = os.sysconf("SC_CLK_TCK")
PAGE = os.sysconf("SC_PAGE_SIZE")
STREAMS = 256
BARS = {"errors": 0, "mixed": 0, "rss_growth": 2, "scheduler_share": 5, "gap_p99": 1.5, "cpu_per_token": 10}


class Printer:
    def __init__(self, as_json):
        self.as_json = as_json
        if not as_json:
            print(f"{'case':18} {'metric':18} {'value':>10} {'unit':7} {'baseline':>18} {'ratio':>7}")

    def line(self, case, metric, value, unit, baseline=None, ratio=None):
        value = float(f"{value:.4g}")
        ratio = None if ratio is None else float(f"{ratio:.3g}")
        if self.as_json:
            print(json.dumps({"bench": "serve", "case": case, "metric": metric, "value": value, "unit": unit, "baseline": baseline,
                              "ratio": ratio}, ensure_ascii=False), flush=True)
        else:
            print(f"{case:18} {metric:18} {value:10g} {unit:7} {baseline or '':>18} {'' if ratio is None else ratio:>7}", flush=True)

    def under_bar(self, case, metric, value, unit):
        bar = BARS[metric]
        self.line(case, metric, value, unit, f"bar {bar} {unit}", bar / value if value > 0 else None)


# --- The server's process ------------------------------------------------------------------------------------------------


def cpu_seconds(pid):
    fields = pathlib.Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()
    return (int(fields[11]) + int(fields[12])) / TICK


def resident_bytes(pid):
    return int(pathlib.Path(f"/proc/{pid}/statm").read_text().split()[1]) * PAGE


# --- The client's process ------------------------------------------------------------------------------------------------


class Client:
    """bench_serve.c; its lines as they come."""

    def __init__(self, folder, mode, server, bodies, *numbers, key=None):
        self.path = pathlib.Path(folder) / f"requests-{time.monotonic_ns()}"
        self.path.write_text("".join(f"{api}\t{json.dumps({**body, 'stream': True})}\n" for api, body in bodies), encoding="utf-8")
        arguments = [CLIENT, mode, str(server.port), str(self.path), *map(str, numbers), *([key] if key else [])]
        self.process = subprocess.Popen(arguments, stdin=subprocess.PIPE, stdout=subprocess.PIPE,
                                        preexec_fn=lambda: serve.prepare_child(None))

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.process.stdin.close()
        self.process.kill()
        self.process.wait()
        self.process.stdout.close()

    def lines(self):
        for line in self.process.stdout:
            yield json.loads(line)

    def last_line(self):
        """The line at the end; raises when there is none."""
        *_, last = self.lines()
        return last


# --- Cases ---------------------------------------------------------------------------------------------------------------


def short_questions(n):
    """Requests with short answers, of all APIs in turn."""
    rows = [row for task in ("arith/addsub", "arith/compare", "arith/units", "fact", "chat") for row in serve.evaluation(task, 0.3)]
    texts = list(dict.fromkeys(row["request"]["messages"][-1]["content"] for row in rows if len(row["prompt_ids"]) < 50))
    assert len(texts) >= n
    names = list(APIS)
    return [(names[i % 3], serve.question(APIS[names[i % 3]], text, temperature=0, max_tokens=6)) for i, text in enumerate(texts[:n])]


def load(options, printer, folder):
    bodies = short_questions(48)
    warm = options.requests // 10
    with serve.Server("--max-calls", 20000) as server:
        at_warm, before = None, None
        with Client(folder, "load", server, bodies, STREAMS, options.seconds, options.requests + warm) as client:
            for line in client.lines():
                if at_warm is None and line["requests"] >= warm:
                    at_warm, before = (line["requests"], resident_bytes(server.pid)), server.metrics()
                end = line
        page, memory = server.metrics(), resident_bytes(server.pid)
    assert at_warm is not None and "end" in end, end
    growth = 100 * (memory / at_warm[1] - 1)

    def since(name):
        return serve.total(page, name) - serve.total(before, name)

    schedule, execute = since("deepinfer_step_schedule_seconds_total"), since("deepinfer_step_execute_seconds_total")
    printer.under_bar("load-256", "errors", end["failed"] + end["open"], "")
    printer.under_bar("load-256", "mixed", end["mixed"], "")
    printer.line("load-256", "requests", end["requests"], "")
    printer.line("load-256", "request_rate", end["requests"] / end["seconds"], "req/s")
    printer.line("load-256", "token_rate", since("vllm:generation_tokens_total") / (end["seconds"]), "tok/s")
    printer.line("load-256", "first_text_p50", end["first_p50"] / 1e3, "ms")
    printer.line("load-256", "first_text_p99", end["first_p99"] / 1e3, "ms")
    printer.line("load-256", "tokens_a_step", since("vllm:generation_tokens_total") / since("deepinfer_steps_total"), "")
    printer.line("load-256", "rss", memory / 2**20, "MiB")
    printer.under_bar("load-256", "rss_growth", growth, "%")
    printer.under_bar("load-256", "scheduler_share", 100 * schedule / (schedule + execute), "%")
    printer.line("load-256", "client_cpu", 100 * end["cpu"] / end["seconds"], "%")


def busy_gaps(options, folder, server):
    body = serve.question(serve.COMPLETIONS, serve.CAIRO, temperature=2, seed=1, ignore_eos=True, max_tokens=400)
    with Client(folder, "load", server, [("completions", body)], 1, max(1, options.seconds // 3), 1, key="busy-key") as client:
        return client.last_line()


def held(options, printer, folder):
    keys = pathlib.Path(folder) / "keys"
    keys.write_text("busy-key busy\nheld-key held\n")
    bodies = [(api, serve.question(path, "Hi", max_tokens=1)) for api, path in APIS.items()]
    files = options.held + 1000
    with serve.Server("--api-keys-file", keys, "--admin-port", 0, "--admin-key", "admin", "--max-connections", files, "--max-calls", files,
                      files=files + 1000, key="busy-key", admin_key="admin") as server:
        server.admin("POST", "/admin/tenants/held/pause")
        before = busy_gaps(options, folder, server)
        with Client(folder, "hold", server, bodies, options.held, key="held-key") as client:
            lines = client.lines()
            waiting = next(lines)
            assert waiting["open"] == server.load()[1] == options.held, (waiting, server.load())
            memory = resident_bytes(server.pid)
            during = busy_gaps(options, folder, server)
            server.admin("POST", "/admin/tenants/held/resume")
            client.process.stdin.close()
            comments, end = lines
        after = busy_gaps(options, folder, server)
    unloaded = (before["gap_p99"] + after["gap_p99"]) / 2
    name = f"held-{options.held}"
    printer.under_bar(name, "errors", end["failed"] + end["open"] + during["failed"] + during["mixed"], "")
    printer.line(name, "accept_rate", options.held / waiting["seconds"], "req/s")
    printer.line(name, "rss", memory / 2**20, "MiB")
    printer.line(name, "keep_alives", comments["comments"], "")
    printer.line(name, "gap_p50", during["gap_p50"], "µs", "unloaded", before["gap_p50"] / during["gap_p50"])
    printer.line(name, "gap_p99", during["gap_p99"], "µs", "unloaded (bar 0.67)", unloaded / during["gap_p99"])
    printer.line(name, "gap_p99_before", before["gap_p99"], "µs")
    printer.line(name, "gap_p99_after", after["gap_p99"], "µs")


def overhead_of(options, folder, path, api, streams):
    """Processor seconds of the server, tokens, seconds, and the client's last line."""
    bodies = [(api, serve.question(path, f"{serve.CAIRO} {i}", max_tokens=256)) for i in range(8)]
    with serve.Server("--backend", "null") as server:
        with Client(folder, "load", server, bodies, streams, max(1, options.seconds // 12), 1) as client:
            lines = client.lines()
            next(lines)
            before, tokens, start = cpu_seconds(server.pid), server.value("vllm:generation_tokens_total"), time.monotonic()
            *_, end = lines
            spent = cpu_seconds(server.pid) - before
            return spent, server.value("vllm:generation_tokens_total") - tokens, time.monotonic() - start, end


def overhead(options, printer, folder):
    for api, path in APIS.items():
        for streams in (64, 1):
            name = f"null-{api}-{streams}"
            spent, tokens, seconds, end = overhead_of(options, folder, path, api, streams)
            if streams > 1:
                printer.under_bar(name, "cpu_per_token", spent / tokens * 1e6, "µs")
            else:
                printer.line(name, "cpu_per_token", spent / tokens * 1e6, "µs")
            printer.line(name, "token_rate", tokens / seconds, "tok/s")
            printer.line(name, "events_per_token", end["events"] / tokens, "")
            printer.line(name, "client_rate", end["events"] / end["seconds"], "ev/s")
            printer.line(name, "client_cpu", end["cpu"] / end["events"] * 1e6, "µs")
            printer.under_bar(name, "errors", end["failed"] + end["mixed"] + end["open"], "")


CASES = {"load": load, "held": held, "overhead": overhead}


def main():
    parser = argparse.ArgumentParser(prog="bench_serve")
    parser.add_argument("--json", action="store_true")
    parser.add_argument("--case", action="append", choices=list(CASES))
    parser.add_argument("--seconds", type=int, default=60)
    parser.add_argument("--requests", type=int, default=10000)
    parser.add_argument("--held", type=int, default=10000)
    options = parser.parse_args()
    printer = Printer(options.json)
    with contextlib.ExitStack() as stack:
        folder = stack.enter_context(tempfile.TemporaryDirectory())
        for name in options.case or CASES:
            CASES[name](options, printer, folder)


main()
