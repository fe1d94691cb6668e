"""Structured output through the official packages against a live server on the demo model: what comes back is valid, whatever the model
would have said, in each of the three APIs and in the words of other servers; what can't be enforced is refused with its place.

Every schema is checked once more with the package `jsonschema-rs`, which knows nothing of this server.

ctest: timeout=600"""
import concurrent.futures
import enum
import json
import re

import anthropic
import jsonschema_rs
import openai
import pydantic
import pytest

from serve import CAIRO, CHAT, COMPLETIONS, MESSAGES, MODEL, QUIET, RESPONSES, Server, ask, post

THINKING = {"thinking": {"type": "enabled"}}


class Colour(str, enum.Enum):
    red = "red"
    green = "green"


class Town(pydantic.BaseModel):
    name: str = pydantic.Field(max_length=20)
    inhabitants: int = pydantic.Field(ge=0, le=99999)
    colours: list[Colour] = pydantic.Field(max_length=3)
    capital: bool


TOWN = Town.model_json_schema() | {"additionalProperties": False}
SHORT = {"type": "object", "properties": {"a": {"type": "integer", "minimum": 1, "maximum": 9}}, "required": ["a"],
         "additionalProperties": False}


@pytest.fixture(scope="module")
def server():
    with Server("--draft", "fixed:5") as one:
        yield one
        assert one.stop() == 0


@pytest.fixture(scope="module")
def client(server):
    with openai.OpenAI(base_url=server.url + "/v1", api_key="unused", max_retries=0) as one:
        yield one


@pytest.fixture(scope="module")
def claude(server):
    with anthropic.Anthropic(base_url=server.url, api_key="unused", max_retries=0) as one:
        yield one


def user(text):
    return [{"role": "user", "content": text}]


def chat(server, **more):
    return post(server, CHAT, {"model": MODEL, "messages": user(CAIRO), "seed": 5, **QUIET, **more})["choices"][0]


def refusal(server, **more):
    status, _, body = ask(server, "POST", CHAT, {"model": MODEL, "messages": user(CAIRO), **QUIET, **more})
    return status, json.loads(body)["error"]["message"]


def schema_format(schema, name="answer", strict=True):
    return {"type": "json_schema", "json_schema": {"name": name, "schema": schema, "strict": strict}}


# --- The packages --------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("thinking", [QUIET, THINKING], ids=["quiet", "thinking"])
def test_chat_completions_parse_gives_the_pydantic_model(client, thinking):
    answer = client.chat.completions.parse(model=MODEL, messages=user("A town, please."), response_format=Town, seed=1, extra_body=thinking)
    assert answer.choices[0].finish_reason == "stop"
    town = answer.choices[0].message.parsed
    assert isinstance(town, Town) and town == Town.model_validate_json(answer.choices[0].message.content)
    assert bool(answer.usage.completion_tokens_details) == (thinking is THINKING)


def test_responses_text_format_gives_the_pydantic_model(client):
    answer = client.responses.parse(model=MODEL, input="A town, please.", text_format=Town, reasoning={"effort": "none"})
    assert answer.status == "completed" and isinstance(answer.output_parsed, Town)


def test_a_stream_holds_to_the_schema_too(client):
    with client.chat.completions.stream(model=MODEL, messages=user(CAIRO), response_format=Town, seed=3, extra_body=QUIET) as stream:
        final = stream.get_final_completion()
    assert isinstance(final.choices[0].message.parsed, Town)


def test_messages_keep_to_an_output_format(claude):
    for field in ({"output_format": {"type": "json_schema", "schema": TOWN}},
                  {"output_config": {"format": {"type": "json_schema", "schema": TOWN}}}):
        answer = claude.messages.create(model=MODEL, max_tokens=400, messages=user("A town"), extra_body={**QUIET, **field})
        assert answer.stop_reason == "end_turn"
        jsonschema_rs.validate(TOWN, json.loads(answer.content[0].text))


