"""A process has one state, of a standby or a task: what replaces it frees it, and the files that hold it."""

from __future__ import annotations

import gc
import os
import re
import weakref
from collections.abc import Callable, Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any, Literal, cast

import pytest

from causal.config import JobConfig
from causal.cut import Cut
from causal.errors import CorruptData
from causal.logs.dissemination import NO_KNOWLEDGE
from causal.logs.rollback import NO_ROLLBACK
from causal.shell.request_pool import RequestPool
from causal.snapshot_files import SnapshotFile, merged_name, written_name
from causal.storage.files import write_parts
from causal.task.shadow import Shadow
from operators import Operator, Pipeline
from operators.engine.plan import plan
from operators.runtime import worker as worker_module
from operators.runtime.backlog import Backlog
from operators.runtime.hot_standby import HotStandby
from operators.runtime.image import Image
from operators.runtime.membership import Begin, Load
from operators.runtime.merge_process import merge
from operators.runtime.prepared_stores import PreparedStores
from operators.runtime.rescaling import whole
from operators.runtime.resident import Resident
from operators.runtime.task_disk import TaskDisk
from operators.runtime.work_progress import Progress, Work
from operators.runtime.worker import Worker
from operators.state import snapshot_parts
from tests.members import members
from tests.unit.operators.scene import NoSink, config, source

State = Literal["memory", "disk"]
STATES = pytest.mark.parametrize("state", ["memory", "disk"])
LONG = pytest.mark.parametrize("state", members(["memory", "disk"], "disk"))
"""The state on disk has a file as well, which must be freed."""


class Seen(Operator):
    """Keeps every record of a key."""

    def process(self, record: Any, ctx: Any) -> Iterator[Any]:
        """Append the record to those of its key."""
        ctx.state.setdefault("seen", []).append(record)
        yield record


def planned(directory: Path, state: State) -> Any:
    pipeline = Pipeline("kept")
    stream = pipeline.source("in", source()).key_by(lambda record: record)
    stream.process("keep", Seen(), state=state).sink("out", NoSink())
    return plan(pipeline, config(state_memory_bytes_max=1 << 16, state_directory=str(directory / "spill")))


def task_of(graph: Any) -> int:
    return int(next(task.index for task in graph.topology.tasks if task.name.startswith("keep/")))


def filled(graph: Any, count: int) -> Any:
    chain: Any = graph.chain(task_of(graph))
    (table,) = (table for stage in chain.stages for table in stage.tables() if table.name == "keep")
    for key in range(count):
        table.touch((key,))
        table.values[key] = {"seen": [key] * 20}
        table.shrink()
    return chain


def stored(directory: Path, graph: Any, epoch: int, count: int) -> SnapshotFile:
    name = f"{epoch}.snap"
    return (name, *write_parts(directory / name, [Cut(epoch).pack(), *whole(filled(graph, count))], durable=False))


def open_stores() -> int:
    places = (Path("/proc/self/fd") / name for name in os.listdir("/proc/self/fd"))
    return sum(".cold" in os.readlink(place) for place in places if os.path.lexists(place))


@STATES
def test_what_a_full_snapshot_replaces_is_freed(tmp_path: Path, state: State) -> None:
    graph = planned(tmp_path, state)
    files = [stored(tmp_path, graph, epoch, 1_000) for epoch in (1, 2, 3)]
    gc.collect()
    before = open_stores()
    image = Image(graph, task_of(graph), tmp_path)
    replaced: list[tuple[Any, Any]] = []
    for file in files:
        image.load([file])
        tables = {table.name: table for stage in image.chain.stages for table in stage.tables()}
        assert len(tables["keep"].values) == 1_000
        assert open_stores() - before == (state == "disk"), "one file, of the image that is there"
        assert not any(len(values) for values, _ in replaced), "nothing waits for a collection"
        replaced.append((tables["keep"].values, weakref.ref(image.chain)))
        del tables
    references = [reference for _, reference in replaced]
    replaced.clear()
    gc.collect()
    assert [reference() is None for reference in references] == [True, True, False]


def linked(directory: Path, chain: Any, epoch: int, behind: str, full: bool) -> SnapshotFile:
    name, job = f"{epoch}.snap", chain.snapshot(full, behind if full else "")
    while not job.step(100):
        pass
    return (name, *write_parts(directory / name, job.parts(Cut(epoch).pack()), durable=False))


