"""Parquet stores against an account in memory that never dies, with files of every size.

Beside what our reader sees, which is every row, a reader of the bare files sees whole files without a row twice.
"""

from __future__ import annotations

from pathlib import Path

import pytest

pytest.importorskip("pyarrow", reason="pyarrow is not installed: there are no Parquet files")

from hypothesis.stateful import invariant, rule

from operators.sinks.conformance import Subject
from operators.sinks.parquet.parquet_sink import ParquetSink
from tests.members import examples
from tests.properties.test_store_machine import TASK, Stores
from tests.unit.sinks.parquet_scene import plain_rows, rows_of


class Files(Stores):
    """Rows in a journal, and in files whenever the machine says so."""

    def subject(self, directory: Path) -> Subject:
        self.sink = ParquetSink(directory / "out", publish_s=3600)
        return Subject(self.sink, lambda task: rows_of(self.sink.directory, task))

    @rule()
    def publish(self) -> None:
        """All rows that can no longer be withdrawn go to files."""
        self.store.publish()  # type: ignore[attr-defined]
        assert len(plain_rows(self.sink.directory)) == self._covered()

    @invariant()
    def bare_files_hold_the_first_rows(self) -> None:
        if hasattr(self, "sink"):
            rows = plain_rows(self.sink.directory)
            assert rows == self.records[: len(rows)]
            assert rows_of(self.sink.directory, TASK, uncovered=False) == self.records[: self._covered()]

    def _covered(self) -> int:
        return self.account.marks[0].next if self.account.marks else self.account.next


TestFiles = Files.TestCase
TestFiles.settings = examples(divided_by=4, stateful_step_count=30)
