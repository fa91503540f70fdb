"""A sink writes the same for rows that are still columns as for their tuples, also one that encodes in its own way."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pytest

from benchmarks.harness.tally import TallySink
from causal.records.rows import Rows
from operators.sinks import JsonLinesSink, SqliteSink
from operators.sinks.contract.sink import Sink

ROWS = Rows([["a", 'b"', "\ud800"], [1, 2.5, None]])


class Shouting(JsonLinesSink):
    """Encodes in its own way, and looks at its records as a list."""

    def encode(self, records: Sequence[Any]) -> bytes:
        """Upper case, the last record first."""
        return "".join(f"{name.upper()}\n" for name, _ in records[::-1]).encode("utf-8", "backslashreplace")


class Weighing(TallySink):
    """Counts something else than rows."""

    def encode(self, records: Sequence[Any]) -> bytes:
        """Return how many have a number."""
        return bytes([sum(value is not None for _, value in records)])


@pytest.mark.parametrize("kind", [JsonLinesSink, SqliteSink, TallySink, Shouting, Weighing])
def test_rows_are_written_as_their_tuples(kind: type[Sink]) -> None:
    sink = kind("unused")  # type: ignore[call-arg]
    assert sink.encode_rows(ROWS) == sink.encode(list(zip(*ROWS.columns, strict=True)))


def test_the_two_that_differ_are_asked() -> None:
    assert Shouting("unused").encode_rows(ROWS) == b'\\ud800\nB"\nA\n'
    assert Weighing("unused").encode_rows(ROWS) == b"\x02"
