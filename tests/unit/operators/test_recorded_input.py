"""The readers of a backtest: what was recorded and not more, from the directory of the new job, without a rate."""

from __future__ import annotations

from pathlib import Path

import pytest

from causal.errors import CorruptData, DeterminantsLost
from causal.recorded_files import INPUT
from causal.records.rows import listed
from operators.engine.recorded_input import Bounds, RecordedInput, RecordedSource
from operators.source import PartitionReader, Read, SourceContext
from operators.sources import GeneratedSource
from operators.sources.generated import SequenceSource


def opened(tmp_path: Path, bounds: Bounds, count: int | None = None) -> PartitionReader:
    (tmp_path / INPUT).mkdir()
    RecordedInput("run", "", "", 0, 9, {"rows": [Bounds(0, 0, True), bounds]}).save(tmp_path)
    source: SequenceSource[int] = GeneratedSource(lambda p, i: i, count, partitions=2, rate=0.001)
    return RecordedSource(source).open(1, SourceContext("rows", tmp_path, 0, position=bounds.start))


def read(reader: PartitionReader, position: int, count_max: int) -> Read:
    result = reader.read(position, count_max)
    assert result is not None
    return result


def test_it_stops_where_the_recording_stops(tmp_path: Path) -> None:
    reader = opened(tmp_path, Bounds(3, 8, False))
    assert listed(read(reader, 3, 4).records) == [3, 4, 5, 6] and reader.ready_in_s(3) == 0
    last = read(reader, 7, 4)
    assert (listed(last.records), last.ended) == ([7], False)
    assert reader.read(8, 4) is None and reader.ready_in_s(8) > 60
    complete = [reader.complete(position) for position in (7, 8)]  # type: ignore[attr-defined]
    measured = reader.measured(5)  # type: ignore[attr-defined]
    assert complete == [False, True] and measured == (2, 5)


def test_it_ends_where_the_recorded_input_ended(tmp_path: Path) -> None:
    reader = opened(tmp_path, Bounds(0, 4, True), count=4)
    assert read(reader, 0, 10).ended and read(reader, 4, 10).ended
    assert not reader.complete(4)  # type: ignore[attr-defined]


def test_input_that_is_gone_is_reported(tmp_path: Path) -> None:
    reader = opened(tmp_path, Bounds(0, 8, False), count=4)
    with pytest.raises(DeterminantsLost, match="ends at position 4, but the recorded job has read elements up to 8"):
        reader.read(0, 10)


def test_a_source_of_its_own_lends_the_input_once_more(tmp_path: Path) -> None:
    job, elsewhere = tmp_path / "job", tmp_path / "elsewhere"
    job.mkdir()
    elsewhere.mkdir()
    opened(job, Bounds(0, 8, False))
    source = RecordedSource(GeneratedSource(lambda p, i: i, None, partitions=2))
    assert source.lend("rows", job, elsewhere) and RecordedInput.load(elsewhere) == RecordedInput.load(job)


@pytest.mark.parametrize("content", ["", "{}", "null"])
def test_a_damaged_file_is_one_line(tmp_path: Path, content: str) -> None:
    opened(tmp_path, Bounds(0, 8, False))
    (tmp_path / INPUT / "bounds.json").write_text(content)
    with pytest.raises(CorruptData, match=r"bounds.json is damaged .*; start the backtest again without --resume"):
        RecordedInput.load(tmp_path)
