"""A gated source continues until its file says at which element it ends, and ends there at every later read."""

from __future__ import annotations

import time
from pathlib import Path

from benchmarks.jobs.gated import Gated, shut
from operators.source import Read, SourceContext
from operators.sources import GeneratedSource


def elements(read: Read) -> list[int]:
    """Return the elements of a read, which this source gives as a list."""
    assert isinstance(read.records, list)
    return read.records


def test_it_ends_before_the_element_that_the_file_names(tmp_path: Path) -> None:
    gate = tmp_path / "gate"
    reader = Gated(GeneratedSource(lambda partition, i: i, None), gate).open(0, SourceContext("s", tmp_path, 0))
    open_end = reader.read(0, 10)
    assert open_end is not None and elements(open_end) == list(range(10)) and not open_end.ended
    gate.write_text("12")
    last = reader.read(10, 10)
    assert last is not None and elements(last) == [10, 11]
    for _ in range(2):
        end = reader.read(12, 10)
        assert end is not None and end.ended and not elements(end)


def test_it_is_told_to_end_ahead_of_what_is_due(tmp_path: Path) -> None:
    began_ns = time.monotonic_ns() - 3_000_000_000
    elements = shut(tmp_path / "gate", began_ns, 100.0)
    assert elements >= 500 and (tmp_path / "gate").read_text() == str(elements)
