"""State that is converted early, and then its changes alone, is the state that a single conversion gives.

Each upgrade also continues to its end, and gives the rows of the model.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from contextlib import nullcontext
from dataclasses import replace
from operator import itemgetter
from typing import Any

import pytest

from causal.records.batch import watermark
from operators.engine.plan import Plan
from operators.runtime import later_changes, unchanged_state
from operators.runtime.regrouping import Saved
from operators.runtime.rescaling import Rescaling
from operators.runtime.unchanged_state import UnchangedState, converted
from operators.state.fragments import divided, packed, unpacked
from operators.state.merge_rules import WHOLE
from operators.state.merging import merged_parts
from tests.members import sample
from tests.properties.upgrades.driving import ALONE, state_of
from tests.properties.upgrades.examining import GRAPHS, examine_in_two
from tests.properties.upgrades.options import changes
from tests.unit.operators.scene import Services, listed, parts_of
from tests.unit.operators.test_rescaling import GROUPS, Ringing, fed, owned, planned, rescaled, saved

ALWAYS_ALONE = ("count", "reduce", "process", "window", "join", "window_join", "join_table", "broadcast")
"""The cores whose changes are converted alone in a version that is not another one."""


@pytest.mark.parametrize("seed", sample(range(12), 2))
@pytest.mark.parametrize("name", GRAPHS)
def test_other_graphs_continue_from_their_changes(name: str, seed: int) -> None:
    examine_in_two(name, seed)


@pytest.mark.parametrize("seed", sample(range(4), 1))
@pytest.mark.parametrize("name", [change.name for change in changes()])
def test_other_options_continue_from_their_changes(name: str, seed: int) -> None:
    examine_in_two(name, seed)


@pytest.mark.parametrize("seed", sample(range(100, 112), 2))
@pytest.mark.parametrize("name", GRAPHS)
def test_the_same_version_continues_from_its_changes(name: str, seed: int) -> None:
    reason = examine_in_two(name, seed, changes=False)
    assert reason == ALONE or name.split()[-1] not in ALWAYS_ALONE


@pytest.mark.parametrize("core", ALWAYS_ALONE)
def test_the_changes_of_other_tasks_are_converted_alone(core: str) -> None:
    assert ALONE in {examine_in_two(f"tasks {core}", seed) for seed in range(20)}


# Single conversions of two tasks with a count, to three tasks.

BATCHES = ["a b c d e f g h".split(), "a c e x".split(), "b c y".split(), "c d".split()]
FIRST = 2
"""The number of files at the earlier barrier."""


def counting(stream: Any, parallelism: int) -> Any:
    return stream.key_by(str).count("op", parallelism=parallelism)


def ringing(stream: Any, parallelism: int) -> Any:
    return stream.key_by(str).process("op", Ringing(), parallelism=parallelism)


def joining(stream: Any, parallelism: int) -> Any:
    table = stream.key_by(str).table("op", parallelism=parallelism)
    return table.join("join", stream.key_by(str).table("other"), how="outer").revisions("rows")


def two_tasks(build: Any = counting) -> tuple[Plan, list[Saved]]:
    """Return two tasks with all of their files, and others that have written only one."""
    before = planned(2, build)
    names = [str(task.name) for task in before.topology.tasks if "op" in task.operators]
    files = {name: fed(before, name, [owned(batch, at, 2) for batch in BATCHES]) for at, name in enumerate(names)}
    return before, saved(before, files)


def in_part(tasks: list[Saved], stop: int) -> list[Saved]:
    """Return tasks at an earlier barrier."""
    return [replace(each, files=each.files[:stop]) for each in tasks]


def after(tasks: list[Saved], start: int, stop: int = len(BATCHES)) -> list[Saved]:
    """Return tasks with the files that they have written later."""
    return [replace(each, files=each.files[start:stop]) for each in tasks]


def check_changes(earlier: Rescaling, parts: Sequence[Mapping[str, Sequence[bytes]]], later: Any, whole: Any) -> None:
    """Check that the first parts and then the later ones have the effect of the whole."""
    assert not isinstance(later, str), later
    conversion, increments = later
    expected = whole.chains()
    for task in earlier._plan.topology.tasks:
        files = [each[task.name] for each in (*parts, increments)]
        assert state_of(earlier._plan, task, *files) == state_of(earlier._plan, task, expected[task.name])
    stores = {f"out/{number}": (9, 2) for number in range(3)}
    assert conversion.cuts(stores) == whole.cuts(stores)


def test_state_is_passed_on_unread() -> None:
    before, tasks = two_tasks()
    conversion, parts = converted(before.topology, tasks, planned(3, counting), GROUPS, False, None)
    assert isinstance(conversion, UnchangedState)
    expected = rescaled(before, tasks, conversion._plan).chains()
    for task in conversion._plan.topology.tasks:
        once = state_of(conversion._plan, task, expected[task.name])
        assert state_of(conversion._plan, task, parts[task.name]) == once


def test_changes_after_changes() -> None:
    before, tasks = two_tasks()
    earlier, parts = converted(before.topology, in_part(tasks, FIRST), planned(3, counting), GROUPS, False, None)
    later: Any = later_changes.later_changes(earlier, after(tasks, FIRST, FIRST + 1))
    check_changes(earlier, [parts], later, rescaled(before, in_part(tasks, FIRST + 1), earlier._plan))
    latest = later_changes.later_changes(later[0], after(tasks, FIRST + 1))
    check_changes(earlier, [parts, later[1]], latest, rescaled(before, tasks, earlier._plan))


def test_a_merged_file_may_begin_before_the_savepoint() -> None:
    before, tasks = two_tasks()
    earlier, parts = converted(before.topology, in_part(tasks, FIRST), planned(3, counting), GROUPS, False, None)
    merged = [
        replace(each, files=(tuple(merged_parts(each.files, {"op": WHOLE}, GROUPS, complete=False)),))
        if each.files
        else each
        for each in after(tasks, FIRST - 1)
    ]
    later = later_changes.later_changes(earlier, merged)
    check_changes(earlier, [parts], later, rescaled(before, tasks, earlier._plan))


def test_a_complete_snapshot_is_converted_as_a_whole() -> None:
    before, tasks = two_tasks()
    earlier, _ = converted(before.topology, in_part(tasks, FIRST), planned(3, counting), GROUPS, False, None)
    assert later_changes.later_changes(earlier, tasks) == "a task has written a complete snapshot since then"


def test_timers_of_several_tasks_are_loaded() -> None:
    before, tasks = two_tasks(ringing)
    earlier, _ = converted(before.topology, in_part(tasks, FIRST), planned(3, ringing), GROUPS, False, None)
    assert type(earlier) is Rescaling
    reason = later_changes.later_changes(earlier, after(tasks, FIRST))
    assert reason == "timers of several tasks were numbered again"


@pytest.mark.parametrize("same_code", [False, True])
def test_rows_of_two_values_are_passed_on_by_the_same_code(same_code: bool) -> None:
    before, tasks = two_tasks(joining)
    written = None if same_code else lambda: nullcontext(before)
    earlier, parts = converted(before.topology, in_part(tasks, FIRST), planned(3, joining), GROUPS, False, written)
    later = later_changes.later_changes(earlier, after(tasks, FIRST))
    if same_code:
        check_changes(earlier, [parts], later, rescaled(before, tasks, earlier._plan))
    else:
        assert later == "rows of tables depend on state that has not changed"


def pairing(stream: Any, parallelism: int) -> Any:
    sides = [
        stream.map(name, lambda r: r).watermarks(f"{name}-time", itemgetter(1)).key_by(itemgetter(0))
        for name in ("left", "right")
    ]
    return sides[0].join("op", sides[1], within=(-5, 5), parallelism=parallelism)


@pytest.mark.parametrize(("mark_s", "reason"), [(100, ""), (60, "the tasks of operator 'op' have reached different")])
def test_joins_of_tasks_with_different_watermarks_are_loaded(mark_s: int, reason: str) -> None:
    before = planned(2, pairing)
    tasks = [task for task in before.topology.tasks if "op" in task.operators]
    files: dict[str, list[list[bytes]]] = {}
    for at, task in enumerate(tasks):
        chain = before.chain(task.index)
        inputs = range(len(before.topology.inputs(task.index)))
        for place, second in enumerate((40, mark_s if at else 100)):
            keys = owned(BATCHES[0], at, 2)
            chain.deliver(0, listed([[key, float(second + 3)] for key in keys]), 0, Services())
            for number in inputs:
                chain.deliver(number, [watermark(second * 10**9)], 0, Services())
            files.setdefault(str(task.name), []).append(parts_of(chain, place == 0))
    stopped = saved(before, files)
    earlier, parts = converted(before.topology, in_part(stopped, 1), planned(3, pairing), GROUPS, False, None)
    later = later_changes.later_changes(earlier, after(stopped, 1))
    if reason:
        assert isinstance(later, str) and later.startswith(reason)
    else:
        check_changes(earlier, [parts], later, rescaled(before, stopped, earlier._plan))


def test_held_rows_are_loaded() -> None:
    def holding(stream: Any, parallelism: int) -> Any:
        rows = stream.watermarks("time", lambda r: 1.0).key_by(str).table("op", parallelism=parallelism)
        return rows.suppress("less", after_s=4).revisions("rows")

    before, tasks = two_tasks(holding)
    earlier, _ = converted(before.topology, in_part(tasks, FIRST), planned(3, holding), GROUPS, False, None)
    assert later_changes.later_changes(earlier, after(tasks, FIRST)) == "the state of operator 'less' cannot be divided"


# Whether it is able to fail.


def detected(name: str, seeds: int) -> bool:
    """Return whether one of the first examples fails."""
    for seed in range(seeds):
        try:
            examine_in_two(name, seed)
        except AssertionError:
            return True
    return False


def test_removed_keys_that_return_are_found(monkeypatch: pytest.MonkeyPatch) -> None:
    def without_removed(fragment: bytes, groups_of: Any) -> dict[int, bytes]:
        keys, values, _ = unpacked(fragment)
        return divided(packed((keys, values, [])), groups_of)

    monkeypatch.setattr(later_changes, "divided", without_removed)
    assert detected("tasks join_table", 6)


def test_keys_of_other_tasks_are_found(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(later_changes, "divided", lambda fragment, groups_of: {0: fragment})
    assert detected("tasks count", 12)


def test_options_that_change_all_state_are_found(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(unchanged_state, "_options", lambda header: {})
    assert detected("Stream.window(trigger) #19", 6)


def test_timers_that_change_places_are_found(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Rescaling, "_renumber", lambda self, chain, mixed: chain.renumber(mixed))
    assert detected("tasks timers", 6)
