"""A stream with a table's rows: as they are on delivery, or, where it waits, as they are when they are complete."""

from __future__ import annotations

import re
from typing import Any

import pytest

from causal.errors import PipelineError
from operators import Count, Pipeline
from operators.engine.plan import Plan, plan
from tests.unit.operators.join_scene import Task, key_of, time_of
from tests.unit.operators.scene import NoSink, config, source


def planned_rows(timed: bool = False, watermarks: bool = False, **options: Any) -> Plan:
    """Return clicks (input 0) with the rows of users (inputs 1 and 2)."""
    pipeline = Pipeline("test")
    users = pipeline.source("users", source(2), parallelism=2)
    clicks = pipeline.source("clicks", source())
    if watermarks:
        users, clicks = users.watermarks("users-time", time_of), clicks.watermarks("clicks-time", time_of)
    if timed:
        clicks = clicks.timed(time_of)
    keyed = users.key_by(key_of)
    # Where rows have times, only of a table whose rows are made of several records is it unknown since when they hold.
    table = keyed.aggregate_table("table", Count(), 2) if watermarks else keyed.table("table", 2)
    clicks.key_by(key_of).join_table("named", table, **options).sink("out", NoSink())
    return plan(pipeline, config())


def task(**options: Any) -> Task:
    return Task(planned_rows(**options), "named/0")


CLICK = ("u", 5, "click")
ROW = ("u", 1, "Ann")


@pytest.mark.parametrize(("how", "alone"), [("inner", []), ("left", [(CLICK, None)])])
def test_a_record_sees_the_row_of_its_delivery(how: str, alone: list[Any]) -> None:
    joining = task(how=how)
    assert joining.give(0, CLICK) == alone
    joining.give(1, ("u", None, ROW))
    joining.restore()
    assert joining.give(0, CLICK) == [(CLICK, ROW)]
    joining.give(1, ("u", ROW, None))
    assert joining.give(0, CLICK) == alone
    assert joining.entry_count() == 0


def test_records_without_a_time_wait_until_all_inputs_of_the_table_have_ended() -> None:
    joining = task(wait=True, how="left")
    assert joining.give(0, CLICK, ("v", 1, "")) == []
    joining.give(1, ("u", None, ("u", 0, "old")))
    assert joining.end(1) == []
    joining.restore()
    joining.give(2, ("u", ("u", 0, "old"), ROW))
    assert joining.end(2) == [(CLICK, ROW), (("v", 1, ""), None)]
    assert joining.give(0, CLICK) == [(CLICK, ROW)]
    joining.restore(full=True)
    assert joining.give(0, CLICK) == [(CLICK, ROW)]
    assert joining.chain.counts() == {"named": {"held_back": 2}}


def test_records_with_a_time_wait_until_event_time_has_passed_them() -> None:
    joining = task(wait=True, watermarks=True)
    joining.give(1, ("u", None, ROW))
    assert joining.give(0, CLICK) == []
    assert joining.mark(5, range(3)) == []
    joining.restore()
    assert joining.mark(5.000001, range(3)) == [(CLICK, ROW)]
    assert joining.give(0, CLICK) == [(CLICK, ROW)]
    assert joining.marks == [5_000_000_000, 5_000_001_000]
    assert joining.give(0, ("u", 9, "")) == []
    assert joining.finish() == [(("u", 9, ""), ROW)]


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"how": "outer"}, "join_table 'named' has how 'outer'; use 'inner' or 'left'"),
        ({"wait": 3}, "join_table 'named' has wait 3; use True or False"),
        ({"fn": 3}, "join_table 'named' was given a int; pass a function"),
    ],
)
def test_what_cannot_be_is_refused_in_one_line(options: Any, message: str) -> None:
    with pytest.raises(PipelineError, match=f"^[^\n]*{re.escape(message)}[^\n]*$"):
        planned_rows(**options)


def test_a_stream_is_no_table() -> None:
    pipeline = Pipeline("test")
    stream: Any = pipeline.source("in", source()).key_by(key_of)
    with pytest.raises(PipelineError, match=r"pass a table: stream.key_by\(fn\).table\(name\)"):
        stream.join_table("named", stream)
