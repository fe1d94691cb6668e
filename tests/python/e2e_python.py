"""The Python package as a user meets it: installed by pip into a fresh environment, run on the demo model.

ctest: timeout=600"""
import ctypes
import json
import os
import pathlib
import re
import signal
import subprocess
import sys
import threading
import venv

import pytest

ROOT = pathlib.Path(os.environ.get("DI_SOURCE_DIR") or pathlib.Path(__file__).resolve().parents[2])
BUILD = pathlib.Path(os.environ.get("DI_BUILD_DIR") or ROOT / "build" / "release")
BOS, USER, ASSISTANT = "<｜begin▁of▁sentence｜>", "<｜User｜>", "<｜Assistant｜></think>"
QUESTION = "Which country has Cairo as its capital?"
ANSWER = "Cairo is the capital of Egypt."
PROMPT = BOS + USER + QUESTION + ASSISTANT
TALK = [{"role": "user", "content": QUESTION}]


@pytest.fixture(scope="session")
def environment(tmp_path_factory):
    """A fresh virtual environment with the package, and the folder where it lies."""
    folder = tmp_path_factory.mktemp("environment")
    venv.create(folder, with_pip=True)
    python = folder / "bin" / "python"
    clean = {name: value for name, value in os.environ.items() if not name.startswith(("DI_", "PYTHON"))}
    done = subprocess.run([python, "-m", "pip", "install", "--no-index", "--disable-pip-version-check", "-C", f"build-dir={BUILD}",
                           ROOT / "python"], capture_output=True, text=True, env=clean)
    assert done.returncode == 0, done.stdout + done.stderr
    return python, next(folder.glob("lib/python*/site-packages"))


@pytest.fixture(scope="session")
def deepinfer(environment):
    sys.path.insert(0, str(environment[1]))
    os.environ.pop("DI_MODEL", None)
    os.environ.pop("DI_LIBRARY", None)
    import deepinfer as package
    assert pathlib.Path(package.__file__).is_relative_to(environment[1])
    return package


@pytest.fixture(scope="session")
def llm(deepinfer):
    with deepinfer.LLM() as model:
        yield model


def greedy(deepinfer, **more):
    return deepinfer.SamplingParams(**{"temperature": 0, "max_tokens": 40, **more})


def run(environment, code, **options):
    clean = {name: value for name, value in os.environ.items() if not name.startswith(("DI_", "PYTHON"))}
    return subprocess.Popen([environment[0], "-c", code], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, env=clean, **options)


# --- the package ---


def test_the_wheel_holds_library_types_and_demo_model(environment):
    package = environment[1] / "deepinfer"
    for name in ("libdeepinfer.so", "py.typed", "demo/config.json", "demo/tokenizer.json"):
        assert (package / name).is_file()


def test_a_folder_keeps_prefixes_for_the_next_run(deepinfer, tmp_path):
    params = deepinfer.SamplingParams(temperature=0, max_tokens=8)
    prompt = BOS + USER + "Say it in one word, please. " * 40 + QUESTION + ASSISTANT
    texts, cached = [], []
    for folder in (None, tmp_path / "kv", tmp_path / "kv"):
        with deepinfer.LLM(cache_dir=folder, cache_bytes=64 << 20, cache_ram_bytes=16 << 20 if folder else 0,
                           backend="cpu", weight_cache=tmp_path / "weights") as llm:
            output = llm.generate([prompt], params)[0]
            texts.append(output.outputs[0].text)
            cached.append(output.num_cached_tokens)
    assert texts[1:] == texts[:1] * 2
    assert cached[:2] == [0, 0] and cached[2] >= 128
    assert [p.suffix for p in (tmp_path / "weights").iterdir()] == [".weights"]


