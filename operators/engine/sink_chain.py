"""The chain of a sink's task: records become rows in the sink's own encoding, nothing is remembered."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

from causal.errors import CausalError
from causal.ports import Output, PlainChain, Services
from causal.records.batch import ROWS, Chunk, Records
from causal.records.rows import Rows, listed
from causal.records.vectors import Vectors
from operators.records.delivery import unite
from operators.sinks.contract.sink import Sink
from operators.stage.branch import Input
from operators.stage.failures import NO_KEY, Failures
from operators.state.snapshot_parts import ChainSnapshot, read_part


class SinkChain(PlainChain):
    """The chain of one sink in one task (causal.ports.Chain)."""

    def __init__(self, name: str, sink: Sink, inputs: Sequence[Input], ordinal: int) -> None:
        self._name = name
        self._sink = sink
        self._inputs = inputs
        self._ordinal = ordinal
        self._failures = Failures(None, 0)

    def open(self) -> None:
        """Do nothing: the store is the worker's."""

    def deliver(self, input: int, chunks: Sequence[Chunk], first: int, services: Services) -> list[Output]:
        records, origin_ns, _ = unite(chunks)
        if not records:
            return []
        try:
            rows = self._encode(records)
        except CausalError:
            raise
        except Exception as problem:
            self._failures.delivering(self._inputs[input].label, first, chunks)
            if not isinstance(records, Vectors):
                self._blame(listed(records), problem)
            self._failures.stop(self._name, None if isinstance(records, Vectors) else listed(records), problem)
        return [(self._ordinal, Chunk(ROWS, len(records), rows, origin_ns))]

    def _encode(self, records: Records) -> bytes:
        if isinstance(records, Vectors):
            return self._sink.encode_vectors(records)
        return self._sink.encode_rows(records) if isinstance(records, Rows) else self._sink.encode(records)

    def _blame(self, records: list[Any], problem: Exception) -> None:
        for index, record in enumerate(records):
            try:
                self._sink.encode([record])
            except CausalError:
                raise
            except Exception as own_problem:
                self._failures.failed(self._name, NO_KEY, index, record, own_problem)

    def next_timer_ns(self) -> int | None:
        return None

    def fire(self, due_ns: int, services: Services) -> list[Output]:
        return []

    def finish(self, services: Services) -> list[Output]:
        return []

    def snapshot(self, full: bool) -> ChainSnapshot:
        return ChainSnapshot(full, {}, [])

    def restore(self, parts: Iterable[bytes]) -> None:
        for part in parts:
            read_part(part)