# --- The fields ----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("field", [
    {"response_format": schema_format(SHORT)},
    {"response_format": {"type": "json_object", "schema": SHORT}, "messages": user("Some json")},
    {"structured_outputs": {"json": SHORT}},
    {"structured_outputs": {"json": json.dumps(SHORT)}},
    {"guided_json": SHORT},
    {"json_schema": json.dumps(SHORT)},
    {"structured_output": {"kind": "json_schema", "value": SHORT}},
], ids=lambda field: next(iter(field)))
def test_a_schema_in_any_words(server, field):
    choice = chat(server, **field)
    assert choice["finish_reason"] == "stop"
    jsonschema_rs.validate(SHORT, json.loads(choice["message"]["content"]))


@pytest.mark.parametrize("field, pattern", [
    ({"response_format": {"type": "regex", "regex": "[ab]{3,5}x"}}, "[ab]{3,5}x"),
    ({"structured_outputs": {"regex": "[0-9]{4}-[0-9]{2}"}}, "[0-9]{4}-[0-9]{2}"),
    ({"guided_regex": "yes|no"}, "yes|no"),
    ({"regex": "(ab)+c"}, "(ab)+c"),
    ({"structured_outputs": {"choice": ["Cairo", "Egypt"]}}, "Cairo|Egypt"),
    ({"guided_choice": ["left", "right"]}, "left|right"),
    ({"structured_output": {"kind": "regex", "value": "\\d{3}"}}, "[0-9]{3}"),
], ids=lambda value: next(iter(value)) if isinstance(value, dict) else "")
def test_an_expression_in_any_words(server, field, pattern):
    choice = chat(server, **field)
    assert choice["finish_reason"] == "stop" and re.fullmatch(pattern, choice["message"]["content"])


GBNF = 'root ::= "a" [0-9]{1,3} ("-" [0-9]){2} "z"'
LARK = 'start: "a" /[0-9]{1,3}/ ("-" /[0-9]/)~2 "z"'
LINE = "a[0-9]{1,3}(-[0-9]){2}z"


@pytest.mark.parametrize("field", [
    {"structured_outputs": {"grammar": GBNF}},
    {"structured_outputs": {"grammar": LARK}},
    {"guided_grammar": GBNF},
    {"ebnf": GBNF},
    {"grammar": LARK},
    {"structured_output": {"kind": "gbnf", "value": GBNF}},
    {"structured_output": {"kind": "lark", "value": LARK}},
    {"structured_output": {"kind": "grammar", "value": GBNF}},
], ids=lambda field: "-".join(str(word) for word in field))
def test_a_grammar_in_any_words(server, field):
    choice = chat(server, **field)
    assert choice["finish_reason"] == "stop" and re.fullmatch(LINE, choice["message"]["content"])


TAGS = {"type": "structural_tag",
        "structures": [{"begin": "<town>", "schema": SHORT, "end": "</town>"}],
        "triggers": ["<town>"]}
ALWAYS = {"type": "structural_tag", "format": {"type": "tag", "begin": "<town>", "content": {"type": "json_schema", "json_schema": SHORT},
                                               "end": "</town>"}}


@pytest.mark.parametrize("field", [
    {"structured_outputs": {"structural_tag": ALWAYS}},
    {"structured_outputs": {"structural_tag": json.dumps(ALWAYS)}},
    {"structural_tag": json.dumps(ALWAYS)},
    {"structured_output": {"kind": "structural_tag", "value": ALWAYS}},
], ids=range(4))
def test_a_tag_in_any_words(server, field):
    choice = chat(server, max_tokens=80, **field)
    text = choice["message"]["content"]
    assert choice["finish_reason"] == "stop" and text.startswith("<town>") and text.endswith("</town>")
    jsonschema_rs.validate(SHORT, json.loads(text[len("<town>"):-len("</town>")]))


