"""`deepinfer parse` as a user meets it: lines of pieces or ids in, pieces, events or a response out."""
import json
import os
import pathlib
import subprocess

import pytest

ROOT = pathlib.Path(os.environ.get("DI_SOURCE_DIR") or pathlib.Path(__file__).resolve().parents[2])
BINARY = os.environ.get("DI_BIN") or str(ROOT / "build" / "release" / "deepinfer")
DEMO = ROOT / "models" / "demo"
THINK = ["I think", "</thi", "nk>", "The ", "answer."]
CALL = ('\n\n<｜DSML｜ calls>\n<｜DSML｜ invoke name="get_weather">\n<｜DSML｜ parameter name="city" string="true">Paris'
        '</｜DSML｜ parameter>\n</｜DSML｜ invoke>\n</｜DSML｜ calls>')
STOP = {"finish": "stop"}


def parse(*options, lines=(), text=None, api="chat", code=0):
    command = [BINARY, "parse", "--api", api, "--model", str(DEMO), *map(str, options)]
    given = text if text is not None else "".join(line if line == "\n" else json.dumps(line) + "\n" for line in lines)
    done = subprocess.run(command, input=given.encode(), capture_output=True, timeout=60)
    assert done.returncode == code, done.stderr.decode()
    return done if code else done.stdout.decode()


def pieces(*options, **more):
    return [json.loads(line) for line in parse("--pieces", *options, **more).splitlines()]


def joined(rows, kind):
    return "".join(row["text"] for row in rows if row["type"] == kind)


def frames(*options, **more):
    out = []
    for frame in parse("--stream", *options, **more).split("\n\n")[:-1]:
        fields = dict(line.split(": ", 1) for line in frame.split("\n"))
        out.append((fields.get("event"), fields["data"] if fields["data"] == "[DONE]" else json.loads(fields["data"])))
    return out


def test_pieces_of_reasoning_and_text():
    rows = pieces("--thinking", lines=[*THINK, STOP])
    assert joined(rows, "reasoning") == "I think" and joined(rows, "text") == "The answer."
    assert rows[-1] == {"type": "finish", "reason": "stop", "stop": None, "completion_tokens": 5,
                        "reasoning_tokens": rows[-1]["reasoning_tokens"]}


def test_pieces_of_a_call():
    rows = pieces("--tools", lines=["Let me see.", CALL, STOP])
    assert joined(rows, "text") == "Let me see."
    assert [row for row in rows if row["type"] == "call"] == [{"type": "call", "index": 0, "name": "get_weather"}]
    assert json.loads(joined(rows, "arguments")) == {"city": "Paris"}
    assert rows[-1]["reason"] == "tool_calls"
    assert joined(pieces(lines=["Let me see.", CALL, STOP]), "text") == "Let me see." + CALL


def test_plain_text_and_how_it_is_cut():
    rows = pieces("--thinking", "--tools", "--text", text="".join(THINK) + CALL)
    assert joined(rows, "reasoning") == "I think" and joined(rows, "text") == "The answer."
    assert rows[-1]["reason"] == "tool_calls"
    assert pieces("--text", text="é" * 50000)[-1]["reason"] == "stop"
    assert joined(pieces("--text", text="aé猫" * 40000), "text") == "aé猫" * 40000


def test_ids_count_as_markers_and_spellings_do_not():
    ids = json.loads(subprocess.run([BINARY, "tokenize", "--model", DEMO, "--json", "--text", "Hi</think>"], capture_output=True,
                                    check=True).stdout)["ids"]
    assert 3069 not in ids
    rows = pieces("--thinking", lines=[ids, [3069], {"ids": ids}, STOP])
    assert joined(rows, "reasoning") == "Hi</think>" and joined(rows, "text") == "Hi</think>"
    assert rows[-1]["completion_tokens"] == 2 * len(ids) + 1


def test_input_that_breaks_off_inside_a_call_is_cut():
    rows = pieces("--tools", lines=[CALL[:-60]])
    assert rows[-1]["reason"] == "cut" and rows[0]["name"] == "get_weather"
    assert pieces("--tools", lines=[CALL])[-1]["reason"] == "tool_calls"
    assert pieces("--tools", lines=[CALL[:-60], {"finish": "length"}])[-1]["reason"] == "length"


@pytest.mark.parametrize("api", ["chat", "responses", "messages"])
def test_a_cut_answer_is_an_error_of_the_api(api):
    shown = parse("--stream", "--tools", lines=[CALL[:-60]], api=api)
    assert "error" in shown.split("\n\n")[-2] and "[DONE]" not in shown
    refused = parse("--body", "--tools", lines=[CALL[:-60]], api=api, code=1)
    assert refused.stdout == b"" and "failed" in refused.stderr.decode()


def test_stop_strings_end_the_answer():
    rows = pieces("--stop", "END", lines=["some E", "N", "D of it", " all", STOP])
    assert joined(rows, "text") == "some " and rows[-1]["reason"] == "stop_string" and rows[-1]["stop"] == "END"


def test_a_body_for_each_api():
    lines = [{"ready": [11, 4]}, *THINK, STOP]
    chat = json.loads(parse("--body", "--thinking", "--id", "R", "--created", 7, lines=lines))
    assert chat["id"] == "R" and chat["created"] == 7 and chat["model"] == "DeepSeek-V4.1-Flash"
    assert chat["choices"][0]["message"] == {"role": "assistant", "content": "The answer.", "reasoning_content": "I think"}
    assert chat["usage"]["prompt_tokens"] == 11 and chat["usage"]["prompt_cache_hit_tokens"] == 4
    responses = json.loads(parse("--body", "--thinking", lines=lines, api="responses"))
    assert [item["type"] for item in responses["output"]] == ["reasoning", "message"]
    messages = json.loads(parse("--body", "--thinking", lines=lines, api="messages"))
    assert [block["type"] for block in messages["content"]] == ["thinking", "text"]
    assert parse("--thinking", "--created", 7, lines=lines) == parse("--body", "--thinking", "--created", 7, lines=lines)


