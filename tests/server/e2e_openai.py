"""The official `openai` package, unmodified, against a live server on the demo model: Chat Completions, Responses, Completions, models.

Structure is asserted exactly. Texts are compared with what another command of the program says about the same prompt, with the
evaluation set, or with the same request made another way."""
import asyncio
import json
import math

import openai
import pytest

from serve import CAIRO, DEMO, EGYPT, MODEL, PIXEL, PRODUCT, QUIET, ROOT, SOLVED, STORY, Server, command, evaluation

TOOLS = json.loads((ROOT / "examples" / "tools" / "tools.json").read_text())
FLAT_TOOLS = [{"type": "function", **tool["function"]} for tool in TOOLS]
PIXEL_URL = "data:image/png;base64," + PIXEL
GREEDY = {"temperature": 0, "extra_body": QUIET}


@pytest.fixture(scope="module")
def server():
    with Server() as one:
        yield one
        assert one.stop() == 0


@pytest.fixture(scope="module")
def client(server):
    with openai.OpenAI(base_url=server.url + "/v1", api_key="unused", max_retries=0) as one:
        yield one


def user(text):
    return [{"role": "user", "content": text}]


def chat(client, text, **more):
    return client.chat.completions.create(model=MODEL, messages=user(text), **{**GREEDY, **more})


def respond(client, text, **more):
    return client.responses.create(model=MODEL, input=text, **{"temperature": 0, "reasoning": {"effort": "none"}, **more})


def local_answer(text, *options):
    """The message that `deepinfer chat` gives."""
    return json.loads(command("chat", "--model", DEMO, "--json", "--prompt", text, *options).splitlines()[-1])


# --- Chat Completions ----------------------------------------------------------------------------------------------------


def test_an_answer_is_that_of_the_chat_command(client):
    answer = chat(client, CAIRO)
    local = local_answer(CAIRO)
    assert answer.id.startswith("chatcmpl-") and answer.object == "chat.completion" and answer.model == MODEL
    choice, = answer.choices
    assert (choice.index, choice.finish_reason, choice.logprobs) == (0, "stop", None)
    assert choice.message.role == "assistant" and choice.message.content == local["content"] == EGYPT
    assert choice.message.tool_calls is None and not hasattr(choice.message, "reasoning_content")
    usage, counts = answer.usage, local["usage"]
    assert usage.prompt_tokens == counts["prompt_tokens"] and usage.completion_tokens == counts["completion_tokens"]
    assert usage.total_tokens == usage.prompt_tokens + usage.completion_tokens
    assert usage.completion_tokens_details is None
    assert answer._request_id


def test_a_stream_is_the_answer_in_pieces(client):
    chunks = list(chat(client, STORY, stream=True, stream_options={"include_usage": True}))
    whole = chat(client, STORY)
    assert {chunk.object for chunk in chunks} == {"chat.completion.chunk"} and len({chunk.id for chunk in chunks}) == 1
    assert chunks[0].choices[0].delta.role == "assistant" and chunks[0].choices[0].delta.content == ""
    texts = [chunk.choices[0].delta.content or "" for chunk in chunks]
    assert "".join(texts) == whole.choices[0].message.content and sum(map(bool, texts)) > 5
    assert [chunk.choices[0].finish_reason for chunk in chunks] == [None] * (len(chunks) - 1) + ["stop"]
    assert all(chunk.usage is None for chunk in chunks[:-1])
    last = chunks[-1].usage
    assert (last.prompt_tokens, last.completion_tokens) == (whole.usage.prompt_tokens, whole.usage.completion_tokens)
    assert [bool(chunk.usage) for chunk in chat(client, CAIRO, stream=True)][-2:] == [False, True], "as DeepSeek's service does"


def test_the_stream_helper_puts_it_together(client):
    with client.chat.completions.stream(model=MODEL, messages=user(CAIRO), **GREEDY) as stream:
        kinds = {event.type for event in stream}
        final = stream.get_final_completion()
    assert final.choices[0].message.content == EGYPT and {"chunk", "content.delta", "content.done"} <= kinds


