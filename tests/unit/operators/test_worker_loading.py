"""A worker loads a state in steps: a message meanwhile is answered, or waits in order after the state."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pytest

from causal.cut import Cut
from causal.events import CheckpointRequested
from causal.logs.dissemination import NO_KNOWLEDGE
from causal.logs.rollback import NO_ROLLBACK
from causal.snapshot_files import SnapshotFile
from causal.storage.files import write_parts
from operators.engine.operator_chain import OperatorChain
from operators.runtime import worker as worker_module
from operators.runtime.backlog import Backlog
from operators.runtime.image import Image
from operators.runtime.membership import Act, Begin, End, Feed, Load, SendReport, Start
from operators.runtime.resident import Resident
from operators.runtime.work_progress import Progress, Work
from operators.runtime.worker import Worker
from operators.state.snapshot_parts import table_part

STEPS_PER_PART = 10
PART = table_part(0, {})


class Slow(OperatorChain):
    """Loads each part in ten steps."""

    def __init__(self) -> None:
        self.loaded: list[bytes] = []

    def deliver(self, *delivery: Any) -> Any:
        raise AssertionError("nothing is delivered while a state is being loaded")

    def snapshot(self, *barrier: Any) -> Any:
        raise AssertionError("no barrier passes while a state is being loaded")

    def restoring(self, parts: Iterable[bytes]) -> Iterator[None]:
        for part in parts:
            for _ in range(STEPS_PER_PART):
                yield
            self.loaded.append(part)


class Scripted:
    """A membership that wants what a test says."""

    name, incarnation, beat_due_ns = "count/0", 1, 0

    def handle(self, event: Any, now_ns: int) -> list[Act]:
        if isinstance(event, list):
            return event
        return [SendReport("beat", {"after": type(event).__name__})]


class Loading(Worker):
    """A worker without sockets, whose every step of loading takes its whole time."""

    def __init__(self, directory: Path) -> None:
        self.slot, self.directory = "w1", directory
        self.config = cast(Any, SimpleNamespace(verify_replay=False, heartbeat_ms=100, heartbeat_timeout_ms=600))
        self.plan = cast(Any, SimpleNamespace(chain=lambda task: Slow()))
        self.work = Work()
        self.progress = Progress(self.work)
        self.membership = cast(Any, Scripted())
        self.following = self.loading = self.driver = self.hot = self.depot = self.fetch = self.witness = None
        self.resident = Resident(lambda task: Image(self.plan, task, directory))
        self.later = Backlog()
        self.prepared = cast(Any, SimpleNamespace(follow=lambda task: None, of=lambda task: {}))
        self.retained = NO_KNOWLEDGE
        self.load_began_ns = 0
        self.rehearsals = cast(Any, SimpleNamespace(checked=0, problem=""))
        self.did: list[str] = []
        self.stopping = False

    def does(self, *acts: Act) -> None:
        self.handle(cast(Any, list(acts)))

    def send_report(self, act: SendReport) -> None:
        self.did.append(f"report {act.kind} {act.facts.get('after', '')}".strip())

    def _task(self, image: Any, *_: Any) -> Any:
        return image

    def _drive(self, act: Begin, protocol: Any, answers: Any = ()) -> None:
        self.did.append(f"begin {act.epoch} with {len(protocol.chain.loaded)} parts")
        driver = SimpleNamespace(
            feed=lambda event: self.did.append(f"feed {event.epoch}"), start=lambda: self.did.append("start")
        )
        self.driver = cast(Any, driver)

    def turn(self) -> None:
        """Do one turn of the loop."""
        if self.loading is not None:
            self._load_more()
        if self.later:
            self._catch_up()

    def until_loaded(self) -> int:
        turns = 0
        while self.loading is not None or self.later:
            self.turn()
            turns += 1
            assert turns < 1000
        return turns


@pytest.fixture
def worker(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Loading:
    monkeypatch.setattr(worker_module, "LOAD_STEP_NS", 0)
    monkeypatch.setitem(worker_module._ACTS, SendReport, Loading.send_report)
    return Loading(tmp_path)


def snapshot(worker: Loading, epoch: int, parts: int = 2) -> SnapshotFile:
    path = f"checkpoints/e{epoch}.snap"
    size, digest = write_parts(worker.directory / path, [Cut(epoch).pack(), *[PART] * parts], False)
    return path, size, digest


def begin(epoch: int, *files: SnapshotFile) -> Begin:
    return Begin(0, 1, epoch, files, NO_ROLLBACK)


def test_what_needs_the_state_waits_for_it_in_order_and_what_is_told_does_not(worker: Loading) -> None:
    asked = Feed(CheckpointRequested(7))
    worker.does(begin(3, snapshot(worker, 3)), asked, SendReport("phase", {}), Start())
    assert worker.did == ["report phase"] and worker.vitals().state == "loading" and worker.vitals().epoch == 3
    worker.does(Feed(CheckpointRequested(8)))
    assert worker.until_loaded() > STEPS_PER_PART, "in steps"
    assert worker.did == ["report phase", "begin 3 with 2 parts", "feed 7", "start", "report beat Tick", "feed 8"]


def test_an_order_to_end_does_not_wait(worker: Loading) -> None:
    worker.does(Load(0, (snapshot(worker, 3),)))
    worker.does(End())
    assert worker.stopping and worker.loading is not None


def test_of_several_states_to_follow_only_the_last_is_loaded_after_the_one_under_way(worker: Loading) -> None:
    files = [snapshot(worker, epoch) for epoch in (1, 2, 3, 4)]
    for epoch in range(1, 5):
        worker.does(Load(0, tuple(files[:epoch])))
    assert len(worker.later) == 1
    worker.until_loaded()
    assert worker.did == ["report beat Loaded"] * 2 and worker.following is not None
    assert worker.following.cut.epoch == 4


def test_each_state_is_loaded_where_each_epoch_is_checked(worker: Loading) -> None:
    worker.later = Backlog(each=True)
    worker.config = cast(Any, SimpleNamespace(verify_replay=True))
    worker.rehearsals = cast(Any, SimpleNamespace(follow=lambda image, files: worker.did.append("checked")))
    files = [snapshot(worker, epoch) for epoch in (1, 2, 3)]
    for epoch in range(1, 4):
        worker.does(Load(0, tuple(files[:epoch])))
    worker.until_loaded()
    assert worker.did.count("checked") == 3


def test_a_standby_that_is_promoted_while_it_loads_goes_on_from_what_it_has(worker: Loading) -> None:
    files = [snapshot(worker, epoch) for epoch in (1, 2)]
    worker.does(Load(0, (files[0],)))
    worker.does(begin(2, *files), Start())
    worker.until_loaded()
    assert worker.did == ["report beat Loaded", "begin 2 with 4 parts", "start", "report beat Tick"]


@pytest.mark.parametrize("later", [True, False])
def test_a_state_of_which_a_file_is_gone_waits_for_a_later_one_to_be_named(later: bool, worker: Loading) -> None:
    gone, file = [snapshot(worker, epoch) for epoch in (1, 2)], snapshot(worker, 5)
    worker.does(Load(0, tuple(gone)))
    (worker.directory / gone[1][0]).unlink()  # a later checkpoint needs it no more
    if later:
        worker.does(begin(5, file), Start())
    worker.until_loaded()
    assert worker.did == (["begin 5 with 2 parts", "start", "report beat Tick"] if later else [])
    assert worker.loading is None
    assert later or (worker.following is not None and worker.following.files == gone[:1])


def test_what_is_loaded_is_told_with_how_far_it_has_come(worker: Loading, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(worker_module, "LONG_NS", 0)
    file = snapshot(worker, 1)
    worker.does(Load(0, (file,)))
    seen = []
    while worker.loading is not None:
        doing = worker.vitals().doing
        assert doing is not None and (doing.kind, doing.total) == ("load", file[1])
        seen.append(doing.done)
        worker.turn()
    assert seen == sorted(seen) and 0 < seen[-1] <= file[1]
    assert worker.vitals().doing is None


def test_a_pulse_reports_since_when_a_state_has_been_loading(worker: Loading) -> None:
    """A single step of loading takes long; the pulse reports all of them as one piece of work."""
    worker.transport = cast(Any, SimpleNamespace(endpoint="", remote=""))
    worker.work.begin("load", 9)
    worker.work.began_ns = worker.load_began_ns + 1
    pulse = worker.look()
    assert pulse is not None and pulse[1]["doing"]["since_ns"] == worker.load_began_ns
