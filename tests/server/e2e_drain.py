"""Ends of a server: SIGTERM finishes what was accepted, a deadline bounds that, a second signal stops it, SIGKILL hurts nobody later."""
import concurrent.futures
import json
import signal

import pytest

from serve import (CAIRO, CHAT, COMPLETIONS, EGYPT, MESSAGES, RESPONSES, Server, Stream, answer_text, ask, event_text, post, question, until)

ENDLESS = {"max_tokens": 15000, "temperature": 2, "ignore_eos": True, "seed": 1}
LASTING = {"max_tokens": 60, "temperature": 2, "ignore_eos": True}


def read_all(stream):
    assert stream.head()[0] == 200
    return list(stream.events())


def refused(server):
    """A new request is told that the server goes, or finds nobody."""
    try:
        status, headers, _ = ask(server, "POST", CHAT, question(CHAT, CAIRO))
    except ConnectionError:
        return True
    return status == 503


def test_no_accepted_request_is_lost():
    with Server("--drain-seconds", 100) as server, concurrent.futures.ThreadPoolExecutor(40) as clients:
        body = question(COMPLETIONS, CAIRO, **LASTING)
        alone = answer_text(COMPLETIONS, post(server, COMPLETIONS, {**body, "seed": 0}))
        streams = [Stream(server, COMPLETIONS, {**body, "seed": i // 8}) for i in range(24)]
        whole = [clients.submit(post, server, COMPLETIONS, {**body, "seed": i // 8}) for i in range(16)]
        until(lambda: sum(server.load()[:2]) == 40, "all are accepted")
        server.signal(signal.SIGTERM)
        until(lambda: refused(server), "new requests are refused")
        ends = list(clients.map(read_all, streams))
        assert all(events[-1] == "[DONE]" for events in ends)
        texts = ["".join(map(event_text, events)) for events in ends]
        assert texts[:8] == [alone] * 8 and all(len(set(texts[i:i + 8])) == 1 for i in range(0, 24, 8))
        assert [answer_text(COMPLETIONS, one.result()) for one in whole] == texts[:16]
        assert server.wait() == 0


def test_ready_says_that_it_goes():
    with Server("--drain-seconds", 100) as server:
        with Stream(server, COMPLETIONS, question(COMPLETIONS, CAIRO, **ENDLESS)) as stream:
            stream.first_token()
            assert ask(server, "GET", "/ready")[0] == 200
            server.signal(signal.SIGTERM)
            until(lambda: ready(server) != 200, "not ready")
        assert server.wait() == 0, "the last client has left"


def ready(server):
    try:
        return ask(server, "GET", "/ready")[0]
    except ConnectionError:
        return 0


def test_the_deadline_ends_what_runs():
    with Server("--drain-seconds", 0.2) as server:
        with Stream(server, COMPLETIONS, question(COMPLETIONS, CAIRO, **ENDLESS)) as stream:
            stream.first_token()
            server.signal(signal.SIGTERM)
            *_, last = stream.events()
        assert last["error"]["type"] == "overloaded_error" and "shutting down" in last["error"]["message"]
        assert server.wait() == 0 and "1 request" in server.said()


def test_the_deadline_ends_what_waits_in_the_words_of_each_api():
    paths = (CHAT, RESPONSES, MESSAGES, COMPLETIONS)
    with Server("--drain-seconds", 0.2, "--admin-port", 0, "--trust-tenant-header") as server, \
            concurrent.futures.ThreadPoolExecutor(4) as clients:
        server.admin("POST", "/admin/tenants/held/pause")
        held = {"x-tenant": "held"}
        streams = [Stream(server, path, question(path, CAIRO), headers=held) for path in paths]
        whole = [clients.submit(ask, server, "POST", path, question(path, CAIRO), held) for path in paths]
        until(lambda: server.load()[1] == 8, "all wait")
        server.signal(signal.SIGTERM)
        chat, response, message, completion = (read_all(stream)[-1] for stream in streams)
        assert chat["error"]["type"] == completion["error"]["type"] == "overloaded_error"
        assert response["type"] == "response.failed" and response["response"]["status"] == "failed"
        assert message["type"] == "error" and message["error"]["type"] == "overloaded_error"
        for path, one in zip(paths, whole):
            status, _, body = one.result()
            assert status == 503 and json.loads(body)["error"]["type"] == "overloaded_error", path
        assert server.wait() == 0


def test_a_second_signal_stops_at_once():
    with Server("--drain-seconds", 1000) as server:
        with Stream(server, COMPLETIONS, question(COMPLETIONS, CAIRO, **ENDLESS)) as stream:
            stream.first_token()
            server.signal(signal.SIGTERM)
            until(lambda: ready(server) != 200, "it heard the first")
            server.signal(signal.SIGTERM)
            assert server.wait() == 128 + signal.SIGTERM
        assert "second signal" in server.said()


def test_killed_and_started_again():
    with Server() as server:
        streams = [Stream(server, CHAT, question(CHAT, CAIRO, **ENDLESS)) for _ in range(8)]
        for stream in streams:
            stream.first_token()
        port = server.port
        server.kill()
        for stream in streams:
            with pytest.raises((EOFError, ConnectionError)):
                list(stream.events())
    with Server(port=port) as again:
        assert again.port == port and ready(again) == 200
        assert answer_text(CHAT, post(again, CHAT, question(CHAT, CAIRO, temperature=0))) == EGYPT
        again.until_idle()
        assert again.stop() == 0
