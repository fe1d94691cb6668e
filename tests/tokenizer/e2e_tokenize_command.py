"""`deepinfer tokenize` as a user meets it, with the demo model's tokenizer."""
import json
import os
import pathlib
import subprocess

ROOT = pathlib.Path(os.environ.get("DI_SOURCE_DIR") or pathlib.Path(__file__).resolve().parents[2])
BINARY = os.environ.get("DI_BIN") or str(ROOT / "build" / "release" / "deepinfer")
DEMO = ROOT / "models" / "demo"


def tokenize(*options, stdin="", code=0):
    done = subprocess.run([BINARY, "tokenize", "--model", str(DEMO), *options], input=stdin.encode(), capture_output=True)
    assert done.returncode == code, done.stderr.decode()
    return done.stdout.decode() if code == 0 else done.stderr.decode()


def test_text_option_file_and_standard_input_agree(tmp_path):
    path = tmp_path / "text"
    path.write_text("The answer is 42.", encoding="utf-8")
    ids = tokenize("--text", "The answer is 42.")
    assert ids == tokenize(str(path)) == tokenize(stdin="The answer is 42.")
    assert all(word.isdigit() for word in ids.split())


def test_ids_come_back_as_the_text():
    text = "Hello, 世界!\n  1234 <think>\x00"
    ids = tokenize(stdin=text)
    assert tokenize("--decode", stdin=ids) == text
    assert json.loads(tokenize("--decode", "--json", stdin=ids)) == {"text": text}


def test_markers_are_text_unless_asked_for():
    assert tokenize("--text", "<think>", "--special") == "3068\n"
    assert "3068" not in tokenize("--text", "<think>").split()
    assert tokenize("--decode", "--text", "0,3068,1") == "<｜begin▁of▁sentence｜><think><｜end▁of▁sentence｜>"
    assert tokenize("--decode", "--skip-special", "--text", "0,3068,1") == "<think>"


def test_count_and_json_describe_the_same_tokens():
    text = "a 世"
    answer = json.loads(tokenize("--text", text, "--json", "--pieces"))
    assert int(tokenize("--text", text, "--count")) == answer["n_tokens"] == len(answer["ids"]) == len(answer["pieces"])
    assert b"".join(bytes(piece["bytes"]) for piece in answer["pieces"]).decode() == text
    assert json.loads(tokenize("--text", text, "--json", "--count")) == {"n_tokens": answer["n_tokens"]}
    assert len(tokenize("--text", text, "--pieces").splitlines()) == answer["n_tokens"]


def test_lines_take_and_give_one_value_each():
    lines = ["", "a", "two\nlines", "<think>"]
    answer = tokenize("--lines", "--special", stdin="".join(json.dumps(line) + "\n" for line in lines))
    ids = [json.loads(line) for line in answer.splitlines()]
    assert ids[0] == [] and ids[3] == [3068]
    back = tokenize("--lines", "--decode", stdin=answer)
    assert [json.loads(line) for line in back.splitlines()] == lines


def test_mistakes_are_reported():
    assert "line 2" in tokenize("--lines", stdin='"a"\n7\n', code=1)
    assert "no/such/file" in tokenize("no/such/file", code=1)
    assert "tokenizer.json" in tokenize("--tokenizer", "no/such/tokenizer.json", "--text", "a", code=1)
    assert "exclude each other" in tokenize("--text", "a", "file", code=2)
    assert "--decode" in tokenize("--decode", "--count", code=2)
