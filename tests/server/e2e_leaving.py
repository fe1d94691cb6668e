"""Clients that leave, or as good as: whatever a request was doing, what it held is free within a step, and others notice nothing.

Seen from outside through /metrics. A request is put into a phase by what holds it there: a paused tenant (queue), a prompt of many
small chunks (prefill), an answer without end (decode), a reader who does not read (flush)."""
import pytest

from serve import (CAIRO, CHAT, COMPLETIONS, EGYPT, MESSAGES, RESPONSES, Server, Stream, answer_text, event_text, post, question, until)

ENDLESS = {"max_tokens": 15000, "temperature": 2, "ignore_eos": True, "seed": 1}
LONG = "word " * 6000
STEPS = "deepinfer_steps_total"


@pytest.fixture(scope="module")
def server(tmp_path_factory):
    keys = tmp_path_factory.mktemp("keys") / "keys"
    keys.write_text("open-key open\nheld-key held\n")
    with Server("--api-keys-file", keys, "--admin-port", 0, "--admin-key", "admin-key", "--chunk-tokens", 64,
                key="open-key", admin_key="admin-key") as one:
        yield one
        assert one.stop() == 0


@pytest.fixture(params=["fin", "rst"])
def leave(request):
    return Stream.close if request.param == "fin" else Stream.reset


def steps_until_idle(server):
    """How many steps still ran before nothing was left; counted from the first look, right after the client has gone."""
    before = server.value(STEPS)
    server.until_idle()
    return server.value(STEPS) - before


def test_in_the_queue(server, leave):
    server.admin("POST", "/admin/tenants/held/pause")
    held = {"headers": {"Authorization": "Bearer held-key"}}
    streams = [Stream(server, path, question(path, CAIRO), **held) for path in (CHAT, RESPONSES, MESSAGES, COMPLETIONS)]
    until(lambda: server.load()[:2] == (0, 4), "four wait")
    for left, stream in enumerate(streams, 1):
        leave(stream)
        until(lambda left=left: server.load()[:2] == (0, 4 - left), "one less waits")
    assert post(server, CHAT, question(CHAT, CAIRO, temperature=0))["choices"][0]["message"]["content"] == EGYPT
    server.admin("POST", "/admin/tenants/held/resume")
    server.until_idle()


def test_in_prefill(server, leave):
    said = server.value("vllm:generation_tokens_total")
    stream = Stream(server, COMPLETIONS, question(COMPLETIONS, LONG, max_tokens=5))
    until(lambda: server.load()[0] == 1 and server.load()[2] > 0, "the prompt runs")
    leave(stream)
    steps = steps_until_idle(server)
    assert server.value("vllm:generation_tokens_total") == said, "it left before its first token"
    assert steps < 40, "the prompt did not run to its end"


def test_in_decode(server, leave):
    steps = []
    for path in (CHAT, COMPLETIONS, CHAT, COMPLETIONS, CHAT):
        stream = Stream(server, path, question(path, CAIRO, **ENDLESS))
        stream.first_token()
        assert server.load()[0] == 1
        leave(stream)
        steps.append(steps_until_idle(server))
    # The step that runs and the one that is planned already; a busy machine may be late in hearing of it now and then.
    assert min(steps) <= 2 and max(steps) < 200, steps


def test_many_at_once(server, leave):
    streams = [Stream(server, COMPLETIONS, question(COMPLETIONS, CAIRO, **{**ENDLESS, "seed": i})) for i in range(40)]
    for stream in streams:
        stream.first_token()
    for stream in streams[::2]:
        leave(stream)
    until(lambda: server.load()[0] == 20, "half of them run")
    for stream in streams[1::2]:
        assert any(map(event_text, stream.events())), "the others go on"
        leave(stream)
    server.until_idle()


LARGE = {"n": 8, "max_tokens": 8000, "ignore_eos": True}


def test_in_flush(leave):
    """The engine has done its part, and megabytes wait for a reader, more than sockets hold."""
    with Server("--backend", "null", "--max-unread-kb", 262144) as server:
        stream = Stream(server, COMPLETIONS, question(COMPLETIONS, CAIRO, **LARGE), receive_buffer=4096)
        stream.head()
        server.until_idle()
        assert server.value("deepinfer_http_requests_in_flight") == 2, "it and the one that asks"
        leave(stream)
        until(lambda: server.value("deepinfer_http_requests_in_flight") == 1, "its request is gone")
        assert server.value("deepinfer_http_disconnects_total", phase="flush") == 1


def test_whoever_reads_byte_by_byte_is_bounded_and_dropped():
    body = question(CHAT, CAIRO)
    with Server("--backend", "null", "--max-unread-kb", 2048) as server:  # far more than sockets hold
        said = post(server, CHAT, body)["choices"]
        slow = Stream(server, COMPLETIONS, question(COMPLETIONS, CAIRO, **LARGE), receive_buffer=4096)
        slow.head()
        while server.load()[0] > 0:
            slow.receive(1)
            assert post(server, CHAT, body)["choices"] == said
        server.until_idle()
        assert server.value("deepinfer_requests_unread_total") == 1
        until(lambda: server.value("deepinfer_http_requests_in_flight") == 1, "it was dropped")
        assert server.value("deepinfer_http_slow_readers_total") == 1
        with pytest.raises((EOFError, ConnectionError)):
            list(slow.events())
        slow.close()
