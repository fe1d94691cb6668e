"""Tools through the official packages: strict ones are called as their schemas say, choices among them hold, and no piece of a call
leaks into an answer. Sampled, so that the model alone would not do it.

ctest: timeout=600"""
import json

import anthropic
import jsonschema_rs
import openai
import pytest

from serve import CAIRO, CHAT, MESSAGES, MODEL, PRODUCT, QUIET, Server, ask, post

WILD = {"temperature": 1.5}
BOOK = {"type": "object", "additionalProperties": False, "required": ["title", "year", "tags"],
        "properties": {"title": {"type": "string", "maxLength": 12},
                       "year": {"type": "integer", "minimum": 1900, "maximum": 1999},
                       "tags": {"type": "array", "items": {"type": "string", "enum": ["old", "new", "red"]}, "maxItems": 2}}}
FREE = {"type": "object", "properties": {"place": {"type": "string"}}}


def tool(name, schema, strict=True):
    return {"type": "function", "function": {"name": name, "description": "A tool.", "parameters": schema, "strict": strict}}


TOOLS = [tool("save_book", BOOK), tool("look", FREE, strict=False)]


@pytest.fixture(scope="module")
def server():
    with Server("--draft", "fixed:5") as one:
        yield one
        assert one.stop() == 0


@pytest.fixture(scope="module")
def client(server):
    with openai.OpenAI(base_url=server.url + "/v1", api_key="unused", max_retries=0) as one:
        yield one


def user(text):
    return [{"role": "user", "content": text}]


def chat(server, seed, **more):
    return post(server, CHAT, {"model": MODEL, "messages": user(PRODUCT), "tools": TOOLS, "seed": seed, "max_tokens": 300, **WILD, **QUIET, **more})["choices"][0]


def calls(choice):
    return [(call["function"]["name"], json.loads(call["function"]["arguments"])) for call in choice["message"].get("tool_calls") or []]


def names(choice):
    return [call["function"]["name"] for call in choice["message"].get("tool_calls") or []]


def check(name, arguments):
    assert name in ("save_book", "look")
    if name == "save_book":
        jsonschema_rs.validate(BOOK, arguments)


def test_strict_arguments_keep_to_their_schema(server):
    seen = set()
    for seed in range(12):
        choice = chat(server, seed, tool_choice="required")
        if choice["finish_reason"] == "length":
            continue
        assert choice["finish_reason"] == "tool_calls" and calls(choice)
        for name, arguments in calls(choice):
            check(name, arguments)
            seen.add(name)
    assert "save_book" in seen


def test_a_named_tool_is_the_one_that_is_called(client):
    for seed in range(4):
        answer = client.chat.completions.create(
            model=MODEL, messages=user(CAIRO), tools=TOOLS, tool_choice={"type": "function", "function": {"name": "save_book"}},
            parallel_tool_calls=False, seed=seed, temperature=1.5, extra_body=QUIET)
        assert answer.choices[0].finish_reason == "tool_calls"
        call, = answer.choices[0].message.tool_calls
        assert call.function.name == "save_book"
        jsonschema_rs.validate(BOOK, json.loads(call.function.arguments))


def allowed(mode, *of):
    return {"type": "allowed_tools", "allowed_tools": {"mode": mode, "tools": [{"type": "function", "function": {"name": name}} for name in of]}}


@pytest.mark.parametrize("name", ["save_book", "look"])
def test_of_allowed_tools_no_other_is_called(server, name):
    called = set()
    for seed in range(6):
        choice = chat(server, seed, tool_choice=allowed("required", name))
        assert choice["finish_reason"] in ("tool_calls", "length")
        called.update(names(choice))
    assert called == {name}


def test_allowed_tools_with_auto_leave_the_answer_free(server):
    for seed in range(6):
        choice = chat(server, seed, tool_choice=allowed("auto", "look"))
        assert all(name == "look" for name in names(choice))
        assert "DSML" not in (choice["message"]["content"] or "")


