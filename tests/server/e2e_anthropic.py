"""The official `anthropic` package, unmodified, against a live server on the demo model: Messages and the counting of tokens.

Structure is asserted exactly. Texts are compared with what `deepinfer chat` says, with the evaluation set, or with the same request
made another way. Greedy requests give their temperature beside the package's own fields, which no longer have one."""
import asyncio
import json

import anthropic
import pytest

from serve import CAIRO, DEMO, EGYPT, MODEL, PIXEL, PRODUCT, ROOT, SOLVED, STORY, Server, command, evaluation

FUNCTIONS = [tool["function"] for tool in json.loads((ROOT / "examples" / "tools" / "tools.json").read_text())]
TOOLS = [{"name": f["name"], "description": f["description"], "input_schema": f["parameters"]} for f in FUNCTIONS]
GREEDY = {"thinking": {"type": "disabled"}, "extra_body": {"temperature": 0}, "max_tokens": 256, "model": MODEL}


@pytest.fixture(scope="module")
def server():
    with Server() as one:
        yield one
        assert one.stop() == 0


@pytest.fixture(scope="module")
def client(server):
    with anthropic.Anthropic(base_url=server.url, api_key="unused", max_retries=0) as one:
        yield one


def user(content):
    return [{"role": "user", "content": content}]


def ask(client, content, **more):
    return client.messages.create(messages=user(content), **{**GREEDY, **more})


def test_a_message_is_that_of_the_chat_command(client):
    answer = ask(client, CAIRO)
    local = json.loads(command("chat", "--model", DEMO, "--json", "--prompt", CAIRO))
    assert answer.id.startswith("msg_") and answer.type == "message" and answer.role == "assistant" and answer.model == MODEL
    block, = answer.content
    assert block.type == "text" and block.text == local["content"] == EGYPT
    assert (answer.stop_reason, answer.stop_sequence) == ("end_turn", None)
    usage, counts = answer.usage, local["usage"]
    assert (usage.input_tokens, usage.output_tokens) == (counts["prompt_tokens"], counts["completion_tokens"])
    assert (usage.cache_read_input_tokens, usage.cache_creation_input_tokens, usage.service_tier) == (0, 0, "standard")
    assert answer._request_id


def test_events_of_a_stream(client):
    whole = ask(client, STORY)
    events = list(ask(client, STORY, stream=True))
    kinds = [event.type for event in events if event.type not in ("content_block_delta", "ping")]
    assert kinds == ["message_start", "content_block_start", "content_block_stop", "message_delta", "message_stop"]
    deltas = [event.delta.text for event in events if event.type == "content_block_delta"]
    assert "".join(deltas) == whole.content[0].text and len(deltas) > 5
    start, end = events[0].message, events[-2]
    assert start.usage.input_tokens == whole.usage.input_tokens and start.usage.output_tokens == 0 and start.content == []
    assert end.delta.stop_reason == "end_turn" and end.usage.output_tokens == whole.usage.output_tokens


def test_the_stream_helper_puts_it_together(client):
    with client.messages.stream(messages=user(STORY), **GREEDY) as stream:
        text = "".join(stream.text_stream)
        final = stream.get_final_message()
    assert text == final.content[0].text == ask(client, STORY).content[0].text


def test_tools_round_trip(client):
    first = ask(client, PRODUCT, tools=TOOLS)
    call, = first.content
    assert first.stop_reason == "tool_use" and call.type == "tool_use" and call.name == "calculator"
    assert call.input == {"expression": "4737 * 9873"}
    result = {"type": "tool_result", "tool_use_id": call.id, "content": "46768401"}
    messages = [*user(PRODUCT), {"role": "assistant", "content": first.content}, {"role": "user", "content": [result]}]
    last = client.messages.create(messages=messages, tools=TOOLS, **GREEDY)
    assert last.content[0].text == SOLVED and last.stop_reason == "end_turn"


def test_tool_input_streams(client):
    with client.messages.stream(messages=user(PRODUCT), tools=TOOLS, **GREEDY) as stream:
        pieces = [event.partial_json for event in stream if event.type == "input_json"]
        final = stream.get_final_message()
    assert final.content[0].input == json.loads("".join(pieces)) == {"expression": "4737 * 9873"}
    assert final.stop_reason == "tool_use"


def test_thinking_blocks(client):
    thinking = {"type": "enabled", "budget_tokens": 1024}
    answer = ask(client, CAIRO, thinking=thinking, max_tokens=2048)
    thought, text = answer.content
    assert thought.type == "thinking" and thought.thinking and thought.signature and text.type == "text" and text.text
    messages = [*user(CAIRO), {"role": "assistant", "content": answer.content}, *user("Thanks")]
    assert client.messages.create(messages=messages, **GREEDY).stop_reason == "end_turn"
    with client.messages.stream(messages=user(CAIRO), **{**GREEDY, "thinking": thinking, "max_tokens": 2048}) as stream:
        kinds = [event.type for event in stream]
        final = stream.get_final_message()
    assert [block.type for block in final.content] == ["thinking", "text"] and final.content[0].signature
    assert kinds.index("thinking") < kinds.index("signature") < kinds.index("text")


def test_the_system_prompt_counts(client):
    row = next(row for row in evaluation("fact") if row["request"]["messages"][0]["role"] == "system"
               and row["request"].get("thinking") == {"type": "disabled"})
    system, *messages = row["request"]["messages"]
    answer = client.messages.create(messages=messages, system=system["content"], **GREEDY)
    assert answer.content[0].text == row["expected"]["content"]
    assert answer.usage.input_tokens == row["prompt_tokens"]