def test_developer_and_system_messages_count(client):
    plain = chat(client, CAIRO)
    for role in ("system", "developer"):
        messages = [{"role": role, "content": "You are a helpful assistant."}, *user(CAIRO)]
        answer = client.chat.completions.create(model=MODEL, messages=messages, **GREEDY)
        assert answer.usage.prompt_tokens > plain.usage.prompt_tokens and answer.choices[0].finish_reason == "stop"


def test_tools_round_trip(client):
    answer = chat(client, PRODUCT, tools=TOOLS)
    choice, = answer.choices
    call, = choice.message.tool_calls
    assert choice.finish_reason == "tool_calls" and choice.message.content == ""
    assert call.type == "function" and call.function.name == "calculator" and call.id.startswith("call_")
    assert json.loads(call.function.arguments) == {"expression": "4737 * 9873"}
    messages = [*user(PRODUCT), choice.message, {"role": "tool", "tool_call_id": call.id, "content": "46768401"}]
    last = client.chat.completions.create(model=MODEL, messages=messages, tools=TOOLS, **GREEDY)
    assert last.choices[0].message.content == SOLVED and last.choices[0].finish_reason == "stop"


def test_tool_calls_stream(client):
    with client.chat.completions.stream(model=MODEL, messages=user(PRODUCT), tools=TOOLS, **GREEDY) as stream:
        events = list(stream)
        final = stream.get_final_completion()
    call, = final.choices[0].message.tool_calls
    assert call.function.name == "calculator" and json.loads(call.function.arguments) == {"expression": "4737 * 9873"}
    done, = [event for event in events if event.type == "tool_calls.function.arguments.done"]
    assert (done.name, done.index) == ("calculator", 0) and final.choices[0].finish_reason == "tool_calls"


def test_a_required_tool_is_called(client):
    answer = chat(client, PRODUCT, tools=TOOLS, tool_choice={"type": "function", "function": {"name": "calculator"}})
    assert answer.choices[0].message.tool_calls[0].function.name == "calculator"
    none = chat(client, CAIRO, tools=TOOLS, tool_choice="none")
    assert none.choices[0].message.tool_calls is None and none.choices[0].message.content == EGYPT


def test_json_by_prompt(client):
    rows = [row for row in evaluation("json") if row["request"].get("response_format") and row["request"].get("thinking")][:3]
    assert rows
    for row in rows:
        request = {key: value for key, value in row["request"].items() if key not in ("model", "thinking")}
        answer = client.chat.completions.create(model=MODEL, **request, **GREEDY)
        assert json.loads(answer.choices[0].message.content) == json.loads(row["expected"]["content"]), row["id"]


def test_reasoning_stands_beside_the_content(client):
    answer = client.chat.completions.create(model=MODEL, messages=user(CAIRO), seed=1)
    message = answer.choices[0].message
    assert message.content == EGYPT and message.reasoning_content
    details = answer.usage.completion_tokens_details
    assert 0 < details.reasoning_tokens < answer.usage.completion_tokens
    chunks = list(client.chat.completions.create(model=MODEL, messages=user(CAIRO), seed=1, stream=True))
    deltas = [chunk.choices[0].delta for chunk in chunks]
    thoughts = [getattr(delta, "reasoning_content", None) or "" for delta in deltas]
    assert "".join(thoughts) == message.reasoning_content and "".join(delta.content or "" for delta in deltas) == EGYPT
    assert max(i for i, text in enumerate(thoughts) if text) < min(i for i, delta in enumerate(deltas) if delta.content)
    off = client.chat.completions.create(model=MODEL, messages=user(CAIRO), seed=1, reasoning_effort="none")
    assert not hasattr(off.choices[0].message, "reasoning_content")


