"""The model's tokenizer."""
from __future__ import annotations

import ctypes
from typing import TYPE_CHECKING, Sequence

from . import _structs as s
from ._library import check, lib, to_ids

if TYPE_CHECKING:
    from ._service import Service


class Tokenizer:
    """Text to ids and back. Any thread; good until its LLM is closed."""

    def __init__(self, service: Service) -> None:
        self._service = service

    @property
    def vocab_size(self) -> int:
        with self._service.use() as handles:
            return int(lib.di_tokenizer_vocab_size(handles.tokenizer))

    def encode(self, text: str, *, special: bool = True) -> list[int]:
        """Ids of a text; nothing is put in front. With `special`, control tokens written out in the text are recognised."""
        data = text.encode("utf-8", "surrogatepass")
        capacity = 3 * len(data) + 1
        ids = (ctypes.c_int32 * capacity)()
        n = ctypes.c_size_t()
        with self._service.use() as handles:
            check(lib.di_tokenizer_encode, handles.tokenizer, data, len(data), s.ENCODE_SPECIAL if special else 0, ids, capacity,
                  ctypes.byref(n))
        return ids[: n.value]

    def decode(self, ids: Sequence[int], *, skip_special_tokens: bool = False) -> str:
        """Text of ids; bytes that are no UTF-8 become U+FFFD."""
        array = to_ids(ids)
        n = ctypes.c_size_t()
        flags = s.DECODE_SKIP_SPECIAL if skip_special_tokens else 0
        with self._service.use() as handles:
            check(lib.di_tokenizer_decode, handles.tokenizer, array, len(ids), flags, None, 0, ctypes.byref(n))
            text = ctypes.create_string_buffer(n.value + 1)
            check(lib.di_tokenizer_decode, handles.tokenizer, array, len(ids), flags, text, n.value, ctypes.byref(n))
        return text.raw[: n.value].decode("utf-8")

    def find(self, token: bytes) -> int:
        """Id of the token with these bytes, -1 when there is none."""
        with self._service.use() as handles:
            return int(lib.di_tokenizer_find(handles.tokenizer, token, len(token)))