def test_the_example_runs(environment):
    clean = {name: value for name, value in os.environ.items() if not name.startswith(("DI_", "PYTHON"))}
    done = subprocess.run([environment[0], ROOT / "examples" / "offline_inference.py"], capture_output=True, text=True, env=clean)
    assert done.returncode == 0, done.stderr
    lines = done.stdout.splitlines()
    assert lines[0] == f"{QUESTION} -> {ANSWER}"
    assert lines[2] == "Translate 猫 to English. -> 猫 means cat."
    assert lines[3].startswith("'Once upon a time' -> ' there was a little rabbit")
    assert ANSWER in lines[-2]
    assert lines[-1].endswith(" tokens")


def test_structs_are_those_of_the_headers(deepinfer, tmp_path):
    from deepinfer import _structs
    probes = []
    for name, mirror in _structs.MIRRORS.items():
        probes.append(f'printf("{name} %zu\\n", sizeof({name}));')
        probes += [f'printf("{name}.{field} %zu %zu\\n", offsetof({name}, {field}), sizeof((({name} *)0)->{field}));'
                   for field, _ in mirror._fields_]
    (tmp_path / "probe.c").write_text("#include <deepinfer/chat.h>\n#include <deepinfer/model.h>\n#include <stdio.h>\nint main(void)\n{\n"
                                      + "\n".join(probes) + "\nreturn 0;\n}\n")
    subprocess.run(["cc", "-I", ROOT / "include", tmp_path / "probe.c", "-o", tmp_path / "probe"], check=True)
    said = subprocess.run([tmp_path / "probe"], check=True, capture_output=True, text=True).stdout.splitlines()
    expected = []
    for name, mirror in _structs.MIRRORS.items():
        expected.append(f"{name} {ctypes.sizeof(mirror)}")
        expected += [f"{name}.{field} {getattr(mirror, field).offset} {getattr(mirror, field).size}" for field, _ in mirror._fields_]
    assert said == expected


# --- generate ---


def test_generate_continues_text_ids_and_dictionaries(deepinfer, llm):
    ids = llm.tokenizer.encode(PROMPT)
    outputs = llm.generate([PROMPT, ids, {"prompt": PROMPT}, {"prompt_token_ids": ids}], greedy(deepinfer))
    for output in outputs:
        assert output.finished and output.error is None
        assert output.prompt_token_ids == ids
        assert output.num_prompt_tokens == len(ids)
        assert [o.text for o in output.outputs] == [ANSWER]
        assert output.outputs[0].finish_reason == "stop"
        assert llm.tokenizer.decode(output.outputs[0].token_ids) == ANSWER
        assert output.num_generated_tokens == len(output.outputs[0].token_ids)
    assert [output.prompt for output in outputs] == [PROMPT, None, PROMPT, None]
    assert llm.generate([], greedy(deepinfer)) == []
    assert llm.generate(PROMPT, greedy(deepinfer))[0].outputs[0].text == ANSWER


def test_choices_and_seeds(deepinfer, llm):
    params = deepinfer.SamplingParams(n=3, seed=7, max_tokens=12, temperature=1.5)
    first, second = llm.generate([PROMPT, PROMPT], params)
    assert [o.index for o in first.outputs] == [0, 1, 2]
    assert [o.text for o in first.outputs] == [o.text for o in second.outputs]
    alone = llm.generate(PROMPT, deepinfer.SamplingParams(seed=8, max_tokens=12, temperature=1.5))[0]
    assert alone.outputs[0].text == first.outputs[1].text


def test_every_parameter_reaches_the_engine(deepinfer, llm):
    def text(**params):
        return llm.generate(PROMPT, greedy(deepinfer, **params))[0].outputs[0]

    plain = text()
    assert text(max_tokens=3).finish_reason == "length"
    assert len(text(max_tokens=3).token_ids) == 3
    assert text(max_tokens=None).text == ANSWER
    assert text(stop=" capital").text == "Cairo is the"
    assert text(stop=["Egypt", "never"]).finish_reason == "stop"
    assert text(stop_token_ids=[plain.token_ids[2]]).token_ids == plain.token_ids[:2]
    assert not text(logit_bias={plain.token_ids[0]: -100}).text.startswith("Cairo")
    assert len(text(ignore_eos=True, max_tokens=20).token_ids) == 20
    assert len(text(min_tokens=15, max_tokens=20).token_ids) >= 15
    assert text(top_k=1, temperature=2).text == text(top_p=0, temperature=2).text == text(min_p=1, temperature=2).text == ANSWER
    assert text(frequency_penalty=2, presence_penalty=2).text != ""
    assert text(repetition_penalty=100).text != ANSWER


