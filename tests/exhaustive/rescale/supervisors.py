"""Every state in which the supervisor can be, and the step that each event takes from it, each computed once."""

from __future__ import annotations

from typing import Any

from causal.config import JobConfig
from standby.blueprint import Blueprint
from standby.supervision import effects as fx
from standby.supervision import events
from standby.supervision.assignments import TaskState
from standby.supervision.next_version import Phase
from standby.supervision.supervision import Supervision
from tests.exhaustive.frozen import canonical, freeze, thaw
from tests.exhaustive.rescale.state import TOPOLOGIES

TICK_NS = 1_100_000_000
"""Longer than any time after which a message is repeated."""


class Supervisors:
    """The states of supervisors by number, and the step that each event takes from them, each computed once."""

    def __init__(self) -> None:
        self._config = JobConfig(
            run="r", name="w", pipeline="p", standbys="0", checkpoint_interval_s=1e5, heartbeat_timeout_ms=10**8
        )
        self._blueprints = {width: Blueprint(topology) for width, topology in TOPOLOGIES.items()}
        self._frozen: list[bytes] = []
        self._numbers: dict[bytes, int] = {}
        self._steps: dict[Any, tuple[int, list[fx.Effect]]] = {}
        self._views: dict[int, tuple[bool, Phase]] = {}

    def begin(self, width: int, restored: events.Restored, tick: int) -> tuple[int, list[fx.Effect]]:
        """Return the state of a new supervisor, and its effects."""
        key = (width, repr(restored), tick)
        if key not in self._steps:
            self._steps[key] = self._step(Supervision(self._config, self._blueprints[width]), restored, tick)
        return self._steps[key]

    def step(self, number: int, event: events.Event, tick: int) -> tuple[int, list[fx.Effect]]:
        """Return the state after an event, and the effects."""
        key = (number, repr(event), tick)
        if key not in self._steps:
            self._steps[key] = self._step(self.of(number), event, tick)
        return self._steps[key]

    def of(self, number: int) -> Supervision:
        """Return a supervisor in that state."""
        supervision: Supervision = thaw(self._frozen[number])
        return supervision

    def at_rest(self, number: int) -> bool:
        """Return whether every task is served, and no change is under way."""
        if number not in self._views:
            supervision = self.of(number)
            served = all(each.state is TaskState.SERVED for each in supervision.assignments.tasks.values())
            self._views[number] = (served, supervision.next_version.phase)
        return self._views[number] == (True, Phase.NONE)

    def _step(self, supervision: Supervision, event: events.Event, tick: int) -> tuple[int, list[fx.Effect]]:
        effects = supervision.handle(event, (1 + tick) * TICK_NS)
        form = canonical(supervision)
        if form not in self._numbers:
            self._numbers[form] = len(self._frozen)
            self._frozen.append(freeze(supervision))
        return self._numbers[form], effects