def test_events_for_each_api():
    chat = frames("--thinking", lines=[*THINK, STOP])
    assert [name for name, _ in chat] == [None] * len(chat) and chat[-1][1] == "[DONE]"
    deltas = [data["choices"][0]["delta"] for _, data in chat[:-1]]
    assert "".join(delta.get("content") or "" for delta in deltas) == "The answer."
    responses = frames("--thinking", lines=[*THINK, STOP], api="responses")
    assert responses[0][0] == "response.created" and responses[-1][0] == "response.completed"
    assert [data["sequence_number"] for _, data in responses] == list(range(len(responses)))
    messages = frames("--thinking", lines=[*THINK, STOP], api="messages")
    assert messages[0][0] == "message_start" and messages[-1][0] == "message_stop"


def test_events_come_while_the_input_is_open():
    command = [BINARY, "parse", "--api", "chat", "--model", str(DEMO), "--pieces"]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as run:
        for word in ("one ", "two "):
            run.stdin.write(json.dumps(word).encode() + b"\n")
            run.stdin.flush()
            assert json.loads(run.stdout.readline()) == {"type": "text", "text": word}
        run.stdin.close()
        assert json.loads(run.stdout.readline())["reason"] == "stop"
    assert run.returncode == 0


def request(tmp_path, **fields):
    path = tmp_path / "request.json"
    path.write_text(json.dumps({"model": "DeepSeek-V4.1-Flash", "messages": [{"role": "user", "content": "Hi"}], **fields}), encoding="utf-8")
    return path


def test_the_request_decides(tmp_path):
    path = request(tmp_path, stop=["END"], thinking={"type": "disabled"})
    body = json.loads(parse("--request", path, lines=["a END b", STOP]))
    assert body["choices"][0]["message"] == {"role": "assistant", "content": "a "}
    assert body["usage"]["prompt_tokens"] > 4
    streamed = parse("--request", request(tmp_path, stream=True), lines=["a", STOP])
    assert streamed.startswith("data: {") and streamed.endswith("data: [DONE]\n\n")


def test_several_choices(tmp_path):
    path = request(tmp_path, n=2, thinking={"type": "disabled"})
    lines = [{"text": "b", "choice": 1}, {"text": "a", "choice": 0}, {"finish": "stop", "choice": 1}, {"finish": "length"}]
    choices = json.loads(parse("--request", path, lines=lines))["choices"]
    assert [(c["index"], c["message"]["content"], c["finish_reason"]) for c in choices] == [(0, "a", "length"), (1, "b", "stop")]
    assert "choice 2" in parse("--request", path, lines=[{"text": "x", "choice": 2}], code=1).stderr.decode()


def test_logprobs_travel_along(tmp_path):
    path = request(tmp_path, logprobs=True, top_logprobs=2, thinking={"type": "disabled"})
    lines = [{"ids": [42, 75], "logprobs": [[-0.25, [[42, -0.25], [43, -3]]], [-0.5, [[75, -0.5], [76, -2]]]]}, STOP]
    entries = json.loads(parse("--request", path, lines=lines))["choices"][0]["logprobs"]["content"]
    assert [(e["token"], e["logprob"], len(e["top_logprobs"])) for e in entries] == [("H", -0.25, 2), ("i", -0.5, 2)]


@pytest.mark.parametrize("line, words", [
    ("5", "line 1: expected a string"),
    ("{", "line 1"),
    ('"a"\n\n{"finish":"never"}', "line 3: finish is"),
    ('{"word":1}', "line 1: an object has"),
    ("[1,-2]", "line 1: a token id"),
    ("[1.5]", "line 1: a token id"),
    ('{"ids":[5],"logprobs":[]}', "line 1: logprobs: 0 entries for 1 ids"),
    ('{"ids":[5],"logprobs":[[-1,[["x"]]]]}', "line 1: a token id"),
    ('"a"\n[5]', "line 2"),
])
def test_bad_lines_are_named(line, words):
    done = parse("--pieces", text=line, code=1)
    assert words in done.stderr.decode() and len(done.stderr.splitlines()) == 1


@pytest.mark.parametrize("options, message", [
    (["--api", "chat", "--stream", "--body"], "one of"),
    (["--api", "chat", "--request", "x", "--tools"], "--request"),
    (["--stream"], "--api"),
    (["--api", "chat", "stray"], "stray"),
])
def test_mistakes_in_options_exit_2(options, message):
    done = subprocess.run([BINARY, "parse", *options], input=b"", capture_output=True, timeout=60)
    assert done.returncode == 2 and message in done.stderr.decode()


def test_failures_exit_1(tmp_path):
    path = tmp_path / "request.json"
    path.write_text('{"model":"gpt","messages":[]}', encoding="utf-8")
    assert "gpt" in parse("--request", path, code=1).stderr.decode()
    assert "nowhere" in parse("--request", tmp_path / "nowhere", code=1).stderr.decode()


def test_full_disk_is_an_error():
    if not os.path.exists("/dev/full"):
        pytest.skip("no /dev/full")
    with open("/dev/full", "wb") as full:
        done = subprocess.run([BINARY, "parse", "--api", "chat", "--model", str(DEMO), "--text"], input=b"Hi", stdout=full,
                              stderr=subprocess.PIPE, timeout=60)
    assert done.returncode == 1 and b"standard output" in done.stderr
