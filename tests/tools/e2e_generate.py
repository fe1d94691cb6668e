"""`deepinfer generate` as a user meets it: prompt sources, streams, JSON lines, logits, mistakes."""
import json
import os
import pathlib
import pty
import re
import shutil
import signal
import subprocess
import time

import numpy
import pytest
from safetensors.numpy import load_file

ROOT = pathlib.Path(os.environ.get("DI_SOURCE_DIR") or pathlib.Path(__file__).resolve().parents[2])
BINARY = os.environ.get("DI_BIN") or str(ROOT / "build" / "release" / "deepinfer")
DATA = pathlib.Path(os.environ.get("DI_TEST_DATA") or ROOT / "tests" / "data")
DEMO = ROOT / "models" / "demo"
QUESTION = "Which country has Cairo as its capital?"


def generate(*options, stdin=b"", code=0, env=None):
    command = [BINARY, "generate", "--model", str(DEMO), *options]
    done = subprocess.run(command, input=stdin, capture_output=True, env={**os.environ, **(env or {})})
    assert done.returncode == code, done.stderr.decode()
    return done


def text(*options, **more):
    return generate("--quiet", *options, **more).stdout.decode()


def lines(*options, **more):
    return [json.loads(line) for line in text("--json", *options, **more).splitlines()]


def evaluation():
    path = DATA / "demo_model" / "eval.jsonl"
    if not path.exists():
        pytest.skip("no demo_model/eval.jsonl in the test data")
    return [json.loads(line) for line in path.read_text(encoding="utf-8").splitlines()]


def plain_questions():
    """One user message, no thinking: what --chat is for."""
    for row in evaluation():
        request = row["request"]
        plain = set(request) == {"model", "messages", "thinking"} and request["thinking"] == {"type": "disabled"}
        if plain and len(request["messages"]) == 1 and request["messages"][0]["role"] == "user":
            yield row


def dumped_ids(tmp_path, *options, **more):
    path = tmp_path / "logits.safetensors"
    generate("--quiet", "--max-tokens", "1", "--dump-logits", str(path), *options, **more)
    return load_file(path)["ids"].tolist()[:-1]


def test_replay_depends_on_the_prompt_alone(tmp_path):
    prompt = ("--chat", "--prompt", QUESTION + " " + "A sentence that makes the prompt long. " * 40)
    logits = {}
    for name, options in {"off": (), "one": ("--replay", "decoder"), "chunks": ("--replay", "decoder", "--chunk-tokens", "50")}.items():
        path = tmp_path / f"{name}.safetensors"
        generate("--quiet", "--max-tokens", "1", "--dump-logits", str(path), *prompt, *options)
        logits[name] = load_file(path)["logits"]
    assert numpy.array_equal(logits["one"], logits["chunks"])
    assert not numpy.array_equal(logits["one"], logits["off"])
    assert text("--chat", "--prompt", QUESTION, "--replay", "both") == text("--chat", "--prompt", QUESTION), "one window is exact"
    assert "--replay: 'maybe'" in generate("--prompt", QUESTION, "--replay", "maybe", code=2).stderr.decode()


def test_output_keeps_to_a_form(tmp_path):
    schema, grammar = tmp_path / "s.json", tmp_path / "g.gbnf"
    schema.write_text('{"type": "object", "properties": {"n": {"type": "integer", "minimum": 10, "maximum": 99}}, "required": ["n"],'
                      '"additionalProperties": false}')
    grammar.write_text('root ::= "<" [a-c]{2} ">"\n')
    sampled = ("--chat", "--temperature", "1", "--prompt", QUESTION)
    for seed in range(3):
        seeded = (*sampled, "--seed", str(seed))
        assert 10 <= json.loads(text("--json-schema", str(schema), *seeded))["n"] <= 99
        assert re.fullmatch("(yes|no), [0-9]{2}\n?", text("--regex", "(yes|no), [0-9]{2}", *seeded))
        assert re.fullmatch("<[abc]{2}>\n?", text("--grammar", str(grammar), *seeded))
    assert lines("--regex", "[ab]{3}", "--n", "2", *sampled)[-1]["finish"] == "stop"
    assert "closing parenthesis" in generate("--regex", "(", "--prompt", "x", code=1).stderr.decode()
    assert "exclude each other" in generate("--regex", "a", "--grammar", str(grammar), "--prompt", "x", code=2).stderr.decode()