@STATES
def test_of_a_full_snapshot_only_what_has_changed_is_loaded(
    tmp_path: Path, state: State, monkeypatch: pytest.MonkeyPatch
) -> None:
    graph = planned(tmp_path, state)
    chain = filled(graph, 1_000)
    (table,) = (table for stage in chain.stages for table in stage.tables() if table.name == "keep")
    files = [linked(tmp_path, chain, 1, "", True)]
    image = Image(graph, task_of(graph), tmp_path)
    image.load(files)
    for epoch in (2, 3, 4, 5):
        table.touch((epoch, 500 + epoch))
        table.values[epoch] = {"seen": [epoch]}
        table.values.pop(500 + epoch)
        full = epoch in (3, 4)
        file = linked(tmp_path, chain, epoch, files[-1][2], full)
        files = [file] if full else [*files, file]
        kept, before = image.chain, loaded_bytes(image, monkeypatch)
        image.load(files)
        assert image.chain is kept and image.files == files and image.cut.epoch == epoch
        assert sum(before) < 200, "nothing of the keys that have not changed"
    late = Image(graph, task_of(graph), tmp_path)
    for every in (files, files[:1]):
        late.load(every)  # these have no link from its state, so it loads all
    late.load(files)
    states = [sorted(values_of(each.chain).items()) for each in (image, late)]
    assert states[0] == states[1] == sorted(values_of(chain).items()) and len(states[0]) == 996


