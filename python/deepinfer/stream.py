"""An output as it comes."""
from __future__ import annotations

import collections
import ctypes
import json
import threading
from typing import TYPE_CHECKING, Any, Iterator

from . import _replies
from . import _structs as s
from ._library import check, lib
from .errors import CancelledError, ClosedError, from_response
from .outputs import CompletionOutput, RequestOutput, StreamChunk, ToolCall

if TYPE_CHECKING:
    from .llm import LLM

_WAIT_MS = 100  # so that Ctrl-C is heard, and closing does not take long
_READ_BYTES = 65536


class Stream(Iterator[StreamChunk]):
    """Iterates over the pieces of one request, all its outputs mixed. `output` is what has come so far, whole.

    Iterate in one thread; `cancel` and `close` may be called from another. A stream that is not iterated to its end should be closed:
    it is a context manager. One that nobody holds any more is cancelled.
    """

    def __init__(self, llm: LLM, route: int, body: dict[str, Any], output: RequestOutput) -> None:
        self.output = output
        self._llm = llm  # keeps the service open
        self._service = llm._service
        self._lock = threading.Lock()  # of the call
        self._call = ctypes.c_void_p()
        self._text = ctypes.create_string_buffer(_READ_BYTES)
        self._unread = b""
        self._chunks: collections.deque[StreamChunk] = collections.deque()
        self._done = False
        self._cancelled = False
        data = json.dumps(body).encode()
        options = s.CallOptions(route=route, body=data, n=len(data))
        with self._service.use() as handles:
            check(lib.di_service_submit, handles.service, ctypes.byref(options), ctypes.byref(self._call))
            self._service.streams.add(self)
        self.output.request_id = lib.di_call_id(self._call).decode()

    # --- the call

    def _release(self) -> None:
        with self._lock:
            call, self._call = self._call, ctypes.c_void_p()
            if call:
                lib.di_call_free(call)

    def _read(self) -> tuple[bytes, s.CallInfo]:
        """Waits a moment for what is new."""
        info = s.CallInfo()
        with self._lock:
            if not self._call:
                if self._service.closed:
                    raise ClosedError("the LLM was closed while a stream ran")
                raise CancelledError("the stream was closed", "cancelled")
            lib.di_call_wait(self._call, _WAIT_MS)
            lib.di_call_get(self._call, ctypes.byref(info))  # before reading: what comes later is seen the next time
            n = lib.di_call_read(self._call, self._text, _READ_BYTES)
            return self._text.raw[:n], info

    def _end(self) -> None:
        """Nothing more will come; what has come can still be taken."""
        self._done = True
        self._release()

    def cancel(self) -> None:
        """Stops the request; iteration ends, pieces that had come and were not taken included."""
        self._cancelled = True
        self._release()

    def close(self) -> None:
        """Gives the request up, finished or not: `cancel`, under the name of what has an end."""
        self.cancel()

    def __enter__(self) -> Stream:
        return self

    def __exit__(self, *_: Any) -> None:
        self.close()

    def __del__(self) -> None:
        if getattr(self, "_call", None):
            self._release()

    # --- events

    def _take_event(self, event: dict[str, Any]) -> None:
        if "error" in event:
            self._end()
            raise from_response(500, event)
        usage = event.get("usage")
        if usage:
            self.output.num_prompt_tokens = usage["prompt_tokens"]
            self.output.num_generated_tokens = usage["completion_tokens"]
            self.output.num_cached_tokens = (usage.get("prompt_tokens_details") or {}).get("cached_tokens")
        for choice in event["choices"]:
            chunk = self._chunk(choice)
            self._gather(chunk)
            if chunk.text or chunk.reasoning or chunk.tool_calls or chunk.token_ids or chunk.logprobs or chunk.finish_reason:
                self._chunks.append(chunk)

    def _chunk(self, choice: dict[str, Any]) -> StreamChunk:
        chunk = StreamChunk(index=choice["index"], finish_reason=choice.get("finish_reason"), token_ids=choice.get("token_ids"))
        if "delta" in choice:
            delta = choice["delta"]
            chunk.text = delta.get("content") or ""
            chunk.reasoning = delta.get("reasoning_content") or ""
            chunk.tool_calls = delta.get("tool_calls") or []
            chunk.logprobs = _replies.chat_logprobs(self._llm.tokenizer, choice.get("logprobs"))
        else:
            chunk.text = choice["text"]
            chunk.logprobs = _replies.completion_logprobs(self._llm.tokenizer, choice.get("logprobs"))
        return chunk

    def _gather(self, chunk: StreamChunk) -> None:
        outputs = self.output.outputs
        while len(outputs) <= chunk.index:
            outputs.append(CompletionOutput(index=len(outputs)))
        whole = outputs[chunk.index]
        whole.text += chunk.text
        if chunk.reasoning:
            whole.reasoning = (whole.reasoning or "") + chunk.reasoning
        if chunk.token_ids is not None:
            whole.token_ids = (whole.token_ids or []) + chunk.token_ids
        if chunk.logprobs is not None:
            whole.logprobs = (whole.logprobs or []) + chunk.logprobs
            whole.cumulative_logprob = _replies.cumulative(whole.logprobs)
        for delta in chunk.tool_calls:
            function = delta.get("function") or {}
            while len(whole.tool_calls) <= delta["index"]:
                whole.tool_calls.append(ToolCall("", "", ""))
            call = whole.tool_calls[delta["index"]]
            call.id = delta.get("id") or call.id
            call.name += function.get("name") or ""
            call.arguments += function.get("arguments") or ""
        whole.finish_reason = chunk.finish_reason or whole.finish_reason

    def _take_data(self, data: bytes) -> None:
        *events, self._unread = (self._unread + data).split(b"\n\n")
        for event in events:
            payload = event.removeprefix(b"data: ")
            if payload == b"[DONE]":
                self.output.finished = True
            elif payload:
                self._take_event(json.loads(payload))

    def _advance(self) -> None:
        data, info = self._read()
        if info.http_status not in (0, 200):
            self._unread += data
            if info.phase == s.PHASE_ENDED and not data:
                self._end()
                raise from_response(info.http_status, json.loads(self._unread or b"{}"))
            return
        self._take_data(data)
        if info.phase == s.PHASE_ENDED and not data:
            self._end()

    def __next__(self) -> StreamChunk:
        while not self._cancelled and not self._chunks and not self._done:
            try:
                self._advance()
            except CancelledError:
                if not self._cancelled:
                    raise
        if self._cancelled or not self._chunks:
            raise StopIteration
        return self._chunks.popleft()

    def result(self) -> RequestOutput:
        """Waits for the end and returns everything."""
        for _ in self:
            pass
        return self.output