def test_the_second_turn_finds_the_first_in_the_cache(client):
    row = next(row for row in evaluation("retrieve/short") if row["request"].get("thinking") == {"type": "disabled"})
    messages = list(row["request"]["messages"])
    first = client.chat.completions.create(model=MODEL, messages=messages, **GREEDY)
    assert first.choices[0].message.content == row["expected"]["content"]
    messages += [{"role": "assistant", "content": first.choices[0].message.content}, messages[-1]]
    second = client.chat.completions.create(model=MODEL, messages=messages, **GREEDY)
    cached = second.usage.prompt_tokens_details.cached_tokens
    assert 0 < cached < second.usage.prompt_tokens and cached % 128 == 0
    assert second.usage.prompt_cache_hit_tokens == cached
    assert second.usage.prompt_cache_miss_tokens == second.usage.prompt_tokens - cached
    again = client.chat.completions.create(model=MODEL, messages=messages, **GREEDY)
    assert again.choices[0].message.content == second.choices[0].message.content


@pytest.mark.parametrize("stream", [False, True])
def test_images_are_refused(client, stream):
    content = [{"type": "text", "text": "What is this?"}, {"type": "image_url", "image_url": {"url": PIXEL_URL}}]
    with pytest.raises(openai.BadRequestError, match=r"(?i)image.*not supported") as caught:
        client.chat.completions.create(model=MODEL, messages=[{"role": "user", "content": content}], stream=stream, **GREEDY)
    assert "messages[0]" in caught.value.message
    with pytest.raises(openai.BadRequestError, match=r"(?i)image.*not supported"):
        client.responses.create(model=MODEL, stream=stream, input=[
            {"role": "user", "content": [{"type": "input_image", "image_url": PIXEL_URL, "detail": "auto"}]}])


def test_choices_are_the_seeds_one_by_one(client):
    sampled = {"temperature": 1.5, "extra_body": QUIET, "max_tokens": 12}
    answer = chat(client, STORY, n=4, seed=40, **sampled)
    assert [choice.index for choice in answer.choices] == [0, 1, 2, 3]
    alone = [chat(client, STORY, seed=40 + i, **sampled) for i in range(4)]
    assert [c.message.content for c in answer.choices] == [one.choices[0].message.content for one in alone]
    assert len({choice.message.content for choice in answer.choices}) > 1
    assert answer.usage.completion_tokens == sum(one.usage.completion_tokens for one in alone)
    texts = [""] * 4
    for chunk in chat(client, STORY, n=4, seed=40, stream=True, **sampled):
        for choice in chunk.choices:
            texts[choice.index] += choice.delta.content or ""
    assert texts == [choice.message.content for choice in answer.choices]


def test_a_seed_is_that_of_the_chat_command(client):
    for seed in (1, 2, 3):
        local = local_answer(STORY, "--temperature", "1.5", "--seed", seed, "--max-tokens", 20)
        remote = chat(client, STORY, temperature=1.5, seed=seed, max_tokens=20)
        assert remote.choices[0].message.content == local["content"]
    free = {chat(client, STORY, temperature=2, max_tokens=20).choices[0].message.content for _ in range(3)}
    assert len(free) > 1, "without a seed every request draws its own"


def test_log_probabilities(client):
    answer = chat(client, CAIRO, logprobs=True, top_logprobs=3)
    entries = answer.choices[0].logprobs.content
    assert "".join(entry.token for entry in entries) == EGYPT
    assert b"".join(bytes(entry.bytes) for entry in entries) == EGYPT.encode()
    for entry in entries:
        tops = [top.logprob for top in entry.top_logprobs]
        assert len(tops) == 3 and tops == sorted(tops, reverse=True) and entry.logprob == tops[0] <= 0
        assert entry.top_logprobs[0].token == entry.token and sum(map(math.exp, tops)) < 1.0001
    rows = map(json.loads, command("generate", "--model", DEMO, "--quiet", "--json", "--chat", "--logprobs", 3, "--prompt", CAIRO).splitlines())
    local = [row["logprob"] for row in rows if "logprob" in row]
    assert [entry.logprob for entry in entries] == pytest.approx(local[:len(entries)], abs=1e-6)
    streamed = [entry for chunk in chat(client, CAIRO, logprobs=True, top_logprobs=3, stream=True)
                if chunk.choices[0].logprobs for entry in chunk.choices[0].logprobs.content]
    assert streamed == entries
    assert chat(client, CAIRO, logprobs=True).choices[0].logprobs.content[0].top_logprobs == []


