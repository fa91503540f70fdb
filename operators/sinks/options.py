"""Options that several sinks have, checked and refused in the same words.

`sink` is how a message names the sink.
"""

from __future__ import annotations

import os
from collections.abc import Sequence
from pathlib import Path

from causal.errors import PipelineError

EXISTING = ("refuse", "replace")
DURABILITY = ("process", "os")
WAIT_MS_MAX = 60_000


def check_choice(sink: str, name: str, given: object, choices: Sequence[str]) -> None:
    """Raise `PipelineError` unless `given` is one of the choices."""
    if given not in choices:
        raise PipelineError(f"{sink}: {name} is {given!r}; give {', '.join(choices[:-1])} or {choices[-1]}")


def absolute(sink: str, name: str, given: str | os.PathLike[str]) -> Path:
    """The path, from the directory that it was said in; raises `PipelineError` where it is none."""
    if not given or not isinstance(given, (str, os.PathLike)):
        raise PipelineError(f"{sink}: {name} is {given!r}; give a path, as a str or a Path")
    return Path(given).absolute()


def check_durability(sink: str, given: object, choices: Sequence[str] = DURABILITY) -> None:
    """The same; None stands for what the job promises."""
    if given is not None:
        check_choice(sink, "durability", given, choices)


def check_range(sink: str, name: str, given: float, least: int, most: int) -> None:
    """Raise `PipelineError` unless `given` is between the two, or one of them."""
    if not least <= given <= most:
        raise PipelineError(f"{sink}: {name} is {given!r}; give {least} to {most}")
