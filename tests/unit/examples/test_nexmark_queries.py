"""Every Nexmark query gives the rows of the model, in the testing kit, without crashes and with one in every task."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from causal.errors import PipelineError
from examples.nexmark import check, queries
from examples.nexmark.events import Events
from examples.nexmark.terms import Terms
from operators import Pipeline
from operators.sinks import SqliteSink
from operators.testing import TrialResult, run

SHAPE = Events(events_per_s=50, out_of_order=20)
TERMS = Terms(window_s=4, every_s=2, gap_s=1, clock_s=0.5, auction_skip=7)
COUNT = 600
EVENTS = SHAPE.listed(COUNT)


def built(query: int) -> Pipeline:
    source = SHAPE.source(COUNT, partitions=2)
    return queries.pipeline(query, source, SqliteSink("nexmark.db"), TERMS, 2, SHAPE.out_of_order_s)


def assert_right(query: int, result: TrialResult) -> None:
    counts = check.compare(query, result["out"], EVENTS, TERMS)
    assert counts == {"rows": len(result["out"]), "lost": 0, "false": 0} and result["out"]


@pytest.mark.parametrize("query", sorted(queries.BUILT))
def test_a_query_gives_the_rows_of_the_model_whatever_dies(query: int) -> None:
    calm = run(built(query), batch=16, seed=query)
    assert_right(query, calm)
    crash: dict[str, Any] = {task: [count // 3, count // 3 * 2] for task, count in calm.elements.items() if count >= 3}
    result = run(built(query), batch=16, seed=query, crash=crash)
    assert result.recoveries == 2 * len(crash) >= 4
    assert_right(query, result)


def test_the_check_finds_a_row_that_is_missing_doubled_or_wrong() -> None:
    rows = run(built(2), batch=16)["out"]
    for broken in (rows[1:], [*rows, rows[0]], [{**rows[0], "price": -1}, *rows[1:]]):
        counts = check.compare(2, broken, EVENTS, TERMS)
        assert counts["lost"] + counts["false"] > 0


def test_the_check_of_query_12_finds_a_doubled_window_and_a_lost_bid() -> None:
    bids = [event for event in EVENTS if event["kind"] == "bid"]
    rows = [{"bidder": bid["bidder"], "bids": 1, "start_ms": 500 * place} for place, bid in enumerate(bids)]
    assert check.compare(12, rows, EVENTS, TERMS) == {"rows": len(bids), "lost": 0, "false": 0}
    assert check.compare(12, [*rows, rows[0]], EVENTS, TERMS)["false"] == 2
    assert check.compare(12, rows[1:], EVENTS, TERMS)["lost"] == 1
    assert check.compare(12, [{**rows[0], "start_ms": 7}, *rows[1:]], EVENTS, TERMS)["false"] == 1


def test_a_query_that_there_is_not_is_one_line(tmp_path: Path) -> None:
    with pytest.raises(PipelineError, match="there is no query 10; there are 0, 1, 2"):
        built(10)
