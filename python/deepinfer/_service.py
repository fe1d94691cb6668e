"""The library's handles and how long they live. Internal.

Whoever uses a handle says so (`use`), and `close` waits for them: it first stops batches and cancels calls, so that does not last.
Streams hold a call between uses; `close` takes it away from those that are left.
"""
from __future__ import annotations

import contextlib
import ctypes
import os
import queue
import threading
import weakref
from typing import Any, Callable, Iterator

from . import _structs as s
from ._library import check, lib
from .errors import ClosedError


class Handles:
    """What `close` closes."""

    def __init__(self) -> None:
        self.model = ctypes.c_void_p()
        self.tokenizer = ctypes.c_void_p()  # borrowed from the model
        self.service = ctypes.c_void_p()


class Service:
    def __init__(self, path: str, options: s.ServiceOptions) -> None:
        self.closed = False
        self.streams: weakref.WeakSet[Any] = weakref.WeakSet()
        self._handles = Handles()
        self._users: list[int] = []  # threads
        self._change = threading.Condition()
        h = self._handles
        try:
            check(lib.di_model_open, os.fsencode(path), None, ctypes.byref(h.model))
            h.tokenizer = ctypes.c_void_p(lib.di_model_tokenizer(h.model))
            if not h.tokenizer:
                raise ValueError(f"{path} has no tokenizer.json")
            check(lib.di_service_open, h.model, h.tokenizer, ctypes.byref(options), ctypes.byref(h.service))
        except BaseException:
            self._release()
            raise

    @contextlib.contextmanager
    def use(self) -> Iterator[Handles]:
        me = threading.get_ident()
        with self._change:
            if self.closed:
                raise ClosedError("the LLM is closed")
            self._users.append(me)
        try:
            yield self._handles
        finally:
            with self._change:
                self._users.remove(me)
                self._change.notify_all()

    def _release(self) -> None:
        lib.di_service_close(self._handles.service)
        lib.di_model_close(self._handles.model)
        self._handles = Handles()

    def close(self) -> None:
        """Stops everything. Any thread, any number of times; when it returns nothing runs any more."""
        with self._change:
            if threading.get_ident() in self._users:
                raise RuntimeError("close() from inside a call on the LLM: raise an exception there instead")
            if self.closed:
                self._change.wait_for(lambda: not self._handles.model)
                return
            self.closed = True
            # Again and again: a batch may have submitted a call between its last look at `closed` and now.
            while self._users:
                lib.di_service_cancel_all(self._handles.service)
                self._change.wait(0.05)
            for stream in list(self.streams):
                stream._release()
            self._release()
            self._change.notify_all()

    def run(self, route: int, bodies: list[bytes], progress: Callable[[tuple[int, int, int, int]], None]) -> list[tuple[int, bytes]]:
        """All bodies, many at once: (HTTP status, reply) of each. `progress` gets (done, all, prompt tokens, generated tokens).

        A thread of its own waits in the library: an interrupt comes to the main thread, and inside a callback it would be lost. So
        `progress` runs on the caller's thread, and what is raised there stops the batch.
        """
        news: queue.SimpleQueue[tuple[int, int, int, int] | None] = queue.SimpleQueue()
        stop = threading.Event()
        replies: list[tuple[int, bytes]] = []
        raised: list[BaseException] = []

        def on_progress(_user: Any, state: Any) -> bool:
            now = state.contents
            news.put((now.n_done, now.n, now.prompt_tokens, now.completion_tokens))
            return not (stop.is_set() or self.closed)

        def work() -> None:
            items = (s.BatchItem * len(bodies))(*[s.BatchItem(route=route, body=body, n=len(body)) for body in bodies])
            try:
                with self.use() as handles:
                    try:
                        check(lib.di_service_run, handles.service, items, len(items), s.ProgressFn(on_progress), None)
                        replies.extend((item.http_status, ctypes.string_at(item.reply, item.n_reply)) for item in items)
                    finally:
                        lib.di_batch_fini(items, len(items))
            except BaseException as error:
                raised.append(error)
            finally:
                news.put(None)

        with self.use():
            worker = threading.Thread(target=work, name="deepinfer batch")
            worker.start()
            try:
                while (state := news.get()) is not None:
                    progress(state)
            finally:
                stop.set()
                worker.join()
            if self.closed:
                raise ClosedError("the LLM was closed while a batch ran")
            if raised:
                raise raised[0]
            return replies
