"""How tokens are chosen."""
from __future__ import annotations

import dataclasses
from typing import Any, Mapping, Sequence


@dataclasses.dataclass
class StructuredOutputsParams:
    """What an output must be, named as in vLLM: one of the first six. docs/structured_output.md says what of it is enforced.

    Attributes:
        json: JSON that follows a schema: a mapping, JSON text, or a class with `model_json_schema` as Pydantic's.
        regex: the whole output matches an expression.
        choice: one of some strings.
        grammar: a text of a grammar, GBNF or Lark.
        json_object: any JSON object.
        structural_tag: text with tagged parts of some form.
        disable_any_whitespace: no white space between the parts of JSON.
        disable_additional_properties: objects have the members that the schema names, unless it says otherwise.
        whitespace_pattern: what may stand between the parts of JSON.
    """

    json: Any = None
    regex: str | None = None
    choice: Sequence[str] | None = None
    grammar: str | None = None
    json_object: bool | None = None
    structural_tag: Mapping[str, Any] | str | None = None
    disable_any_whitespace: bool = False
    disable_additional_properties: bool = False
    whitespace_pattern: str | None = None

    def body(self) -> dict[str, Any]:
        """The field of a request. What is wrong with it the library says."""
        given = {field.name: getattr(self, field.name) for field in dataclasses.fields(self)}
        if hasattr(self.json, "model_json_schema"):
            given["json"] = self.json.model_json_schema()
        if self.choice is not None:
            given["choice"] = list(self.choice)
        return {name: value for name, value in given.items() if value is not None and value is not False}


@dataclasses.dataclass
class SamplingParams:
    """Parameters of a request, named as in vLLM. Values are checked by the library when the request is made.

    Attributes:
        n: outputs of each prompt; output i has the seed `seed + i`.
        temperature: 0 takes the likeliest token always.
        top_p, top_k, min_p: which tokens stay in the choice; 1, 0 (or -1) and 0 are off.
        seed: the same seed gives the same text; None takes a random one.
        stop: text, or several, that ends an output and is no part of it.
        stop_token_ids: ids that end an output, besides the model's own. Only `generate`.
        max_tokens: most tokens of an output; None is as many as fit (`generate`), or what the API gives a request that does not say (`chat`).
        min_tokens: no stop id before so many. Only `generate`.
        presence_penalty, frequency_penalty: -2 to 2; 0 is off.
        repetition_penalty: 1 is off. Only `generate`.
        logprobs: log-probabilities of each token and of so many of the likeliest ones, up to 5 (`generate`) or 20 (`chat`).
        logit_bias: {token id: -100 to 100}.
        ignore_eos: go on after the model's end token. Only `generate`.
        structured_outputs: what the output must be, as `StructuredOutputsParams` or a mapping of its fields.
    """

    n: int = 1
    temperature: float = 1.0
    top_p: float = 1.0
    top_k: int = 0
    min_p: float = 0.0
    seed: int | None = None
    stop: str | Sequence[str] | None = None
    stop_token_ids: Sequence[int] | None = None
    max_tokens: int | None = 16
    min_tokens: int = 0
    presence_penalty: float = 0.0
    frequency_penalty: float = 0.0
    repetition_penalty: float = 1.0
    logprobs: int | None = None
    logit_bias: Mapping[int, float] | None = None
    ignore_eos: bool = False
    structured_outputs: StructuredOutputsParams | Mapping[str, Any] | None = None

    def _common(self) -> dict[str, Any]:
        body: dict[str, Any] = {"n": self.n, "temperature": self.temperature, "top_p": self.top_p,
                                "presence_penalty": self.presence_penalty, "frequency_penalty": self.frequency_penalty}
        if self.seed is not None:
            body["seed"] = self.seed
        if self.stop is not None:
            body["stop"] = self.stop if isinstance(self.stop, str) else list(self.stop)
        if self.structured_outputs is not None:
            form = self.structured_outputs
            body["structured_outputs"] = form.body() if isinstance(form, StructuredOutputsParams) else dict(form)
        if self.logit_bias:
            body["logit_bias"] = {str(key): value for key, value in self.logit_bias.items()}
        return body

    def completion_body(self, room: int) -> dict[str, Any]:
        """Fields of /v1/completions. `room` is what the context leaves behind the prompt."""
        body = self._common()
        body.update(top_k=self.top_k, min_p=self.min_p, repetition_penalty=self.repetition_penalty, min_tokens=self.min_tokens,
                    max_tokens=max(room, 1) if self.max_tokens is None else self.max_tokens, ignore_eos=self.ignore_eos)
        if self.stop_token_ids:
            body["stop_token_ids"] = list(self.stop_token_ids)
        if self.logprobs is not None:
            body["logprobs"] = self.logprobs
        return body

    def chat_body(self) -> dict[str, Any]:
        """Fields of /v1/chat/completions."""
        only = {"top_k": self.top_k not in (0, -1), "min_p": self.min_p != 0, "repetition_penalty": self.repetition_penalty != 1,
                "min_tokens": self.min_tokens != 0, "stop_token_ids": bool(self.stop_token_ids), "ignore_eos": self.ignore_eos}
        named = [name for name, given in only.items() if given]
        if named:
            raise ValueError(f"{', '.join(named)}: only generate() knows this, chat() does not")
        body = self._common()
        if self.max_tokens is not None:
            body["max_tokens"] = self.max_tokens
        if self.logprobs is not None:
            body.update(logprobs=True, top_logprobs=self.logprobs)
        return body
