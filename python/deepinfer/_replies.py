"""JSON of the APIs to outputs. Internal."""
from __future__ import annotations

import re
from typing import Any

from .outputs import CompletionOutput, Logprob, ToolCall
from .tokenizer import Tokenizer


def token_bytes(text: str) -> bytes:
    """A token as /v1/completions spells it: its text, or "bytes:\\xff..." where its bytes alone are no UTF-8."""
    if re.fullmatch(r"bytes:(\\x[0-9a-f]{2})+", text):
        return bytes.fromhex(text[len("bytes:"):].replace("\\x", ""))
    return text.encode("utf-8")


def _entry(tokenizer: Tokenizer, chosen: tuple[int, float, str], top: list[tuple[bytes, float, str]]) -> dict[int, Logprob]:
    ids = [(tokenizer.find(spelt), value, text) for spelt, value, text in top]
    ids.sort(key=lambda item: -item[1])
    ranks = {id_: rank for rank, (id_, _, _) in enumerate(ids, 1)}
    entry = {chosen[0]: Logprob(chosen[1], ranks.get(chosen[0]), chosen[2])}
    for id_, value, text in ids:
        entry.setdefault(id_, Logprob(value, ranks[id_], text))
    return entry


def completion_logprobs(tokenizer: Tokenizer, body: dict[str, Any] | None) -> list[dict[int, Logprob]] | None:
    """The old shape: parallel lists of tokens, their log-probabilities, and {token: log-probability} of the likeliest."""
    if body is None:
        return None
    tops = body.get("top_logprobs") or [None] * len(body["tokens"])
    out = []
    for text, value, top in zip(body["tokens"], body["token_logprobs"], tops):
        likeliest = [(token_bytes(token), logprob, token) for token, logprob in (top or {}).items()]
        out.append(_entry(tokenizer, (tokenizer.find(token_bytes(text)), value, text), likeliest))
    return out


def chat_logprobs(tokenizer: Tokenizer, body: dict[str, Any] | None) -> list[dict[int, Logprob]] | None:
    """The new shape: a list of objects with token, bytes, logprob and top_logprobs."""
    if not body:
        return None

    def spelt(item: dict[str, Any]) -> bytes:
        given = item.get("bytes")
        return bytes(given) if given is not None else str(item["token"]).encode("utf-8")

    out = []
    for item in [*(body.get("reasoning_content") or []), *(body.get("content") or [])]:
        likeliest = [(spelt(top), top["logprob"], top["token"]) for top in item.get("top_logprobs") or []]
        out.append(_entry(tokenizer, (tokenizer.find(spelt(item)), item["logprob"], item["token"]), likeliest))
    return out


def cumulative(logprobs: list[dict[int, Logprob]] | None) -> float | None:
    return None if logprobs is None else sum(next(iter(entry.values())).logprob for entry in logprobs)


def completion_choice(tokenizer: Tokenizer, choice: dict[str, Any]) -> CompletionOutput:
    logprobs = completion_logprobs(tokenizer, choice.get("logprobs"))
    return CompletionOutput(index=choice["index"], text=choice["text"], token_ids=choice.get("token_ids"), logprobs=logprobs,
                            cumulative_logprob=cumulative(logprobs), finish_reason=choice["finish_reason"])


def chat_choice(tokenizer: Tokenizer, choice: dict[str, Any]) -> CompletionOutput:
    message = choice["message"]
    logprobs = chat_logprobs(tokenizer, choice.get("logprobs"))
    calls = [ToolCall(call["id"], call["function"]["name"], call["function"]["arguments"]) for call in message.get("tool_calls") or []]
    return CompletionOutput(index=choice["index"], text=message.get("content") or "", logprobs=logprobs, tool_calls=calls,
                            cumulative_logprob=cumulative(logprobs), finish_reason=choice["finish_reason"],
                            reasoning=message.get("reasoning_content"))
