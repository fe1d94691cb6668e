"""A live `deepinfer serve` for tests: started from the build folder on a free port, read through its metrics page, never left behind.

A server dies with the process that started it (PR_SET_PDEATHSIG), whatever happens to the test. Requests that a test wants to see
byte by byte go through `ask` and `Stream`, which are plain sockets; the official packages have tests of their own. Waiting is always
for a condition (`until`), with a deadline that only a broken server meets."""
import contextlib
import ctypes
import http.client
import json
import os
import pathlib
import re
import resource
import signal
import socket
import subprocess
import tempfile
import time

import pytest

ROOT = pathlib.Path(os.environ.get("DI_SOURCE_DIR") or pathlib.Path(__file__).resolve().parents[2])
BINARY = os.environ.get("DI_BIN") or str(ROOT / "build" / "release" / "deepinfer")
DATA = pathlib.Path(os.environ.get("DI_TEST_DATA") or ROOT / "tests" / "data")
DEMO = ROOT / "models" / "demo"
MODEL = "DeepSeek-V4.1-Flash"
PATIENCE = 120
PR_SET_PDEATHSIG = 1

CHAT, RESPONSES, MESSAGES, COMPLETIONS = "/v1/chat/completions", "/v1/responses", "/v1/messages", "/v1/completions"
QUIET = {"thinking": {"type": "disabled"}}  # Chat and Messages; Responses: {"reasoning": {"effort": "none"}}
CAIRO = "Which country has Cairo as its capital?"
EGYPT = "Cairo is the capital of Egypt."
PRODUCT, SOLVED = "Use the calculator: 4737 * 9873", "4737 * 9873 = 46768401."
STORY = "Continue the story: Jack walked into the village and saw a rabbit."
PIXEL = "iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAYAAAAfFcSJAAAADUlEQVR42mNk+M9QDwADhgGAWjR9awAAAABJRU5ErkJggg=="  # PNG in base64

LIBC = ctypes.CDLL(None)


def until(condition, what, patience=PATIENCE):
    """The first true value of `condition`, which is asked again and again."""
    end = time.monotonic() + patience
    while not (value := condition()):
        assert time.monotonic() < end, f"still not: {what}"
        time.sleep(0.01)
    return value


def evaluation(task, margin=1.0):
    """Rows of the evaluation set of a task whose reference output is right and not a close call."""
    path = DATA / "demo_model" / "eval.jsonl"
    if not path.exists():
        pytest.skip("no demo_model/eval.jsonl in the test data")
    rows = map(json.loads, path.read_text(encoding="utf-8").splitlines())
    return [row for row in rows if row["task"] == task and row["reference_correct"] and row["min_top1_margin"] >= margin]


def command(*arguments, **more):
    """Another command of the program, for comparison: its standard output."""
    done = subprocess.run([BINARY, *map(str, arguments)], capture_output=True, timeout=PATIENCE, check=True, **more)
    return done.stdout.decode()


def read_metrics(text):
    """{'name{labels}': value} of a page in Prometheus' text format."""
    out = {}
    for line in text.splitlines():
        if line and not line.startswith("#"):
            key, value = line.rsplit(" ", 1)
            out[key] = float(value)
    return out