def test_outputs_keep_to_a_form(deepinfer, llm):
    schema = {"type": "object", "properties": {"a": {"type": "integer", "minimum": 0, "maximum": 99}}, "required": ["a"],
              "additionalProperties": False}

    class Model:
        @staticmethod
        def model_json_schema():
            return schema

    forms = [deepinfer.StructuredOutputsParams(json=Model, disable_any_whitespace=True), deepinfer.StructuredOutputsParams(choice=("up", "down")),
             {"regex": "[0-9]{3}"}, deepinfer.StructuredOutputsParams(grammar='root ::= "x"+ "y"')]
    params = [deepinfer.SamplingParams(structured_outputs=form, max_tokens=200, seed=3) for form in forms]
    first, second, third, fourth = (output.outputs[0] for output in llm.generate([PROMPT] * 4, params))
    assert set(json.loads(first.text)) == {"a"} and " " not in first.text
    assert second.text in ("up", "down")
    assert len(third.text) == 3 and third.text.isdigit()
    assert fourth.finish_reason == "length" or fourth.text.strip("x") == "y"
    answer = llm.chat(TALK, deepinfer.SamplingParams(structured_outputs={"choice": ["left", "right"]}, max_tokens=500), thinking=True)[0].outputs[0]
    assert answer.text in ("left", "right") and answer.reasoning
    with pytest.raises(deepinfer.BadRequestError, match="conflicting constraints"):
        llm.generate(PROMPT, deepinfer.SamplingParams(structured_outputs={"regex": "a", "choice": ["b"]}))


def test_logprobs_have_ids_and_ranks(deepinfer, llm):
    output = llm.generate(PROMPT, greedy(deepinfer, logprobs=2))[0].outputs[0]
    assert len(output.logprobs) == len(output.token_ids)
    for id_, entry in zip(output.token_ids, output.logprobs):
        assert next(iter(entry)) == id_
        assert len(entry) == 2
        assert entry[id_].rank == 1
        assert entry[id_].logprob <= 0
        assert llm.tokenizer.decode([id_]) == entry[id_].decoded_token
    assert output.cumulative_logprob == pytest.approx(sum(entry[id_].logprob for id_, entry in zip(output.token_ids, output.logprobs)))


def test_a_hundred_prompts_with_progress(deepinfer, llm):
    seen = []
    prompts = [f"{BOS}{USER}Use the calculator: {i} + {i}{ASSISTANT}" for i in range(100)]
    params = [greedy(deepinfer, max_tokens=1 + i % 3) for i in range(100)]
    outputs = llm.generate(prompts, params, progress=lambda p: seen.append((p.done, p.total, p.generated_tokens)))
    assert [output.prompt for output in outputs] == prompts
    assert [len(output.outputs[0].token_ids) for output in outputs] == [1 + i % 3 for i in range(100)]
    assert seen[-1] == (100, 100, sum(1 + i % 3 for i in range(100)))
    assert all(a[0] <= b[0] for a, b in zip(seen, seen[1:]))


def test_the_progress_line_is_shown_on_demand(deepinfer, llm, capsys):
    llm.generate([PROMPT] * 2, greedy(deepinfer, max_tokens=1), use_tqdm=True)
    assert "2/2" in capsys.readouterr().err
    llm.generate([PROMPT] * 2, greedy(deepinfer, max_tokens=1), use_tqdm=False)
    assert capsys.readouterr().err == ""


# --- chat ---


