"""How drafts are verified, over HTTP: a field in all APIs, with schemas, several choices, stop strings and log-probabilities; a seed gives one
text; what the server is told holds for requests that do not say."""
import json

import pytest

from serve import CAIRO, CHAT, COMPLETIONS, MESSAGES, MODEL, QUIET, RESPONSES, Server, answer_text, ask, post, question

RULES = ("coupled", "block", "rejection")
SCHEMA = {"type": "object", "properties": {"name": {"type": "string", "maxLength": 12}, "n": {"type": "integer", "minimum": 0, "maximum": 99}},
          "required": ["name", "n"], "additionalProperties": False}


@pytest.fixture(scope="module")
def server():
    with Server("--draft", "fixed:5") as one:
        yield one
        assert one.stop() == 0


@pytest.mark.parametrize("path", [CHAT, RESPONSES, MESSAGES, COMPLETIONS])
def test_every_api_takes_the_field(server, path):
    for rule in (*RULES, None):
        reply = post(server, path, question(path, CAIRO, verify=rule, temperature=1, max_tokens=20))
        assert answer_text(path, reply)
    status, _, body = ask(server, "POST", path, question(path, CAIRO, verify="none", max_tokens=2))
    assert status == 400 and "verify" in json.loads(body)["error"]["message"]


@pytest.mark.parametrize("rule", RULES)
def test_schemas_choices_stops_and_logprobs(server, rule):
    body = {"model": MODEL, "messages": [{"role": "user", "content": CAIRO}], "verify": rule, "n": 6, "logprobs": True, "top_logprobs": 2, **QUIET}
    form = {"type": "json_schema", "json_schema": {"name": "a", "schema": SCHEMA, "strict": True}}
    for choice in post(server, CHAT, {**body, "response_format": form})["choices"]:
        value = json.loads(choice["message"]["content"])
        assert set(value) == {"name", "n"} and len(value["name"]) <= 12 and 0 <= value["n"] <= 99
    for choice in post(server, CHAT, {**body, "temperature": 1.5, "max_tokens": 24, "stop": ["e"]})["choices"]:
        text = choice["message"]["content"]
        assert "e" not in text
        if choice["finish_reason"] == "length":
            assert len(choice["logprobs"]["content"]) == 24
            assert "".join(token["token"] for token in choice["logprobs"]["content"]).startswith(text[:10])
        assert all(token["logprob"] <= 0 and len(token["top_logprobs"]) == 2 for token in choice["logprobs"]["content"])


def test_a_seed_gives_one_text_and_all_rules_accept_drafts(server):
    body = question(CHAT, CAIRO, temperature=1.3, max_tokens=40)
    accepted = "deepinfer_draft_tokens_accepted_total"

    def count():
        return sum(value for key, value in server.metrics().items() if key.startswith(accepted))

    texts = {answer_text(CHAT, post(server, CHAT, {**body, "seed": 11, **more})) for more in ({}, {"verify": "coupled"}, {"n": 1})}
    assert len(texts) == 1
    for rule in RULES:
        before = count()
        post(server, CHAT, {**body, "n": 4, "verify": rule})
        assert count() > before