def test_stop_strings_cut(client):
    answer = chat(client, CAIRO, stop=["capital", "nowhere"])
    assert answer.choices[0].message.content == "Cairo is the " and answer.choices[0].finish_reason == "stop"
    # Across the borders of tokens, and in a stream that must not have shown its beginning.
    pieces = [chunk.choices[0].delta.content or "" for chunk in chat(client, CAIRO, stop="ital of Eg", stream=True)]
    assert "".join(pieces) == "Cairo is the cap"


def test_length_ends_an_answer(client):
    for name in ("max_tokens", "max_completion_tokens"):
        answer = chat(client, CAIRO, **{name: 3})
        assert answer.choices[0].finish_reason == "length" and answer.usage.completion_tokens == 3
        assert EGYPT.startswith(answer.choices[0].message.content)


def test_a_bias_forbids_a_token(client):
    banned = chat(client, CAIRO, logprobs=True).choices[0].logprobs.content[0].token
    ident, = json.loads(command("tokenize", "--model", DEMO, "--json", "--text", banned))["ids"]
    other = chat(client, CAIRO, logit_bias={str(ident): -100}, max_tokens=1)
    assert other.choices[0].message.content != banned


# --- Leaving, and errors -------------------------------------------------------------------------------------------------


def test_closing_a_stream_ends_the_request(client, server):
    server.until_idle()
    stream = client.completions.create(model=MODEL, prompt="a", stream=True, max_tokens=10000, temperature=2, extra_body={"ignore_eos": True})
    next(iter(stream))
    assert server.load()[0] == 1
    stream.close()
    server.until_idle()


@pytest.mark.parametrize("field, value", [
    ("temperature", 3), ("top_p", 0), ("n", 0), ("n", 129), ("max_tokens", 0), ("presence_penalty", 5), ("seed", -1), ("stop", [""]),
    ("top_logprobs", 50), ("stream_options", {"include_usage": True}), ("messages", []), ("messages", [{"role": "nobody", "content": ""}]),
    ("tools", [{"type": "function", "function": {"name": "not a name"}}]), ("logit_bias", {"1": 1000}), ("reasoning_effort", "huge"),
    ("messages", "text"), ("temperature", "warm"), ("response_format", {"type": "poem"}),
])
def test_an_invalid_field_is_named(client, field, value):
    words = {"messages": "messages?|role", "n": r"\bn\b", "tools": "tools", "reasoning_effort": "reasoning_effort|huge"}
    with pytest.raises(openai.BadRequestError, match=words.get(field, field)) as caught:
        client.chat.completions.create(**{"model": MODEL, "messages": user(CAIRO), field: value})
    assert caught.value.status_code == 400 and caught.value.type == "invalid_request_error"


def test_other_requests_that_can_not_be(client):
    with pytest.raises(openai.BadRequestError, match="supported API model names"):
        client.chat.completions.create(model="gpt-4o", messages=user(CAIRO))
    with pytest.raises(openai.BadRequestError, match="maximum context length"):
        chat(client, "word " * 20000)
    with pytest.raises(openai.BadRequestError, match="max_output_tokens|max_tokens"):
        respond(client, CAIRO, max_output_tokens=0)
    with pytest.raises(openai.NotFoundError):
        client.get("/nowhere", cast_to=object)
    with pytest.raises(openai.NotFoundError):
        client.models.retrieve("gpt-4o")


def test_keys_and_limits(tmp_path):
    keys = tmp_path / "keys"
    keys.write_text("good-key someone\n")
    with Server("--api-keys-file", keys, "--rate-limit", 3, key="good-key") as server:
        bad = openai.OpenAI(base_url=server.url + "/v1", api_key="bad-key", max_retries=0)
        for call in (lambda: chat(bad, CAIRO), lambda: bad.models.list(), lambda: respond(bad, CAIRO)):
            with pytest.raises(openai.AuthenticationError) as caught:
                call()
            assert caught.value.status_code == 401 and "bad-key" not in caught.value.message
        good = openai.OpenAI(base_url=server.url + "/v1", api_key="good-key", max_retries=0)
        with pytest.raises(openai.RateLimitError) as limited:
            for _ in range(10):
                chat(good, CAIRO, max_tokens=1)
        assert limited.value.status_code == 429 and 0 < int(limited.value.response.headers["retry-after"]) <= 60


