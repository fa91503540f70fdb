"""Ways to break what `ctx.replaying` promises, one rule each (see `sabotage`)."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from causal.task.recovery import State
from causal.task.services import CausalServices

Patches = Mapping[tuple[Any, str], Any]


def _the_rest_of_the_log_answers() -> Patches:
    """An event is a replay if the log has more behind it."""
    return {(CausalServices, "replaying"): lambda self: self._cursor.replaying}


def _ordered_events_are_known_by_their_output_alone() -> Patches:
    """An ordered task logs nothing when an event asks whether it is new."""
    return {(CausalServices, "replaying"): lambda self: self._recovery.replays}


def _the_outside_is_never_affected() -> Patches:
    """Each event is a replay."""
    return {(CausalServices, "replaying"): lambda self: True}


def _a_shadow_is_live() -> Patches:
    """A hot standby has the effects of what it performs."""
    replaying = CausalServices.replaying

    def live(self: CausalServices) -> bool:
        return self._recovery.state is not State.SHADOWING and replaying(self)

    return {(CausalServices, "replaying"): live}


EFFECT_SABOTAGES: tuple[Callable[[], Patches], ...] = (
    _the_rest_of_the_log_answers,
    _ordered_events_are_known_by_their_output_alone,
    _the_outside_is_never_affected,
)
HOT_EFFECT_SABOTAGES: tuple[Callable[[], Patches], ...] = (_a_shadow_is_live,)
