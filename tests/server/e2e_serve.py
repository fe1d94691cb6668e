"""The command `deepinfer serve` around its server: TLS, traces, the access log's rotation, configuration, what it says and how it ends."""
import http.server
import json
import re
import signal
import socket
import ssl
import subprocess
import threading

import pytest

from serve import (BINARY, CAIRO, CHAT, COMPLETIONS, DEMO, EGYPT, MESSAGES, MODEL, PATIENCE, Server, Stream, answer_text, ask, command, post,
                   question, until)

TRACE = "0af7651916cd43dd8448eb211c80319c"


@pytest.fixture(name="certificate", scope="module")
def make_certificate(tmp_path_factory):
    """A self-signed certificate for 127.0.0.1 and its key."""
    folder = tmp_path_factory.mktemp("tls")
    subprocess.run(["openssl", "req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:P-256", "-nodes", "-days", "2", "-subj",
                    "/CN=localhost", "-addext", "subjectAltName=IP:127.0.0.1", "-keyout", folder / "key.pem", "-out", folder / "cert.pem"],
                   check=True, capture_output=True, timeout=PATIENCE)
    return folder / "cert.pem", folder / "key.pem"


def secret_ask(context, server, request):
    with socket.create_connection(("127.0.0.1", server.port), PATIENCE) as plain:
        with context.wrap_socket(plain, server_hostname="127.0.0.1") as secret:
            secret.sendall(request)
            answer = b""
            while data := secret.recv(65536):
                answer += data
            return answer, secret.version()


def test_tls(certificate):
    cert, key = certificate
    context = ssl.create_default_context(cafile=cert)
    body = json.dumps({"model": MODEL, **question(CHAT, CAIRO, temperature=0, stream=True)}).encode()
    with Server("--tls-cert", cert, "--tls-key", key) as server:
        assert "https://127.0.0.1:" in server.line
        head = f"POST {CHAT} HTTP/1.1\r\nHost: t\r\nConnection: close\r\nContent-Type: application/json\r\nContent-Length: {len(body)}\r\n\r\n"
        answer, version = secret_ask(context, server, head.encode() + body)
        assert answer.startswith(b"HTTP/1.1 200 OK") and b"data: [DONE]\n\n" in answer
        assert version in ("TLSv1.2", "TLSv1.3")
        with pytest.raises(ssl.SSLCertVerificationError):
            secret_ask(ssl.create_default_context(), server, b"GET /health HTTP/1.1\r\nHost: t\r\n\r\n")
        # Plain HTTP is not understood, and hurts nobody.
        with socket.create_connection(("127.0.0.1", server.port), PATIENCE) as plain:
            plain.sendall(b"GET /health HTTP/1.1\r\nHost: t\r\n\r\n")
            assert b"200 OK" not in plain.recv(1000)
        answer, _ = secret_ask(context, server, b"GET /health HTTP/1.1\r\nHost: t\r\nConnection: close\r\n\r\n")
        assert answer.startswith(b"HTTP/1.1 200 OK")
        assert server.stop() == 0


def test_a_client_that_leaves_under_tls(certificate):
    cert, key = certificate
    body = json.dumps({"model": MODEL, **question(CHAT, CAIRO, stream=True, max_tokens=15000)}).encode()
    with Server("--tls-cert", cert, "--tls-key", key, "--admin-port", 0, "--admin-key", "boss", admin_key="boss") as server:
        head = f"POST {CHAT} HTTP/1.1\r\nHost: t\r\nContent-Type: application/json\r\nContent-Length: {len(body)}\r\n\r\n"
        with socket.create_connection(("127.0.0.1", server.port), PATIENCE) as plain:
            with ssl.create_default_context(cafile=cert).wrap_socket(plain, server_hostname="127.0.0.1") as secret:
                secret.sendall(head.encode() + body)
                assert secret.recv(100).startswith(b"HTTP/1.1 200 OK")
        until(lambda: server.admin("GET", "/admin/stats")["pending"] == 0, "its request is gone")
        assert server.stop() == 0


