"""Work in a fork of this process whose errors are raised here, because a process loads one version of a pipeline."""

from __future__ import annotations

from collections.abc import Callable

from causal.errors import CausalError, CorruptData, PipelineError, Unavailable
from causal.records.values import decode, encode
from operators.runtime.forked import in_fork

_KINDS: dict[str, type[CausalError]] = {each.__name__: each for each in (PipelineError, CorruptData, Unavailable)}


def separately(act: Callable[[], bytes], within_s: float) -> bytes:
    """Return the result of `act()`, which runs in a child process.

    Raises:
        PipelineError, CorruptData: `act` raised it.
        Unavailable: `act` raised another error, the child died, or it took too long.
    """

    def answered() -> bytes:
        try:
            return encode(["", act()])
        except CausalError as problem:
            return encode([type(problem).__name__, str(problem).encode()])

    failed, content = decode(in_fork(answered, within_s))
    if failed:
        raise _KINDS.get(failed, Unavailable)(content.decode())
    return bytes(content)
