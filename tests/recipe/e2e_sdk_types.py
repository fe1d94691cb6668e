"""Responses and events as the official packages take them: every one is validated against the models of `openai` and `anthropic`,
and their clients, talking to a server that answers with our bytes, put the stream together to what the whole response says."""
import functools
import http.server
import json
import os
import pathlib
import subprocess
import threading

import anthropic
import openai
import pydantic
import pytest
from anthropic.types import Message, RawMessageStreamEvent
from openai.types.chat import ChatCompletion, ChatCompletionChunk
from openai.types.responses import Response, ResponseStreamEvent

ROOT = pathlib.Path(os.environ.get("DI_SOURCE_DIR") or pathlib.Path(__file__).resolve().parents[2])
BINARY = os.environ.get("DI_BIN") or str(ROOT / "build" / "release" / "deepinfer")
DEMO = ROOT / "models" / "demo"
MODEL = "DeepSeek-V4.1-Flash"
STOP, LENGTH, FILTER = {"finish": "stop"}, {"finish": "length"}, {"finish": "content_filter"}
READY = {"ready": [11, 4]}
SCHEMA = {"type": "object", "properties": {"city": {"type": "string"}}}


def call(name, key="city", value="Paris", kind="true"):
    return (f'<｜DSML｜ invoke name="{name}">\n<｜DSML｜ parameter name="{key}" string="{kind}">{value}</｜DSML｜ parameter>\n'
            "</｜DSML｜ invoke>\n")


def block(*calls):
    return "\n\n<｜DSML｜ calls>\n" + "".join(calls) + "</｜DSML｜ calls>"


def logprobs(ids, likely=(40, 41)):
    return {"ids": ids, "logprobs": [[-0.3, [[i, -0.3], *[[k, -7.5] for k in likely]]] for i in ids]}


FUNCTION = {"name": "get_weather", "description": "Weather of a city", "parameters": SCHEMA}
ASK = {"chat": {"messages": [{"role": "user", "content": "Give me json."}]}, "responses": {"input": "Give me json."},
       "messages": {"max_tokens": 100, "messages": [{"role": "user", "content": "Give me json."}]}}
TOOLS = {"chat": [{"type": "function", "function": FUNCTION}], "responses": [{"type": "function", **FUNCTION}],
         "messages": [{"name": "get_weather", "description": "Weather of a city", "input_schema": SCHEMA}]}
QUIET = {"chat": {"thinking": {"type": "disabled"}}, "responses": {"reasoning": {"effort": "none"}},
         "messages": {"thinking": {"type": "disabled"}}}
THOUGHT = ["Let me ", "think.", "</think>", "Paris ", "it is \"there\".\n", "東京 🦀"]
CALLED = block(call("get_weather"), call("get_weather", "days", "[1, 2.50]", "false"))

# name -> (what is asked besides, what the model writes); for all three protocols
COMMON = {
    "text": (QUIET, ["Hello", " world", STOP]),
    "nothing": (QUIET, [STOP]),
    "thinking": ({}, [*THOUGHT, STOP]),
    "only thinking, cut": ({}, ["Let me ", LENGTH]),
    "filtered": (QUIET, ["Hello", FILTER]),
    "calls": ({a: {**QUIET[a], "tools": TOOLS[a]} for a in TOOLS}, ["I ask.", CALLED, STOP]),
    "calls without thinking": ({a: {"tools": TOOLS[a]} for a in TOOLS}, [CALLED, STOP]),
    "call cut in a value": ({a: {**QUIET[a], "tools": TOOLS[a]} for a in TOOLS}, [CALLED[:120], LENGTH]),
    "unfinished": (QUIET, ["Hello"]),
}
ONLY = {
    "chat": {
        "two choices": ({**QUIET["chat"], "n": 2}, ["One", {"text": "Two", "choice": 1}, STOP, {"finish": "length", "choice": 1}]),
        "usage": ({"stream_options": {"include_usage": True}}, [*THOUGHT, STOP]),
        "stop string": ({**QUIET["chat"], "stop": ["END"]}, ["Hello EN", "D more"]),
        "json": ({**QUIET["chat"], "response_format": {"type": "json_object"}}, ['{"a": ', "1}", STOP]),
        "logprobs": ({"logprobs": True, "top_logprobs": 2}, [logprobs([50, 51]), logprobs([3069]), logprobs([52, 53]), STOP]),
    },
    "responses": {
        "everything": ({"instructions": "Be brief.", "temperature": 0.7, "top_p": 0.9, "max_output_tokens": 99, "user": "u",
                        "metadata": {"k": "v"}, "reasoning": {"effort": "low", "summary": "auto"}, "tool_choice": "auto",
                        "text": {"verbosity": "low", "format": {"type": "json_schema", "name": "n", "schema": SCHEMA}}},
                       [*THOUGHT, STOP]),
        "custom tool": ({**QUIET["responses"], "tools": [{"type": "custom", "name": "apply_patch"}]},
                        [block(call("apply_patch", "input", '*** Begin\n+"q" \\ é 🦀')), STOP]),
        "custom tool, cut": ({**QUIET["responses"], "tools": [{"type": "custom", "name": "apply_patch"}]},
                             [block(call("apply_patch", "input", "x"))[:90], LENGTH]),
        "namespace": ({**QUIET["responses"], "tools": [{"type": "namespace", "name": "maps", "description": "Maps", "tools": [
            {"type": "function", **FUNCTION}]}]}, [block(call("maps::get_weather"), call("gone::f")), STOP]),
        "tool search": ({**QUIET["responses"], "tools": [{"type": "tool_search", "execution": "client"}, *TOOLS["responses"]]},
                        [block(call("tool_search", "q", "Paris")), STOP]),
        "web search": ({**QUIET["responses"], "tools": [{"type": "web_search"}]}, ["Hello", STOP]),
        "logprobs": ({**QUIET["responses"], "top_logprobs": 2}, [logprobs([50, 51]), logprobs([52]), STOP]),
    },
    "messages": {
        "stop sequence": ({**QUIET["messages"], "stop_sequences": ["END"]}, ["Hello EN", "D more"]),
    },
}
CASES = [(api, name, more.get(api, {}), lines) for api in ASK for name, (more, lines) in COMMON.items()]
CASES += [(api, name, more, lines) for api, cases in ONLY.items() for name, (more, lines) in cases.items()]


