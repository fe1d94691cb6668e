"""What goes wrong around a server: the address, the model, the disk of its log, a tenant that is paused. Defined errors, no crash."""
import errno
import os
import shutil
import socket
import subprocess

from serve import (BINARY, CAIRO, CHAT, DEMO, EGYPT, PATIENCE, Server, Stream, answer_text, ask, post, question, until)


def fails(*options, code=1):
    """What a server that can't start says."""
    done = subprocess.run([BINARY, "serve", *map(str, options)], capture_output=True, timeout=PATIENCE)
    said = done.stderr.decode()
    assert done.returncode == code and done.stdout == b"", said
    return said


def test_a_port_in_use():
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        port = taken.getsockname()[1]
        said = fails("--model", DEMO, "--port", port)
        assert str(port) in said and os.strerror(errno.EADDRINUSE) in said


def test_an_unreadable_model(tmp_path):
    assert "config.json" in fails("--model", tmp_path, "--port", 0)
    (tmp_path / "config.json").mkdir()
    assert "config.json" in fails("--model", tmp_path, "--port", 0)
    broken = tmp_path / "model"
    shutil.copytree(DEMO, broken)
    shard = broken / "model-00002-of-00003.safetensors"
    shard.write_bytes(shard.read_bytes()[:1000])
    assert shard.name in fails("--model", broken, "--port", 0)


def test_options_that_make_no_sense(tmp_path):
    for options in (["--port", "70000"], ["--port", "x"], ["--no-such-option"], ["--drain-seconds", "-1"]):
        fails("--model", DEMO, *options, code=2)
    assert "no-keys-here" in fails("--model", DEMO, "--port", 0, "--api-keys-file", tmp_path / "no-keys-here")


def test_a_log_on_a_full_disk():
    with Server("--access-log", "/dev/full") as server:
        for _ in range(20):
            assert answer_text(CHAT, post(server, CHAT, question(CHAT, CAIRO, temperature=0))) == EGYPT
        until(lambda: server.value("deepinfer_log_dropped_total") >= 20, "drops are counted")
        assert server.said().count(os.strerror(errno.ENOSPC)) == 1, "said once"
        assert server.stop() == 0


def test_a_log_that_can_not_be_opened(tmp_path):
    assert "missing" in fails("--model", DEMO, "--port", 0, "--access-log", tmp_path / "missing" / "log")


def test_an_error_stream_that_is_full():
    with open("/dev/full", "wb") as full, Server(stderr=full.fileno()) as server:
        assert answer_text(CHAT, post(server, CHAT, question(CHAT, CAIRO, temperature=0))) == EGYPT
        assert server.stop() == 0


def test_a_paused_tenant_waits_and_others_do_not(tmp_path):
    keys = tmp_path / "keys"
    keys.write_text("key-a tenant-a\nkey-b tenant-b\n")
    body = question(CHAT, CAIRO, temperature=0)
    with Server("--api-keys-file", keys, "--admin-port", 0, "--admin-key", "secret", key="key-b", admin_key="secret") as server:
        assert ask(server, "GET", "/admin/tenants", port=server.admin_port)[0] == 401
        assert ask(server, "GET", "/admin/tenants")[0] == 404, "not on the public port"
        server.admin("POST", "/admin/tenants/tenant-a/pause")
        with Stream(server, CHAT, body, headers={"Authorization": "Bearer key-a"}) as waits:
            assert waits.head()[0] == 200
            until(lambda: server.load()[1] == 1, "one waits")
            assert answer_text(CHAT, post(server, CHAT, body)) == EGYPT
            names = {one["name"]: one for one in server.admin("GET", "/admin/tenants")["tenants"]}
            assert names["tenant-a"]["state"] == "paused" and names["tenant-a"]["waiting"] == 1
            server.admin("POST", "/admin/tenants/tenant-a/resume")
            assert list(waits.events())[-1] == "[DONE]"
        server.admin("POST", "/admin/tenants/tenant-a/drain")
        status, _, answer = ask(server, "POST", CHAT, body, {"Authorization": "Bearer key-a"})
        assert status == 503, answer
