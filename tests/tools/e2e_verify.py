"""`deepinfer verify` finds what is wrong: golden values are changed one at a time, and the report names them."""
import json
import os
import pathlib
import shutil
import subprocess

import numpy
import pytest
from safetensors import safe_open

ROOT = pathlib.Path(os.environ.get("DI_SOURCE_DIR") or pathlib.Path(__file__).resolve().parents[2])
BINARY = os.environ.get("DI_BIN") or str(ROOT / "build" / "release" / "deepinfer")
DATA = pathlib.Path(os.environ.get("DI_TEST_DATA") or ROOT / "tests" / "data")
STRICT = DATA / "model" / "t6-strict"


def verify(*words, code):
    done = subprocess.run([BINARY, "verify", "--json", *map(str, words)], capture_output=True, text=True)
    assert done.returncode == code, done.stdout + done.stderr
    return [json.loads(line) for line in done.stdout.splitlines()], done.stderr


class Golden:
    def __init__(self, folder):
        self.folder = folder
        shutil.copytree(STRICT / "golden", folder, dirs_exist_ok=True)

    def data_of(self, case, tensor):
        """Raw bytes of the case's file, and where the tensor lies in them."""
        raw = bytearray((self.folder / f"{case}.safetensors").read_bytes())
        size = int.from_bytes(raw[:8], "little")
        begin, end = json.loads(raw[8:8 + size])[tensor]["data_offsets"]
        return raw, 8 + size + begin, 8 + size + end

    def change(self, case, tensor, dtype, index, change):
        raw, begin, end = self.data_of(case, tensor)
        values = numpy.frombuffer(bytes(raw[begin:end]), dtype=dtype).copy()
        values[index] = change(values[index])
        raw[begin:end] = values.tobytes()
        (self.folder / f"{case}.safetensors").write_bytes(raw)

    def check(self, case, code=1):
        lines, _ = verify(STRICT, "--golden", self.folder, "--case", case, code=code)
        return lines[0]


@pytest.fixture
def golden(tmp_path):
    if not STRICT.exists():
        pytest.skip("no model/t6-strict in the test data")
    return Golden(tmp_path / "golden")


def shape(case, tensor):
    with safe_open(STRICT / "golden" / f"{case}.safetensors", "numpy") as file:
        return file.get_slice(tensor).get_shape()


def test_unchanged_copy_passes(golden):
    for case in ("prompt_017", "trace_033", "chunked_033", "image_span"):
        assert golden.check(case, code=0)["verdict"] == "ok"


def test_changed_value_is_named_with_its_row(golden):
    width = shape("trace_033", "L3.attn_out")[1]
    # Rows 0, 1, 2, 7, 15 ... are in the file: the fourth is position 7.
    golden.change("trace_033", "L3.attn_out", numpy.uint16, 3 * width + 5, lambda bits: bits ^ 0x8000 | 0x4000)
    found = golden.check("trace_033")
    assert (found["verdict"], found["first_tensor"], found["row"], found["differences"]) == ("differs", "L3.attn_out", 7, 1)
    assert "tolerance" in found["message"]


def test_first_of_two_is_the_earlier_stage(golden):
    golden.change("trace_033", "L4.ffn_out", numpy.uint16, 0, lambda bits: 0x4100)
    width = shape("trace_033", "L1.index_score")[1]
    golden.change("trace_033", "L1.index_score", numpy.float32, 10 * width, lambda x: x + 1)
    found = golden.check("trace_033")
    assert found["first_tensor"] == "L1.index_score" and found["row"] == 10 and found["differences"] == 2


def test_small_change_is_within_tolerance(golden):
    golden.change("trace_033", "L3.attn_out", numpy.uint16, 5, lambda bits: bits ^ 1)
    assert golden.check("trace_033", code=0)["worst"] > 0