def test_text_beside_a_triggered_tag_is_free(server):
    free = chat(server, max_tokens=30)
    tagged = chat(server, max_tokens=30, structured_outputs={"structural_tag": TAGS})
    assert "<town>" not in free["message"]["content"] and tagged["message"] == free["message"]


def test_white_space_by_a_pattern(server):
    for field in ({"structured_outputs": {"json": SHORT, "whitespace_pattern": "[ ]{2}"}},
                  {"guided_json": SHORT, "guided_whitespace_pattern": "[ ]{2}"}):
        text = chat(server, **field)["message"]["content"]
        jsonschema_rs.validate(SHORT, json.loads(text))
        assert re.fullmatch(r'  {  "a"  :  [1-9]  }|{  "a"  :  [1-9]  }', text), text


def test_the_other_interfaces_take_grammars_tags_and_choices(server):
    response = {"model": MODEL, "input": CAIRO, "reasoning": {"effort": "none"}, "max_output_tokens": 80}
    message = {"model": MODEL, "messages": user(CAIRO), "thinking": {"type": "disabled"}, "max_tokens": 80}
    tag = "<town>{.*}</town>"
    for value, pattern in (({"grammar": GBNF}, LINE), ({"choice": ["left", "right"]}, "left|right"), ({"structural_tag": ALWAYS}, tag)):
        given = [part["text"] for item in post(server, RESPONSES, response | {"structured_outputs": value})["output"]
                 for part in item.get("content") or [] if "text" in part]
        assert re.fullmatch(pattern, given[-1], re.S), given
        given = [part["text"] for part in post(server, MESSAGES, message | {"structured_outputs": value})["content"] if "text" in part]
        assert re.fullmatch(pattern, given[-1], re.S), given
        given = post(server, COMPLETIONS, {"model": MODEL, "prompt": "Once", "max_tokens": 80, "structured_outputs": value})["choices"][0]["text"]
        assert re.fullmatch(pattern, given, re.S), given


def test_json_object_gives_an_object(server):
    choice = chat(server, messages=user("Give me json"), response_format={"type": "json_object"}, max_tokens=300)
    text = choice["message"]["content"]
    assert text.startswith("{")
    assert choice["finish_reason"] == "length" or isinstance(json.loads(text), dict)


def test_completions_take_the_fields_of_vllm(server):
    answer = post(server, COMPLETIONS, {"model": MODEL, "prompt": "A number: ", "max_tokens": 50, "structured_outputs": {"regex": "[0-9]{3}"}})
    assert re.fullmatch("[0-9]{3}", answer["choices"][0]["text"]) and answer["choices"][0]["finish_reason"] == "stop"


def test_compact_white_space_and_several_answers(server):
    body = {"model": MODEL, "messages": user(CAIRO), "n": 4, "seed": 9, **QUIET,
            "structured_outputs": {"json": TOWN, "disable_any_whitespace": True}}
    for choice in post(server, CHAT, body)["choices"]:
        text = choice["message"]["content"]
        jsonschema_rs.validate(TOWN, json.loads(text))
        assert text == json.dumps(json.loads(text), separators=(",", ":"), ensure_ascii=False) or "\\" in text


def test_log_probabilities_are_those_under_the_mask(server):
    choice = chat(server, structured_outputs={"choice": ["left", "right"]}, logprobs=True, top_logprobs=5)
    first = choice["logprobs"]["content"][0]
    assert sum(2.718281828459045 ** top["logprob"] for top in first["top_logprobs"]) <= 1.0001
    assert all("left".startswith(top["token"]) or "right".startswith(top["token"]) for top in first["top_logprobs"] if top["logprob"] > -100)


# --- What is refused -----------------------------------------------------------------------------------------------------


def test_an_unsupported_keyword_is_named_with_its_place(server):
    schema = {"type": "object", "properties": {"a": {"$ref": "https://example.org/x"}}}
    status, message = refusal(server, structured_outputs={"json": schema})
    assert status == 400 and "structured_outputs.json" in message and "/properties/a" in message


