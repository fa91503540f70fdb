"""A hot standby keeps every bound of the configuration that its task keeps: each is classified, each of a task shown.

The bounds are derived from the configuration: a numeric setting that is in neither table fails.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import fields, replace
from typing import Any

import pytest

from causal.config import LIMITS, JobConfig
from causal.effects import Effect, RemoveSegments, SpillSegment
from causal.errors import PipelineError
from causal.events import Event, SegmentFailed, SegmentWritten
from causal.records import batch
from causal.records.batch import Chunk, encode_records
from causal.task import echo
from causal.task.checkpointing import FILES_MIN
from causal.task.echo_states import EchoState
from causal.task.task import TaskProtocol
from tests.properties import test_echo_machine as machine
from tests.simulation.chains import Whole
from tests.unit.causal.echoing import barriers, begun

ROUNDS = 60
RECORD_BYTES = 20_000
BOUND = 256 << 10
"""Several times what one event makes, and a fraction of what all of them make."""

ELSEWHERE = {
    "sharing_depth": "says who holds a log, and is in the fingerprint",
    "checkpoint_interval_s": "the supervisor's",
    "state_memory_bytes_max": "in the tables of the chain, which shrink as an event ends, on every performer",
    "key_groups": "says where keys are",
    "batch_elements_max": "of tasks that read sources, which have no hot standby",
    "latency_target_ms": "of tasks that read sources",
    "replay_target_ms": "the supervisor's",
    "record_bytes_max": "in the chain, which refuses the record in both",
    "ingest_bytes_max": "of a source's own process",
    "kept_input_bytes_max": "of a source's own process",
    "heartbeat_ms": "of the process, whatever it performs",
    "heartbeat_timeout_ms": "of the process",
    "stuck_after_ms": "of the process",
    "event_timeout_s": "the task performs the event as well, and ends the job",
    "sink_retry_timeout_s": "a hot standby calls no store",
    "crash_loop_max": "the supervisor's",
    "agents": "of the launcher",
    "hosts_expected": "the supervisor's",
    "host_timeout_ms": "the supervisor's",
    "rebalance_after_s": "the supervisor's",
    "metrics_port": "the supervisor's",
}
"""The settings that bound nothing that a task keeps or waits for on its own, and why."""


class Bounded(machine.EchoMachine):
    """The task and its hot standby, each with a disk that answers immediately."""

    def __init__(self, config: JobConfig, monkeypatch: pytest.MonkeyPatch, disk_works: bool = True) -> None:
        monkeypatch.setattr(machine, "CONFIG", config)
        super().__init__()
        self.spilled, self.removed, self.disk_works = [0, 0], 0, disk_works
        self.begin()

    def _perform(self, effect: Effect) -> None:
        if isinstance(effect, SpillSegment):
            self.spilled[0] += 1
            self._feed(self._written(effect))
        super()._perform(effect)

    def _asked(self, effect: Effect) -> None:
        if isinstance(effect, SpillSegment):
            self.spilled[1] += 1
            self.standby.answered(self._written(effect), self.now_ns)
        elif isinstance(effect, RemoveSegments):
            self.removed += len(effect.segments)

    def _written(self, effect: SpillSegment) -> Event:
        if not self.disk_works:
            return SegmentFailed(effect.channel, effect.segment)
        first, count = effect.entries[0].first, effect.entries[-1].next - effect.entries[0].first
        return SegmentWritten(effect.channel, effect.segment, first, count)

    def the_standby_hears_what_is_complete(self) -> None:
        files = list(self.task.execution.checkpointing.files) if self.complete else []
        if not self.standby.follow(self.incarnation, self.complete, files):
            self.standby.take_image()
            self.standby.loaded(machine.Image(self.snapshots[self.complete]), self.now_ns)

    @property
    def shadow(self) -> TaskProtocol:
        task = self.standby._shadow.task
        assert task is not None, self.lines
        return task

    def round(self) -> None:
        """The task takes an event, its neighbour all that it sends, and its standby performs it as well."""
        source = self.inputs[machine.UPSTREAM[0].id]
        source.put(Chunk(batch.RECORDS, 1, encode_records([bytes(RECORD_BYTES)])))
        self._settle()
        output = self.task.channels.downstream[machine.DOWNSTREAM.id]
        output.credit(self.sent[-1].position, 1 << 30, self.now_ns)
        self.everything_arrives()
        self.now_ns += machine.MS

    def checkpoint(self) -> None:
        self.a_barrier_comes(0)
        self.everything_arrives()
        self.the_checkpoint_is_complete()
        self.the_standby_hears_what_is_complete()
        self.everything_arrives()
        self.the_standby_performs()


def configured(**settings: Any) -> JobConfig:
    return replace(machine.CONFIG, channel_window_bytes=1 << 30, **settings)


def kept(task: TaskProtocol) -> int:
    return sum(task.channels.inflight_bytes())


def until_wanted(scene: Bounded, within: Callable[[], bool]) -> None:
    """The task takes events until it wants a checkpoint; before, it is within half of the bound."""
    for _ in range(10 * ROUNDS):
        if scene.task.retention.wanted_epoch:
            return
        assert within()
        scene.round()
    raise AssertionError("the task wants no checkpoint")


def inflight_in_memory(monkeypatch: pytest.MonkeyPatch) -> None:
    scene = Bounded(configured(inflight_memory_bytes_max=BOUND), monkeypatch)
    for _ in range(ROUNDS):
        scene.round()
        for task in (scene.task, scene.shadow):
            assert task.channels.inflight_bytes()[0] <= BOUND
    assert all(scene.spilled) and kept(scene.shadow) > 4 * BOUND, "what is over the bound is on disk"
    scene.checkpoint()
    assert scene.removed == scene.spilled[1] and kept(scene.shadow) < BOUND
    scene.the_task_dies_and_its_standby_is_promoted()
    assert scene.task.incarnation == 2


def inflight_on_disk(monkeypatch: pytest.MonkeyPatch) -> None:
    scene = Bounded(configured(inflight_memory_bytes_max=BOUND, inflight_disk_bytes_max=2 * BOUND), monkeypatch)
    until_wanted(scene, lambda: kept(scene.task) <= BOUND)
    scene.checkpoint()
    assert not scene.task.retention.wanted_epoch and kept(scene.task) < BOUND and kept(scene.shadow) < BOUND
    for _ in range(ROUNDS):  # the checkpoint that the task wants does not come
        scene.round()
        assert kept(scene.shadow) <= 3 * BOUND
    assert scene.task.retention.wanted_epoch and kept(scene.task) > 4 * BOUND
    scene.checkpoint()
    scene.the_task_dies_and_its_standby_is_promoted()
    assert scene.task.incarnation == 2


def determinants(monkeypatch: pytest.MonkeyPatch) -> None:
    scene = Bounded(configured(log_bytes_max=1_000), monkeypatch)
    until_wanted(scene, lambda: scene.task.holdings.size <= 500)
    assert scene.shadow.holdings.size <= scene.task.holdings.size
    scene.checkpoint()
    assert scene.shadow.holdings.size <= scene.task.holdings.size < 500 and not scene.task.retention.wanted_epoch


def staged_rows(monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(PipelineError, match="a hot standby performs a determinant log"):
        configured(guarantee="epoch")


def queued(monkeypatch: pytest.MonkeyPatch) -> None:
    """The backlog of a hot standby is bounded by its task, which gives the echo up; a task has what it credits."""
    sending = begun()
    monkeypatch.setattr(echo, "ECHO_BYTES_MAX", 1_000)
    for payload in barriers(200):
        sending.take(payload)
        sending.due()
    assert sending.state() is EchoState.WAITING


BOUNDS: dict[str, Callable[[pytest.MonkeyPatch], None]] = {
    "inflight_memory_bytes_max": inflight_in_memory,
    "inflight_disk_bytes_max": inflight_on_disk,
    "log_bytes_max": determinants,
    "staged_bytes_max": staged_rows,
    "channel_window_bytes": queued,
}


@pytest.mark.parametrize("name", sorted(BOUNDS))
def test_a_hot_standby_keeps_each_bound_of_its_task(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    BOUNDS[name](monkeypatch)


def test_each_number_of_the_configuration_is_a_bound_that_is_shown_or_bounds_nothing_of_a_task() -> None:
    numbers = {each.name for each in fields(JobConfig) if each.type in ("int", "float") and each.name in LIMITS}
    unlimited = {each.name for each in fields(JobConfig) if each.name.endswith("_max")}
    assert numbers | unlimited == BOUNDS.keys() | ELSEWHERE.keys() and not BOUNDS.keys() & ELSEWHERE.keys()


def test_a_hot_standby_whose_disk_fails_waits_at_twice_its_bound(monkeypatch: pytest.MonkeyPatch) -> None:
    scene = Bounded(configured(inflight_memory_bytes_max=BOUND), monkeypatch, disk_works=False)
    for _ in range(ROUNDS):
        scene.round()
        assert kept(scene.shadow) <= 3 * BOUND


def test_a_hot_standby_encodes_as_few_complete_snapshots_as_its_task(monkeypatch: pytest.MonkeyPatch) -> None:
    """The files of the last checkpoint decide, and the task alone writes them."""
    full: dict[int, list[bool]] = {}
    snapshot = machine.Noting.snapshot

    def noted(chain: machine.Noting, complete: bool, behind: str = "") -> Any:
        full.setdefault(id(chain), []).append(complete)
        return snapshot(chain, complete, behind)

    monkeypatch.setattr(machine.Noting, "snapshot", noted)
    monkeypatch.setattr(Whole, "full", property(lambda job: full[id(scene.task.execution.chain)][-1]))
    scene = Bounded(configured(), monkeypatch)
    for _ in range(3 * FILES_MIN):
        scene.round()
        scene.checkpoint()
    of_task, of_shadow = (full[id(task.execution.chain)] for task in (scene.task, scene.shadow))
    assert of_shadow == of_task and sum(of_task) == 3
