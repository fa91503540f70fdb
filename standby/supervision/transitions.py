"""Transitions of the supervisor's state machines; each machine is a table (state, trigger) → next state."""

from __future__ import annotations

from collections.abc import Mapping
from enum import Enum
from typing import TypeVar

from causal.errors import invariant

State = TypeVar("State", bound=Enum)


def following(table: Mapping[tuple[State, str], State], state: State, trigger: str, of: str) -> State:
    """Return the next state; the table must contain the transition.

    Args:
        of: the name of the object that changes its state, for the error message.
    """
    after = table.get((state, trigger))
    invariant(after is not None, "no such transition", of=of, state=state, on=trigger)
    return after  # type: ignore[return-value]
