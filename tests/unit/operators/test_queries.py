"""Questions about keys: what a scan returns, how values are spelled, and states that follow checkpoints."""

from __future__ import annotations

import json
from datetime import UTC, datetime
from decimal import Decimal
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from causal.cut import Cut
from causal.errors import CorruptData, Unavailable
from causal.ids import TaskName
from causal.storage.files import write_parts
from operators import ListState, Operator, Pipeline, Session, Sliding, Tumbling
from operators.engine.plan import plan
from operators.queries.key_order import UNBOUNDED, KeyRange, OrderedKeys, in_order, place_of
from operators.queries.key_spelling import json_of
from operators.queries.state_at import NoSuchState, Operators, StateAt
from operators.records.keys import canonical_key
from operators.state.slot_index import SlotIndex
from tests.unit.operators.scene import NoSink, chain_of, config, first_field, give, parts_of, source

TEXTS = st.text("ab\U0010ffff", max_size=3)
KEYS = st.recursive(
    st.none() | st.integers(-3, 3) | TEXTS | st.binary(max_size=2) | st.datetimes() | st.floats(-2, 2)
    | st.datetimes(timezones=st.just(UTC)) | st.decimals(-2, 2, places=1),
    lambda inner: st.lists(inner, max_size=2).map(tuple),
    max_leaves=3,
).map(canonical_key)  # fmt: skip
BOUNDS = st.just(UNBOUNDED) | KEYS


@given(st.frozensets(KEYS | TEXTS, max_size=12), TEXTS, BOUNDS, BOUNDS, BOUNDS)
def test_a_scan_returns_what_a_filter_over_all_keys_returns(
    keys: frozenset[Any], prefix: str, first: Any, before: Any, after: Any
) -> None:
    wanted = KeyRange(prefix, first, before, after)
    ordered = in_order(keys)
    start, stop = wanted.bounds(ordered)
    assert ordered == sorted(keys, key=place_of)
    assert ordered[start:stop] == [key for key in ordered if wanted.admits(key)]
    assert not prefix or all(type(key) is str and key.startswith(prefix) for key in ordered[start:stop])


@given(st.frozensets(KEYS | TEXTS, max_size=12), st.integers(1, 5))
def test_pages_together_are_all_keys(keys: frozenset[Any], limit: int) -> None:
    ordered, pages, after = in_order(keys), list[Any](), UNBOUNDED
    while True:
        start, stop = KeyRange(after=after).bounds(ordered)
        page = ordered[start : min(stop, start + limit)]
        if not page:
            break
        pages += page
        after = page[-1]
    assert pages == ordered


@given(st.lists(st.sets(KEYS | TEXTS, max_size=8), max_size=5))
def test_keys_stay_in_order_from_one_checkpoint_to_the_next(states: list[set[Any]]) -> None:
    ordered = OrderedKeys()
    for keys in states:
        ordered.update(keys)
        assert list(ordered.keys) == in_order(keys)


def value_of(written: Any) -> Any:
    """Read what `json_of` wrote, as the guide says; sequences are lists."""
    if isinstance(written, list):
        return list(map(value_of, written))
    if not isinstance(written, dict):
        return written
    if len(written) == 1:
        [(tag, text)] = written.items()
        if tag == "dict":
            return {hashable(value_of(key)): value_of(value) for key, value in text}
        readers: dict[str, Any] = {
            "bytes": bytes.fromhex, "decimal": Decimal, "datetime": datetime.fromisoformat, "float": float,
        }  # fmt: skip
        if tag in readers:
            return readers[tag](text)
    return {key: value_of(value) for key, value in written.items()}


def hashable(value: Any) -> Any:
    return tuple(map(hashable, value)) if isinstance(value, list) else value


SCALARS = (
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | st.text() | st.binary()
    | st.decimals(allow_nan=False) | st.datetimes(timezones=st.just(UTC))
)  # fmt: skip
NAMES = st.text(max_size=3) | st.sampled_from(["bytes", "decimal", "datetime", "float", "dict"])


@given(
    st.recursive(
        SCALARS,
        lambda inner: st.lists(inner, max_size=3) | st.dictionaries(NAMES | st.integers(), inner, max_size=2),
    )
)
def test_values_survive_their_spelling_as_json(value: Any) -> None:
    assert value_of(json.loads(json.dumps(json_of(value), allow_nan=False))) == value


def test_a_value_that_looks_like_a_spelling_is_not_mistaken_for_it() -> None:
    assert json_of({"decimal": "1.1"}) == {"dict": [["decimal", "1.1"]]}
    assert json_of({"decimal": "1.1", "n": 1}) == {"decimal": "1.1", "n": 1}
    assert json_of((1, Decimal("1.10"), b"\0", float("nan"))) == [
        1, {"decimal": "1.10"}, {"bytes": "00"}, {"float": "nan"},
    ]  # fmt: skip


@given(st.lists(st.tuples(st.sets(st.tuples(KEYS, st.integers(0, 3))), st.sets(st.tuples(KEYS, st.integers(0, 3))))))
def test_the_slots_of_a_key_are_those_of_its_pairs(loads: list[tuple[set[Any], set[Any]]]) -> None:
    index, pairs = SlotIndex(), set[Any]()
    for added, gone in loads:
        index.loaded(added, gone)
        pairs = (pairs - gone) | added
        for key, _ in added | gone:
            assert index.of(key) == sorted(slot for other, slot in pairs if other == key)


class Log(Operator):
    """Keeps all numbers of a key."""

    numbers = ListState[int]()

    def process(self, record: Any, ctx: Any) -> None:
        self.numbers.append(record[1])


