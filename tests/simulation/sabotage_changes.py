"""Rules of changes of a running job (design 0040), broken one at a time; see `sabotage.py`."""

from __future__ import annotations

from typing import Any

from standby.supervision.assignments import Assignments
from standby.supervision.checkpoints import Coordinator
from standby.supervision.effects import Record
from standby.supervision.next_version import NextVersion, Phase
from tests.simulation.breaking import Patches, found_by
from tests.simulation.changes import Command
from tests.simulation.scenario import draw_changes


@found_by(0, draw_changes)
def _committed_before_the_current_version_stands() -> Patches:
    """The command hears that the current version has ended while its sources still read."""
    return {(NextVersion, "_stands"): property(lambda self: self.phase is Phase.ENDING)}


@found_by(19, draw_changes)
def _incarnations_continue_after_a_change() -> Patches:
    """A change that ends leaves the incarnations of the current version as they are."""

    def forget(self: Assignments) -> None:
        self._next_incarnation = 0

    return {(Assignments, "_raise"): forget}


@found_by(0, draw_changes)
def _the_first_snapshot_only() -> Patches:
    """The next version is promoted with the state that its processes have loaded before the current version ended."""
    copied = Command._copied

    def early(self: Command, epoch: int, incarnation: int) -> Any:
        last = copied(self, epoch, incarnation)
        return self.loaded if self.stands else last

    return {(Command, "_copied"): early}


@found_by(23, draw_changes)
def _promoted_after_the_final_savepoint() -> Patches:
    """A task of the current version that dies after the final savepoint is promoted again."""
    return {(NextVersion, "suspends"): property(lambda self: False)}


@found_by(21, draw_changes)
def _the_final_savepoint_ends_the_job() -> Patches:
    """The journal of a job that has continued still says that it ends at its savepoint (seed 2069)."""
    apply = Coordinator.apply

    def remembers(self: Coordinator, record: Record) -> None:
        final = self.final
        apply(self, record)
        if record["kind"] == "checkpoint":
            self.final = final

    return {(Coordinator, "apply"): remembers}


@found_by(406, draw_changes)
def _an_unknown_commit_is_cleared_up() -> Patches:
    """A command that does not learn whether its change was committed removes the files that it has written."""
    return {(Command, "_committed"): property(lambda self: False)}
