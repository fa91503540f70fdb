"""Ways to break what hot standbys promise, one rule each (see `sabotage`); looked for in scenarios that have them."""

from __future__ import annotations

from typing import Any

from causal.channels.sink_channel import SinkChannel
from causal.task.echo import Echo
from causal.task.task import TaskProtocol
from tests.simulation.breaking import Patches, found_by
from tests.simulation.clockwork import MS
from tests.simulation.scenario import Fault, draw_hot, plain

DISK_SLOW = plain(
    3, (1, 1, 1), records=120, batch_every_ms=10, input_s=2, depth=1, hot=True, checkpoint_ms=100, kinds=("clock",),
    faults=(Fault("disk_slow", 943 * MS, 0, 400), Fault("kill", 1142 * MS, 2, 1)),
)  # fmt: skip
"""A sink's standby takes over after a barrier whose checkpoint a slow disk holds up; seeds hardly ever draw that."""


@found_by(15, draw_hot)
def _an_echo_without_logs_of_others() -> Patches:
    """A hot standby takes elements without the determinants that they depend on."""
    fresh = Echo._fresh

    def own(self: Echo) -> Any:
        return [delta for delta in fresh(self) if delta.task == self._holdings.task]

    return {(Echo, "_fresh"): own}


@found_by(38, draw_hot)
def _an_echo_without_dependencies() -> Patches:
    """Below full sharing depth a hot standby does not hear what its elements depend on."""
    frame = Echo._frame

    def silent(self: Echo, *arguments: Any, **more: Any) -> Any:
        self._depends = []
        return frame(self, *arguments, **more)

    return {(Echo, "_frame"): silent}


@found_by(48, draw_hot)
def _a_shadow_forgets_its_rows() -> Patches:
    """Rows that the store lacks are not kept."""
    put = SinkChannel.put

    def dropping(self: SinkChannel, chunk: Any) -> None:
        put(self, chunk)
        if self._befores is not None:
            self._befores, self._rows, self._origins, self._first = [], [], [], self.position

    return {(SinkChannel, "put"): dropping}


@found_by(None, draw_hot, (DISK_SLOW,))
def _a_passed_barrier_is_a_checkpoint() -> Patches:
    """A store hears of each barrier that a shadow has passed as of a complete checkpoint."""

    untruncated = SinkChannel.untruncated

    def passed(self: SinkChannel, state: Any) -> bool:
        self.covered = self.epoch
        return untruncated(self, state)

    return {(SinkChannel, "untruncated"): passed}


@found_by(863, draw_hot)
def _a_shadow_takes_over_anywhere() -> Patches:
    """A shadow that has not passed the last complete checkpoint takes over."""
    return {(TaskProtocol, "covers"): lambda self, epoch: True}