# --- Models and Completions ----------------------------------------------------------------------------------------------


def test_models(client):
    models = client.models.list().data
    assert [(model.id, model.object) for model in models] == [(MODEL, "model")]
    assert client.models.retrieve(MODEL).id == MODEL


def local_text(prompt, *options):
    return command("generate", "--model", DEMO, "--quiet", "--prompt", prompt, *options)


def test_a_completion_is_that_of_the_generate_command(client):
    answer = client.completions.create(model=MODEL, prompt="Cairo is the", temperature=0, max_tokens=6)
    assert answer.id.startswith("cmpl-") and answer.object == "text_completion" and answer.model == MODEL
    choice, = answer.choices
    assert choice.text == local_text("Cairo is the", "--max-tokens", 6).removesuffix("\n") and choice.index == 0
    assert choice.finish_reason == "length" and answer.usage.completion_tokens == 6
    ids = json.loads(command("tokenize", "--model", DEMO, "--json", "--text", "Cairo is the"))["ids"]
    by_ids = client.completions.create(model=MODEL, prompt=ids, temperature=0, max_tokens=6)
    assert by_ids.choices[0].text == choice.text and by_ids.usage.prompt_tokens == len(ids) == answer.usage.prompt_tokens
    chunks = list(client.completions.create(model=MODEL, prompt="Cairo is the", temperature=0, max_tokens=6, stream=True))
    assert "".join(chunk.choices[0].text for chunk in chunks if chunk.choices) == choice.text