def parse(tmp_path, api, more, lines, *options, code=0):
    request = tmp_path / "request.json"
    request.write_text(json.dumps({"model": MODEL, **ASK[api], **more}))
    given = "".join(json.dumps(line) + "\n" for line in [READY, *lines])
    command = [BINARY, "parse", "--api", api, "--model", str(DEMO), "--request", str(request), "--id", "r1", *options]
    done = subprocess.run(command, input=given.encode(), capture_output=True, timeout=60)
    assert done.returncode == code, done.stderr.decode()
    return done.stdout


def stream_of(tmp_path, api, more, lines):
    """The frames' bytes, and the events in them."""
    with_stream = {**more, "stream": True} if "stream_options" in more else more
    raw = parse(tmp_path, api, with_stream, lines, "--stream")
    events = []
    for frame in raw.decode().split("\n\n")[:-1]:
        fields = dict(line.split(": ", 1) for line in frame.split("\n"))
        events.append((fields.get("event"), fields["data"] if fields["data"] == "[DONE]" else json.loads(fields["data"])))
    return raw, events


def body_of(tmp_path, api, more, lines):
    return parse(tmp_path, api, {k: v for k, v in more.items() if k != "stream_options"}, lines, "--body")


# --- Models -----------------------------------------------------------------------------------------------------------------------

EVENTS = {"chat": ChatCompletionChunk, "responses": ResponseStreamEvent, "messages": RawMessageStreamEvent}
BODIES = {"chat": ChatCompletion, "responses": Response, "messages": Message}


# Newer models of openai require a count that the recorded official streams, which we follow to the letter, do not have. Nothing else
# is added before validation, and the clients below get our bytes as they are.
def completed(value):
    if isinstance(value, list):
        return [completed(v) for v in value]
    if not isinstance(value, dict):
        return value
    out = {k: completed(v) for k, v in value.items()}
    if isinstance(out.get("input_tokens_details"), dict):
        out["input_tokens_details"].setdefault("cache_write_tokens", 0)
    return out


def expect_resolved(model, data, path=""):
    """Every object with a type has become the model of that type, and kept its values."""
    if isinstance(data, dict) and isinstance(model, pydantic.BaseModel):
        for key, value in data.items():
            names = [name for name, info in type(model).model_fields.items() if name == key or info.alias == key]
            got = getattr(model, names[0] if names else key)
            if key in ("type", "object", "role", "id") or (key == "status" and names):
                assert names and got == value, f"{path}.{key}"
            expect_resolved(got, value, f"{path}.{key}")
    elif isinstance(data, list) and isinstance(model, list):
        assert len(data) == len(model), path
        for i, (got, value) in enumerate(zip(model, data)):
            expect_resolved(got, value, f"{path}[{i}]")


@functools.cache
def adapter_of(api, whole):
    return pydantic.TypeAdapter(BODIES[api] if whole else EVENTS[api])


def validate(api, data, whole=False):
    data = completed(data)
    adapter = adapter_of(api, whole)
    expect_resolved(adapter.validate_python(data, strict=False), data)
    expect_resolved(adapter.validate_json(json.dumps(data), strict=True), data)


@pytest.mark.parametrize("api,name,more,lines", CASES, ids=[f"{c[0]}: {c[1]}" for c in CASES])
def test_models_take_every_event_and_the_body(tmp_path, api, name, more, lines):
    _, events = stream_of(tmp_path, api, more, lines)
    for event, data in events:
        if data == "[DONE]" or event == "ping":
            continue
        assert event == data.get("type") or api == "chat"
        validate(api, data)
    if api == "chat":
        assert events[-1] == (None, "[DONE]")
    validate(api, json.loads(body_of(tmp_path, api, more, lines)), whole=True)


# --- Clients ----------------------------------------------------------------------------------------------------------------------


