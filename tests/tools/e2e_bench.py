"""`deepinfer bench`: lines and ratios over the smallest slice, and mistakes in what to measure."""
import json
import os
import pathlib
import subprocess

import pytest

ROOT = pathlib.Path(os.environ.get("DI_SOURCE_DIR") or pathlib.Path(__file__).resolve().parents[2])
BINARY = os.environ.get("DI_BIN") or str(ROOT / "build" / "release" / "deepinfer")


def run(*words):
    return subprocess.run([BINARY, "bench", *words], capture_output=True, text=True, timeout=280)


def test_a_slice_in_memory_is_measured_case_by_case():
    done = run("--synthetic", "layers=1,experts=6", "--rounds", "1", "--batch", "1,2", "--prompt-tokens", "16", "--context", "4", "--json")
    assert done.returncode == 0, done.stderr
    lines = [json.loads(line) for line in done.stdout.splitlines()]
    assert [line["case"] for line in lines] == ["decode x1", "decode x2", "prefill 16"]
    for line in lines:
        assert line["bench"] == "synthetic" and line["unit"] == "ms" and line["value"] > 0 and line["ratio"] > 0
    one, two, _ = lines
    assert one["experts_hit"] == 6 and two["experts_hit"] == 6  # there are no more
    assert one["step_bytes"] == two["step_bytes"]


def test_a_long_context_is_computed_once():
    done = run("--synthetic", "layers=1,experts=6", "--rounds", "1", "--batch", "1,3", "--prompt-tokens", "0", "--context", "700", "--json")
    assert done.returncode == 0, done.stderr
    assert [json.loads(line)["case"] for line in done.stdout.splitlines()] == ["decode x1", "decode x3"]


def test_drafts_stand_beside_steps_without():
    done = run("--synthetic", "layers=1,experts=6,drafts=1", "--rounds", "1", "--batch", "2", "--prompt-tokens", "0", "--context", "4", "--json")
    assert done.returncode == 0, done.stderr
    line = [json.loads(line) for line in done.stdout.splitlines()][-1]
    assert line["case"] == "drafts x2" and 1 <= line["tokens_per_step"] <= 6
    assert 0 < line["propose_ms"] < line["value"] and line["off_ms"] > 0
    assert line["ratio"] == pytest.approx(line["tokens_per_step"] * line["off_ms"] / line["value"], rel=1e-3)
    assert line["speedup_at_3_51"] == pytest.approx(3.51 * line["off_ms"] / line["value"], rel=1e-3)


@pytest.mark.parametrize("spec, message", [
    ("layrs=2", "'layrs=2': must be layers=N"), ("layers=x", "layers=x is not a count"), ("layers", "'layers': must be"),
    ("dir=", "'dir=': must be")])
def test_a_bad_spec_is_a_usage_error(spec, message):
    done = run("--synthetic", spec)
    assert done.returncode == 2 and message in done.stderr and done.stdout == ""


def test_numbers_outside_the_released_model_are_refused():
    done = run("--synthetic", "experts=385")
    assert done.returncode == 1 and "experts is 385: must be 6 to 384" in done.stderr
    done = run("--synthetic", "layers=1,experts=6,drafts=4")
    assert done.returncode == 1 and "drafts is 4: must be 0 to 3" in done.stderr
    done = run("--synthetic", "layers=1,experts=6", "--batch", "257")
    assert done.returncode == 1 and "--batch: 257: must be 1 to 256" in done.stderr
    done = run("--synthetic", "layers=1,experts=6", "--batch", "1,2,3,4,5,6,7,8,9")
    assert done.returncode == 1 and "--batch: 9 cases: at most 8" in done.stderr


def test_a_slice_needs_to_be_named():
    done = run()
    assert done.returncode == 2 and "--synthetic SPEC is missing" in done.stderr