def test_the_second_turn_finds_the_first_in_the_cache(client):
    text = evaluation("retrieve/short")[0]["request"]["messages"][-1]["content"]
    first = ask(client, text)
    messages = [*user(text), {"role": "assistant", "content": first.content}, *user(text)]
    second = client.messages.create(messages=messages, **GREEDY)
    cached = second.usage.cache_read_input_tokens
    assert cached > 0 and cached % 128 == 0 and second.usage.input_tokens > 0
    counted = client.messages.count_tokens(model=MODEL, messages=messages, thinking={"type": "disabled"})
    assert counted.input_tokens == second.usage.input_tokens + cached


def test_stop_sequences_are_named(client):
    answer = ask(client, CAIRO, stop_sequences=["nowhere", "capital"])
    assert answer.content[0].text == "Cairo is the " and (answer.stop_reason, answer.stop_sequence) == ("stop_sequence", "capital")
    short = ask(client, CAIRO, max_tokens=3)
    assert short.stop_reason == "max_tokens" and short.usage.output_tokens == 3 and EGYPT.startswith(short.content[0].text)


def test_count_tokens(client):
    count = client.messages.count_tokens(model=MODEL, messages=user(CAIRO), thinking={"type": "disabled"})
    assert count.input_tokens == ask(client, CAIRO).usage.input_tokens
    more = client.messages.count_tokens(model=MODEL, messages=user(CAIRO), system="Be brief.", tools=TOOLS)
    assert more.input_tokens > count.input_tokens + 50


def test_images_are_refused(client):
    image = {"type": "image", "source": {"type": "base64", "media_type": "image/png", "data": PIXEL}}
    with pytest.raises(anthropic.BadRequestError, match=r"(?i)image.*not supported") as caught:
        ask(client, [{"type": "text", "text": "What is this?"}, image])
    assert caught.value.body["type"] == "error" and caught.value.body["error"]["type"] == "invalid_request_error"
    assert "messages.0.content[1]" in caught.value.body["error"]["message"]


@pytest.mark.parametrize("field, value", [
    ("temperature", 3), ("top_p", 0), ("max_tokens", 0), ("stop_sequences", [""]), ("messages", []),
    ("messages", [{"role": "nobody", "content": "x"}]), ("tools", [{"name": "not a name", "input_schema": {"type": "object"}}]),
    ("thinking", {"type": "sometimes"}), ("system", 5),
])
def test_an_invalid_field_is_named(client, field, value):
    words = {"messages": "messages|role", "thinking": "thinking|sometimes", "stop_sequences": "stop"}
    with pytest.raises(anthropic.BadRequestError, match=words.get(field, field)) as caught:
        ask(client, CAIRO, extra_body={field: value})
    assert caught.value.body["error"]["type"] == "invalid_request_error"


def test_other_requests_that_can_not_be(client):
    with pytest.raises(anthropic.BadRequestError, match="supported API model names"):
        ask(client, CAIRO, model="claude-opus-4-1")
    with pytest.raises(anthropic.BadRequestError, match="tool_use|tool_result"):
        client.messages.create(messages=user([{"type": "tool_result", "tool_use_id": "call_9", "content": "x"}]), **GREEDY)
    with pytest.raises(anthropic.NotFoundError) as caught:
        client.get("/v1/messages/nowhere", cast_to=object)
    assert caught.value.body["error"]["type"] == "not_found_error"


def test_keys_and_limits(tmp_path):
    keys = tmp_path / "keys"
    keys.write_text("good-key someone\n")
    with Server("--api-keys-file", keys, "--rate-limit", 3, key="good-key") as server:
        bad = anthropic.Anthropic(base_url=server.url, api_key="bad-key", max_retries=0)
        for call in (lambda: ask(bad, CAIRO), lambda: bad.messages.count_tokens(model=MODEL, messages=user(CAIRO))):
            with pytest.raises(anthropic.AuthenticationError) as caught:
                call()
            assert caught.value.body["error"]["type"] == "authentication_error"
        good = anthropic.Anthropic(base_url=server.url, api_key="good-key", max_retries=0)
        with pytest.raises(anthropic.RateLimitError) as limited:
            for _ in range(10):
                ask(good, CAIRO, max_tokens=1)
        assert limited.value.body["error"]["type"] == "rate_limit_error" and int(limited.value.response.headers["retry-after"]) > 0
        bearer = anthropic.Anthropic(base_url=server.url, auth_token="bad-token", api_key=None, max_retries=0)
        with pytest.raises(anthropic.AuthenticationError):
            ask(bearer, CAIRO)


def test_many_requests_of_one_asynchronous_client(server):
    rows = [row for row in evaluation("chat") + evaluation("fact")
            if row["request"].get("thinking") == {"type": "disabled"} and len(row["request"]["messages"]) == 1][:16]

    async def run():
        async with anthropic.AsyncAnthropic(base_url=server.url, api_key="unused", max_retries=0) as many:
            return await asyncio.gather(*(many.messages.create(messages=row["request"]["messages"], **GREEDY) for row in rows))

    answers = asyncio.run(run())
    assert [answer.content[0].text for answer in answers] == [row["expected"]["content"] for row in rows]
