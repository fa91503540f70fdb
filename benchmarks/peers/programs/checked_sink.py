"""A sink of this project whose process also tallies its rows for the checks."""

from __future__ import annotations

import atexit
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from benchmarks.harness.tally import TallySink
from benchmarks.peers.programs.inputs import Tally
from causal.records.rows import Rows


class CheckedTallySink(TallySink):
    """`TallySink`, whose process also tallies for the checks; only for runs in which nothing fails.

    Args:
        tally: opens the tally, in the process of the sink.
    """

    def __init__(self, place: Path, tally: Callable[[], Tally]) -> None:
        super().__init__(place / "out.db")
        self._open = tally
        self._tally: Tally | None = None

    def encode(self, records: Sequence[Any]) -> bytes:
        self._tallied().add(records)
        return super().encode(records)

    def encode_rows(self, rows: Rows) -> bytes:
        match rows.columns:
            case [keys, values]:
                self._tallied().add_columns(keys, values)
            case _:
                self._tallied().add(rows.listed())
        return super().encode(rows)  # type: ignore[arg-type]  # which asks for their number alone

    def _tallied(self) -> Tally:
        if self._tally is None:
            self._tally = self._open()
            atexit.register(self._tally.write)
        return self._tally
