"""Transitions of the supervisor's state machines, each of which is a table: (state, trigger) → the next state."""

from __future__ import annotations

from collections.abc import Mapping
from enum import Enum
from typing import TypeVar

from causal.errors import invariant

State = TypeVar("State", bound=Enum)


def following(table: Mapping[tuple[State, str], State], state: State, trigger: str, of: str) -> State:
    """Return the next state; the transition must be in the table.

    Args:
        of: the name of the object that performs the transition, for the error message.
    """
    after = table.get((state, trigger))
    invariant(after is not None, "no such transition", of=of, state=state, on=trigger)
    return after  # type: ignore[return-value]