def test_chat_answers_one_conversation_or_several(deepinfer, llm):
    one = llm.chat(TALK, greedy(deepinfer), thinking=False)
    assert [o.outputs[0].text for o in one] == [ANSWER]
    assert one[0].messages == TALK
    assert one[0].outputs[0].reasoning is None
    several = llm.chat([TALK, TALK + [{"role": "assistant", "content": ANSWER}, {"role": "user", "content": QUESTION}]], greedy(deepinfer),
                       thinking=False)
    assert len(several) == 2
    assert several[0].outputs[0].text == ANSWER


def test_chat_thinks(deepinfer, llm):
    output = llm.chat(TALK, greedy(deepinfer, max_tokens=200), thinking=True)[0].outputs[0]
    assert output.reasoning
    assert output.text == ANSWER


def test_chat_calls_tools(deepinfer, llm):
    tools = json.loads((ROOT / "examples" / "tools" / "tools.json").read_text(encoding="utf-8"))
    talk = [{"role": "user", "content": "Use the calculator: 4737 * 9873"}]
    output = llm.chat(talk, greedy(deepinfer, max_tokens=200), tools=tools, thinking=False)[0].outputs[0]
    assert output.finish_reason == "tool_calls"
    assert [call.name for call in output.tool_calls] == ["calculator"]
    assert json.loads(output.tool_calls[0].arguments) == {"expression": "4737 * 9873"}
    with llm.stream_chat(talk, greedy(deepinfer, max_tokens=200), tools=tools, thinking=False) as stream:
        streamed = stream.result().outputs[0]
    assert [(c.name, c.arguments) for c in streamed.tool_calls] == [(c.name, c.arguments) for c in output.tool_calls]


def test_chat_logprobs(deepinfer, llm):
    output = llm.chat(TALK, greedy(deepinfer, logprobs=2), thinking=False)[0].outputs[0]
    assert "".join(next(iter(entry.values())).decoded_token for entry in output.logprobs) == ANSWER
    assert all(len(entry) == 2 and -1 not in entry for entry in output.logprobs)


def test_chat_refuses_what_it_would_ignore(deepinfer, llm):
    with pytest.raises(ValueError, match="top_k, ignore_eos: only generate"):
        llm.chat(TALK, greedy(deepinfer, top_k=5, ignore_eos=True))


# --- streams ---


def test_a_stream_gives_what_generate_gives(deepinfer, llm):
    params = greedy(deepinfer, n=2, logprobs=1)
    whole = llm.generate(PROMPT, params)[0]
    stream = llm.stream_generate(PROMPT, params)
    chunks = list(stream)
    assert len(chunks) > 5
    for i in range(2):
        assert "".join(chunk.text for chunk in chunks if chunk.index == i) == ANSWER
        assert stream.output.outputs[i] == whole.outputs[i]
    assert stream.output.finished
    assert stream.output.num_prompt_tokens == whole.num_prompt_tokens
    assert list(stream) == []


def test_a_stream_of_chat_separates_reasoning(deepinfer, llm):
    chunks = list(llm.stream_chat(TALK, greedy(deepinfer, max_tokens=200), thinking=True))
    assert "".join(chunk.text for chunk in chunks) == ANSWER
    assert "".join(chunk.reasoning for chunk in chunks)
    assert chunks[-1].finish_reason == "stop"


def test_streams_run_together_and_can_be_left(deepinfer, llm):
    endless = greedy(deepinfer, max_tokens=4000, ignore_eos=True)
    streams = [llm.stream_generate(PROMPT, endless) for _ in range(4)]
    for stream in streams:
        assert next(stream).text
    streams[0].cancel()
    assert list(streams[0]) == []
    streams[1].close()
    del streams[2]
    streams[-1].close()
    assert llm.generate(PROMPT, greedy(deepinfer))[0].outputs[0].text == ANSWER


