"""The example programs: what they print with the demo model, and that the README shows the first of them as it is."""
import json
import math
import os
import pathlib
import re
import subprocess

import pytest
from safetensors.numpy import load_file

SOURCE = pathlib.Path(os.environ["DI_SOURCE_DIR"])
BUILD = pathlib.Path(os.environ["DI_BUILD_DIR"])
BINARY = os.environ["DI_BIN"]
DEMO = SOURCE / "models" / "demo"
TEXT = "Tom has 3 apples and buys 4 apples."


def run(name, *words, code=0):
    done = subprocess.run([BUILD / "examples" / name, *map(str, words)], capture_output=True, cwd=SOURCE)
    assert done.returncode == code, done.stderr.decode()
    return done.stdout.decode() if code == 0 else done.stderr.decode()


def command(*words):
    return subprocess.run([BINARY, *map(str, words)], capture_output=True, check=True).stdout.decode()


def test_generate_answers():
    assert run("generate") == "Cairo is the capital of Egypt.\n"
    question = "Translate 猫 to English."
    answer = run("generate", DEMO, question)
    assert answer == command("generate", "--quiet", "--chat", "--model", DEMO, "--prompt", question)
    assert "cat" in answer


def test_generate_is_the_program_in_the_readme():
    source = (SOURCE / "examples" / "generate.c").read_text(encoding="utf-8")
    assert len(source.splitlines()) <= 60
    blocks = re.findall(r"```c\n(.*?)```", (SOURCE / "README.md").read_text(encoding="utf-8"), flags=re.DOTALL)
    assert blocks == [source]


def test_tokenize_prints_a_line_a_token():
    assert run("tokenize", DEMO, "<｜User｜>Hi") == "3060\t<｜User｜>\tadded\n42\tH\n75\ti\n"
    ids = [int(line.split("\t")[0]) for line in run("tokenize", DEMO / "tokenizer.json", TEXT).splitlines()]
    assert ids == [int(word) for word in re.findall(r"\d+", command("tokenize", "--model", DEMO, "--text", TEXT))]


def test_logits_are_those_of_the_command(tmp_path):
    path = tmp_path / "logits"
    command("generate", "--quiet", "--model", DEMO, "--prompt", TEXT, "--max-tokens", "1", "--all-logits", "--dump-logits", path)
    dump = load_file(path)
    ids, rows = dump["ids"].tolist()[:-1], dump["logits"].astype("float64")
    wanted = []
    for row, following in zip(rows, ids[1:]):
        top = row.max()
        wanted.append(row[following] - top - math.log(sum(math.exp(x - top) for x in row)))
    lines = run("logits", DEMO, TEXT).splitlines()
    assert [float(line[:9]) for line in lines[:-1]] == pytest.approx(wanted, abs=1e-4)
    assert float(lines[-1].removeprefix("perplexity ")) == pytest.approx(math.exp(-sum(wanted) / len(wanted)), rel=1e-2)


def test_recipe_makes_ids_of_a_request_and_events_of_ids():
    head, _, frames = run("recipe").partition("\n\n")
    body = re.search(r"static const char body\[\] =\n(.*?);", (SOURCE / "examples" / "recipe.c").read_text(encoding="utf-8"), re.DOTALL)
    request = "".join(json.loads(line) for line in re.findall(r'^ *("(?:[^"\\]|\\.)*")$', body[1], re.MULTILINE))
    rendered = subprocess.run([BINARY, "render", "--api", "chat"], input=request.encode(), capture_output=True, check=True).stdout
    n_bytes, n_control, n_ids = map(int, re.match(r"prompt: (\d+) bytes, (\d+) of its (\d+) ids are control tokens$", head).groups())
    assert n_bytes in (len(rendered), len(rendered.rstrip(b"\n"))) and n_control == 18 and n_ids > n_control
    *events, done = [line.removeprefix("data: ") for line in frames.split("\n\n") if line]
    assert done == "[DONE]"
    choices = [json.loads(event)["choices"][0] for event in events]
    deltas = [choice["delta"] for choice in choices]
    assert "".join(delta.get("reasoning_content") or "" for delta in deltas) == "I need the tool."
    assert "".join(delta.get("content") or "" for delta in deltas) == "One moment."
    calls = [call["function"] for delta in deltas for call in delta.get("tool_calls", [])]
    assert calls[0]["name"] == "get_weather" and json.loads("".join(call["arguments"] for call in calls)) == {"place": "Cairo"}
    assert choices[-1]["finish_reason"] == "tool_calls" and json.loads(events[-1])["usage"]["prompt_tokens"] == n_ids


def test_batch_answers_line_by_line(tmp_path):
    path = tmp_path / "bodies.jsonl"
    question = {"model": "DeepSeek-V4.1-Flash", "temperature": 0, "thinking": {"type": "disabled"},
                "messages": [{"role": "user", "content": "Which country has Cairo as its capital?"}]}
    path.write_text("\n".join(json.dumps(body) for body in (question, {"model": "x"}, question)))
    answers = [json.loads(line) for line in run("batch", DEMO, path).splitlines()]
    assert [answer["choices"][0]["message"]["content"] for answer in answers[::2]] == ["Cairo is the capital of Egypt."] * 2
    assert answers[1]["error"]["type"] == "invalid_request_error"


@pytest.mark.parametrize("words, message", [
    (["batch"], "usage"),
    (["batch", "no/such/model", "README.md"], "no/such/model"),
    (["generate", "no/such/model"], "no/such/model"),
    (["tokenize"], "usage"),
    (["tokenize", "no/such/file", "x"], "no/such/file"),
    (["logits", "models/demo", ""], "0 tokens"),
    (["recipe", "no/such/file"], "no/such/file"),
    (["logits", "no/such/model", "x"], "no/such/model"),
])
def test_mistakes_give_one_line(words, message):
    errors = run(*words, code=1).splitlines()
    assert len(errors) == 1 and message in errors[0]
