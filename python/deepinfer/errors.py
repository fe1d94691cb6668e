"""What can go wrong. Every exception of this package is a DeepInferError."""
from __future__ import annotations

from typing import Any


class DeepInferError(Exception):
    """Base of all. `status` is the library's short name of the kind: "argument", "format", "limit" ..."""

    def __init__(self, message: str, status: str = "") -> None:
        super().__init__(message)
        self.status = status


class InvalidArgumentError(DeepInferError, ValueError):
    """A value that the library does not accept."""


class ModelFormatError(DeepInferError, ValueError):
    """A checkpoint that is malformed, or not one this build can run."""


class FileAccessError(DeepInferError, OSError):
    """The operating system refused a file."""


class OutOfMemoryError(DeepInferError, MemoryError):
    """An allocation failed."""


class ClosedError(DeepInferError, RuntimeError):
    """The LLM is closed."""


class CancelledError(DeepInferError):
    """The request was cancelled."""


class RequestError(DeepInferError):
    """A request was refused or failed. It carries what the API's error object says.

    Attributes:
        http_status: 400 for a bad request, 429 or 503 for overload, 5xx for a failure.
        type, param, code: as in OpenAI's error object; may be None.
        index: which of the prompts it was, None when there was one only.
        outputs: of a batch: all results, those that failed with their `error` set.
    """

    def __init__(self, message: str, http_status: int, error: dict[str, Any] | None = None, index: int | None = None) -> None:
        super().__init__(message, status="request")
        error = error or {}
        self.http_status = http_status
        self.type = error.get("type")
        self.param = error.get("param")
        self.code = error.get("code")
        self.index = index
        self.outputs: list[Any] | None = None


class BadRequestError(RequestError, ValueError):
    """The request itself is at fault (HTTP 400 and 413)."""


_BY_STATUS = {
    "argument": InvalidArgumentError,
    "format": ModelFormatError,
    "unsupported": ModelFormatError,
    "mismatch": ModelFormatError,
    "io": FileAccessError,
    "memory": OutOfMemoryError,
    "cancelled": CancelledError,
}


def from_status(status: str, message: str) -> DeepInferError:
    """The exception for a status of the library."""
    return _BY_STATUS.get(status, DeepInferError)(message, status)


def from_response(http_status: int, body: Any, index: int | None = None) -> RequestError:
    """The exception for an error body."""
    error = body.get("error") if isinstance(body, dict) else None
    error = error if isinstance(error, dict) else {}
    message = error.get("message") or f"the request failed with status {http_status}"
    kind = BadRequestError if http_status in (400, 413) else RequestError
    return kind(message, http_status, error, index)