def logging_job() -> Pipeline:
    pipeline = Pipeline("test")
    stream = pipeline.source("in", source()).watermarks("time", lambda record: float(record[1])).key_by(first_field)
    stream.process("log", Log(), parallelism=2).sink("out", NoSink())
    stream.window("sums", Tumbling(10), lambda key, records, window: records).sink("sums_out", NoSink())
    stream.window("busy", Session(5), lambda key, records, window: records).sink("busy_out", NoSink())
    stream.window("slid", Sliding(10, 5), lambda key, records, window: records).sink("slid_out", NoSink())
    return pipeline


class Written:
    """A job whose chains run here and write checkpoints into a directory."""

    def __init__(self, directory: Path) -> None:
        self.directory = directory
        pipeline = logging_job()
        self.plan = plan(pipeline, config(key_groups=8))
        self.operators = Operators(pipeline, self.plan, 8)
        self.chains = {
            task.name: chain_of(self.plan, task.name)
            for task in self.plan.topology.tasks
            if task.name.partition("/")[0] in ("log", "sums", "busy", "slid")
        }
        self.files: dict[str, tuple[tuple[str, int, str], ...]] = dict.fromkeys(self.chains, ())
        self.epoch = 0

    def state(self, *only: str) -> StateAt:
        return StateAt(self.operators, self.plan, self.directory, only)

    def give(self, *records: tuple[Any, int]) -> None:
        for record in records:
            [owner] = self.operators.owners("log", record[0])
            for name in (owner.name, *map(TaskName, ("sums/0", "busy/0", "slid/0"))):
                give(self.chains[name], [record])

    def checkpoint(self, full: bool = False) -> dict[str, Any]:
        self.epoch += 1
        for name, chain in self.chains.items():
            file = f"{name.replace('/', '-')}-{self.epoch}"
            parts = [Cut().pack(), *parts_of(chain, full or self.epoch == 1)]
            written = (file, *write_parts(self.directory / file, parts, durable=False))
            self.files[name] = (written,) if full else (*self.files[name], written)
        return dict(self.files)


def numbers(state: StateAt, key: Any) -> list[int]:
    [answer] = state.get("log", key)
    return list(answer.state.get("numbers", []))


def test_a_state_at_follows_checkpoints_and_answers_as_of_each(tmp_path: Path) -> None:
    job = Written(tmp_path)
    state, expected = job.state(), dict[Any, list[int]]()
    with pytest.raises(Unavailable, match="is being read"):
        state.get("log", "a")
    for turn in range(6):
        for key in ("a", "b", ("c", 1), 7)[: turn + 1]:
            job.give((key, turn))
            expected.setdefault(key, []).append(turn)
        files = job.checkpoint(full=turn == 4)
        fresh = state.prepared(files)
        state.advance(job.epoch, files, fresh)
        job.give(("a", turn + 100))  # what comes after the barrier is not in its state
        assert {key: numbers(state, key) for key in expected} == expected and state.epoch == turn + 1
        expected["a"].append(turn + 100)
        ordered, start, stop = state.scan("log", KeyRange())
        assert set(ordered[start:stop]) == set(expected)
        slots = {slot for slot, *_ in live_windows(state, "a")}
        assert slots == {(start, start + 10) for start in {n // 10 * 10 for n in expected["a"][:-1]}}
    assert numbers(state, "absent") == [] == state.windows("sums", "absent")


def live_windows(state: StateAt, key: Any) -> list[tuple[tuple[float, float | None], Any]]:
    return [((start, end), content) for _, start, end, content in state.windows("sums", key)]


def test_windows_of_every_kind_have_their_bounds(tmp_path: Path) -> None:
    job = Written(tmp_path)
    job.give(("a", 1), ("a", 3), ("a", 12), ("b", 1))
    state = job.state()
    state.advance(1, job.checkpoint(), {})
    assert state.windows("sums", "a") == [
        ("sums/0", 0.0, 10.0, [("a", 1), ("a", 3)]), ("sums/0", 10.0, 20.0, [("a", 12)]),
    ]  # fmt: skip
    assert state.windows("busy", "a") == [
        ("busy/0", 1.0, 8.0, [("a", 1), ("a", 3)]), ("busy/0", 12.0, 17.0, [("a", 12)]),
    ]  # fmt: skip
    slices = [("slid/0", 0.0, 5.0, [("a", 1), ("a", 3)]), ("slid/0", 10.0, 15.0, [("a", 12)])]
    assert state.windows("slid", "a") == slices, "sliding windows share slices"
    with pytest.raises(NoSuchState, match="operator 'log' has no windows by key"):
        state.windows("log", "a")


def test_a_state_that_could_not_be_read_answers_nothing_until_one_could(tmp_path: Path) -> None:
    job = Written(tmp_path)
    job.give(("a", 1))
    state = job.state()
    state.advance(1, job.checkpoint(), {})
    job.give(("a", 2), ("b", 2))
    files = job.checkpoint()
    lost = tmp_path / files["sums/0"][-1][0]
    content = lost.read_bytes()
    lost.unlink()
    with pytest.raises(CorruptData, match="is missing"):
        state.advance(2, files, {})
    with pytest.raises(Unavailable):
        state.get("log", "a")
    lost.write_bytes(content)
    state.advance(2, files, {})
    assert numbers(state, "a") == [1, 2] and len(state.windows("sums", "a")) == 1


def test_only_the_operators_that_are_asked_for_are_held(tmp_path: Path) -> None:
    job = Written(tmp_path)
    state = job.state("sums")
    state.advance(1, job.checkpoint(), {})
    assert state.keeping == ["sums"]
    for operator, line in [
        ("log", "keeps no state that is served; those that do are sums"),
        ("in", "keeps no state that is served"),
        ("lgo", "does not exist; the operators are"),
    ]:
        with pytest.raises(NoSuchState, match=line):
            state.get(operator, "a")
