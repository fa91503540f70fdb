"""Checks of options that several sinks share, with uniform messages.

In each function, `sink` is the name of the sink for messages.
"""

from __future__ import annotations

import os
from collections.abc import Sequence
from pathlib import Path

from causal.errors import PipelineError

EXISTING = ("refuse", "replace")
DURABILITY = ("process", "os")
WAIT_MS_MAX = 60_000
FILE_BYTES_MAX = 1 << 30


def check_choice(sink: str, name: str, value: object, choices: Sequence[str]) -> None:
    """Raise `PipelineError` unless `value` is one of the choices."""
    if value not in choices:
        raise PipelineError(f"{sink}: {name} is {value!r}; use {', '.join(choices[:-1])} or {choices[-1]}")


def absolute(sink: str, name: str, path: str | os.PathLike[str]) -> Path:
    """Return `path` as an absolute path, based on the working directory; raise `PipelineError` if it is not a path."""
    if not path or not isinstance(path, (str, os.PathLike)):
        raise PipelineError(f"{sink}: {name} is {path!r}; use a path, as a str or a Path")
    return Path(path).absolute()


def check_durability(sink: str, value: object, choices: Sequence[str] = DURABILITY) -> None:
    """Raise `PipelineError` unless `value` is one of the choices or None, which means the job's setting."""
    if value is not None:
        check_choice(sink, "durability", value, choices)


def check_range(sink: str, name: str, value: float, least: int, most: int) -> None:
    """Raise `PipelineError` unless `value` is between `least` and `most`, inclusive."""
    if not least <= value <= most:
        raise PipelineError(f"{sink}: {name} is {value!r}; use {least} to {most}")


def check_cutting(sink: str, file_bytes: int, publish_s: float) -> None:
    """Raise `PipelineError` unless the options for the size and age of files are within their ranges."""
    check_range(sink, "file_bytes", file_bytes, 1, FILE_BYTES_MAX)
    if not publish_s > 0:
        raise PipelineError(f"{sink}: publish_s is {publish_s!r}; use a number of seconds above 0")