def fails(*options):
    """Exit code and words of a server that does not start."""
    done = subprocess.run([BINARY, "serve", "--port", "0", "--model", DEMO, *options], capture_output=True, timeout=PATIENCE, check=False)
    return done.returncode, done.stderr.decode()


def test_certificates_that_are_none(certificate, tmp_path):
    cert, key = certificate
    nonsense = tmp_path / "nonsense.pem"
    nonsense.write_text("no certificate")
    code, said = fails("--tls-cert", nonsense, "--tls-key", key)
    assert code == 1 and "does not start with this certificate and key" in said
    code, said = fails("--tls-cert", cert, "--tls-key", tmp_path / "none.pem")
    assert code == 1 and "none.pem" in said
    code, said = fails("--tls-cert", cert)
    assert code == 2 and "--tls-cert and --tls-key go together" in said


class Collector(http.server.BaseHTTPRequestHandler):
    """Keeps what is posted; says `code`."""
    code = 200
    bodies = []

    def do_POST(self):
        assert self.headers["Content-Type"] == "application/json" and self.path == "/v1/traces"
        self.bodies.append(json.loads(self.rfile.read(int(self.headers["Content-Length"]))))
        self.send_response(self.code)
        self.send_header("Content-Length", "2")
        self.end_headers()
        self.wfile.write(b"{}")

    def log_message(self, *_):
        pass


@pytest.fixture(name="collector")
def run_collector():
    class Mine(Collector):
        bodies = []
    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), Mine) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        yield server
        server.shutdown()


def test_spans_go_to_a_collector(collector):
    endpoint = f"http://127.0.0.1:{collector.server_port}/v1/traces"
    bodies = collector.RequestHandlerClass.bodies
    with Server("--otlp-endpoint", endpoint) as server:
        status, headers, _ = ask(server, "POST", CHAT, {"model": MODEL, **question(CHAT, CAIRO, temperature=0)},
                                 {"traceparent": f"00-{TRACE}-b7ad6b7169203331-01", "x-request-id": "mine"})
        assert status == 200 and headers["traceparent"].startswith(f"00-{TRACE}-")
        until(lambda: server.value("deepinfer_trace_spans_total", fate="sent") == 1, "the span was sent")
        # One that asks not to be traced is not; the last one comes at the end.
        post(server, CHAT, {"model": MODEL, **question(CHAT, CAIRO, temperature=0)}, traceparent=f"00-{TRACE}-b7ad6b7169203331-00")
        post(server, MESSAGES, {"model": MODEL, **question(MESSAGES, CAIRO, temperature=0)})
        assert server.stop() == 0
    spans = [span for body in bodies for span in body["resourceSpans"][0]["scopeSpans"][0]["spans"]]
    assert len(spans) == 2
    first = spans[0]
    assert first["traceId"] == TRACE and first["parentSpanId"] == "b7ad6b7169203331" and first["name"] == f"POST {CHAT}"
    assert headers["traceparent"] == f"00-{TRACE}-{first['spanId']}-01"
    values = {a["key"]: next(iter(a["value"].values())) for a in first["attributes"]}
    assert values["http.route"] == CHAT and values["http.response.status_code"] == "200" and values["deepinfer.request_id"] == "mine"
    assert int(values["gen_ai.usage.input_tokens"]) > 0 and int(values["gen_ai.usage.output_tokens"]) > 0
    times = [int(first["startTimeUnixNano"]), *(int(e["timeUnixNano"]) for e in first["events"]), int(first["endTimeUnixNano"])]
    assert times == sorted(times) and [e["name"] for e in first["events"]] == ["queued", "admitted", "first_token"]
    assert "parentSpanId" not in spans[1] and spans[1]["name"] == f"POST {MESSAGES}"


