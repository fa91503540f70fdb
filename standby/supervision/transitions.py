"""Steps of the supervisor's state machines, each of which is a table: (state, trigger) → the state that follows."""

from __future__ import annotations

from collections.abc import Mapping
from enum import Enum
from typing import TypeVar

from causal.errors import invariant

State = TypeVar("State", bound=Enum)


def following(table: Mapping[tuple[State, str], State], state: State, trigger: str, of: str) -> State:
    """Return the state that follows; the transition must be in the table.

    Args:
        of: what takes the step, for the error.
    """
    after = table.get((state, trigger))
    invariant(after is not None, "no such transition", of=of, state=state, on=trigger)
    return after  # type: ignore[return-value]