class Server:
    """`deepinfer serve`, ready when the constructor returns. A context manager; `stop` is gentle, `kill` is not."""

    def __init__(self, *options, model=DEMO, port=0, env=None, files=None, stderr=None, key=None, admin_key=None):
        self.key, self.admin_key = key, admin_key
        self.errors = stderr or tempfile.TemporaryFile()
        arguments = [BINARY, "serve", "--port", str(port), "--model", str(model), *map(str, options)]
        self.process = subprocess.Popen(arguments, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=self.errors,
                                        env={**os.environ, **(env or {})}, preexec_fn=lambda: prepare_child(files))
        try:
            self.read_addresses()
        except BaseException:
            self.kill()
            raise

    def read_addresses(self):
        """The first line of standard output says that the server is ready, and where."""
        line = self.process.stdout.readline().decode()
        found = re.findall(r"https?://[^\s\",/]+:(\d+)", line)
        assert found, f"no address in {line!r}\n{self.said()}"
        self.line, self.port = line, int(found[0])
        self.admin_port = int(found[1]) if len(found) > 1 else None
        self.url = f"http://127.0.0.1:{self.port}"

    def said(self):
        """What stands on standard error so far."""
        if isinstance(self.errors, int):
            return ""
        self.errors.seek(0)
        return self.errors.read().decode(errors="replace")

    @property
    def pid(self):
        return self.process.pid

    def __enter__(self):
        return self

    def __exit__(self, kind, value, trace):
        if kind is not None:
            print(self.said())
        self.kill()

    def signal(self, number):
        self.process.send_signal(number)

    def wait(self, patience=PATIENCE):
        return self.process.wait(patience)

    def stop(self):
        """SIGTERM; the exit code."""
        self.signal(signal.SIGTERM)
        return self.wait()

    def kill(self):
        if self.process.poll() is None:
            self.process.kill()
        self.process.wait()
        self.process.stdout.close()

    # --- What it says about itself ---

    def headers(self):
        return {"Authorization": f"Bearer {self.key}"} if self.key else {}

    def metrics(self):
        status, _, body = ask(self, "GET", "/metrics")
        assert status == 200, body
        return read_metrics(body.decode())

    def value(self, name, **labels):
        """The sum over a metric's series that have these labels."""
        return total(self.metrics(), name, **labels)

    def load(self):
        """(running, waiting, KV pages that requests hold)"""
        page = self.metrics()
        return (total(page, "vllm:num_requests_running"), total(page, "vllm:num_requests_waiting"),
                total(page, "deepinfer_kv_pages_used"))

    def until_idle(self):
        until(lambda: self.load() == (0, 0, 0), f"nothing runs, waits or holds memory: {self.load()}")

    def admin(self, method, path):
        headers = {"Authorization": f"Bearer {self.admin_key}"} if self.admin_key else {}
        status, _, body = ask(self, method, path, port=self.admin_port, headers=headers)
        assert status == 200, (status, body)
        return json.loads(body)


def total(page, name, **labels):
    wanted = [f'{key}="{value}"' for key, value in labels.items()]
    found = [value for key, value in page.items() if key.split("{")[0] == name and all(label in key for label in wanted)]
    assert found, f"no metric {name} {labels} among {sorted(page)}"
    return sum(found)


def prepare_child(files):
    LIBC.prctl(PR_SET_PDEATHSIG, signal.SIGKILL)
    if files is not None:
        resource.setrlimit(resource.RLIMIT_NOFILE, (files, files))


# --- Requests over plain sockets -----------------------------------------------------------------------------------------


def ask(server, method, path, body=None, headers=None, port=None):
    """One request on a connection of its own: (status, headers, body)."""
    with contextlib.closing(http.client.HTTPConnection("127.0.0.1", port or server.port, timeout=PATIENCE)) as connection:
        sent = {**(server.headers() if port is None else {}), **(headers or {})}
        if isinstance(body, (dict, list)):
            body = json.dumps(body)
            sent.setdefault("Content-Type", "application/json")
        connection.request(method, path, body, sent)
        answer = connection.getresponse()
        return answer.status, answer.headers, answer.read()


def post(server, path, body, **headers):
    """The answer's JSON; the status must be 200."""
    status, _, answer = ask(server, "POST", path, body, headers)
    assert status == 200, (status, answer)
    return json.loads(answer)


