"""Options that several sinks have, checked and refused in the same words.

`sink` is how a message names the sink.
"""

from __future__ import annotations

from collections.abc import Sequence

from causal.errors import PipelineError

EXISTING = ("refuse", "replace")
DURABILITY = ("process", "os")
WAIT_MS_MAX = 60_000


def check_choice(sink: str, name: str, given: object, choices: Sequence[str]) -> None:
    """Raise `PipelineError` unless `given` is one of the choices."""
    if given not in choices:
        raise PipelineError(f"{sink}: {name} is {given!r}; give {', '.join(choices[:-1])} or {choices[-1]}")


def check_durability(sink: str, given: object, choices: Sequence[str] = DURABILITY) -> None:
    """The same; None stands for what the job promises."""
    if given is not None:
        check_choice(sink, "durability", given, choices)


def check_range(sink: str, name: str, given: float, least: int, most: int) -> None:
    """Raise `PipelineError` unless `given` is between the two, or one of them."""
    if not least <= given <= most:
        raise PipelineError(f"{sink}: {name} is {given!r}; give {least} to {most}")