def test_several_prompts_and_choices_of_a_completion(client):
    prompts = ["Cairo is the", "The rabbit looked at"]
    both = client.completions.create(model=MODEL, prompt=prompts, temperature=1, seed=5, n=2, max_tokens=5, echo=True)
    assert [choice.index for choice in both.choices] == [0, 1, 2, 3]
    for i, choice in enumerate(both.choices):
        prompt = prompts[i // 2]
        local = local_text(prompt, "--max-tokens", 5, "--temperature", 1, "--seed", 5 + i % 2).removesuffix("\n")
        assert choice.text == prompt + local
    cut = client.completions.create(model=MODEL, prompt="Cairo is the capital of", temperature=0, max_tokens=8, stop=["."])
    assert "." not in cut.choices[0].text


def test_log_probabilities_of_a_completion(client):
    answer = client.completions.create(model=MODEL, prompt="Cairo is the", temperature=0, max_tokens=4, logprobs=2)
    told = answer.choices[0].logprobs
    assert "".join(told.tokens) == answer.choices[0].text and len(told.token_logprobs) == 4
    assert all(len(top) >= 2 and max(top.values()) == pytest.approx(own) for top, own in zip(told.top_logprobs, told.token_logprobs))
    assert told.text_offset == [sum(map(len, told.tokens[:i])) for i in range(4)]
    for field, value in (("logprobs", 9), ("suffix", "x"), ("prompt", [])):
        with pytest.raises(openai.BadRequestError, match=field):
            client.completions.create(**{"model": MODEL, "prompt": "a", field: value})


# --- Responses -----------------------------------------------------------------------------------------------------------


def test_a_response(client):
    answer = respond(client, CAIRO)
    assert answer.id.startswith("resp_") and answer.object == "response" and answer.status == "completed" and answer.error is None
    item, = answer.output
    assert item.type == "message" and item.role == "assistant" and item.status == "completed" and answer.output_text == EGYPT
    plain = chat(client, CAIRO).usage
    assert (answer.usage.input_tokens, answer.usage.output_tokens) == (plain.prompt_tokens, plain.completion_tokens)
    cut = respond(client, CAIRO, max_output_tokens=3)
    assert cut.status == "incomplete" and cut.incomplete_details.reason == "max_output_tokens"


def test_a_response_streams(client):
    events = list(respond(client, STORY, stream=True))
    whole = respond(client, STORY)
    assert [event.sequence_number for event in events] == list(range(len(events)))
    kinds = [event.type for event in events if event.type != "response.output_text.delta"]
    assert kinds == ["response.created", "response.in_progress", "response.output_item.added", "response.content_part.added",
                     "response.output_text.done", "response.content_part.done", "response.output_item.done", "response.completed"]
    assert "".join(event.delta for event in events if event.type == "response.output_text.delta") == whole.output_text
    assert events[-1].response.output_text == whole.output_text
    with client.responses.stream(model=MODEL, input=CAIRO, temperature=0, reasoning={"effort": "none"}) as stream:
        stream.until_done()
        assert stream.get_final_response().output_text == EGYPT


def test_reasoning_items(client):
    answer = client.responses.create(model=MODEL, input=CAIRO, reasoning={"effort": "high"})
    thought, message = answer.output
    assert thought.type == "reasoning" and thought.content[0].type == "reasoning_text" and thought.content[0].text
    assert message.type == "message" and answer.output_text and answer.usage.output_tokens_details.reasoning_tokens > 0
    follow = [{"role": "user", "content": CAIRO}, *(item.model_dump(exclude_none=True) for item in answer.output),
              {"role": "user", "content": "Thanks"}]
    assert client.responses.create(model=MODEL, input=follow, reasoning={"effort": "none"}).status == "completed"
    kinds = [event.type for event in client.responses.create(model=MODEL, input=CAIRO, stream=True)]
    assert kinds.index("response.reasoning_text.done") < kinds.index("response.output_text.delta")


def test_functions_of_a_response_round_trip(client):
    answer = respond(client, PRODUCT, tools=FLAT_TOOLS)
    call, = answer.output
    assert call.type == "function_call" and call.name == "calculator" and call.status == "completed"
    assert json.loads(call.arguments) == {"expression": "4737 * 9873"}
    items = [{"role": "user", "content": PRODUCT}, call.model_dump(exclude_none=True),
             {"type": "function_call_output", "call_id": call.call_id, "output": "46768401"}]
    assert respond(client, items, tools=FLAT_TOOLS).output_text == SOLVED
    events = list(respond(client, PRODUCT, tools=FLAT_TOOLS, stream=True))
    pieces = [event.delta for event in events if event.type == "response.function_call_arguments.delta"]
    assert json.loads("".join(pieces)) == {"expression": "4737 * 9873"} and events[-1].response.output[0].name == "calculator"


def test_turns_of_a_response_and_the_cache(client):
    row = max(evaluation("retrieve/short"), key=lambda row: row["prompt_tokens"])
    text = row["request"]["messages"][-1]["content"]
    first = respond(client, text)
    items = [{"role": "user", "content": text}, *(item.model_dump(exclude_none=True) for item in first.output), {"role": "user", "content": text}]
    second = respond(client, items)
    assert 0 < second.usage.input_tokens_details.cached_tokens < second.usage.input_tokens


def test_log_probabilities_of_a_response(client):
    answer = respond(client, CAIRO, top_logprobs=2, include=["message.output_text.logprobs"])
    told = answer.output[0].content[0].logprobs
    assert "".join(entry.token for entry in told) == EGYPT and all(len(entry.top_logprobs) == 2 for entry in told)


# --- Many clients --------------------------------------------------------------------------------------------------------


def test_many_requests_of_one_asynchronous_client(server):
    rows = [row for row in evaluation("fact") + evaluation("chat") if row["request"].get("thinking") == {"type": "disabled"}][:24]

    async def run():
        async with openai.AsyncOpenAI(base_url=server.url + "/v1", api_key="unused", max_retries=0) as many:
            return await asyncio.gather(*(many.chat.completions.create(model=MODEL, messages=row["request"]["messages"], **GREEDY) for row in rows))

    answers = asyncio.run(run())
    assert [answer.choices[0].message.content for answer in answers] == [row["expected"]["content"] for row in rows]
