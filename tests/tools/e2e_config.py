"""The configuration file as a user meets it: sources and who wins, --print-config and back, mistakes with file and line."""
import os
import pathlib
import subprocess

import pytest

ROOT = pathlib.Path(os.environ.get("DI_SOURCE_DIR") or pathlib.Path(__file__).resolve().parents[2])
BINARY = os.environ.get("DI_BIN") or str(ROOT / "build" / "release" / "deepinfer")
DEMO = ROOT / "models" / "demo"
COMMANDS = ["cache", "chat", "generate", "inspect", "parse", "render", "serve", "tokenize", "verify"]


def run(*words, code=0, env=None):
    clean = {name: value for name, value in os.environ.items() if not name.startswith("DI_")}
    done = subprocess.run([BINARY, *map(str, words)], capture_output=True, text=True, env={**clean, **(env or {})}, stdin=subprocess.DEVNULL)
    assert done.returncode == code, done.stdout + done.stderr
    return done


@pytest.fixture
def config(tmp_path):
    def write(text):
        path = tmp_path / "deepinfer.yaml"
        path.write_text(text, encoding="utf-8")
        return path
    return write


def printed(*words, env=None):
    """--print-config as {option: (value, source)}; options that are not set are left out."""
    out = {}
    for line in run(*words, "--print-config", env=env).stdout.splitlines():
        if not line.startswith("#"):
            name, rest = line.split(": ", 1)
            value, source = rest.rsplit(" # ", 1)
            out[name] = (value, source)
    return out


def available():
    listed = run("--help").stdout
    return [command for command in COMMANDS if f"\n  {command} " in listed]


def test_the_file_does_what_the_command_line_does(config):
    path = config(f"model: {DEMO}\nprompt: Which country has Cairo as its capital?\nchat: true\nquiet: true\nmax-tokens: 5\n"
                  "logit-bias:\n  - 2756=-100\n  - 42=1.5\n")
    by_file = run("generate", "--config", path).stdout
    by_line = run("generate", "--model", DEMO, "--prompt", "Which country has Cairo as its capital?", "--chat", "--quiet", "--max-tokens", "5",
                  "--logit-bias", "2756=-100", "--logit-bias", "42=1.5").stdout
    assert by_file == by_line
    assert not by_file.startswith("Cairo")
    assert run("generate", "--model", DEMO, "--prompt", "Which country has Cairo as its capital?", "--chat", "--quiet", "--max-tokens",
               "5").stdout.startswith("Cairo")


def test_the_earlier_named_source_wins(config):
    path = config("seed: 3\ntop-k: 3\ntop-p: 0.3\nstop: [file, file]\n")
    env = {"DI_CONFIG": str(path), "DI_SEED": "2", "DI_TOP_K": "2", "DI_STOP": "environment"}
    options = printed("generate", "--seed", "1", env=env)
    assert options["seed"] == ("1", "command line")
    assert options["top-k"] == ("2", "environment variable DI_TOP_K")
    assert options["top-p"] == ("0.3", f"{path}:3")
    assert options["stop"] == ('["environment"]', "environment variable DI_STOP")
    assert options["min-p"] == ("0", "default")


def test_config_on_the_command_line_replaces_that_of_the_environment(config, tmp_path):
    path = config("seed: 3\n")
    other = tmp_path / "other.yaml"
    other.write_text("top-k: 4\n", encoding="utf-8")
    options = printed("generate", "--config", other, env={"DI_CONFIG": str(path)})
    assert options["seed"] == ("0", "default")
    assert options["top-k"] == ("4", f"{other}:1")


def test_every_command_prints_what_it_reads_back(config):
    commands = available()
    assert "generate" in commands
    for command in commands:
        first = run(command, "--print-config").stdout
        path = config(first)
        again = run(command, "--config", path, "--print-config").stdout
        for line, read in zip(first.splitlines(), again.splitlines(), strict=True):
            assert line.split(" # ")[0] == read.split(" # ")[0]


def test_help_of_every_command_tells_of_it():
    for command in available():
        text = run(command, "--help").stdout
        assert "--config=FILE" in text
        assert "--print-config[=all]" in text
    assert "DI_CONFIG" in run("--help").stdout


@pytest.mark.parametrize("text, message", [
    ("max-tokenz: 5\n", ":1: unknown option 'max-tokenz'; did you mean 'max-tokens'?"),
    ("seed: 1\nmax-tokens: many\n", ":2: max-tokens: 'many' is not a whole number"),
    ("seed: 1\nseed: 2\n", ":2: seed stands in line 1 already"),
    ("sampling:\n  seed: 1\n", ":2: options do not nest"),
    ("stop: a\n", ":1: stop takes a list"),
    ("seed: 1\n\"top-p\n", "not YAML"),
])
def test_mistakes_name_file_and_line(config, text, message):
    path = config(text)
    done = run("generate", "--config", path, code=2)
    assert f"deepinfer generate: {path}" in done.stderr
    assert message in done.stderr
    assert done.stdout == ""


def test_other_mistakes_are_usage_errors(config, tmp_path):
    path = config("seed: 1\n")
    assert "given twice" in run("generate", "--config", path, "--config", path, code=2).stderr
    assert "nowhere.yaml" in run("generate", "--config", tmp_path / "nowhere.yaml", code=2).stderr
    assert "'some' is not 'all'" in run("generate", "--print-config=some", code=2).stderr
    assert "is not ID=BIAS" in run("generate", "--prompt", "a", "--logit-bias", "5", code=2).stderr
    assert "is not ID=BIAS" in run("generate", "--prompt", "a", "--logit-bias", "5=101", code=2).stderr
    assert "bias.id" in run("generate", "--prompt", "a", "--logit-bias", "2000000000=1", code=1).stderr


def test_a_full_disk_under_print_config_is_an_error():
    with open("/dev/full", "w", encoding="utf-8") as full:
        done = subprocess.run([BINARY, "generate", "--print-config"], stdout=full, stderr=subprocess.PIPE, text=True)
    assert done.returncode == 1
    assert "could not be printed" in done.stderr
