"""A line on standard error that says how far a batch is. Internal."""
from __future__ import annotations

import dataclasses
import sys
import time
from typing import Callable


@dataclasses.dataclass
class Progress:
    """How far a batch is; what a progress function gets."""

    done: int
    total: int
    prompt_tokens: int  # of requests that are done
    generated_tokens: int
    seconds: float


def show(progress: Progress) -> None:
    rate = progress.generated_tokens / max(progress.seconds, 1e-9)
    share = progress.done / max(progress.total, 1)
    bar = "#" * int(20 * share)
    end = "\n" if progress.done == progress.total else ""
    sys.stderr.write(f"\rprompts: {100 * share:3.0f}% |{bar:<20}| {progress.done}/{progress.total} [{progress.seconds:.0f} s, "
                     f"{rate:.0f} tokens/s]{end}")
    sys.stderr.flush()


def watcher(functions: list[Callable[[Progress], None]]) -> Callable[[tuple[int, int, int, int]], None]:
    start = time.monotonic()

    def on_progress(state: tuple[int, int, int, int]) -> None:
        progress = Progress(*state, seconds=time.monotonic() - start)
        for function in functions:
            function(progress)

    return on_progress
