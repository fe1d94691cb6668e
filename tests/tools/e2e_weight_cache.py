"""`--weight-cache`: prepared weights are written once and mapped later, by every command that runs a model and by the Python package."""
import os
import pathlib
import subprocess

import pytest

ROOT = pathlib.Path(os.environ.get("DI_SOURCE_DIR") or pathlib.Path(__file__).resolve().parents[2])
BINARY = os.environ.get("DI_BIN") or str(ROOT / "build" / "release" / "deepinfer")
DEMO = ROOT / "models" / "demo"
PROMPT = "Which country has Cairo as its capital?"


def command(*options, env=None):
    done = subprocess.run([BINARY, *options], capture_output=True, text=True, env={**os.environ, **(env or {})})
    assert done.returncode == 0, done.stderr
    return done


def generate(*options, env=None):
    return command("generate", "--model", str(DEMO), "--backend", "cpu", "--prompt", PROMPT, "--max-tokens", "8", *options, env=env)


@pytest.fixture
def cpu():
    if "avx2" not in pathlib.Path("/proc/cpuinfo").read_text():
        pytest.skip("this processor can't run backend cpu")


def test_the_second_start_maps_and_answers_the_same(cpu, tmp_path):
    plain = generate()
    first = generate("--weight-cache", str(tmp_path / "w"))
    second = generate(env={"DI_WEIGHT_CACHE": str(tmp_path / "w")})
    assert "weights" not in plain.stderr
    assert "weights were prepared and written to" in first.stderr
    assert "weights are mapped from" in second.stderr
    assert plain.stdout == first.stdout == second.stdout
    assert [p.suffix for p in (tmp_path / "w").iterdir()] == [".weights"]


def test_bench_and_a_configuration_file_know_it(cpu, tmp_path):
    (tmp_path / "c.yaml").write_text(f"weight-cache: {tmp_path / 'w'}\n")
    generate("--config", str(tmp_path / "c.yaml"))
    assert "weights are mapped from" in generate("--config", str(tmp_path / "c.yaml")).stderr
    done = command("verify", "--help")
    assert "--weight-cache=DIR" in done.stdout
    done = command("bench", "--help")
    assert "--weight-cache=DIR" in done.stdout


def test_a_folder_that_cannot_be_costs_nothing_but_a_line(cpu, tmp_path):
    (tmp_path / "file").write_text("")
    done = generate("--weight-cache", str(tmp_path / "file" / "w"))
    assert "in memory only: cannot make folder" in done.stderr
    assert done.stdout == generate().stdout


def test_the_reference_says_that_it_has_no_use_for_it(tmp_path):
    done = command("generate", "--model", str(DEMO), "--backend", "ref", "--prompt", "2", "--max-tokens", "1",
                   "--weight-cache", str(tmp_path / "w"))
    assert "the weight cache is not used" in done.stderr
    assert not (tmp_path / "w").exists()