class Server:
    """Answers every POST with the same bytes."""

    def __init__(self, content, kind):
        class Handler(http.server.BaseHTTPRequestHandler):
            def do_POST(self):
                self.rfile.read(int(self.headers["Content-Length"]))
                self.send_response(200)
                self.send_header("Content-Type", kind)
                self.send_header("Content-Length", str(len(content)))
                self.end_headers()
                self.wfile.write(content)

            def log_message(self, *args):
                pass

        self.server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.url = f"http://127.0.0.1:{self.server.server_port}"

    def __enter__(self):
        threading.Thread(target=self.server.serve_forever, args=(0.01,), daemon=True).start()
        return self.url

    def __exit__(self, *args):
        self.server.shutdown()
        self.server.server_close()


def client_of(api, url):
    if api == "messages":
        return anthropic.Anthropic(base_url=url, api_key="none", max_retries=0, _strict_response_validation=True)
    strict = api == "chat"  # see completed
    return openai.OpenAI(base_url=f"{url}/v1", api_key="none", max_retries=0, _strict_response_validation=strict)


def gathered(api, client):
    """What the client makes of a stream."""
    if api == "chat":
        with client.chat.completions.stream(model=MODEL, messages=ASK[api]["messages"]) as stream:
            for _ in stream:
                pass
            return stream.get_final_completion()
    if api == "responses":
        with client.responses.stream(model=MODEL, input="x") as stream:
            final = [event.response for event in stream if event.type in ("response.completed", "response.incomplete")]
            return final[-1]
    with client.messages.stream(model=MODEL, max_tokens=9, messages=ASK[api]["messages"]) as stream:
        return stream.get_final_message()


def whole(api, client):
    if api == "chat":
        return client.chat.completions.create(model=MODEL, messages=ASK[api]["messages"])
    if api == "responses":
        return client.responses.create(model=MODEL, input="x")
    return client.messages.create(model=MODEL, max_tokens=9, messages=ASK[api]["messages"])


def essence(api, reply):
    """What both ways must agree on."""
    if api == "chat":
        return [(c.index, c.finish_reason, c.message.content or "", getattr(c.message, "reasoning_content", None) or "",
                 [(t.id, t.function.name, t.function.arguments) for t in c.message.tool_calls or []]) for c in reply.choices]
    if api == "responses":
        return reply.model_dump(exclude={"completed_at", "created_at"}, exclude_none=True, warnings=False)
    blocks = [{k: v for k, v in b.model_dump(warnings=False).items() if v is not None and k != "parsed_output"} for b in reply.content]
    return blocks, reply.stop_reason, reply.stop_sequence, reply.usage.input_tokens, reply.usage.output_tokens, reply.id, reply.model


def strip_parsed(value):
    """The streaming helper of Responses adds what it parsed out of texts."""
    if isinstance(value, dict):
        return {k: strip_parsed(v) for k, v in value.items() if k not in ("parsed", "parsed_arguments", "output_parsed")}
    return [strip_parsed(v) for v in value] if isinstance(value, list) else value


# The client's helper for Chat raises at what was cut or filtered.
REFUSED = ("only thinking, cut", "filtered", "call cut in a value", "two choices")


@pytest.mark.parametrize("api,name,more,lines", CASES, ids=[f"{c[0]}: {c[1]}" for c in CASES])
def test_clients_gather_the_stream_to_the_body(tmp_path, api, name, more, lines):
    raw, _ = stream_of(tmp_path, api, more, lines)
    with Server(body_of(tmp_path, api, more, lines), "application/json") as url:
        body = essence(api, whole(api, client_of(api, url)))
    with Server(raw, "text/event-stream") as url:
        if api == "chat" and name in REFUSED:
            with pytest.raises((openai.LengthFinishReasonError, openai.ContentFilterFinishReasonError)):
                gathered(api, client_of(api, url))
            return
        got = essence(api, gathered(api, client_of(api, url)))
    if api == "messages" and name == "call cut in a value":
        got[0][-1]["input"] = {}  # the client shows as much of a broken input as it can read, the body none (recipe.md 4.5)
    assert strip_parsed(got) == strip_parsed(body) if api == "responses" else got == body


def test_a_generation_that_breaks_off_is_an_error_of_the_client(tmp_path):
    for api in ASK:
        more = {**QUIET[api], "tools": TOOLS[api]}
        raw, events = stream_of(tmp_path, api, more, ["I ask.", CALLED[:120]])
        assert events[-1][1] != "[DONE]"
        with Server(raw, "text/event-stream") as url:
            client = client_of(api, url)
            if api == "responses":
                validate(api, events[-1][1])
                with client.responses.stream(model=MODEL, input="x") as stream:
                    last = list(stream)[-1]
                assert last.type == "response.failed" and last.response.error.code == "server_error"
                continue
            with pytest.raises(openai.APIError if api == "chat" else anthropic.APIStatusError, match="broke off"):
                gathered(api, client)
        assert parse(tmp_path, api, more, ["I ask.", CALLED[:120]], "--body", code=1) == b""
