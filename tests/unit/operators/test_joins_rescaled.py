"""Joins, tables and rules at another parallelism: the state of a key is where the key is now, rules are everywhere."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pytest

from operators import Count, Tumbling
from operators.engine.plan import Plan
from tests.unit.operators.join_scene import Task, key_of, time_of
from tests.unit.operators.scene import parts_of
from tests.unit.operators.test_broadcast import Tagged
from tests.unit.operators.test_rescaling import owned, planned, rescaled, saved

KEYS = list(range(12))


def rules(stream: Any, parallelism: int) -> Any:
    rule_stream = stream.pipeline.source("rules", stream._outlet.edges[0].source.subject, parallelism=2)
    return stream.key_by(key_of).broadcast("op", rule_stream, Tagged(), parallelism=parallelism)


def join(stream: Any, parallelism: int) -> Any:
    timed = stream.watermarks("time", time_of)
    return timed.key_by(key_of).join("op", timed.key_by(key_of), within=(1, 5), parallelism=parallelism)


def window_join(stream: Any, parallelism: int) -> Any:
    timed = stream.watermarks("time", time_of)
    return timed.key_by(key_of).window_join("op", timed.key_by(key_of), Tumbling(10), parallelism=parallelism)


def window_table(stream: Any, parallelism: int) -> Any:
    table = stream.timed(time_of).key_by(key_of).window_table("op", Tumbling(10), Count(), 5, parallelism=parallelism)
    return table.revisions("revisions")


def suppressed(stream: Any, parallelism: int) -> Any:
    table = stream.timed(time_of).key_by(key_of).window_table("t", Tumbling(10), Count(), 5, parallelism=2)
    return table.suppress("op", until="closed", parallelism=parallelism).revisions("revisions")


def rows(stream: Any, parallelism: int) -> Any:
    timed = stream.timed(time_of)
    users = timed.key_by(key_of).table("users", parallelism=2)
    return timed.key_by(key_of).join_table("op", users, wait=True, parallelism=parallelism)


def as_of(stream: Any, parallelism: int) -> Any:
    timed = stream.watermarks("time", time_of)
    users = timed.key_by(key_of).table("users", parallelism=2)
    return timed.key_by(key_of).join_table("op", users, as_of=True, how="left", parallelism=parallelism)


def of_task(job_plan: Plan, index: int) -> Task:
    name = next(
        task.name for task in job_plan.topology.tasks if "op" in task.operators and task.name.endswith(f"/{index}")
    )
    return Task(job_plan, name)


def moved(build: Any, give: Any, keys: list[Any] = KEYS, old: int = 2, new: int = 3) -> list[Task]:
    """Return the tasks of the operator after a change, each of which got its keys from `give` before it."""
    before, after = planned(old, build), planned(new, build)
    parts: dict[str, Sequence[list[bytes]]] = {}
    for index in range(old):
        task = of_task(before, index)
        files = []
        for step in range(2):
            give(task, owned(keys, index, old), step)
            files.append(parts_of(task.chain, step == 0))
        parts[task.name] = files
    chains = rescaled(before, saved(before, parts), after).chains()
    tasks = [of_task(after, index) for index in range(new)]
    for task in tasks:
        task.chain.restore(chains[task.name])
    return tasks


def test_rules_are_in_every_task_once() -> None:
    def give(task: Task, keys: list[Any], step: int) -> None:
        task.give(2, ("b", step), (step, step))
        task.give(0, *[(key, step) for key in keys])

    for index, task in enumerate(moved(rules, give)):
        rules_seen = [("b", [0, 1]), (0, [0]), (1, [1])]
        [key, *_] = owned(KEYS, index, 3)
        rows = task.give(0, (key, 7))
        assert [(sorted(seen, key=str), n) for _, seen, n in rows] == [(sorted(rules_seen, key=str), 3)]


@pytest.mark.parametrize("build", [join, window_join])
def test_a_join_goes_on_with_what_is_there(build: Any) -> None:
    def give(task: Task, keys: list[Any], step: int) -> None:
        task.give(0, *[(key, step, "left") for key in keys])
        task.mark(0, range(4))

    for index, task in enumerate(moved(build, give)):
        keys = owned(KEYS, index, 3)
        task.give(3, *[(key, 2, "right") for key in keys])
        task.finish()
        expected = [((key, at_s, "left"), (key, 2, "right")) for key in keys for at_s in (0, 1)]
        assert sorted(task.out) == sorted(expected)


def test_a_windowed_table_goes_on_revising() -> None:
    def give(task: Task, keys: list[Any], step: int) -> None:
        task.give(0, *[(key, 12 + step, "") for key in keys])

    for index, task in enumerate(moved(window_table, give)):
        keys = owned(KEYS, index, 3)
        rows = task.give(0, *[(key, 18, "") for key in keys])
        assert rows == [((key, 10, 20), 2, 3) for key in keys]
        assert task.give(0, (keys[0], 7, "late")) == [] and task.chain.counts()["op"]["late"] == 1


def test_what_is_suppressed_is_found_by_the_key_of_the_table() -> None:
    def give(task: Task, keys: list[Any], step: int) -> None:
        task.give(0, *[(key, step or None, step + 1) for key in keys])

    before = [(key, 10, 20) for key in KEYS]
    out = []
    for index, task in enumerate(moved(suppressed, give, before)):
        rows = task.finish()
        assert [key for key, _, _ in rows] == owned([key for key, _, _ in rows], index, 3)
        out += rows
    assert sorted(out) == [(key, None, 2) for key in before]


def test_what_waits_goes_with_its_key() -> None:
    def give(task: Task, keys: list[Any], step: int) -> None:
        task.give(0, *[(key, step, "") for key in keys])
        task.give(2, *[(key, None, "row") for key in keys])

    for index, task in enumerate(moved(rows, give)):
        keys = owned(KEYS, index, 3)
        assert task.end(2) == []
        assert sorted(task.end(3)) == sorted(((key, step, ""), "row") for key in keys for step in (0, 1))


def test_versions_and_what_waits_for_them_go_with_their_key() -> None:
    def give(task: Task, keys: list[Any], step: int) -> None:
        task.give(0, *[(key, 10 * step, "") for key in keys])
        task.give(2, *[(key, 10 * step - 1 + 2 * (key % 2), "row") for key in keys])
        task.mark(5, range(4))

    for index, task in enumerate(moved(as_of, give)):
        keys = owned(KEYS, index, 3)
        task.give(1, *[(key, 30, "") for key in keys])
        task.finish()
        at_s = {key: 2 * (key % 2) - 1 for key in keys}  # the first row; the second one is valid 10 s later
        expected = [((key, 10, ""), (key, at_s[key] + (0 if key % 2 else 10), "row")) for key in keys]
        expected += [((key, 30, ""), (key, at_s[key] + 10, "row")) for key in keys]
        assert sorted(task.out) == sorted(expected)