class Stream:
    """A request whose answer is read piece by piece, or not at all."""

    def __init__(self, server, path, body, receive_buffer=None, headers=None):
        self.socket = socket.socket()
        if receive_buffer:
            self.socket.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, receive_buffer)
        self.socket.settimeout(PATIENCE)
        self.socket.connect(("127.0.0.1", server.port))
        data = json.dumps({"model": MODEL, "stream": True, **body}).encode()
        lines = {"Host": "localhost", "Content-Type": "application/json", "Content-Length": len(data),
                 **server.headers(), **(headers or {})}
        head = f"POST {path} HTTP/1.1\r\n" + "".join(f"{k}: {v}\r\n" for k, v in lines.items()) + "\r\n"
        self.socket.sendall(head.encode() + data)
        self.rest = b""
        self.raw = b""

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.close()

    def close(self):
        """FIN: the polite way to leave."""
        self.socket.close()

    def reset(self):
        """RST: the other way."""
        self.socket.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, b"\1\0\0\0\0\0\0\0")
        self.socket.close()

    def receive(self, n=65536):
        data = self.socket.recv(n)
        self.raw += data
        self.rest += data
        return data

    def head(self):
        """Status and header lines."""
        while b"\r\n\r\n" not in self.rest:
            assert self.receive(), f"closed after {self.raw!r}"
        head, self.rest = self.rest.split(b"\r\n\r\n", 1)
        status, *lines = head.decode().split("\r\n")
        return int(status.split()[1]), {k.lower(): v for k, v in (line.split(": ", 1) for line in lines)}

    def frames(self):
        """Server-sent frames as they come, keep-alive comments among them, to the end of the answer. The head must have been read."""
        text = b""
        for chunk in self.chunks():
            text += chunk
            *whole, text = text.split(b"\n\n")
            yield from (frame.decode() for frame in whole)
        assert text == b""

    def chunks(self):
        """Pieces of a chunked body."""
        while True:
            while b"\r\n" not in self.rest:
                if not self.receive():
                    raise EOFError(f"closed within an answer: {self.raw[-200:]!r}")
            line, self.rest = self.rest.split(b"\r\n", 1)
            size = int(line, 16)
            while len(self.rest) < size + 2:
                if not self.receive():
                    raise EOFError(f"closed within an answer: {self.raw[-200:]!r}")
            chunk, self.rest = self.rest[:size], self.rest[size + 2:]
            if size == 0:
                return
            yield chunk

    def events(self):
        """The data of events: JSON, but the last one of Chat and Completions, which is the text [DONE]."""
        for frame in self.frames():
            data = [line[6:] for line in frame.split("\n") if line.startswith("data: ")]
            if data:
                yield data[0] if data[0] == "[DONE]" else json.loads(data[0])

    def first_token(self):
        """Reads as far as the first piece of text."""
        status, _ = self.head()
        assert status == 200, self.raw
        return next(text for event in self.events() if (text := event_text(event)))


def event_text(event):
    """The generated text in one event of any API, reasoning included."""
    if not isinstance(event, dict):
        return ""
    if event.get("object") == "text_completion":
        return "".join(choice["text"] for choice in event["choices"])
    if event.get("object") == "chat.completion.chunk":
        deltas = [choice["delta"] for choice in event["choices"]]
        return "".join((delta.get("reasoning_content") or "") + (delta.get("content") or "") for delta in deltas)
    if event.get("type") in ("response.output_text.delta", "response.reasoning_text.delta"):
        return event["delta"]
    if event.get("type") == "content_block_delta":
        return event["delta"].get("text") or event["delta"].get("thinking") or ""
    return ""


def question(path, text, **more):
    """The body of a request without reasoning in the words of an API."""
    message = [{"role": "user", "content": text}]
    if path == CHAT:
        return {"model": MODEL, "messages": message, **QUIET, **more}
    if path == RESPONSES:
        more = {"max_output_tokens" if key == "max_tokens" else key: value for key, value in more.items()}
        return {"model": MODEL, "input": text, "reasoning": {"effort": "none"}, **more}
    if path == MESSAGES:
        return {"model": MODEL, "max_tokens": 256, "messages": message, **QUIET, **more}
    return {"model": MODEL, "prompt": text, **more}


def answer_text(path, body):
    """The text of a whole response, reasoning left out."""
    if path == CHAT:
        return body["choices"][0]["message"]["content"]
    if path == RESPONSES:
        return "".join(part["text"] for item in body["output"] if item["type"] == "message" for part in item["content"])
    if path == MESSAGES:
        return "".join(block["text"] for block in body["content"] if block["type"] == "text")
    return body["choices"][0]["text"]