@pytest.mark.parametrize("leave", ["cancel", "close"])
def test_a_stream_that_was_left_gives_nothing_more(deepinfer, llm, leave):
    """Pieces that came in one read with the first are not given either."""
    stream = llm.stream_generate(PROMPT, greedy(deepinfer))
    assert llm.generate(PROMPT, greedy(deepinfer))[0].outputs[0].text == ANSWER
    assert next(stream).text
    getattr(stream, leave)()
    assert list(stream) == []
    assert stream.result() is stream.output


# --- mistakes ---


def test_a_refused_request_says_why(deepinfer, llm):
    with pytest.raises(deepinfer.BadRequestError, match="temperature") as caught:
        llm.generate(PROMPT, deepinfer.SamplingParams(temperature=5))
    assert caught.value.http_status == 400
    assert caught.value.index is None
    assert isinstance(caught.value, (ValueError, deepinfer.DeepInferError))
    with pytest.raises(deepinfer.BadRequestError, match="temperature"):
        list(llm.stream_generate(PROMPT, deepinfer.SamplingParams(temperature=5)))
    with pytest.raises(deepinfer.BadRequestError, match="messages"):
        llm.chat([{"role": "nobody", "content": "x"}], greedy(deepinfer))


def test_one_bad_prompt_loses_no_other(deepinfer, llm):
    params = [greedy(deepinfer), deepinfer.SamplingParams(temperature=5), greedy(deepinfer)]
    with pytest.raises(deepinfer.BadRequestError) as caught:
        llm.generate([PROMPT] * 3, params)
    assert caught.value.index == 1
    assert [output.outputs[0].text for output in caught.value.outputs if output.error is None] == [ANSWER] * 2
    outputs = llm.generate([PROMPT] * 3, params, return_errors=True)
    assert [output.error is None for output in outputs] == [True, False, True]


@pytest.mark.parametrize("prompt, kind", [(5, TypeError), (["a", 5], TypeError), ({"text": "a"}, ValueError), ([[]], ValueError)])
def test_what_is_no_prompt(deepinfer, llm, prompt, kind):
    with pytest.raises(kind):
        llm.generate(prompt)


@pytest.mark.parametrize("replay", ["encoder", "decoder", "both"])
def test_a_short_prompt_is_replayed_in_full(deepinfer, replay):
    greedy = deepinfer.SamplingParams(temperature=0, max_tokens=8)
    with deepinfer.LLM() as exact, deepinfer.LLM(replay=replay) as other:
        assert other.generate(PROMPT, greedy)[0].outputs[0].text == exact.generate(PROMPT, greedy)[0].outputs[0].text


@pytest.mark.parametrize("draft", ["fixed:2", "auto"])
def test_drafts_change_no_text(deepinfer, draft):
    greedy = deepinfer.SamplingParams(temperature=0, max_tokens=24)
    seeded = deepinfer.SamplingParams(seed=3, n=2, max_tokens=24)
    with deepinfer.LLM() as plain, deepinfer.LLM(draft=draft) as drafted, deepinfer.LLM(draft=draft, verify="coupled") as coupled:
        for other in (drafted, coupled):
            for one, two in zip(plain.generate([PROMPT] * 2, [greedy, seeded]), other.generate([PROMPT] * 2, [greedy, seeded])):
                assert [out.token_ids for out in one.outputs] == [out.token_ids for out in two.outputs]
        assert re.search(r"^deepinfer_draft_tokens_total{.*} [1-9]", drafted.metrics(), re.M)
        assert re.search(r"^deepinfer_draft_tokens_total{.*} 0", plain.metrics(), re.M)


