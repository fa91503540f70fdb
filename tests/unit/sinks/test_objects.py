"""Sinks in a shared store keep every promise of the kit, and die at every request of every step.

The client of a real store has threads, so nothing forks here: a process is a store object that is abandoned where a
request raises `Died`, and a zombie is one that is used after that.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from causal.errors import CausalError, CorruptData, Fenced, PipelineError, Superseded, Unavailable
from causal.ports import SinkStore, StoreState
from causal.storage.object_journal import JournalObjects
from operators.sinks import JsonLinesSink
from operators.sinks.conformance import (
    Subject,
    bundle_at,
    bundles,
    outages,
    returning,
    successions,
    value_checks,
    withdrawal,
)
from operators.sinks.conformance.subject import expect_agreement, fill
from operators.sinks.contract.sink import Sink
from operators.sinks.files.jsonlines import publish as publish_lines
from operators.sinks.journaled.ledger import Ledger
from operators.sinks.journaled.request_store import SharedRequestStore
from operators.sinks.objects import object_place
from operators.sinks.objects.object_place import kind_of, known_runs, rows_in, stem_of
from operators.sinks.objects.object_reading import ObjectLinesOutput
from operators.sinks.parquet.parquet_reading import ObjectParquetOutput, read
from operators.sinks.parquet.parquet_sink import ParquetSink
from operators.sinks.parquet.parquet_sink import publish as publish_parquet
from tests.members import members
from tests.properties.objects import Died, Failing, Memory

URL = "s3://bucket/out"
CHECKS = (
    *bundles.CHECKS,
    *outages.CHECKS,
    *value_checks.CHECKS,
    successions.lets_no_older_run_come_back,
    *(check for check in withdrawal.CHECKS + returning.CHECKS if "killed" not in (check.__doc__ or "")),
)
"""The checks of the kit in which nothing forks."""
CUTS: dict[str, dict[str, Any]] = {
    "lines immediately": {"publish_s": 1e-9},
    "lines by size": {"file_bytes": 300},
    "lines never": {},
    "parquet immediately": {"kind": ParquetSink, "publish_s": 1e-9},
    "parquet never": {"kind": ParquetSink},
    "requests": {"kind": None},
}
ALWAYS = "lines immediately"
"""The one of them that every run of the tests takes; the kit also with Parquet."""
READERS = {"jsonl": ObjectLinesOutput, "parquet": ObjectParquetOutput}


class Place:
    """A place in a store in memory, which can be unavailable, and what a user sees there."""

    def __init__(self) -> None:
        self.memory = Memory()
        self.client: Any = self.memory

    def connected(self, url: str, proof: str | None = None, options: Any = None) -> Any:
        assert url == URL
        return self.client

    @contextmanager
    def away(self) -> Iterator[None]:
        self.memory._failing = 1.0
        self.memory._chance.random = lambda: 0.99  # type: ignore[method-assign]
        try:
            yield
        finally:
            self.memory._failing = 0.0

    def requests(self, task: str) -> int:
        """Return the number of requests that may have left."""
        records = JournalObjects(self.memory, f"requests/{stem_of(task)}").read()
        return Ledger.of(records, task).account.next if records else 0

    def rows(self, task: str) -> list[Any]:
        """Return all rows as our reader gives them; those in objects, which anybody reads, are the first of them."""
        runs = known_runs(self.memory)
        if not runs:
            return []
        kind = READERS[kind_of(self.memory, runs[-1])]
        output = kind(self.memory)  # type: ignore[arg-type]
        output.look()
        records: list[Any] = []
        last = -1
        for positions, rows in output.rows(task, 0, output.ends(True).get(task, 0)):
            places = list(positions) if kind is ObjectLinesOutput else positions.to_pylist()
            assert places[0] > last and places == sorted(dict.fromkeys(places))
            last = places[-1]
            records += map(json.loads, rows) if kind is ObjectLinesOutput else rows.to_pylist()
        plain: list[Any] = []
        end = 0
        for first, next_, name in rows_in(self.memory, output.run).get(stem_of(task), []):
            assert first == end
            end = next_
            if kind is ObjectLinesOutput:
                plain += [json.loads(line) for line in self.memory.stored[name].split(b"\n")[:-1]]
            else:
                plain += pq.read_table(pa.BufferReader(self.memory.stored[name])).to_pylist()
        assert plain == records[: len(plain)]
        return records


@pytest.fixture
def place(monkeypatch: pytest.MonkeyPatch) -> Place:
    here = Place()
    monkeypatch.setattr(object_place, "connected", here.connected)
    monkeypatch.setattr("operators.sinks.journaled.request_store.Depot", lambda url, place, proof: here.client)
    return here


class Requests(Sink):
    """Requests as rows: of them only number and digest are kept."""

    existing = None

    def open_store(self, task: str, job_directory: Path) -> SinkStore:
        return SharedRequestStore(task, URL, "job/run")


def subject_of(place: Place, kind: Any = JsonLinesSink, **options: Any) -> Subject:
    if kind is None:
        return Subject(Requests(), place.requests, seen=len, away=place.away)
    poison = (lambda: {"task": "out/0", "n": "seven", "text": ""}) if kind is ParquetSink else None
    return Subject(kind(URL, **options), place.rows, away=place.away, poison=poison)


@pytest.mark.parametrize("cuts", members(list(CUTS)[:-1], ALWAYS, "parquet immediately"))
@pytest.mark.parametrize("check", CHECKS, ids=lambda check: check.__name__)
def test_it_conforms(check: Callable[[Subject], None], cuts: str, place: Place) -> None:
    check(subject_of(place, **CUTS[cuts]))


Step = Callable[[Subject, SinkStore, StoreState], object]


STEPS: dict[str, Step] = {
    "open": lambda subject, store, state: subject.opened(3),
    "write": lambda subject, store, state: store.write(bundle_at(subject, state, 3, 2)),
    "truncate": lambda subject, store, state: store.truncate(1),
    "publish": lambda subject, store, state: store.publish(),  # type: ignore[attr-defined]
    "withdraw": lambda subject, store, state: store.withdraw(  # type: ignore[attr-defined]
        next(mark for mark in state.marks if mark.next == 49)
    ),
}


def attempts(place: Place, problem: type[BaseException]) -> Iterator[Failing]:
    """Yield clients that fail at the first request, the second, …, or after it, until a step has fewer."""
    for at in range(1, 1000):
        for done in (False, True):
            place.memory.stored.clear()
            failing = Failing(place.memory, at, done, problem)
            yield failing
            if failing.left > 0:
                return


def before(step: Step, subject: Subject, store: SinkStore, state: StoreState) -> StoreState:
    """52 rows; those after 42 can be withdrawn if that is the step."""
    if step is not STEPS["withdraw"]:
        return fill(subject, store, state, 52, 2)
    state = withdrawal.fill_marked(subject, store, state, 42, 2)
    store.truncate(1)
    withdrawal.fill_marked(subject, store, state, 52, 2)
    return store.last_bundle()


@pytest.mark.parametrize("cuts", members(CUTS, ALWAYS, "requests"))
@pytest.mark.parametrize("step", STEPS.values(), ids=STEPS)
def test_a_process_that_dies_at_any_request_leaves_rows_exact(step: Step, cuts: str, place: Place) -> None:
    if cuts == "requests" and step is STEPS["publish"]:
        pytest.skip("requests are not published")
    deaths = 0
    for failing in attempts(place, Died):
        place.client = switch = Switch(place.memory)
        subject = subject_of(place, **CUTS[cuts])
        zombie, state = subject.opened(2)
        state = before(step, subject, zombie, state)
        switch.client = failing
        try:
            step(subject, zombie, state)
        except Died:
            deaths += 1
        switch.client = place.client = place.memory
        successor, now = subject.opened(4)
        assert now.next in (49, 52, 55)
        expect_agreement(subject, now, "a successor", kept_from=None)
        with pytest.raises(Fenced):
            zombie.write(bundle_at(subject, now, 2, 2))
        fill(subject, successor, now, 70, 4)
        subject.expect_rows(70, "a successor continues")
        successor.close()
        subject.expect_rows(70, "a successor closes")
    assert deaths >= 2


@pytest.mark.parametrize("cuts", members(CUTS, ALWAYS))
@pytest.mark.parametrize("step", [step for name, step in STEPS.items() if name != "open"])
def test_a_request_without_an_answer_is_made_again_and_happens_once(step: Step, cuts: str, place: Place) -> None:
    if cuts == "requests" and step is STEPS["publish"]:
        pytest.skip("requests are not published")
    for failing in attempts(place, Unavailable):
        place.client = switch = Switch(place.memory)
        subject = subject_of(place, **CUTS[cuts])
        store, state = subject.opened(2)
        state = before(step, subject, store, state)
        switch.client = failing
        again(lambda: step(subject, store, state))  # noqa: B023
        switch.client = place.memory
        now = store.last_bundle()
        assert now.next == {"write": 55, "withdraw": 49}.get(next(n for n, s in STEPS.items() if s is step), 52)
        expect_agreement(subject, now, "the same process", kept_from=None)
        fill(subject, store, now, 60, 2)
        subject.expect_rows(60, "the same process continues")
        store.close()


def again(act: Callable[[], object]) -> None:
    for _ in range(3):
        try:
            act()
            return
        except Unavailable:
            continue
    act()


class Switch:
    """A client that becomes another one while a store uses it."""

    url = Memory.url

    def __init__(self, client: Any) -> None:
        self.client = client

    def __getattr__(self, name: str) -> Any:
        return getattr(self.client, name)


def test_a_newer_run_that_dies_at_any_request_has_not_begun_or_has_for_good(place: Place) -> None:
    let_in = refused = 0
    for failing in attempts(place, Died):
        place.client = place.memory
        subject = subject_of(place, existing="replace", publish_s=1e-9)
        old, state = subject.opened(run="run-1")
        fill(subject, old, state, 10)
        other, state = subject.opened(run="run-1", task="out/1")
        fill(subject, other, state, 10, task="out/1")
        place.client = failing
        try:
            subject.opened(run="run-2")
        except Died:
            pass
        place.client = place.memory
        try:
            _, state = subject.opened(2, run="run-1")
        except Superseded:
            refused += 1
        else:
            let_in += 1
            assert state.next == 10
            subject.expect_rows(10, "an older run that is let in sees its rows")
        young, state = subject.opened(2, run="run-2")
        assert state.next == 0
        subject.expect_rows(0, "the newer run begins without rows")
        subject.expect_rows(0, "the newer run begins without rows", "out/1")
        fill(subject, young, state, 12, 2)
        for store, task in ((old, "out/0"), (other, "out/1")):
            with pytest.raises(CausalError) as refusal:
                store.write(bundle_at(subject, StoreState(10, 0, ()), 2, task=task))
            assert isinstance(refusal.value, Fenced)
        with pytest.raises(Superseded):
            subject.opened(9, run="run-1")
        with pytest.raises(Superseded):
            subject.opened(9, run="run-1", task="out/1")
        subject.expect_rows(12, "an older run changes nothing")
        assert rows_in(place.memory, "run-1") == {}
    assert let_in > 2 and refused > 5


def test_rows_of_another_run_are_refused_and_stay(place: Place) -> None:
    subject = subject_of(place, publish_s=1e-9)
    store, state = subject.opened(run="run-1")
    fill(subject, store, state, 10)
    with pytest.raises(PipelineError, match=r"holds rows of another run.*JsonLinesSink\(…, existing=\"replace\"\)"):
        subject.opened(run="run-2")
    fill(subject, store, store.last_bundle(), 20)
    subject.expect_rows(20, "a refused run changes nothing")
    assert subject.sink.newest_run() == "run-1"


@pytest.mark.parametrize(("kind", "publish"), [(JsonLinesSink, publish_lines), (ParquetSink, publish_parquet)])
def test_rows_of_a_job_that_was_killed_can_be_moved_to_objects(
    kind: Any, publish: Callable[..., None], place: Place, monkeypatch: pytest.MonkeyPatch
) -> None:
    for module in ("files.jsonlines", "parquet.parquet_sink"):
        monkeypatch.setattr(f"operators.sinks.{module}.connected", place.connected)
    subject = subject_of(place, kind)
    for task in ("out/0", "out/1"):
        store, state = subject.opened(task=task)
        state = (
            withdrawal.fill_marked(subject, store, state, 14)
            if task == "out/0"
            else fill(subject, store, state, 9, task=task)
        )
    publish(URL)
    ranges = rows_in(place.memory, "run-1")
    assert {task: each[-1][1] for task, each in ranges.items()} == {"out-1": 9}
    publish(URL, ended=True)
    ranges = rows_in(place.memory, "run-1")
    assert {task: each[-1][1] for task, each in ranges.items()} == {"out-0": 14, "out-1": 9}
    subject.expect_rows(14, "all rows are there once")
    store, state = subject.opened(2)
    with pytest.raises(PipelineError, match="were published as rows of a job that has ended"):
        store.withdraw(state.marks[0])  # type: ignore[attr-defined]


def test_all_tasks_of_a_run_have_the_schema_of_the_first_rows(place: Place, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("operators.sinks.parquet.parquet_reading.connected", place.connected)
    subject = subject_of(place, ParquetSink)
    one, state = subject.opened()
    two, state_two = subject.opened(task="out/1")
    fill(subject, one, state, 3)
    fill(subject, two, state_two, 5, task="out/1")
    assert read(URL).schema.names == ["task", "n", "text"]
    assert read(URL).num_rows == 8
    other = subject_of(place, ParquetSink, schema={"n": "int64"})
    with pytest.raises(
        PipelineError, match=r"differ from ParquetSink's schema in columns or types \(columns task, n, text\)"
    ):
        other.opened(2)
    place.memory.stored["_causal/schemas/run-1"] = b"damaged"
    with pytest.raises(CorruptData, match="_causal/schemas/run-1 is not a schema"):
        read(URL)


def test_every_host_reaches_it_alike(tmp_path: Path) -> None:
    assert JsonLinesSink(URL).everywhere
    assert not JsonLinesSink(tmp_path).everywhere
