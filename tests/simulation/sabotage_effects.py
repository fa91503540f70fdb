"""Ways to break what `ctx.replaying` promises, one rule each (see `sabotage`)."""

from __future__ import annotations

from causal.task.recovery import State
from causal.task.services import CausalServices
from tests.simulation.breaking import Patches, found_by
from tests.simulation.scenario import draw_hot


@found_by(2)
def _the_rest_of_the_log_answers() -> Patches:
    """An event is a replay if the log has more behind it."""
    return {(CausalServices, "replaying"): lambda self: self._cursor.replaying}


@found_by(48)
def _ordered_events_are_known_by_their_output_alone() -> Patches:
    """An ordered task logs nothing when an event asks whether it is new."""
    return {(CausalServices, "replaying"): lambda self: self._recovery.replays}


@found_by(1)
def _the_outside_is_never_affected() -> Patches:
    """Each event is a replay."""
    return {(CausalServices, "replaying"): lambda self: True}


@found_by(0, draw_hot)
def _a_shadow_is_live() -> Patches:
    """A hot standby has the effects of what it performs."""
    replaying = CausalServices.replaying

    def live(self: CausalServices) -> bool:
        return self._recovery.state is not State.SHADOWING and replaying(self)

    return {(CausalServices, "replaying"): live}
