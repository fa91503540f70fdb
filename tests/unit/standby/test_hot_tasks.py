"""The tasks that have hot standbys: all behind the sources, or those of the operators that are named."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from causal.config import JobConfig
from causal.errors import PipelineError
from operators import Pipeline
from operators.engine.plan import plan
from operators.sinks import SqliteSink
from operators.sources import GeneratedSource
from standby.supervision.supervision import hot_tasks

CONFIG = JobConfig(run="r", name="n", pipeline="p")


def planned(standbys: str) -> Any:
    pipeline = Pipeline("counts")
    numbers = pipeline.source("numbers", GeneratedSource(lambda p, i: {"k": i}, count=1))
    numbers.key_by(lambda r: r["k"]).count("count", parallelism=2).sink("out", SqliteSink("out.db"))
    return plan(pipeline, replace(CONFIG, standbys=standbys))


@pytest.mark.parametrize(
    "standbys, tasks",
    [
        ("hot", {"count/0", "count/1", "out/0"}),
        ("hot:count", {"count/0", "count/1"}),
        ("hot:out,count", {"count/0", "count/1", "out/0"}),
        ("per-task", set()),
        ("3", set()),
    ],
)
def test_they_are_those_behind_the_sources_or_of_the_operators_that_are_named(standbys: str, tasks: set[str]) -> None:
    assert hot_tasks(replace(CONFIG, standbys=standbys), planned(standbys).topology) == tasks


@pytest.mark.parametrize("name", ["numbers", "cuont", ""])
def test_a_name_that_is_no_operator_behind_a_source_is_refused_with_those_that_are(name: str) -> None:
    with pytest.raises(PipelineError, match=r"standbys.*(count, out|hot:OPERATOR)"):
        planned(f"hot:{name}")


@pytest.mark.parametrize("standbys", ["hot:", "hott", "hot,count", "-1", ""])
def test_what_is_no_kind_of_standbys_is_refused(standbys: str) -> None:
    with pytest.raises(PipelineError, match="standbys"):
        replace(CONFIG, standbys=standbys)


def test_without_a_log_nothing_can_be_performed_from_it() -> None:
    with pytest.raises(PipelineError, match="guarantee"):
        replace(CONFIG, standbys="hot", guarantee="epoch")
