"""Records that are late for some of their windows, against a plain model that knows no batches.

Each record is in just those of its windows whose end and lateness the watermark of the records before it has not
reached, and aside if there are none: however batches were cut, and whichever task died.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import pytest
from hypothesis import given
from hypothesis import strategies as st

from operators import Mean, Pipeline, Sliding, Window
from operators.testing import run
from tests.members import examples
from tests.unit.operators.scene import NoSink, source
from tests.unit.operators.window_scene import Row, second, third


class Shape(NamedTuple):
    """A sliding window, in whole seconds, so that records meet its ends exactly."""

    size: int
    every: int
    bound: int
    lateness: int


class Expected(NamedTuple):
    """The result that the documentation prescribes for records in their order."""

    means: dict[tuple[Any, float, float], float]
    late: list[Row]
    divided: int


def expected(rows: list[Row], shape: Shape) -> Expected:
    """Try every window for every record; `divided`: records with an open window and a closed one."""
    windows: dict[tuple[Any, float, float], list[Any]] = {}
    late, divided, mark = list[Row](), 0, -(10**9)
    for row in rows:
        at = int(row[1])
        starts = [start for start in range(at - shape.size + 1, at + 1) if start % shape.every == 0]
        still = [start for start in starts if start + shape.size + shape.lateness > mark]
        for start in still:
            windows.setdefault((row[0], float(start), float(start + shape.size)), []).append(row[2])
        late += [] if still else [row]
        divided += 0 < len(still) < len(starts)
        mark = max(mark, at - shape.bound)
    return Expected({window: sum(values) / len(values) for window, values in windows.items()}, late, divided)


def mean(key: Any, records: list[Row], window: Window) -> Any:
    yield (key, sum(map(third, records)) / len(records), window.start, window.end)


def job(shape: Shape, contents: Any) -> Pipeline:
    pipeline = Pipeline("test")
    timed = pipeline.source("in", source()).watermarks("time", second, out_of_order_s=shape.bound)
    means = timed.key_by(lambda row: row[0]).window(
        "w", Sliding(shape.size, shape.every), contents, lateness_s=shape.lateness
    )
    means.sink("out", NoSink())
    means.side("late").sink("late", NoSink())
    return pipeline


def same(rows: list[Row], shape: Shape, contents: Any, seed: int, crash: dict[str, int]) -> Expected:
    """Run the job; the last row of each window is that of the model, and so is what was put aside."""
    model = expected(rows, shape)
    result = run(job(shape, contents), {"in": rows}, seed=seed, crash=crash, checkpoint_every=7)
    last = {(key, start, end): value for key, value, start, end in result["out"]}
    assert last == model.means
    assert sorted(result["late"]) == sorted(model.late)
    assert result.counts.get("w", {}).get("late", 0) == len(model.late)
    return model


STEPS = st.lists(
    st.tuples(st.sampled_from("ab"), st.integers(0, 2), st.sampled_from([0, 0, 1, 3, 6, 9, 13])), max_size=40
)
CONTENTS = pytest.mark.parametrize("contents", [Mean(third), mean], ids=["aggregate", "function"])


@CONTENTS
@pytest.mark.parametrize("shape", [Shape(10, 5, 2, 3), Shape(10, 3, 2, 0), Shape(16, 2, 0, 5)], ids=str)
@examples(divided_by=3)
@given(steps=STEPS, seed=st.integers(0, 1000), crash=st.sampled_from(["", "w/0", "time/0"]), at=st.integers(1, 40))
def test_each_record_is_in_its_windows_that_are_open(
    shape: Shape, contents: Any, steps: list[tuple[str, int, int]], seed: int, crash: str, at: int
) -> None:
    now, rows = 100, list[Row]()
    for value, (key, step, back) in enumerate(steps):
        now += step
        rows.append((key, now - back, value))
    same(rows, shape, contents, seed, {crash: at} if crash and at <= len(rows) else {})


@CONTENTS
def test_what_is_late_for_one_of_its_windows_is_in_the_other_and_not_aside(contents: Any) -> None:
    rows: list[Row] = [("a", 101, 1), ("a", 114, 2), ("a", 106, 4), ("a", 101, 8), ("a", 96, 16)]
    for seed in range(6):
        model = same(rows, Shape(10, 5, 2, 3), contents, seed, {"w/0": 2})
        assert model.divided == 1 and model.late == [("a", 96, 16)]
        assert model.means[("a", 100.0, 110.0)] == (1 + 4 + 8) / 3 and model.means[("a", 95.0, 105.0)] == 1