def test_moved_selection_is_a_difference_where_none_may_move(golden):
    golden.change("trace_033", "L2.router_ids", numpy.int32, slice(20, 22), lambda ids: [0, 0])
    found = golden.check("trace_033")
    assert found["first_tensor"] == "L2.router_ids" and found["row"] == 10


def test_order_of_a_selection_does_not_matter(golden):
    golden.change("trace_033", "L2.router_ids", numpy.int32, slice(20, 22), lambda ids: ids[::-1])
    assert golden.check("trace_033", code=0)["verdict"] == "ok"


def test_engram_ids_are_exact(golden):
    golden.change("trace_033", "engram_ids", numpy.int32, 40, lambda x: x + 1)
    assert golden.check("trace_033")["first_tensor"] == "engram_ids"


def test_caches_are_compared(golden):
    width = shape("chunked_033", "cache.L2.window")[1]
    golden.change("chunked_033", "cache.L2.window", numpy.uint16, 3 * width, lambda bits: 0x4200)
    found = golden.check("chunked_033")
    assert found["first_tensor"] == "cache.L2.window"
    assert found["row"] == 19  # slot 3 of 16, last position 32


def test_logits_of_a_decode_step(golden):
    vocab = shape("prompt_017", "decode_logits")[1]
    golden.change("prompt_017", "decode_logits", numpy.float32, 2 * vocab + 1, lambda x: x + 50)
    found = golden.check("prompt_017")
    assert found["first_tensor"] == "decode_logits" and found["row"] == 19


def test_infinite_golden_value_is_a_difference(golden):
    golden.change("prompt_017", "prefill_logits", numpy.float32, 1, lambda x: numpy.inf)
    assert golden.check("prompt_017")["first_tensor"] == "prefill_logits"


def test_wrong_rounding_point_fails_the_set(golden):
    """Values inside every tolerance, but no case of the judged ones exact: criterion 3."""
    manifest = json.loads((golden.folder / "manifest.json").read_text(encoding="utf-8"))
    for case in manifest["cases"]:
        if case["kind"].startswith("prefill"):
            rows, vocab = shape(case["name"], "prefill_logits")
            for row in range(rows):
                golden.change(case["name"], "prefill_logits", numpy.float32, row * vocab, lambda x: x + 0.002)
    lines, _ = verify(STRICT, "--golden", golden.folder, code=1)
    by_case = {line.get("case"): line for line in lines}
    assert all(line["verdict"] in ("ok", "skipped") for case, line in by_case.items() if case not in ("exactness", None))
    assert by_case["exactness"]["verdict"] == "differs" and by_case["exactness"]["exact"] == 0


@pytest.mark.parametrize("text, message", [("{", "manifest.json"), ('{"cases": 1}', "cases"), ("[]", "cases")])
def test_broken_manifest_is_an_error(golden, text, message):
    (golden.folder / "manifest.json").write_text(text, encoding="utf-8")
    _, errors = verify(STRICT, "--golden", golden.folder, code=1)
    assert message in errors and len(errors.splitlines()) == 1


def test_broken_case_is_an_error(golden):
    os.truncate(golden.folder / "prompt_001.safetensors", 100)
    _, errors = verify(STRICT, "--golden", golden.folder, code=1)
    assert "prompt_001" in errors


def test_unknown_case_and_missing_golden_fail(golden, tmp_path):
    _, errors = verify(STRICT, "--case", "prompt_999", code=1)
    assert "prompt_999" in errors
    _, errors = verify(STRICT, "--golden", tmp_path / "none", code=1)
    assert "manifest.json" in errors


def test_table_for_people(golden):
    done = subprocess.run([BINARY, "verify", str(STRICT), "--case", "prompt_017"], capture_output=True, text=True)
    assert done.returncode == 0
    assert "prompt_017" in done.stdout and "1 passed, 0 failed, 0 skipped" in done.stdout


def test_usage():
    for words in ([], ["a", "b", "--golden", "c"], ["a", "--eval", "b", "--case", "c"]):
        assert subprocess.run([BINARY, "verify", *words], capture_output=True).returncode == 2
