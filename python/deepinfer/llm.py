"""A model, ready to answer."""
from __future__ import annotations

import ctypes
import json
import numbers
import os
import pathlib
import sys
import weakref
from typing import Any, Callable, Mapping, Sequence, Union

from . import _replies
from . import _structs as s
from ._library import check, lib
from ._progress import Progress, show, watcher
from ._service import Service
from .errors import RequestError, from_response
from .outputs import RequestOutput
from .sampling import SamplingParams
from .stream import Stream
from .tokenizer import Tokenizer

Prompt = Union[str, Sequence[int], Mapping[str, Any]]
Message = Mapping[str, Any]


def _default_model() -> str:
    """DI_MODEL, else the demo model of this package, else where the library looks."""
    packed = pathlib.Path(__file__).with_name("demo")
    if not os.environ.get("DI_MODEL") and (packed / "config.json").exists():
        return str(packed)
    path = ctypes.create_string_buffer(4096)
    check(lib.di_model_default_path, path, len(path))
    return os.fsdecode(path.value)


def _is_ids(value: Any) -> bool:
    return isinstance(value, Sequence) and not isinstance(value, (str, bytes)) and all(isinstance(item, numbers.Integral) for item in value)


def _ram(budget: int | str) -> tuple[int, int]:
    """Bytes and percent; one of them is 0."""
    if isinstance(budget, int):
        return budget, 0
    number = budget.removesuffix("%")
    if number == budget or not number.isdecimal() or not 1 <= int(number) <= 100:
        raise ValueError(f"ram_budget: {budget!r} is neither a number of bytes nor a share from '1%' to '100%'")
    return 0, int(number)


def _drafts(what: str) -> tuple[bool, int, bool]:
    """Is there a draft model, how many drafts of it, as many as pay?"""
    number = what.removeprefix("fixed:")
    if what in ("off", "auto"):
        return what == "auto", 0, what == "auto"
    if number == what or not number.isdecimal() or not 1 <= int(number) <= 9:
        raise ValueError(f"draft: {what!r} is neither 'off', 'auto' nor 'fixed:K' with K from 1 to 9")
    return True, int(number), False