def test_a_collector_that_is_not_there_costs_spans_only():
    with socket.socket() as nobody:
        nobody.bind(("127.0.0.1", 0))
        with Server("--otlp-endpoint", f"http://127.0.0.1:{nobody.getsockname()[1]}/v1/traces") as server:
            for _ in range(3):
                assert answer_text(CHAT, post(server, CHAT, question(CHAT, CAIRO, temperature=0))) == EGYPT
            until(lambda: server.value("deepinfer_trace_spans_total", fate="dropped") == 3, "they are counted")
            assert server.stop() == 0


def test_the_access_log_is_rotated(tmp_path):
    log = tmp_path / "access.log"
    with Server("--access-log", log) as server:
        ask(server, "GET", "/health", headers={"x-request-id": "before"})
        until(lambda: log.exists() and "before" in log.read_text(), "the line is written")
        log.rename(tmp_path / "old.log")
        server.signal(signal.SIGHUP)
        until(lambda: ask(server, "GET", "/health", headers={"x-request-id": "after"})[0] == 200 and log.exists()
              and "after" in log.read_text(), "the new file is used")
        assert server.stop() == 0
    for line in [*(tmp_path / "old.log").read_text().splitlines(), *log.read_text().splitlines()]:
        assert json.loads(line)["route"] == "health"


def test_the_ready_line_may_be_json():
    with Server("--json", "--admin-port", 0, "--model-name", "my \"model\"") as server:
        said = json.loads(server.line)
        assert said == {"url": server.url, "admin_url": f"http://127.0.0.1:{server.admin_port}", "model": "my \"model\""}
        assert json.loads(ask(server, "GET", "/v1/models")[2])["data"][0]["id"] == said["model"]


def test_a_file_configures_it(tmp_path):
    config = tmp_path / "serve.yaml"
    config.write_text("host: 127.0.0.1\nrate-limit: 1\napi-key:\n  - secret-key\nkeep-alive-seconds: 0.5\n")
    with Server("--config", config, key="secret-key") as server:
        assert ask(server, "GET", "/ready")[0] == 200
        assert ask(server, "POST", "/tokenize", {"prompt": "a"})[0] == 200
        assert ask(server, "POST", "/tokenize", {"prompt": "a"})[0] == 429
        server.key = None
        assert ask(server, "GET", "/ready")[0] == 401
    shown = command("serve", "--config", config, "--print-config")
    assert "rate-limit: 1" in shown and "secret-key" not in shown


def test_a_second_signal_ends_it_with_its_number():
    with Server("--drain-seconds", 1000) as server:
        with Stream(server, COMPLETIONS, question(COMPLETIONS, CAIRO, max_tokens=15000, temperature=2, ignore_eos=True)) as stream:
            stream.first_token()
            server.signal(signal.SIGTERM)
            until(lambda: ask(server, "GET", "/ready")[0] == 503, "it drains")
            server.signal(signal.SIGINT)
            assert server.wait() == 128 + signal.SIGINT
            assert re.search(r"stopped by a second signal, 1 requests? w", server.said())


def test_silent_streams_are_kept_alive(tmp_path):
    keys = tmp_path / "keys"
    keys.write_text("held-key held\n")
    with Server("--api-keys-file", keys, "--keep-alive-seconds", 0.05, "--admin-port", 0, "--admin-key", "boss", key="held-key",
                admin_key="boss") as server:
        server.admin("POST", "/admin/tenants/held/pause")
        with Stream(server, CHAT, question(CHAT, CAIRO, temperature=0)) as chat, \
                Stream(server, MESSAGES, question(MESSAGES, CAIRO, temperature=0)) as messages:
            assert chat.head()[0] == messages.head()[0] == 200
            comments, pings = chat.frames(), messages.frames()
            assert [next(comments) for _ in range(3)] == [": keep-alive"] * 3
            assert [next(pings) for _ in range(3)] == ['event: ping\ndata: {"type": "ping"}'] * 3
            server.admin("POST", "/admin/tenants/held/resume")
            assert [frame for frame in comments if frame != ": keep-alive"][-1] == "data: [DONE]"
            assert list(pings)[-1].startswith("event: message_stop")
