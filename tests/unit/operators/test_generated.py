"""Generated sources: pure elements by position, paced by a rate, failing by name."""

from __future__ import annotations

import time
from pathlib import Path
from typing import Any

import pytest

from causal.errors import OperatorFailed, PipelineError
from operators.sources import GeneratedSource, Read, SequenceSource, Source, SourceContext


def opened(source: Source, partition: int = 0, began_ns: int = 0) -> Any:
    return source.open(partition, SourceContext("numbers", Path("/nowhere"), began_ns))


def test_elements_are_a_function_of_partition_and_position() -> None:
    reader = opened(GeneratedSource(lambda p, i: (p, i), count=10, partitions=3), 2)
    assert reader.read(4, 3).records == [(2, 4), (2, 5), (2, 6)]
    assert reader.read(4, 3).records == [(2, 4), (2, 5), (2, 6)]
    assert reader.ready_in_s(4) == 0
    reader.completed(4)
    reader.close()


@pytest.mark.parametrize(
    ("count", "position", "records", "ended"),
    [
        (5, 0, [0, 1, 2, 3], False), (5, 4, [4], True), (5, 5, [], True), (0, 0, [], True),
        (None, 10**12, [10**12, 10**12 + 1, 10**12 + 2, 10**12 + 3], False),
    ],
)  # fmt: skip
def test_the_last_read_says_that_the_partition_ends(
    count: int | None, position: int, records: list[int], ended: bool
) -> None:
    read = opened(GeneratedSource(lambda p, i: i, count=count)).read(position, 4)
    assert (read.records, read.ended) == (records, ended)


def test_without_a_rate_elements_enter_now() -> None:
    before = time.monotonic_ns()
    read = opened(GeneratedSource(lambda p, i: i, count=1)).read(0, 1)
    assert before <= read.origin_ns <= time.monotonic_ns()


def test_with_a_rate_each_element_has_its_time() -> None:
    """Two partitions and 1,000 records/s: an element of one partition each 2 ms."""
    began_ns = time.monotonic_ns() - 1_000_000_000
    source = GeneratedSource(lambda p, i: i, count=None, partitions=2, rate=1000)
    reader = opened(source, 1, began_ns)
    read = reader.read(100, 1000)
    assert isinstance(read, Read)
    assert isinstance(read.records, list) and read.records[0] == 100
    assert 401 <= len(read.records)
    assert read.origin_ns == began_ns + 200_000_000
    assert reader.ready_in_s(100) == 0
    assert reader.read(10**9, 10) is None
    assert reader.ready_in_s(10**9) > 0


def test_a_clock_that_was_restarted_does_not_halt_a_rate(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The job had run for a day: after 100 s of the new clock, element 86,400,000 follows together, then 1,000/s."""
    second, position = 10**9, 86_400_000
    now_ns = 100 * second
    monkeypatch.setattr(time, "monotonic_ns", lambda: now_ns)
    source = GeneratedSource(lambda p, i: i, count=None, rate=1000)

    def life(position: int) -> tuple[Any, int]:
        """Return the records that a process has immediately, and the pace after them."""
        began_ns = min(int((tmp_path / "began").read_text()), now_ns)
        reader = source.open(0, SourceContext("numbers", tmp_path, began_ns))
        assert reader.ready_in_s(position) == 0
        read = reader.read(position, 10**6)
        assert read is not None and read.origin_ns > 0
        following = position + len(read.records)
        assert reader.read(following, 10) is None and 0 < reader.ready_in_s(following) <= 0.001
        return read.records, following

    (tmp_path / "began").write_text(str(12 * second))
    assert life(position) == ([position], position + 1)
    now_ns += 5 * second
    assert len(life(position)[0]) == 5001, "an element is due when it was due in the life before"
    now_ns += second
    assert len(life(position + 2000)[0]) == 4001


@pytest.mark.parametrize(("rate", "step_ns"), [(100_000, 2_000_000), (2_000_000, 10_000_000)])
def test_a_fast_partition_gives_whole_steps(monkeypatch: pytest.MonkeyPatch, rate: int, step_ns: int) -> None:
    clock_ns = 7_000_000_000
    monkeypatch.setattr(time, "monotonic_ns", lambda: clock_ns)
    began_ns = clock_ns - 100_000_000 - step_ns // 2  # half a step after the end of one
    reader = opened(GeneratedSource(lambda p, i: i, count=None, rate=rate), 0, began_ns)
    read = reader.read(0, 10**7)
    count = rate // 10 + 1
    assert read.records == list(range(count)) and read.origin_ns == began_ns
    assert reader.read(count, 10**7) is None
    assert reader.ready_in_s(count) == step_ns / 2e9
    clock_ns += step_ns // 2
    read = reader.read(count, 10**7)
    assert len(read.records) == rate * step_ns // 10**9
    assert read.origin_ns == began_ns + count * 10**9 // rate


def test_a_rate_does_not_end_a_partition_early() -> None:
    began_ns = time.monotonic_ns()
    reader = opened(GeneratedSource(lambda p, i: i, count=10**6, rate=0.001), 0, began_ns)
    read = reader.read(0, 10**7)
    assert (read.records, read.ended) == ([0], False)


def test_a_slice_is_read_as_a_whole() -> None:
    asked: list[tuple[int, int, int]] = []

    def read(partition: int, start: int, stop: int) -> list[int]:
        asked.append((partition, start, stop))
        return list(range(start, stop))

    assert opened(SequenceSource(read, 100, 2), 1).read(90, 64).records == list(range(90, 100))
    assert asked == [(1, 90, 100)]


def explode(partition: int, index: int) -> int:
    return 1 // (index - 3)


def stop(partition: int, index: int) -> int:
    raise StopIteration


@pytest.mark.parametrize(
    ("source", "words"),
    [
        (GeneratedSource(explode, 5), ["'numbers'", "partition 0", "element 3", "ZeroDivisionError", "make"]),
        (GeneratedSource(stop, 5), ["element 0", f"StopIteration at {__file__}"]),
        (SequenceSource(lambda p, a, b: [1], 5), ["elements 0 to 4", "1 element instead of 5"]),
        (SequenceSource(lambda p, a, b: [][a], 5), ["elements 0 to 4", "IndexError"]),
    ],
)
def test_a_function_that_fails_is_named_with_its_element(source: Source, words: list[str]) -> None:
    with pytest.raises(OperatorFailed) as caught:
        opened(source).read(0, 10)
    for each in words:
        assert each in str(caught.value)
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"make": 3, "count": 1}, "pass a function"),
        ({"make": explode, "count": -1}, "count -1"),
        ({"make": explode, "count": "7"}, "count '7'"),
        ({"make": explode, "count": 1, "partitions": 0}, "partitions 0"),
        ({"make": explode, "count": 1, "rate": 0}, "rate 0"),
    ],
)
def test_bad_arguments_are_refused_where_they_are_written(arguments: dict[str, Any], message: str) -> None:
    with pytest.raises(PipelineError, match=message) as caught:
        GeneratedSource(**arguments)
    assert f"{Path(__file__).name}:" in str(caught.value)


def test_nothing_of_spark_is_imported_unless_it_is_named() -> None:
    from operators import sources

    assert "SparkSource" in sources.__all__
    with pytest.raises(AttributeError, match="no attribute 'Sprak'"):
        sources.Sprak  # noqa: B018