class LLM:
    """A model with its engine. All methods may be called from any thread, also at the same time; requests are batched together.

    `with LLM() as llm:` closes it at the end; so does the garbage collector.

    Args:
        model: checkpoint folder; None takes $DI_MODEL, else the demo model.
        backend: "auto", or one by name.
        threads: worker threads of the engine; 0 is one for each processor.
        chunk_tokens: most tokens of one forward pass; 0 is the default.
        max_model_len: longest prompt and output together; 0 is the model's limit.
        kv_cache_bytes: memory for KV, taken as it is used; 0 is a quarter of the machine's.
        max_num_seqs: outputs that run together; 0 is the default.
        enable_prefix_caching: prompts that begin alike share what was computed. It changes no result.
        replay: "off", or approximations of the last window: "encoder", "decoder", "both", see docs/replay.md.
        draft: "off", "fixed:K", K drafts of the model's draft head a step, or "auto", as many as pay, see docs/drafts.md.
        verify: how drafts become tokens of requests without a seed: "block", "rejection", "coupled".
        cache_dir: folder that keeps computed prefixes for later runs, see docs/kv_cache.md; None keeps them in memory only.
        cache_bytes: budget of that folder; 0 is 16 GiB.
        cache_ram_bytes: memory between the engine and that folder; 0 is a sixteenth of the machine's.
        ram_budget: memory for weights, bytes or "30%" of the checkpoint; the rest is read when it is needed, see docs/streaming.md. 0 is all.
        weight_cache: folder that keeps weights in the form that the CPU computes with, for later starts, see docs/weight_cache.md.
        cpu_pin: threads of the CPU backend on processors of their own: "on", "off", or "auto" where there are several memory nodes.
        prepare_threads: threads that read and encode requests; 0 is the default.
        served_model_name: the name in requests and replies.
    """

    def __init__(self, model: str | os.PathLike[str] | None = None, *, backend: str = "auto", threads: int = 0, chunk_tokens: int = 0,
                 max_model_len: int = 0, kv_cache_bytes: int = 0, max_num_seqs: int = 0, enable_prefix_caching: bool = True,
                 replay: str = "off", cache_dir: str | os.PathLike[str] | None = None, cache_bytes: int = 0, cache_ram_bytes: int = 0,
                 ram_budget: int | str = 0, weight_cache: str | os.PathLike[str] | None = None, cpu_pin: str = "auto",
                 prepare_threads: int = 0, served_model_name: str | None = None, draft: str = "off", verify: str = "block") -> None:
        if replay not in s.REPLAY:
            raise ValueError(f"replay: {replay!r} is none of {', '.join(s.REPLAY)}")
        if verify not in s.VERIFY:
            raise ValueError(f"verify: {verify!r} is none of {', '.join(s.VERIFY)}")
        options = s.ServiceOptions()
        options.engine = s.EngineOptions(backend=backend.encode(), n_threads=threads, chunk_tokens=chunk_tokens, max_tokens=max_model_len,
                                         kv_bytes=kv_cache_bytes, replay=s.REPLAY[replay])
        options.engine.cache = s.CacheOptions(dir=os.fsencode(cache_dir) if cache_dir is not None else None, dir_bytes=cache_bytes,
                                              ram_bytes=cache_ram_bytes)
        options.engine.ram_budget, options.engine.ram_percent = _ram(ram_budget)
        options.engine.cpu_pin = cpu_pin.encode()
        options.engine.weight_cache = os.fsencode(weight_cache) if weight_cache is not None else None
        options.scheduler = s.SchedulerOptions(max_running=max_num_seqs)
        options.engine.draft, options.scheduler.draft_tokens, options.scheduler.draft_auto = _drafts(draft)
        options.verify = s.VERIFY[verify]
        options.model_name = served_model_name.encode() if served_model_name else None
        options.n_prepare_threads = prepare_threads
        options.no_cache = not enable_prefix_caching
        options.max_unread_bytes = 64 << 20  # whoever iterates over a stream may take his time
        self.model = os.fspath(model) if model is not None else _default_model()
        self._service = Service(self.model, options)
        self._finalizer = weakref.finalize(self, self._service.close)
        self.tokenizer = Tokenizer(self._service)
        with self._service.use() as handles:
            self.model_name: str = lib.di_service_model_name(handles.service).decode()
            self.max_model_len: int = lib.di_service_context(handles.service)

    def close(self) -> None:
        """Ends everything that runs and frees the model. Methods raise ClosedError afterwards."""
        self._finalizer()
        self._service.close()

    def __enter__(self) -> LLM:
        return self

    def __exit__(self, *_: Any) -> None:
        self.close()

    def get_tokenizer(self) -> Tokenizer:
        return self.tokenizer

    def metrics(self) -> str:
        """Counters and histograms of the service in Prometheus' text format."""
        with self._service.use() as handles:
            size = lib.di_service_metrics(handles.service, None, 0)
            while True:
                page = ctypes.create_string_buffer(size + 1024)
                size = lib.di_service_metrics(handles.service, page, len(page))
                if size < len(page):
                    return page.value.decode()

    # --- generate

    def generate(self, prompts: Prompt | Sequence[Prompt], sampling_params: SamplingParams | Sequence[SamplingParams] | None = None, *,
                 use_tqdm: bool | None = None, progress: Callable[[Progress], None] | None = None,
                 return_errors: bool = False) -> list[RequestOutput]:
        """Continues prompts; thousands at once are fine.

        Args:
            prompts: one or many: text, token ids, {"prompt": text} or {"prompt_token_ids": ids}. Nothing is put in front; control tokens
                written out in text are recognised.
            sampling_params: for all, or a list with one for each prompt.
            use_tqdm: a progress line on standard error; None shows it on a terminal.
            progress: called about ten times a second; what it raises stops the batch.
            return_errors: a request that is refused becomes an output with `error`; else the first such error is raised, when all
                others are done, with all outputs in its `outputs`.

        Returns: one RequestOutput a prompt, in order.
        """
        items = self._prompts(prompts)
        params = self._params(sampling_params, len(items))
        empty = [RequestOutput("", text, ids, []) for text, ids in items]
        bodies = [self._completion(ids, p) for (_, ids), p in zip(items, params)]
        return self._run(s.ROUTE_COMPLETIONS, bodies, empty, use_tqdm, progress, return_errors)

    def stream_generate(self, prompt: Prompt, sampling_params: SamplingParams | None = None) -> Stream:
        """The same for one prompt, piece by piece."""
        items = self._prompts(prompt)
        if len(items) != 1:
            raise ValueError("stream_generate() takes one prompt")
        text, ids = items[0]
        body = self._completion(ids, sampling_params or SamplingParams())
        body.update(stream=True, stream_options={"include_usage": True})
        return Stream(self, s.ROUTE_COMPLETIONS, body, RequestOutput("", text, ids, [], finished=False))

    def _prompts(self, prompts: Any) -> list[tuple[str | None, list[int]]]:
        one = isinstance(prompts, (str, Mapping)) or (_is_ids(prompts) and len(prompts) > 0)
        return [self._prompt(prompt) for prompt in ([prompts] if one else prompts)]

    def _prompt(self, prompt: Any) -> tuple[str | None, list[int]]:
        if isinstance(prompt, Mapping):
            unknown = set(prompt) - {"prompt", "prompt_token_ids"}
            if unknown or not prompt:
                raise ValueError(f"a prompt is {{'prompt': text}} or {{'prompt_token_ids': ids}}, not {sorted(prompt)}")
            if "prompt_token_ids" in prompt:
                return prompt.get("prompt"), [int(item) for item in prompt["prompt_token_ids"]]
            prompt = prompt["prompt"]
        if isinstance(prompt, str):
            return prompt, self.tokenizer.encode(prompt)
        if _is_ids(prompt):
            return None, [int(item) for item in prompt]
        raise TypeError(f"a prompt is text or token ids, not {type(prompt).__name__}")

    def _completion(self, ids: list[int], params: SamplingParams) -> dict[str, Any]:
        body = params.completion_body(self.max_model_len - len(ids))
        body.update(model=self.model_name, prompt=[ids], return_token_ids=True)
        return body

    # --- chat

    def chat(self, messages: Sequence[Message] | Sequence[Sequence[Message]],
             sampling_params: SamplingParams | Sequence[SamplingParams] | None = None, *,
             tools: Sequence[Mapping[str, Any]] | None = None, thinking: bool | None = None, extra_body: Mapping[str, Any] | None = None,
             use_tqdm: bool | None = None, progress: Callable[[Progress], None] | None = None,
             return_errors: bool = False) -> list[RequestOutput]:
        """Answers conversations, given as one list of messages or several, in the form of OpenAI's Chat Completions.

        Args:
            tools: functions that may be called, as in that API; calls come in `outputs[i].tool_calls`.
            thinking: reasoning before the answer on or off; it comes in `outputs[i].reasoning`. None is the model's default.
            extra_body: further fields of the request: tool_choice, response_format, reasoning_effort ...
            the others: as in `generate`.
        """
        one = len(messages) > 0 and isinstance(messages[0], Mapping)
        talks: list[Any] = [messages] if one else list(messages)
        params = self._params(sampling_params, len(talks))
        bodies = [self._conversation(talk, p, tools, thinking, extra_body) for talk, p in zip(talks, params)]
        empty = [RequestOutput("", None, None, [], messages=body["messages"]) for body in bodies]
        return self._run(s.ROUTE_CHAT, bodies, empty, use_tqdm, progress, return_errors)

    def stream_chat(self, messages: Sequence[Message], sampling_params: SamplingParams | None = None, *,
                    tools: Sequence[Mapping[str, Any]] | None = None, thinking: bool | None = None,
                    extra_body: Mapping[str, Any] | None = None) -> Stream:
        """The same for one conversation, piece by piece."""
        body = self._conversation(messages, sampling_params or SamplingParams(), tools, thinking, extra_body)
        body.update(stream=True, stream_options={"include_usage": True})
        return Stream(self, s.ROUTE_CHAT, body, RequestOutput("", None, None, [], finished=False, messages=body["messages"]))

    def _conversation(self, messages: Any, params: SamplingParams, tools: Any, thinking: bool | None, extra: Any) -> dict[str, Any]:
        body = params.chat_body()
        body.update(model=self.model_name, messages=[dict(message) for message in messages])
        if tools is not None:
            body["tools"] = [dict(tool) for tool in tools]
        if thinking is not None:
            body["thinking"] = {"type": "enabled" if thinking else "disabled"}
        body.update(extra or {})
        return body

    # --- both

    def _params(self, params: Any, n: int) -> list[SamplingParams]:
        if params is None or isinstance(params, SamplingParams):
            return [params or SamplingParams()] * n
        if len(params) != n:
            raise ValueError(f"{len(params)} sampling parameters for {n} prompts")
        return list(params)

    def _run(self, route: int, bodies: list[dict[str, Any]], outputs: list[RequestOutput], use_tqdm: bool | None,
             progress: Callable[[Progress], None] | None, return_errors: bool) -> list[RequestOutput]:
        functions: list[Callable[[Progress], None]] = [show] if use_tqdm or (use_tqdm is None and sys.stderr.isatty()) else []
        functions += [progress] if progress is not None else []
        replies = self._service.run(route, [json.dumps(body).encode() for body in bodies], watcher(functions))
        first: RequestError | None = None
        for i, ((status, text), output) in enumerate(zip(replies, outputs)):
            body = json.loads(text)
            if status == 200:
                self._fill(output, route, body)
                continue
            output.error = from_response(status, body, i if len(outputs) > 1 else None)
            first = first or output.error
        if first is not None and not return_errors:
            first.outputs = outputs
            raise first
        return outputs

    def _fill(self, output: RequestOutput, route: int, body: dict[str, Any]) -> None:
        read = _replies.chat_choice if route == s.ROUTE_CHAT else _replies.completion_choice
        usage = body["usage"]
        output.request_id = body["id"]
        output.outputs = sorted((read(self.tokenizer, choice) for choice in body["choices"]), key=lambda choice: choice.index)
        output.num_prompt_tokens = usage["prompt_tokens"]
        output.num_generated_tokens = usage["completion_tokens"]
        output.num_cached_tokens = (usage.get("prompt_tokens_details") or {}).get("cached_tokens")