def test_what_is_no_model(deepinfer, tmp_path):
    with pytest.raises(deepinfer.FileAccessError, match="config.json"):
        deepinfer.LLM(tmp_path)
    (tmp_path / "config.json").write_text("{")
    with pytest.raises(deepinfer.ModelFormatError, match="config.json"):
        deepinfer.LLM(tmp_path)
    with pytest.raises(deepinfer.DeepInferError, match="backend"):
        deepinfer.LLM(backend="abacus")
    with pytest.raises(ValueError, match="replay"):
        deepinfer.LLM(replay="always")
    for draft in ("on", "fixed", "fixed:0", "fixed:10", "fixed:two"):
        with pytest.raises(ValueError, match="draft"):
            deepinfer.LLM(draft=draft)
    with pytest.raises(ValueError, match="verify"):
        deepinfer.LLM(verify="none")
    with pytest.raises(ValueError, match="2 sampling parameters for 1"):
        with deepinfer.LLM() as llm:
            llm.generate(PROMPT, [deepinfer.SamplingParams()] * 2)


# --- life and threads ---


def test_threads_share_a_model(deepinfer, llm):
    texts = {}

    def work(i):
        if i % 2:
            texts[i] = llm.chat(TALK, greedy(deepinfer), thinking=False)[0].outputs[0].text
        else:
            texts[i] = llm.stream_generate(PROMPT, greedy(deepinfer)).result().outputs[0].text

    threads = [threading.Thread(target=work, args=(i,)) for i in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert texts == {i: ANSWER for i in range(8)}


def test_closing_ends_everything(deepinfer):
    llm = deepinfer.LLM()
    endless = greedy(deepinfer, max_tokens=8000, ignore_eos=True)
    caught = []
    begun = threading.Event()

    def batch():
        try:
            llm.generate([PROMPT] * 8, endless, progress=lambda _: begun.set())
        except deepinfer.DeepInferError as error:
            caught.append(error)

    thread = threading.Thread(target=batch)
    thread.start()
    stream = llm.stream_generate(PROMPT, endless)
    assert next(stream).text
    assert begun.wait(60)
    llm.close()
    llm.close()
    thread.join(60)
    assert [type(error) for error in caught] == [deepinfer.ClosedError]
    with pytest.raises(deepinfer.ClosedError):
        list(stream)
    with pytest.raises(deepinfer.ClosedError):
        llm.generate(PROMPT)
    with pytest.raises(deepinfer.ClosedError):
        llm.tokenizer.encode("a")


def test_what_progress_raises_stops_the_batch(deepinfer, llm):
    def stop(_):
        raise LookupError("enough")

    with pytest.raises(LookupError, match="enough"):
        llm.generate([PROMPT] * 8, greedy(deepinfer, max_tokens=8000, ignore_eos=True), progress=stop)
    with pytest.raises(RuntimeError, match="inside a call"):
        llm.generate([PROMPT], greedy(deepinfer), progress=lambda _: llm.close())
    assert llm.generate(PROMPT, greedy(deepinfer))[0].outputs[0].text == ANSWER


INTERRUPTED = """
from deepinfer import LLM, SamplingParams
llm = LLM()
endless = SamplingParams(temperature=0, max_tokens=8000, ignore_eos=True)
try:
    %s
except KeyboardInterrupt:
    print("interrupted", llm.generate("a", SamplingParams(max_tokens=1))[0].finished)
"""


@pytest.mark.parametrize("code", ["llm.generate(['a'], endless, progress=lambda _: print('running', flush=True))",
                                  "[print('running', flush=True) for _ in llm.stream_generate('a', endless)]"])
def test_ctrl_c_is_heard(environment, code):
    with run(environment, INTERRUPTED % code) as process:
        assert process.stdout.readline() == "running\n"
        process.send_signal(signal.SIGINT)
        out, err = process.communicate(timeout=120)
    assert out.splitlines()[-1] == "interrupted True", err
    assert process.returncode == 0


def test_a_program_may_end_without_closing(environment):
    code = ("from deepinfer import LLM, SamplingParams\nllm = LLM()\nstream = llm.stream_generate('a', SamplingParams(max_tokens=4000, "
            "ignore_eos=True))\nprint(next(stream).index)\n")
    with run(environment, code) as process:
        out, err = process.communicate(timeout=120)
    assert (process.returncode, out, err) == (0, "0\n", "")


def test_metrics_are_a_page(llm):
    assert "deepinfer_" in llm.metrics()
