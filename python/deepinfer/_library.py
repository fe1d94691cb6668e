"""Finds and loads libdeepinfer.so: beside this file in an installation, or what DI_LIBRARY names. Errors become exceptions."""
from __future__ import annotations

import ctypes
import os
import pathlib
from ctypes import POINTER, byref, c_bool, c_char_p, c_int, c_int32, c_int64, c_size_t, c_uint, c_void_p
from typing import Any

from . import _structs as s
from .errors import from_status

_OUT = POINTER(c_void_p)
_ERR = POINTER(s.Error)
_SIZE = POINTER(c_size_t)
_IDS = POINTER(c_int32)

# name: (result, arguments). A result of None is none; functions that end with _ERR return a di_status.
_FUNCTIONS: dict[str, tuple[Any, list[Any]]] = {
    "di_version": (c_char_p, []),
    "di_version_number": (c_int32, []),
    "di_status_name": (c_char_p, [c_int]),
    "di_model_open": (c_int, [c_char_p, c_void_p, _OUT, _ERR]),
    "di_model_close": (None, [c_void_p]),
    "di_model_default_path": (c_int, [c_char_p, c_size_t, _ERR]),
    "di_model_get_info": (None, [c_void_p, POINTER(s.ModelInfo)]),
    "di_model_tokenizer": (c_void_p, [c_void_p]),
    "di_tokenizer_vocab_size": (c_int32, [c_void_p]),
    "di_tokenizer_encode": (c_int, [c_void_p, c_char_p, c_size_t, c_uint, _IDS, c_size_t, _SIZE, _ERR]),
    "di_tokenizer_decode": (c_int, [c_void_p, _IDS, c_size_t, c_uint, c_char_p, c_size_t, _SIZE, _ERR]),
    "di_tokenizer_find": (c_int32, [c_void_p, c_char_p, c_size_t]),
    "di_service_open": (c_int, [c_void_p, c_void_p, POINTER(s.ServiceOptions), _OUT, _ERR]),
    "di_service_close": (None, [c_void_p]),
    "di_service_model_name": (c_char_p, [c_void_p]),
    "di_service_context": (c_int64, [c_void_p]),
    "di_service_submit": (c_int, [c_void_p, POINTER(s.CallOptions), _OUT, _ERR]),
    "di_service_run": (c_int, [c_void_p, POINTER(s.BatchItem), c_size_t, s.ProgressFn, c_void_p, _ERR]),
    "di_batch_fini": (None, [POINTER(s.BatchItem), c_size_t]),
    "di_service_cancel_all": (None, [c_void_p]),
    "di_service_metrics": (c_size_t, [c_void_p, c_char_p, c_size_t]),
    "di_call_get": (None, [c_void_p, POINTER(s.CallInfo)]),
    "di_call_id": (c_char_p, [c_void_p]),
    "di_call_read": (c_size_t, [c_void_p, c_char_p, c_size_t]),
    "di_call_wait": (c_bool, [c_void_p, c_int64]),
    "di_call_free": (None, [c_void_p]),
}


def _load() -> ctypes.CDLL:
    path = os.environ.get("DI_LIBRARY") or str(pathlib.Path(__file__).with_name("libdeepinfer.so"))
    try:
        library = ctypes.CDLL(path)
    except OSError as error:
        raise ImportError(f"deepinfer: cannot load its library: {error}. `pip install ./python` builds it; DI_LIBRARY can name "
                          "another one.") from error
    for name, (result, arguments) in _FUNCTIONS.items():
        function = getattr(library, name, None)
        if function is None:
            raise ImportError(f"deepinfer: {path} has no {name}: it is not of version {'.'.join(map(str, s.VERSION))}")
        function.restype = result
        function.argtypes = arguments
    number = library.di_version_number()
    if (number // 10000, number // 100 % 100) != s.VERSION:
        raise ImportError(f"deepinfer: {path} has version {library.di_version().decode()}, expected {'.'.join(map(str, s.VERSION))}")
    return library


lib = _load()
version: str = lib.di_version().decode()


def check(function: Any, *arguments: Any) -> None:
    """Calls a function that returns a di_status, with a di_error behind the arguments; raises what it says."""
    error = s.Error()
    status = function(*arguments, byref(error))
    if status != 0:
        raise from_status(lib.di_status_name(status).decode(), error.message.decode("utf-8", "replace"))


def to_ids(ids: Any) -> Any:
    """A C array of token ids."""
    return (c_int32 * len(ids))(*ids)
