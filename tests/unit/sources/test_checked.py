"""A source of one's own that breaks the contract is named, before what it returned is used."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any, cast

import pytest

from causal.errors import PipelineError
from causal.shell.driver import TaskDriver
from operators.engine.checked import checked
from operators.runtime.hosting import JobTimeReader
from operators.sources import Read, Source


class Reader:
    def __init__(self, batch: Any) -> None:
        self._batch = batch

    def read(self, position: int, count_max: int) -> Any:
        return self._batch

    def ready_in_s(self, position: int) -> float:
        return 0.5

    def completed(self, position: int) -> None:
        return None

    def close(self) -> None:
        return None


class Own(Source[Any]):
    partitions = 1

    def open(self, partition: int, context: Any) -> Any:
        return None


@pytest.mark.parametrize("reader", [None, [1], object()])
def test_what_is_no_reader_is_refused(reader: Any) -> None:
    with pytest.raises(
        PipelineError, match=r"^source 'in': Own.open\(\) returned [^\n]*, which has no read\(\); return"
    ):
        checked("in", Own(), reader)


@pytest.mark.parametrize(
    ("batch", "line"),
    [
        ([1, 2], r"returned a list; it must return Read\(records, origin_ns\), or None"),
        (Read((i for i in (1, 2)), 0), "returned records in a generator; it must return a list"),  # type: ignore[arg-type]
        (Read([1], 1.5), "returned origin_ns 1.5; it must be an int"),  # type: ignore[arg-type]
    ],
)
def test_what_is_no_batch_is_refused(batch: Any, line: str) -> None:
    with pytest.raises(PipelineError, match=rf"^source 'in': Reader.read\(\) {line}"):
        checked("in", Own(), Reader(batch)).read(0, 10)


def test_what_follows_the_contract_is_passed_on() -> None:
    batch = Read([1], 5)
    reader = checked("in", Own(), Reader(batch))
    assert reader.read(0, 10) is batch
    assert reader.ready_in_s(1) == 0.5
    assert checked("in", Own(), Reader(None)).read(0, 10) is None


class Counting(Reader):
    def counters(self) -> dict[str, int]:
        return {"files": 7}

    def measured(self, position: int) -> tuple[int, int]:
        return position, 9


class Holding(Reader):
    counters = measured = 3
    """Names that the contract leaves to the reader."""


@pytest.mark.parametrize(
    ("reader", "counted"),
    [(Counting(None), {"files": 7, "input_read": 4, "input_size": 9}), (Holding(None), {}), (Reader(None), {})],
)
def test_the_counters_of_a_reader_of_ones_own_are_the_tasks(reader: Reader, counted: dict[str, int]) -> None:
    partitions = [SimpleNamespace(id=0, delivered=4)]
    task = SimpleNamespace(name="in/0", gather_ns=0, channels=SimpleNamespace(partitions=partitions))
    wrapped = cast(Any, JobTimeReader(checked("in", Own(), reader)))
    nothing = cast(Any, None)
    driver = TaskDriver(cast(Any, task), "run", nothing, nothing, {}, {0: wrapped}, lambda kind, facts: None)
    assert driver._source_counters() == counted
