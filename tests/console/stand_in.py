"""A stand-in for the server: the console's page, and chat answers byte by byte as a test wants them. Loopback, a free port."""
import http.server
import json
import pathlib
import threading

PAGE = pathlib.Path(__file__).resolve().parents[2] / "console" / "index.html"
PATIENCE = 120
DONE = b"data: [DONE]\n\n"


def event(**delta):
    """One event with a piece of an answer."""
    finish = delta.pop("finish_reason", None)
    chunk = {"choices": [{"index": 0, "delta": delta, "finish_reason": finish}]}
    return f"data: {json.dumps(chunk, ensure_ascii=False)}\n\n".encode()


class Answer:
    """Pieces to send, each on its own; a threading.Event among them is waited for. `left`: the client went before the end."""

    def __init__(self, *pieces, status=200, headers=()):
        self.pieces, self.status, self.headers = pieces, status, dict(headers)
        self.left = threading.Event()


class StandIn:
    """Answers the n-th chat request with the n-th answer and keeps the bodies."""

    def __init__(self, *answers, metrics=""):
        self.answers, self.metrics, self.bodies = list(answers), metrics, []
        stand_in = self

        class Handler(http.server.BaseHTTPRequestHandler):
            def do_GET(self):
                stand_in.get(self)

            def do_POST(self):
                stand_in.post(self)

            def log_message(self, *_):
                pass

        self.server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.server.daemon_threads = True
        self.url = f"http://127.0.0.1:{self.server.server_port}"

    def __enter__(self):
        threading.Thread(target=self.server.serve_forever, daemon=True).start()
        return self

    def __exit__(self, *_):
        self.server.shutdown()
        self.server.server_close()

    def get(self, handler):
        pages = {
            "/": ("text/html; charset=utf-8", PAGE.read_text(encoding="utf-8")),
            "/v1/models": ("application/json", json.dumps({"data": [{"id": "stand-in"}]})),
            "/metrics": ("text/plain; version=0.0.4", self.metrics),
        }
        found = handler.path in pages
        kind, text = pages.get(handler.path, ("text/plain", "not here"))
        handler.send_response(200 if found else 404)
        handler.send_header("Content-Type", kind)
        handler.end_headers()
        handler.wfile.write(text.encode())

    def post(self, handler):
        self.bodies.append(json.loads(handler.rfile.read(int(handler.headers["Content-Length"]))))
        answer = self.answers[len(self.bodies) - 1]
        handler.send_response(answer.status)
        handler.send_header("Content-Type", "text/event-stream" if answer.status == 200 else "application/json")
        for name, value in answer.headers.items():
            handler.send_header(name, value)
        handler.end_headers()
        try:
            for piece in answer.pieces:
                if isinstance(piece, threading.Event):
                    assert piece.wait(PATIENCE)
                else:
                    handler.wfile.write(piece)
                    handler.wfile.flush()
        except (BrokenPipeError, ConnectionResetError):
            answer.left.set()
