"""Schemathesis over /openapi.json: whatever it makes up, the server answers with what the document promises, and never with a 5xx.

ctest: timeout=240

The model is the null backend, which answers with a fixed text: what is tested is everything around a model. The seed is fixed."""
import pathlib
import subprocess
import sys

from serve import Server

SCHEMATHESIS = str(pathlib.Path(sys.executable).parent / "schemathesis")
EXAMPLES = 20
SECONDS = 280


def test_the_server_keeps_its_promises(tmp_path):
    with Server("--backend", "null", "--max-context", 2048, "--threads", 1) as server:
        done = subprocess.run([SCHEMATHESIS, "run", server.url + "/openapi.json", "--seed", "1", "--max-examples", str(EXAMPLES),
                               "--phases", "examples,coverage,fuzzing", "--generation-database", "none", "--no-color",
                               "--checks", "not_a_server_error,status_code_conformance,content_type_conformance,"
                               "response_schema_conformance,response_headers_conformance,unsupported_method,negative_data_rejection"],
                              capture_output=True, cwd=tmp_path, timeout=SECONDS)
        assert done.returncode == 0, done.stdout.decode()[-8000:] + done.stderr.decode()[-2000:]
        assert server.process.poll() is None
        server.until_idle()
        assert server.stop() == 0