def test_chat_gives_the_prompt_ids_of_the_evaluation_set(tmp_path):
    rows = list(plain_questions())
    assert len(rows) > 10
    for row in rows[:: max(1, len(rows) // 10)]:
        message = row["request"]["messages"][0]["content"]
        assert dumped_ids(tmp_path, "--chat", "--prompt", message) == row["prompt_ids"], row["id"]


def test_answer_of_the_evaluation_set_comes_back():
    row = next(row for row in plain_questions() if row["min_top1_margin"] > 1)
    ids = ",".join(map(str, row["prompt_ids"]))
    out = lines("--prompt-ids", ids)
    assert [line["id"] for line in out[:-1]] == row["reference_output_ids"] == out[-1]["ids"]
    assert out[-1]["finish"] == "stop"
    assert out[-1]["text"] + "<｜end▁of▁sentence｜>" == row["reference_output"]


def test_all_sources_of_a_prompt_agree(tmp_path):
    path = tmp_path / "prompt"
    path.write_text(QUESTION, encoding="utf-8")
    expected = text("--chat", "--prompt", QUESTION)
    assert "Egypt" in expected
    assert text("--chat", "--prompt-file", str(path)) == expected
    assert text("--chat", "--prompt-file", "-", stdin=QUESTION.encode()) == expected
    assert text("--chat", stdin=QUESTION.encode() + b"\n") == expected
    assert text("--chat", env={"DI_PROMPT": QUESTION}) == expected
    written = f"<｜begin▁of▁sentence｜><｜User｜>{QUESTION}<｜Assistant｜></think>"
    assert text("--special", "--prompt", written) == expected
    assert text("--special", "--bos", "--prompt", written.removeprefix("<｜begin▁of▁sentence｜>")) == expected
    ids = dumped_ids(tmp_path, "--chat", "--prompt", QUESTION)
    (tmp_path / "ids").write_text("\n".join(map(str, ids)), encoding="utf-8")
    assert text("--prompt-ids", f"@{tmp_path / 'ids'}") == expected


def test_raw_text_is_taken_as_it_is(tmp_path):
    assert dumped_ids(tmp_path, "--prompt", "<think>") != [3068]
    assert dumped_ids(tmp_path, "--prompt", "<think>", "--special") == [3068]
    assert dumped_ids(tmp_path, "--prompt", "a\n") != dumped_ids(tmp_path, "--prompt", "a")
    assert dumped_ids(tmp_path, "--bos", "--prompt-ids", "5,6") == [0, 5, 6]


def test_user_text_cannot_forge_a_marker(tmp_path):
    ids = dumped_ids(tmp_path, "--chat", "--prompt", "<｜Assistant｜>")
    assert ids.count(3061) == 1


def test_results_do_not_depend_on_chunks_or_threads(tmp_path):
    first = None
    for options in ([], ["--chunk-tokens", "1"], ["--chunk-tokens", "5", "--threads", "1"], ["--threads", "2"]):
        path = tmp_path / "logits"
        generate("--quiet", "--chat", "--prompt", QUESTION, "--all-logits", "--dump-logits", str(path), *options)
        first = first or path.read_bytes()
        assert path.read_bytes() == first, options


def test_dumped_logits_choose_the_tokens(tmp_path):
    path = tmp_path / "logits"
    out = lines("--chat", "--prompt", QUESTION, "--dump-logits", str(path))
    dump = load_file(path)
    n = len(out[-1]["ids"])
    assert dump["ids"].tolist()[-n:] == out[-1]["ids"]
    assert dump["logits"].dtype == numpy.float32 and dump["logits"].shape == (n, 3072)
    assert dump["positions"].tolist() == list(range(len(dump["ids"]) - n - 1, len(dump["ids"]) - 1))
    assert dump["logits"].argmax(axis=1).tolist() == out[-1]["ids"]
    full = tmp_path / "full"
    generate("--quiet", "--chat", "--prompt", QUESTION, "--all-logits", "--dump-logits", str(full))
    everything = load_file(full)
    assert everything["positions"].tolist() == list(range(len(dump["ids"]) - 1))
    assert (everything["logits"][-n:] == dump["logits"]).all()


def test_logprobs_are_those_of_the_logits(tmp_path):
    path = tmp_path / "logits"
    out = lines("--chat", "--prompt", QUESTION, "--logprobs", "3", "--dump-logits", str(path))
    rows = load_file(path)["logits"].astype(numpy.float64)
    rows -= numpy.log(numpy.exp(rows - rows.max(1, keepdims=True)).sum(1, keepdims=True)) + rows.max(1, keepdims=True)
    for row, token in zip(rows, out):
        assert token["logprob"] == pytest.approx(row[token["id"]], abs=2e-5)
        assert [top["id"] for top in token["top"]] == numpy.argsort(-row, kind="stable")[:3].tolist()


def test_pieces_are_whole_characters_and_join_to_the_text():
    out = lines("--chat", "--prompt", "8 加 43 等于多少？把“中文”写成英文。", "--ignore-eos", "--max-tokens", "40",
                "--temperature", "3", "--seed", "5")
    assert len(out) == 41 and out[-1]["finish"] == "length"
    joined = "".join(line["text"] for line in out[:-1])
    assert out[-1]["text"].startswith(joined) and len(out[-1]["text"]) - len(joined) <= 1


def test_invalid_utf8_is_read_as_replacement_characters(tmp_path):
    assert dumped_ids(tmp_path, stdin=b"a\xffb") == dumped_ids(tmp_path, "--prompt", "a\ufffdb")


def test_seeds_decide_samples():
    sampled = ["--chat", "--prompt", "Tell me a story.", "--temperature", "1.5", "--max-tokens", "20"]
    one = text(*sampled, "--seed", "1")
    assert text(*sampled, "--seed", "1", "--threads", "1", "--chunk-tokens", "2") == one
    assert text(*sampled, "--seed", "2") != one
    both = lines(*sampled, "--seed", "1", "--n", "2")
    ends = [line for line in both if line.get("done")]
    assert [end["choice"] for end in ends] == [0, 1]
    assert ends[0]["text"] + "\n" == one and ends[1]["text"] + "\n" == text(*sampled, "--seed", "2")


def test_outputs_end_where_they_should():
    full = lines("--chat", "--prompt", QUESTION)
    ids = full[-1]["ids"]
    assert full[-1]["finish"] == "stop"
    assert lines("--chat", "--prompt", QUESTION, "--max-tokens", "3")[-1]["ids"] == ids[:3]
    stopped = lines("--chat", "--prompt", QUESTION, "--stop-id", f"{ids[2]},7")
    assert stopped[-1]["ids"] == ids[:3] and stopped[-1]["finish"] == "stop"
    n_prompt = full[-1]["prompt_tokens"]
    small = lines("--chat", "--prompt", QUESTION, "--max-context", str(n_prompt + 4))
    assert small[-1]["finish"] == "context" and small[-1]["ids"] == ids[:4]


def test_stop_strings_end_the_text_wherever_tokens_end():
    full = lines("--chat", "--prompt", QUESTION)
    answer = full[-1]["text"]
    pieces = [line["text"] for line in full[:-1]]
    assert "stop_string" not in full[-1]
    for start in range(0, len(answer) - 3, 5):
        stop = answer[start:start + 4]
        cut = answer[:answer.index(stop)]
        out = lines("--chat", "--prompt", QUESTION, "--stop", "never", "--stop", stop)
        assert out[-1]["text"] == cut and out[-1]["finish"] == "stop" and out[-1]["stop_string"] == stop
        assert "".join(line["text"] for line in out[:-1]) == cut
        n = len(out) - 1
        assert out[-1]["ids"] == full[-1]["ids"][:n]
        assert len("".join(pieces[:n - 1])) < len(cut) + 4 <= len("".join(pieces[:n]))
    assert any(len(piece) < 4 for piece in pieces)


def test_stop_strings_for_people_choices_and_the_environment():
    answer = text("--chat", "--prompt", QUESTION)
    stop = answer[3:6]
    assert text("--chat", "--prompt", QUESTION, "--stop", stop) == answer[:answer.index(stop)] + "\n"
    assert text("--chat", "--prompt", QUESTION, env={"DI_STOP": stop}) == answer[:answer.index(stop)] + "\n"
    assert text("--chat", "--prompt", QUESTION, "--stop", "never", env={"DI_STOP": stop}) == answer
    two = [line for line in lines("--chat", "--prompt", QUESTION, "--n", "2", "--stop", stop) if "done" in line]
    assert [line["text"] for line in two] == [answer[:answer.index(stop)]] * 2


def test_text_held_back_comes_at_the_end():
    answer = text("--chat", "--prompt", QUESTION)
    out = lines("--chat", "--prompt", QUESTION, "--stop", answer.rstrip("\n")[-2:] + "never")
    assert out[-1]["text"] == answer[:-1] and "stop_string" not in out[-1]
    assert len("".join(line["text"] for line in out[:-1])) == len(answer) - 3
    assert text("--chat", "--prompt", QUESTION, "--stop", answer.rstrip("\n")[-2:] + "never") == answer


def test_echo_puts_the_prompt_in_front():
    assert text("--special", "--prompt", "<｜User｜>Hi", "--echo", "--max-tokens", "2").startswith("<｜User｜>Hi")


def test_summary_goes_to_standard_error():
    done = generate("--chat", "--prompt", QUESTION)
    summary = done.stderr.decode()
    assert re.search(r"prompt +12 tokens +[\d.]+ tok/s, first token after [\d.]+ s", summary)
    assert re.search(r"generation +\d+ tokens +[\d.]+ tok/s", summary)
    assert re.search(r"memory +[\d.]+ MiB at the peak; backend \w+, \d+ thread", summary)
    assert generate("--chat", "--prompt", QUESTION, "--quiet").stderr == b""


def test_model_without_tokenizer_reads_and_writes_ids():
    tiny = DATA / "model" / "t6-strict"
    if not tiny.exists():
        pytest.skip("no model/t6-strict in the test data")
    command = [BINARY, "generate", "--quiet", "--max-tokens", "4", "--ignore-eos", "--model", str(tiny)]
    done = subprocess.run(command + ["--prompt-ids", "0,5,6", "--echo"], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    words = done.stdout.split()
    assert len(words) == 7 and words[:3] == ["0", "5", "6"] and all(word.isdigit() for word in words)
    done = subprocess.run(command + ["--prompt-ids", "0,5,6", "--json"], capture_output=True, text=True)
    assert json.loads(done.stdout.splitlines()[-1])["ids"] == [int(word) for word in words[3:]]
    done = subprocess.run(command + ["--prompt-ids", "0,5,6", "--stop", "x"], capture_output=True)
    assert done.returncode == 1 and b"--stop-id" in done.stderr
    done = subprocess.run(command + ["--prompt", "Hi"], capture_output=True)
    assert done.returncode == 1 and b"--prompt-ids" in done.stderr


@pytest.mark.parametrize("options, message", [
    (["--prompt", "a", "--prompt-ids", "1"], "one of"),
    (["--prompt-ids", "1", "--chat"], "--chat"),
    (["--prompt", "a", "--chat", "--special"], "--special"),
    (["--prompt", "a", "--logprobs", "2"], "--json"),
    (["--prompt", "a", "--temperature", "-1"], "--temperature"),
    (["--prompt", "a", "--top-p", "1.5"], "--top-p"),
    (["--prompt", "a", "--max-tokens", "many"], "--max-tokens"),
    (["--prompt", "a", "--n", "0"], "--n"),
    (["--prompt", "a", "--n", "2", "--dump-logits", "x"], "--dump-logits"),
    (["--prompt", "a", "stray"], "stray"),
    (["--no-such-option"], "no-such-option"),
])
def test_mistakes_in_options_exit_2(options, message):
    done = generate(*options, code=2)
    assert message in done.stderr.decode() and done.stdout == b""


def test_mistakes_in_the_environment_exit_2():
    assert "DI_THREADS" in generate("--prompt", "a", code=2, env={"DI_THREADS": "x"}).stderr.decode()


@pytest.mark.parametrize("options, message", [
    (["--prompt", ""], "empty"),
    (["--prompt", "a", "--stop", ""], "stop string 0"),
    (["--prompt", "a"] + ["--stop", "x"] * 17, "17 stop strings"),
    (["--prompt-ids", ""], "empty"),
    (["--prompt-ids", "1,2,x"], "token id 3"),
    (["--prompt-ids", "1,3072"], "3072"),
    (["--prompt-file", "no/such/file"], "no/such/file"),
    (["--prompt", "a", "--backend", "abacus"], "abacus"),
    (["--prompt", "a", "--dump-logits", "no/such/folder/file"], "no/such/folder"),
    (["--prompt", "a b c d e f", "--max-context", "3"], "context"),
])
def test_failures_exit_1_with_one_line(options, message):
    done = generate("--quiet", *options, code=1)
    errors = done.stderr.decode().splitlines()
    assert len(errors) == 1 and message in errors[0] and errors[0].startswith("deepinfer: ")


@pytest.mark.parametrize("draft", ["fixed:1", "fixed:5", "auto"])
def test_drafts_change_no_text(draft, tmp_path):
    schema = tmp_path / "schema.json"
    schema.write_text('{"type": "object", "properties": {"a": {"type": "integer"}}, "required": ["a"], "additionalProperties": false}')
    for more in ([], ["--temperature", "1.2", "--seed", "3", "--n", "2"], ["--stop", "of Eg"], ["--max-tokens", "4"], ["--json-schema", str(schema)]):
        options = ("--chat", "--prompt", QUESTION, *more)
        plain, drafted = lines(*options), lines(*options, "--draft", draft)
        for one in plain + drafted:
            for key in [key for key in one if key.endswith("_s") or key == "peak_bytes"]:
                del one[key]
        assert plain == drafted


def test_stats_tell_of_drafts():
    figures = lines("--chat", "--prompt", QUESTION, "--draft", "fixed:5", "--stats")[-1]["drafts"]
    assert 0 < figures["accepted"] <= figures["verified"] and figures["accepted"] + figures["wasted"] == figures["verified"] <= figures["proposed"]
    assert figures["budget"] == pytest.approx(figures["verified"] / figures["proposals"], abs=1e-4) and figures["budget"] <= 5
    assert len(figures["acceptance"]) == 5 and figures["tokens_per_step"] > 1 and 0 <= figures["calibration_error"] <= 1
    for rule in ("block", "rejection"):
        assert lines("--chat", "--prompt", QUESTION, "--draft", "fixed:5", "--temperature", "1", "--verify", rule)[-1]["done"]
    words = generate("--quiet", "--chat", "--prompt", QUESTION, "--draft", "auto", "--stats").stderr.decode()
    assert "tokens a step" in words and "by place" in words
    for wrong in (("--stats",), ("--draft", "fixed:0"), ("--draft", "auto", "--verify", "none"), ("--draft", "auto", "--dump-logits", "x")):
        assert len(generate("--prompt", "a", *wrong, code=2).stderr.splitlines()) == 2


def without_drafts(source, shard):
    """The bytes of a safetensors file without the tensors of the draft model."""
    data = (source / shard).read_bytes()
    begin = 8 + int.from_bytes(data[:8], "little")
    header, kept, out = json.loads(data[8:begin]), {}, b""
    for name, entry in sorted(header.items(), key=lambda item: item[1].get("data_offsets", [0])[0]):
        if name != "__metadata__" and not name.startswith("mtp."):
            first, last = entry["data_offsets"]
            kept[name] = {**entry, "data_offsets": [len(out), len(out) + last - first]}
            out += data[begin + first:begin + last]
    text = json.dumps(kept).encode()
    return len(text).to_bytes(8, "little") + text + out


def test_drafts_need_a_draft_model(tmp_path):
    source = ROOT / "tests" / "data" / "model" / "t6-odd"
    changed = {name: json.loads((source / name).read_text()) for name in ("config.json", "model.safetensors.index.json")}
    config, index = changed["config.json"]["text_config"], changed["model.safetensors.index.json"]
    config["num_nextn_predict_layers"] = 0
    config["compress_ratios"] = config["compress_ratios"][:config["num_hidden_layers"]]
    index["weight_map"] = {name: file for name, file in index["weight_map"].items() if not name.startswith("mtp.")}
    for file in source.glob("*"):
        if file.name in changed:
            (tmp_path / file.name).write_text(json.dumps(changed[file.name]))
        elif file.suffix == ".safetensors":
            (tmp_path / file.name).write_bytes(without_drafts(source, file.name))
        elif file.is_file():
            (tmp_path / file.name).symlink_to(file)
    for words in (["generate", "--quiet", "--prompt", "a"], ["serve", "--port", "0"]):
        done = subprocess.run([BINARY, *words, "--model", tmp_path, "--draft", "auto"], capture_output=True, text=True, timeout=60)
        assert done.returncode == 1 and "--draft auto: this model has no draft layers" in done.stderr


def test_commands_help_and_suggest():
    def run(*words):
        return subprocess.run([BINARY, *words], capture_output=True, text=True)
    assert run("--version").stdout.startswith("deepinfer ")
    assert "generate" in run("--help").stdout and run("--help").returncode == 0
    assert run().returncode == 2
    wrong = run("genrate")
    assert wrong.returncode == 2 and "did you mean 'generate'" in wrong.stderr
    assert "did you mean" not in run("xyzzyplugh").stderr
    shown = run("generate", "--help")
    assert shown.returncode == 0 and "--temperature" in shown.stdout


@pytest.mark.parametrize("ids, words", [("1,2,99999", "99999"), (",".join(["5"] * 17000), "17000 tokens")])
def test_a_prompt_that_cannot_run_gives_one_line_and_no_summary(ids, words):
    command = [BINARY, "generate", "--model", str(DEMO), "--prompt-ids", ids]
    done = subprocess.run(command, stdin=subprocess.DEVNULL, capture_output=True, text=True, timeout=60)
    assert done.returncode == 1 and done.stdout.strip() == ""
    assert len(done.stderr.splitlines()) == 1 and words in done.stderr


def test_no_prompt_on_a_terminal_is_a_usage_error():
    try:
        parent, child = pty.openpty()
    except OSError as e:
        pytest.skip(f"no terminals here: {e}")  # a chroot without /dev/pts
    done = subprocess.run([BINARY, "generate", "--model", str(DEMO)], stdin=child, capture_output=True, timeout=30)
    os.close(parent)
    os.close(child)
    assert done.returncode == 2 and b"no prompt" in done.stderr


def long_run(**streams):
    command = [BINARY, "generate", "--model", str(DEMO), "--ignore-eos", "--max-tokens", "4000", "--chat", "--prompt", "Hi",
               "--temperature", "2"]
    return subprocess.Popen(command, stdin=subprocess.DEVNULL, **streams)


def test_text_streams_and_a_closed_pipe_ends_it():
    run = long_run(stdout=subprocess.PIPE, stderr=subprocess.PIPE)
    start = time.monotonic()
    assert len(run.stdout.read(1)) == 1
    run.stdout.close()
    errors = run.stderr.read().decode()
    assert run.wait(timeout=60) == 1
    assert time.monotonic() - start < 60 and "standard output" in errors
    run.stderr.close()


def test_interrupt_ends_cleanly_with_the_summary():
    run = long_run(stdout=subprocess.PIPE, stderr=subprocess.PIPE)
    run.stdout.read(1)
    run.send_signal(signal.SIGINT)
    out, errors = run.communicate(timeout=60)
    assert run.returncode == 130
    assert out.endswith(b"\n") and b"generation" in errors


def test_full_disk_is_an_error():
    if not os.path.exists("/dev/full"):
        pytest.skip("no /dev/full")
    with open("/dev/full", "wb") as full:
        run = long_run(stdout=full, stderr=subprocess.PIPE)
        errors = run.communicate(timeout=60)[1]
    assert run.returncode == 1 and b"standard output" in errors


@pytest.mark.skipif(shutil.which("valgrind") is None, reason="valgrind is not installed")
def test_valgrind_finds_nothing():
    command = ["valgrind", "--quiet", "--leak-check=full", "--errors-for-leak-kinds=definite,indirect,possible",
               "--error-exitcode=99", BINARY, "generate", "--model", str(DEMO), "--prompt", QUESTION, "--chat",
               "--max-tokens", "2", "--threads", "2", "--json", "--logprobs", "2", "--temperature", "0.7", "--top-p", "0.9"]
    done = subprocess.run(command, stdin=subprocess.DEVNULL, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
