"""A process has one state: each loss of an echo, and each rollback in place, frees the state before, and its files."""

from __future__ import annotations

import gc
import re
import weakref
from collections.abc import Callable, Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pytest

from causal.config import JobConfig
from causal.logs.dissemination import NO_KNOWLEDGE
from causal.logs.rollback import NO_ROLLBACK
from causal.shell.request_pool import RequestPool
from causal.task.shadow import Shadow
from operators.runtime.backlog import Backlog
from operators.runtime.hot_standby import HotStandby
from operators.runtime.image import Image
from operators.runtime.membership import Begin, Load
from operators.runtime.resident import Resident
from operators.runtime.task_disk import TaskDisk
from operators.runtime.work_progress import Progress, Work
from operators.runtime.worker import Worker
from tests.unit.operators.scene import config
from tests.unit.operators.test_image import STATES, State, open_stores, planned, stored, task_of

LOSSES = 3
KEYS = 500
PRODUCT = ("causal", "operators", "standby", "deploy", "pyspark_causal")


class Losing(Worker):
    """A worker without sockets that loads real states; what it performs on them has no peers."""

    def __init__(self, directory: Path, plan: Any, settings: JobConfig) -> None:
        self.slot, self.directory, self.config, self.plan = "w1", directory, settings, plan
        self.work = Work()
        self.progress = Progress(self.work)
        self.membership = cast(Any, SimpleNamespace(name="keep/0", handle=lambda event, now_ns: []))
        self.following = self.loading = self.driver = self.depot = self.fetch = self.witness = None
        self.poller = cast(Any, SimpleNamespace(register=lambda *_: None, unregister=lambda *_: None))
        self.task_disk = TaskDisk(directory, "w1", settings, None, self.poller)
        self.asking = RequestPool({})
        self.resident = Resident(lambda task: Image(plan, task, directory))
        self.hot = HotStandby(1, self._shadow, self.task_disk.ask, self._shadow_lost) if settings.hot else None
        self.transport = cast(Any, SimpleNamespace(receive=lambda ready: (), reply=lambda link, parts: None))
        self.later, self.retained, self.difference, self.load_began_ns = Backlog(), NO_KNOWLEDGE, "", 0

    def _drive(self, act: Begin, protocol: Any) -> None:
        self.driver = cast(Any, SimpleNamespace(task=protocol, close=lambda: None))

    def until_loaded(self) -> None:
        while self.loading is not None:
            self._load_more()


@pytest.fixture(autouse=True)
def thawed() -> Iterator[None]:
    yield
    gc.unfreeze()


@pytest.fixture
def follows(monkeypatch: pytest.MonkeyPatch) -> None:
    """A hot standby that performs nothing on the state that it has loaded."""
    monkeypatch.setattr(Shadow, "follows", lambda shadow, cut: True)
    monkeypatch.setattr(Shadow, "_step", lambda shadow, step: None)


class Watched:
    """The states that a worker has had, and the files that hold them."""

    def __init__(self, worker: Losing, state: str) -> None:
        gc.collect()
        self._worker, self._state, self._before = worker, state, open_stores()
        self._seen: list[list[Callable[[], Any]]] = []
        self._values: list[list[Any]] = []

    def look(self, performs: Any) -> None:
        """Record what the worker has now; all that it has had before must be gone, without a collection of the test."""
        image = self._worker.resident.image
        assert image is not None
        chain = cast(Any, image.chain)
        tables = [table for stage in chain.stages for table in stage.tables()]
        assert sum(len(table.values) for table in tables if table.name == "keep") == KEYS
        self._seen.append([weakref.ref(each) for each in (performs, chain, *chain.stages)])
        self._values.append([table.values for table in tables])
        del image, performs, chain, tables
        living = [[each() is not None for each in state] for state in self._seen]
        assert [any(state) for state in living[:-1]] == [False] * (len(living) - 1) and all(living[-1])
        assert not any(len(values) for tables in self._values[:-1] for values in tables)
        assert open_stores() - self._before == (self._state == "disk")

    def gone(self) -> None:
        assert not any(each() is not None for state in self._seen for each in state)
        assert open_stores() == self._before


def scene(directory: Path, state: State, **settings: Any) -> tuple[Losing, Any, int, Watched]:
    graph = planned(directory, state)
    file = stored(directory, graph, 1, KEYS)
    gc.collect()
    worker = Losing(directory, graph, config(**settings))
    return worker, file, task_of(graph), Watched(worker, state)


def shadow_of(worker: Losing) -> Any:
    assert worker.hot is not None and worker.hot.shadowing
    return worker.hot._shadow.task


@pytest.mark.usefixtures("follows")
@STATES
def test_each_lost_echo_frees_the_state(tmp_path: Path, state: State) -> None:
    worker, file, task, watched = scene(tmp_path, state, standbys="hot")
    for _ in range(LOSSES):
        worker.load(Load(task, (file,), 0, 1))
        worker.until_loaded()
        watched.look(shadow_of(worker))
        assert worker.hot is not None
        worker.hot._lose("the connection was cut")
        worker._shadows(worker.hot, {})
        watched.gone()


@pytest.mark.usefixtures("follows")
@STATES
def test_a_hot_standby_that_loads_the_checkpoint_frees_what_it_has_performed_on(tmp_path: Path, state: State) -> None:
    worker, file, task, watched = scene(tmp_path, state, standbys="hot")
    worker.load(Load(task, (file,), 0, 1))
    worker.until_loaded()
    watched.look(shadow_of(worker))
    worker.begin(Begin(task, 7, 1, (file,), NO_ROLLBACK))
    worker.until_loaded()
    assert worker.driver is not None
    watched.look(worker.driver.task)


@STATES
def test_each_rollback_in_place_frees_the_state(tmp_path: Path, state: State) -> None:
    worker, file, task, watched = scene(tmp_path, state)
    for incarnation in range(1, LOSSES + 1):
        worker.begin(Begin(task, incarnation, 1, (file,), NO_ROLLBACK))
        worker.until_loaded()
        assert worker.driver is not None
        watched.look(worker.driver.task)


@STATES
def test_a_passive_standby_of_another_task_frees_the_state(tmp_path: Path, state: State) -> None:
    worker, file, task, watched = scene(tmp_path, state)
    for _ in range(LOSSES):
        worker.load(Load(task, (file,), 0, 1))
        worker.until_loaded()
        watched.look(worker.following)
        worker.following = None
        gc.collect()


def test_only_the_owner_of_the_state_freezes_it() -> None:
    root = Path(__file__).parents[3]
    freezing = [
        str(path.relative_to(root))
        for folder in PRODUCT
        for path in sorted((root / folder).rglob("*.py"))
        if re.search(r"^\s+gc\.freeze\(", path.read_text(), re.MULTILINE)
    ]
    assert freezing == ["operators/runtime/resident.py", "standby/host/forkserver.py"]