REMOTE = {"type": "object", "properties": {"a/b": {"$ref": "https://example.org/x"}}}


def test_a_refusal_reaches_the_packages_with_field_code_and_place(client, claude):
    for code, field, param in (("unsupported_keyword", {"extra_body": {**QUIET, "structured_outputs": {"json": REMOTE}}}, "structured_outputs.json"),
                               ("invalid_schema", {"response_format": schema_format(REMOTE, strict=False)}, "response_format.json_schema.schema")):
        with pytest.raises(openai.BadRequestError) as refused:
            client.chat.completions.create(model=MODEL, messages=user(CAIRO), **field)
        assert (refused.value.type, refused.value.param, refused.value.code) == ("invalid_request_error", param, code)
        assert "/properties/a~1b/$ref" in refused.value.message
    with pytest.raises(openai.BadRequestError) as refused:
        client.responses.create(model=MODEL, input=CAIRO, text={"format": {"type": "json_schema", "name": "n", "schema": REMOTE}})
    assert (refused.value.type, refused.value.param, refused.value.code) == ("invalid_request_error", "text.format.schema", "invalid_schema")
    assert "/properties/a~1b/$ref" in refused.value.message
    with pytest.raises(anthropic.BadRequestError) as refused:
        claude.messages.create(model=MODEL, max_tokens=9, messages=user(CAIRO), extra_body={"output_format": {"type": "json_schema", "schema": REMOTE}})
    error = refused.value.body["error"]
    assert error["type"] == "invalid_request_error" and error["message"].startswith("output_format.schema: ")
    assert "/properties/a~1b/$ref" in error["message"]


def test_lenient_lists_what_it_leaves_out(server):
    body = {"model": MODEL, "messages": user(CAIRO), **QUIET, "max_tokens": 20,
            "structured_output": {"kind": "json_schema", "value": {"type": "string", "format": "x-unknown", "maxLength": 5}, "lenient": True}}
    status, headers, _ = ask(server, "POST", CHAT, body)
    assert status == 200 and "/format: this format is not enforced" in headers["x-constraint-warnings"]


def test_old_names_are_taken_with_a_warning(server):
    status, headers, _ = ask(server, "POST", CHAT, {"model": MODEL, "messages": user(CAIRO), **QUIET, "guided_regex": "a"})
    assert status == 200 and "structured_outputs.regex" in headers["x-constraint-warnings"]


@pytest.mark.parametrize("fields, words", [
    ({"structured_outputs": {"json": SHORT, "regex": "a"}}, ["structured_outputs.json", "structured_outputs.regex"]),
    ({"response_format": schema_format(SHORT), "guided_json": SHORT}, ["response_format.json_schema.schema", "guided_json"]),
    ({"structured_outputs": {"choice": []}}, ["structured_outputs.choice"]),
    ({"structured_outputs": {"regex": "(?<=a)b"}}, ["structured_outputs.regex", "look-behind"]),
    ({"structured_outputs": {"regex": 5}}, ["structured_outputs.regex", "string"]),
    ({"structured_output": {"kind": "prose", "value": "x"}}, ["structured_output.kind", "prose"]),
    ({"structured_output": {"kind": "regex", "value": "x", "jump_forward": "yes"}}, ["structured_output.jump_forward"]),
    ({"structured_outputs": {"json": {"type": "integer", "minimum": 5, "maximum": 3}}}, ["structured_outputs.json"]),
], ids=range(8))
def test_what_is_wrong_is_named(server, fields, words):
    status, message = refusal(server, **fields)
    assert status == 400 and all(word in message for word in words), message