def test_allowed_tools_of_responses(client):
    flat = [{"type": "function", "name": name, "description": "A tool.", "parameters": BOOK, "strict": True} for name in ("save_book", "keep_book")]
    choice = {"type": "allowed_tools", "mode": "required", "tools": [{"type": "function", "name": "keep_book"}]}
    answer = client.responses.create(model=MODEL, input=CAIRO, tools=flat, tool_choice=choice, parallel_tool_calls=False,
                                     reasoning={"effort": "none"})
    call, = (item for item in answer.output if item.type == "function_call")
    assert call.name == "keep_book" and answer.tool_choice.type == "allowed_tools"
    jsonschema_rs.validate(BOOK, json.loads(call.arguments))


def test_an_allowed_tool_that_is_not_there_is_refused(client):
    with pytest.raises(openai.BadRequestError) as refused:
        client.chat.completions.create(model=MODEL, messages=user(CAIRO), tools=TOOLS, tool_choice=allowed("auto", "look", "steal"), extra_body=QUIET)
    assert refused.value.param == "tool_choice.allowed_tools.tools[1]" and "steal" in refused.value.message


def test_one_call_at_most_when_calls_in_parallel_are_off(server):
    for seed in range(6):
        choice = chat(server, seed, tool_choice="required", parallel_tool_calls=False)
        assert choice["finish_reason"] == "length" or len(calls(choice)) == 1


def test_no_tool_is_called_when_none_may_be(server):
    for seed in range(6):
        choice = chat(server, seed, tool_choice="none")
        assert not calls(choice) and "DSML" not in choice["message"]["content"]


def test_auto_gives_an_answer_or_whole_calls(server):
    for seed in range(12):
        choice = chat(server, seed)
        for name, arguments in calls(choice):
            check(name, arguments) if choice["finish_reason"] == "tool_calls" else None
        assert "DSML" not in (choice["message"]["content"] or "")


def test_a_form_of_the_answer_beside_tools_leaves_two_ways(server):
    form = {"type": "json_schema", "json_schema": {"name": "x", "schema": BOOK, "strict": True}}
    for seed in range(6):
        choice = chat(server, seed, response_format=form)
        if choice["finish_reason"] == "stop":
            jsonschema_rs.validate(BOOK, json.loads(choice["message"]["content"]))
        elif choice["finish_reason"] == "tool_calls":
            for name, arguments in calls(choice):
                check(name, arguments)


def test_strict_tools_of_messages(server):
    with anthropic.Anthropic(base_url=server.url, api_key="unused", max_retries=0) as client:
        for seed in range(4):
            answer = client.messages.create(
                model=MODEL, max_tokens=400, messages=user(f"Book {seed}"),
                tools=[{"name": "save_book", "description": "A tool.", "input_schema": BOOK, "strict": True}],
                tool_choice={"type": "tool", "name": "save_book", "disable_parallel_tool_use": True}, extra_body=QUIET)
            assert answer.stop_reason == "tool_use"
            block, = (block for block in answer.content if block.type == "tool_use")
            jsonschema_rs.validate(BOOK, block.input)


def test_strict_tools_of_responses(client):
    flat = [{"type": "function", "name": "save_book", "description": "A tool.", "parameters": BOOK, "strict": True}]
    answer = client.responses.create(model=MODEL, input=CAIRO, tools=flat, tool_choice="required", parallel_tool_calls=False,
                                     reasoning={"effort": "none"})
    call, = (item for item in answer.output if item.type == "function_call")
    jsonschema_rs.validate(BOOK, json.loads(call.arguments))


def test_a_keyword_of_a_strict_tool_that_cannot_be_held_is_refused(server):
    schema = {"type": "object", "properties": {"a": {"type": "string", "pattern": "(?<=x)y"}}, "required": ["a"], "additionalProperties": False}
    body = {"model": MODEL, "messages": user(CAIRO), **QUIET, "tools": [tool("f", schema)]}
    status, _, answer = ask(server, "POST", CHAT, body)
    error = json.loads(answer)["error"]
    assert status == 400 and "/properties/a" in error["message"]
    assert error["param"] == "tools[0].function.parameters" and error["code"] == "unsupported_regex"
    body = {"model": MODEL, "messages": user(CAIRO), "max_tokens": 50, **QUIET,
            "tools": [{"name": "f", "description": "", "input_schema": schema}]}
    status, _, _ = ask(server, "POST", MESSAGES, body)
    assert status == 200