@pytest.mark.parametrize("other", [True, False], ids=["it links to other files", "its increment is too much"])
def test_what_cannot_be_loaded_as_a_change_is_loaded_whole(
    other: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    graph = planned(tmp_path, "memory")
    chain = filled(graph, 10)
    first = linked(tmp_path, chain, 1, "", True)
    monkeypatch.setattr(snapshot_parts, "INCREMENT_BYTES_MAX", snapshot_parts.INCREMENT_BYTES_MAX if other else 10)
    second = linked(tmp_path, chain, 2, first[2], True)
    image = Image(graph, task_of(graph), tmp_path)
    image.load([stored(tmp_path, graph, 9, 20) if other else first])
    before = image.chain
    image.load([second])
    assert image.chain is not before and len(values_of(image.chain)) == 10


def values_of(chain: Any) -> dict[Any, Any]:
    (table,) = (table for stage in chain.stages for table in stage.tables() if table.name == "keep")
    return dict(table.values.items())


def loaded_bytes(image: Image, monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """Return the sizes of the fragments that the table of an image loads from now on."""
    sizes: list[int] = []
    chain: Any = image.chain
    (stage,) = (stage for stage in chain.stages if any(table.name == "keep" for table in stage.tables()))
    loaders = stage.loaders()

    def load(fragment: bytes) -> None:
        sizes.append(len(fragment))
        loaders["keep"](fragment)

    monkeypatch.setattr(stage, "loaders", lambda: {**loaders, "keep": load})
    return sizes


# A process has one state: each loss of an echo, and each rollback in place, frees the state before, and its files.


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
        self.prepared = PreparedStores(plan, directory, lambda line: None)
        self.resident = Resident(lambda task: Image(plan, task, directory))
        self.hot = HotStandby(1, self._shadow, self.task_disk.ask, self._shadow_lost) if settings.hot else None
        self.transport = cast(Any, SimpleNamespace(receive=lambda ready: (), reply=lambda link, parts: None))
        self.later, self.retained, self.difference, self.load_began_ns = Backlog(), NO_KNOWLEDGE, "", 0

    def _drive(self, act: Begin, protocol: Any, answers: Any = ()) -> None:
        self.driver = cast(Any, SimpleNamespace(task=protocol, close=lambda ends: None))

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
@LONG
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


@pytest.mark.parametrize("between", [False, True])
def test_an_echo_that_is_lost_before_it_is_performed_leaves_the_loaded_state(
    between: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The state waits for an echo that reaches back far enough, or is still being loaded."""
    monkeypatch.setattr(Shadow, "_step", lambda shadow, step: None)
    worker, file, task, watched = scene(tmp_path, "memory", standbys="hot")
    assert worker.hot is not None
    monkeypatch.setattr(worker_module, "LOAD_STEP_NS", 0 if between else worker_module.LOAD_STEP_NS)
    worker.load(Load(task, (file,), 0, 1))
    assert (worker.loading is not None) is between
    worker.hot._lose("frame 4 of an echo arrived, but the next frame is 0")
    worker.until_loaded()
    worker.load(Load(task, (file,), 0, 1))
    worker.until_loaded()
    worker.begin(Begin(task, 7, 1, (file,), NO_ROLLBACK))
    worker.until_loaded()
    assert worker.driver is not None
    watched.look(worker.driver.task)


@pytest.mark.usefixtures("follows")
@LONG
def test_a_hot_standby_that_loads_the_checkpoint_frees_what_it_has_performed_on(tmp_path: Path, state: State) -> None:
    worker, file, task, watched = scene(tmp_path, state, standbys="hot")
    worker.load(Load(task, (file,), 0, 1))
    worker.until_loaded()
    watched.look(shadow_of(worker))
    worker.begin(Begin(task, 7, 1, (file,), NO_ROLLBACK))
    worker.until_loaded()
    assert worker.driver is not None
    watched.look(worker.driver.task)


@LONG
def test_each_rollback_in_place_frees_the_state(tmp_path: Path, state: State) -> None:
    worker, file, task, watched = scene(tmp_path, state)
    for incarnation in range(1, LOSSES + 1):
        worker.begin(Begin(task, incarnation, 1, (file,), NO_ROLLBACK))
        worker.until_loaded()
        assert worker.driver is not None
        watched.look(worker.driver.task)


@LONG
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


def chained(directory: Path, graph: Any, epochs: int) -> tuple[Any, list[SnapshotFile]]:
    """A base of a thousand keys and increments, each of which puts its number and removes a key, in real files."""
    chain, files = filled(graph, 1_000), list[SnapshotFile]()
    (table,) = (table for stage in chain.stages for table in stage.tables() if table.name == "keep")
    for epoch in range(1, epochs + 1):
        table.touch((epoch, 500 + epoch))
        table.values[epoch] = {"seen": [epoch]}
        table.values.pop(500 + epoch)
        job, name = chain.snapshot(epoch == 1), written_name("keep/0", epoch, 1)
        while not job.step(100):
            pass
        files.append((name, *write_parts(directory / name, job.parts(Cut(epoch).pack()), durable=False)))
    return chain, files


def merged_file(directory: Path, chain: Any, files: list[SnapshotFile], first: int, last: int) -> SnapshotFile:
    name = merged_name("keep/0", first, last, 1)
    sources = [[str(directory / path), digest] for path, _, digest in files]
    answer = merge(
        {
            "sources": sources, "target": str(directory / name), "complete": first == 0,
            "rules": chain.merge_rules(), "key_groups": config().key_groups, "durable": False,
        }
    )  # fmt: skip
    return name, answer["size"], answer["digest"]


def kept(image: Image) -> dict[Any, Any]:
    (table,) = (table for stage in image.chain.stages for table in stage.tables() if table.name == "keep")
    return dict(table.values.items())


@STATES
@pytest.mark.parametrize("loaded", range(1, 9))
def test_of_merged_files_only_those_with_later_changes_are_read(tmp_path: Path, state: State, loaded: int) -> None:
    graph = planned(tmp_path, state)
    chain, files = chained(tmp_path, graph, 9)
    base = merged_file(tmp_path, chain, files[:3], 0, 3)
    later = merged_file(tmp_path, chain, files[3:6], 4, 6)
    image, fresh = Image(graph, task_of(graph), tmp_path), Image(graph, task_of(graph), tmp_path)
    image.load(files[:loaded])
    before = image.chain
    image.load([base, later, *files[6:]])
    fresh.load(files)
    assert kept(image) == kept(fresh) and image.cut.epoch == 9 and image.files == [base, later, *files[6:]]
    assert (image.chain is before) is (loaded >= 3), "a state before the last barrier of the base is loaded again"


def test_what_is_loaded_stays_if_a_later_file_has_been_replaced(tmp_path: Path) -> None:
    graph = planned(tmp_path, "memory")
    chain, files = chained(tmp_path, graph, 5)
    one = merged_file(tmp_path, chain, files[2:4], 3, 4)
    (tmp_path / files[3][0]).unlink()
    image, fresh = Image(graph, task_of(graph), tmp_path), Image(graph, task_of(graph), tmp_path)
    before = image.chain
    with pytest.raises(CorruptData, match="missing"):
        image.load(files)
    assert image.whole and image.files == files[:3] and image.cut.epoch == 3
    image.load([*files[:2], one, files[4]])
    fresh.load([*files[:2], one, files[4]])
    assert image.chain is before and kept(image) == kept(fresh) and image.cut.epoch == 5
