"""deepinfer: inference for DeepSeek-V4.1-Flash.

    from deepinfer import LLM, SamplingParams

    with LLM() as llm:
        for output in llm.chat([{"role": "user", "content": "Which country has Cairo as its capital?"}], SamplingParams(temperature=0)):
            print(output.outputs[0].text)
"""
from ._library import version as __version__
from ._progress import Progress
from .errors import (BadRequestError, CancelledError, ClosedError, DeepInferError, FileAccessError, InvalidArgumentError, ModelFormatError,
                     OutOfMemoryError, RequestError)
from .llm import LLM
from .outputs import CompletionOutput, Logprob, RequestOutput, StreamChunk, ToolCall
from .sampling import SamplingParams, StructuredOutputsParams
from .stream import Stream
from .tokenizer import Tokenizer

__all__ = ["LLM", "BadRequestError", "CancelledError", "ClosedError", "CompletionOutput", "DeepInferError", "FileAccessError",
           "InvalidArgumentError", "Logprob", "ModelFormatError", "OutOfMemoryError", "Progress", "RequestError", "RequestOutput",
           "SamplingParams", "Stream", "StreamChunk", "StructuredOutputsParams", "Tokenizer", "ToolCall", "__version__"]
