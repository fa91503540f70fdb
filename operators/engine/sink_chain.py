"""The chain of a sink task, which encodes records as rows in the sink's own format and keeps no state.

A record that the sink cannot encode has no row. It stops the job or becomes a dead letter, like a record for which an
operator raises an exception.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any

from causal.errors import CausalError, invariant
from causal.ports import MergeRules, Output, Services
from causal.records.batch import RECORDS, ROWS, Chunk, Records, encode_records
from causal.records.rows import Rows, listed
from causal.records.vectors import Vectors
from operators.engine.operator_chain import OperatorChain
from operators.records.arrow_rows import Unheld, rows_of, shown_row
from operators.records.delivery import unite
from operators.sinks.contract.sink import Sink
from operators.stage.branch import Input
from operators.stage.failures import NO_KEY, Failures
from operators.state.snapshot_parts import ChainSnapshot, read_part


class SinkChain(OperatorChain):
    """The chain of one sink in one task (see `causal.ports.Chain`)."""

    def __init__(
        self,
        name: str,
        sink: Sink,
        inputs: Sequence[Input],
        ordinal: int,
        failures: Failures,
        dead_letters: int | None = None,
    ) -> None:
        """
        Args:
            ordinal: the ordinal of the channel to the store.
            dead_letters: the ordinal of the dead-letter channel; None if failing records stop the job.
        """
        self._name = name
        self._sink = sink
        self._inputs = inputs
        self._ordinal = ordinal
        self._failures = failures
        self._dead_letters = dead_letters

    def deliver(self, input: int, chunks: Sequence[Chunk], first: int, services: Services) -> list[Output]:
        records, origin_ns, _ = unite(chunks)
        if not records:
            return []
        failed: Exception | None = None
        try:
            rows = self._encode(records)
        except CausalError:
            raise
        except Exception as problem:
            failed = problem
        if failed is not None:  # outside the handler; otherwise dead-letter tracebacks would begin with `failed`
            self._failures.delivering(self._inputs[input].label, first, chunks)
            records, rows = self._without_failing(records, failed)
        outputs: list[Output] = [(self._ordinal, Chunk(ROWS, len(records), rows, origin_ns))] if records else []
        letters = self._failures.letters
        if letters:
            invariant(self._dead_letters is not None, "dead letters have a channel", sink=self._name)
            body = encode_records(letters)
            outputs.append((self._dead_letters or 0, Chunk(RECORDS, len(letters), body, origin_ns)))
            letters.clear()
        return outputs

    def _encode(self, records: Records) -> bytes:
        if isinstance(records, Vectors):
            return self._sink.encode_vectors(records)
        return self._sink.encode_rows(records) if isinstance(records, Rows) else self._sink.encode(records)

    def _without_failing(self, records: Records, problem: Exception) -> tuple[list[Any], bytes]:
        """Return the records that can be encoded, and their rows; report each of the other records as failed."""
        every: Sequence[Any] = _records_of(records) if isinstance(records, Vectors) else listed(records)
        kept = [record for index, record in enumerate(every) if self._can_encode(index, record)]
        try:
            if len(kept) < len(every):
                return kept, self._sink.encode(kept) if kept else b""
        except CausalError:
            raise
        except Exception as again:
            problem = again
        self._failures.stop(self._name, kept, problem)

    def _can_encode(self, index: int, record: Any) -> bool:
        try:
            if isinstance(record, _Unheld):
                record, problem = record.shown, record.problem
                raise problem
            self._sink.encode([record])
        except CausalError:
            raise
        except Exception as problem:
            self._failures.failed(self._name, NO_KEY, index, record, problem)
            return False
        return True

    def snapshot(self, full: bool, behind: str = "") -> ChainSnapshot:
        return ChainSnapshot(full, {}, [])

    def merge_rules(self) -> MergeRules:
        return {"": {}}

    def restore(self, parts: Iterable[bytes]) -> None:
        for part in parts:
            read_part(part)


@dataclass(frozen=True, slots=True)
class _Unheld:
    """A row of vectors that contains a value that records cannot contain."""

    shown: dict[str, Any]
    problem: Unheld


def _records_of(vectors: Vectors) -> list[Any]:
    """Return the rows of vectors as records; an `_Unheld` represents each row that cannot be a record."""
    try:
        return rows_of(vectors.batch, 0, len(vectors))
    except Unheld:
        rows: list[Any] = []
    for index in range(len(vectors)):
        try:
            rows += rows_of(vectors.batch, index, 1)
        except Unheld as problem:
            rows.append(_Unheld(shown_row(vectors.batch, index), problem))
    return rows