def test_a_server_that_is_exact_takes_a_schema_for_a_wish():
    with Server("--deepseek-exact") as exact:
        body = {"model": MODEL, "messages": user(CAIRO), "temperature": 0, **QUIET}
        free = post(exact, CHAT, body)["choices"][0]["message"]["content"]
        wished = post(exact, CHAT, {**body, "response_format": schema_format(SHORT, strict=False)})["choices"][0]["message"]["content"]
        assert not wished.startswith("{") or free.startswith("{")
        assert exact.value("deepinfer_grammar_masks_total") == 0
        assert exact.stop() == 0


def test_forced_text_is_the_same_without_passes_of_its_own(server):
    """Compact JSON whose names stand fixed: most of it is forced."""
    schema = {"type": "object", "properties": {f"a long name of field {i}": {"type": "boolean"} for i in range(4)}, "additionalProperties": False,
              "required": [f"a long name of field {i}" for i in range(4)]}
    said = {}
    for jump in (False, True):
        before = server.value("deepinfer_grammar_forced_tokens_total")
        said[jump] = [chat(server, structured_output={"kind": "json_schema", "value": schema, "whitespace": "compact", "jump_forward": jump},
                           seed=seed, **more)["message"]["content"] for seed, more in enumerate([QUIET, {"temperature": 0}, THINKING])]
        assert (server.value("deepinfer_grammar_forced_tokens_total") > before) is jump
    assert said[True] == said[False]
    jsonschema_rs.validate(schema, json.loads(said[True][0]))


def test_an_answer_is_closed_in_time(server):
    schema = {"type": "array", "items": {"type": "string"}, "minItems": 3}
    for seed in range(4):
        choice = chat(server, structured_output={"kind": "json_schema", "value": schema, "close_on_length": True}, max_tokens=30, seed=seed,
                      temperature=1.5)
        assert choice["finish_reason"] == "stop"
        jsonschema_rs.validate(schema, json.loads(choice["message"]["content"]))


# --- Together ------------------------------------------------------------------------------------------------------------


def test_64_mixed_requests(server):
    """Half of them constrained, thinking on and off: all forms kept, and the free ones say what they say without such neighbours."""
    def body(i):
        fields = {} if i % 2 else [{"structured_outputs": {"json": TOWN}}, {"structured_outputs": {"regex": "[a-z]{2,9}!"}},
                                   {"structured_outputs": {"choice": ["one", "two", "three"]}}][i // 2 % 3]
        return {"model": MODEL, "messages": user(f"{CAIRO} {i % 5}"), "seed": i, "max_tokens": 300, **fields, **(THINKING if i // 4 % 2 else QUIET)}

    def run(indices):
        with concurrent.futures.ThreadPoolExecutor(len(indices)) as pool:
            return dict(zip(indices, pool.map(lambda i: post(server, CHAT, body(i))["choices"][0], indices)))

    alone = run(range(1, 64, 2))
    mixed = run(range(64))
    for i, choice in mixed.items():
        if i % 2:
            assert choice == alone[i]
        elif choice["finish_reason"] == "stop":
            text = choice["message"]["content"]
            if i // 2 % 3 == 0:
                jsonschema_rs.validate(TOWN, json.loads(text))
            else:
                assert re.fullmatch("[a-z]{2,9}!" if i // 2 % 3 == 1 else "one|two|three", text)
    stopped = sum(choice["finish_reason"] == "stop" for i, choice in mixed.items() if i % 2 == 0)
    assert stopped >= 30, stopped


def test_metrics_tell_of_grammars(server):
    page = server.metrics()
    assert server.value("deepinfer_grammar_compile_seconds_count") > 0
    assert server.value("deepinfer_grammar_cache_hits_total") > 0
    assert server.value("deepinfer_grammar_masks_total") > 0
    assert server.value("deepinfer_grammars_refused_total") > 0
    assert server.value("deepinfer_grammars_cached") > 0
    assert server.value("deepinfer_constrained_choices_running") == 0
    assert any(key.startswith("deepinfer_grammar_mask_wait_seconds_total") for key in page)
