"""Ways to break what the worker's shell promises, one rule each (see `sabotage`)."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import causal.task.performer
import operators.engine.chain
import operators.stage.context
from causal.channels import wire
from causal.channels.exchange import Exchange
from causal.channels.receiver import Receiver
from causal.channels.sink_channel import SinkChannel
from causal.errors import fenced
from causal.task.performer import EffectQueue
from deploy.jobs import versions
from operators.runtime.backlog import Backlog
from operators.sinks.contract import account
from operators.sinks.contract.account import Account
from tests.simulation.breaking import Patches, found_by
from tests.simulation.clockwork import MS
from tests.simulation.peers import Disk
from tests.simulation.scenario import Fault, Scenario, plain
from tests.simulation.world import Simulation


def _store_away_from(at_ms: int) -> Scenario:
    """Two tasks in a row; the store becomes unavailable `at_ms` after the start, and the sink dies meanwhile."""
    faults = (Fault("store_away", at_ms * MS, 0, 372), Fault("kill", (at_ms + 100) * MS, 1, 1))
    return plain(
        7, (1, 1), records=20, batch_every_ms=40, kinds=("user",), checkpoint_ms=60, channel_window_bytes=1 << 16,
        batch_elements=1, latency_us=50, faults=faults, ordered=True, flush=True,
    )  # fmt: skip


LAST_ROWS_REFUSED = tuple(_store_away_from(at_ms) for at_ms in range(960, 990, 5))
"""The store is unavailable when the sink writes its last rows: seeds seldom draw that moment, a millisecond wide."""


@found_by(None, first=LAST_ROWS_REFUSED)
def _finished_before_the_store_has_all() -> Patches:
    """A beat says that a task has ended while its last rows wait for a store that is unavailable."""
    return {(EffectQueue, "reported_state"): lambda self, state, waiting_state: state}


@found_by(None, first=LAST_ROWS_REFUSED)
def _effects_overtake_a_refused_write() -> Patches:
    """Effects after a write that a store refused are performed immediately."""
    return {(causal.task.performer, "_at_once"): lambda effect: True}


@found_by(13)
def _silent_while_busy() -> Patches:
    """A process that is busy with one record does not say that it lives."""
    return {(Simulation, "report_pulse"): lambda self, process: None}


@found_by(0, endless=True)
def _acts_overtake_the_state_they_need() -> Patches:
    """Acts do not wait for the state that is being loaded."""
    return {(Backlog, "takes"): lambda self, act, loading: False}


@found_by(4)
def _a_state_replaced_meanwhile_is_damage() -> Patches:
    """A standby whose files a later checkpoint has replaced while it was loading them fails permanently."""
    return {(Disk, "has"): lambda self, files: True}


@found_by(7)
def _frames_raise_incarnations() -> Patches:
    """A HELLO is believed, whatever the supervisor has announced."""
    return {(Receiver, "keep_early"): lambda self, early: self.announce(early.incarnation)}


@found_by(208)
def _answers_count_from_every_connection() -> Patches:
    """FENCED is believed although the task has not dialled its sender."""
    receive = Exchange.receive

    def believing(self: Exchange, link: bytes, parts: Any, *others: Any) -> Any:
        header = wire.read_header(parts, self.job)
        if header.kind == wire.FENCED:
            return self._fenced(None, link, header, parts, False, 0)  # type: ignore[arg-type]
        return receive(self, link, parts, *others)

    return {(Exchange, "receive"): believing}


@found_by(80)
def _an_older_run_may_write() -> Patches:
    """A store does not look at which run is newer (D15)."""

    def fence(self: Account, run: str, incarnation: int) -> None:
        if self.incarnation > incarnation:
            raise fenced(self.task, incarnation)

    return {(account, "check_newest"): lambda place, run, *others: None, (Account, "fence"): fence}


@found_by(62)
def _edited_code_is_loaded() -> Patches:
    """Processes load the files of the pipeline as they are now, not those that the run has archived (D12)."""

    def edited(self: Simulation, task: int) -> Any:
        return self.job.chain(task, self.outside, self.files.rows)

    return {(Simulation, "code"): edited}


@found_by(0)
def _a_resume_takes_the_code_of_now() -> Patches:
    """Other code than that of the log replays it, and the user is not asked (D12)."""
    return {(versions, "code_after_resume"): lambda changed, stopped, choice: versions.NEW}


@found_by(1133)
def _what_other_code_replays_is_not_compared() -> Patches:
    """A sink believes that regenerated rows are those that are visible."""
    return {(SinkChannel, "_compare"): lambda self: None}


@found_by(449)
def _keys_as_they_are_spelled() -> Patches:
    """Equal keys keep the type that they came with (D14)."""
    return {(operators.engine.chain, "canonical_keys"): list, (operators.stage.context, "canonical_keys"): list}


SHELL_SABOTAGES: tuple[Callable[[], Patches], ...] = (
    _finished_before_the_store_has_all,
    _effects_overtake_a_refused_write,
)
