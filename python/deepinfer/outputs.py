"""What comes back, in vLLM's familiar shape."""
from __future__ import annotations

import dataclasses
from typing import Any

from .errors import RequestError


@dataclasses.dataclass
class Logprob:
    """One token and how likely it was, of the raw distribution."""

    logprob: float
    rank: int | None = None  # 1 is the likeliest; None when it is not among those asked for
    decoded_token: str | None = None


@dataclasses.dataclass
class ToolCall:
    """A function that the model wants called. `arguments` is JSON text as the model wrote it."""

    id: str
    name: str
    arguments: str


@dataclasses.dataclass
class CompletionOutput:
    """One output of a prompt.

    `token_ids` are those of `generate`, without the end token; None from `chat`. `logprobs` has a dict a token, {id: Logprob}, the chosen
    token first.
    """

    index: int
    text: str = ""
    token_ids: list[int] | None = None
    cumulative_logprob: float | None = None
    logprobs: list[dict[int, Logprob]] | None = None
    finish_reason: str | None = None  # "stop", "length", "tool_calls"; None while it runs
    reasoning: str | None = None      # of chat with thinking
    tool_calls: list[ToolCall] = dataclasses.field(default_factory=list)

    def finished(self) -> bool:
        return self.finish_reason is not None


@dataclasses.dataclass
class RequestOutput:
    """All outputs of a prompt. `error` is set, and `outputs` empty, when the request was refused and errors are returned."""

    request_id: str
    prompt: str | None
    prompt_token_ids: list[int] | None
    outputs: list[CompletionOutput]
    finished: bool = True
    num_prompt_tokens: int | None = None
    num_cached_tokens: int | None = None
    num_generated_tokens: int | None = None
    messages: list[dict[str, Any]] | None = None
    error: RequestError | None = None


@dataclasses.dataclass
class StreamChunk:
    """What is new of one output: text to append. Tool calls come as the API's deltas."""

    index: int
    text: str = ""
    token_ids: list[int] | None = None
    logprobs: list[dict[int, Logprob]] | None = None
    reasoning: str = ""
    tool_calls: list[dict[str, Any]] = dataclasses.field(default_factory=list)
    finish_reason: str | None = None
