"""An example of an oracle of operators (`tests/oracles`) as a job.

Settings: oracle, seed, out (a directory; a sink's rows are in the one with its name), rate (records a second), gate (a
file without which sources do not end, except those that an operator waits for).
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from causal.records.values import encode
from operators import Pipeline
from operators.sinks import JsonLinesSink
from operators.source import PartitionReader, Source, SourceContext
from operators.sources import ArrowSource, GeneratedSource, SequenceSource
from operators.testing import At
from tests.faults.pipelines.held_source import hold_end
from tests.oracles.all import ORACLES
from tests.oracles.frame import Draw

settings = Pipeline("settings").settings
RATE, GATE = float(settings["rate"]), settings["gate"]
WAITED_FOR = ("rows", "rules")


class Drawn(Source[Any]):
    """These records, or these rows of columns, at a pace."""

    def __init__(self, partitions: Sequence[Sequence[Any]], vectors: bool) -> None:
        self.partitions, self.vectors = len(partitions), vectors
        self._records = partitions

    def open(self, partition: int, context: SourceContext) -> PartitionReader:
        records = self._records[partition]

        paced: SequenceSource[Any] = GeneratedSource(lambda _, index: records[index], len(records), rate=RATE)
        if self.vectors:
            import pyarrow as pa

            columns = {name: pa.array([record[name] for record in records]) for name in records[0]}
            paced = ArrowSource(
                lambda _, start, stop: {name: column[start:stop] for name, column in columns.items()},
                len(records),
                rate=RATE,
            )
        gate = None if context.name in WAITED_FOR else GATE
        return hold_end(paced, gate).open(0, context)


class Encoded(JsonLinesSink):
    """Records as the texts of their encoding, which distinguishes 1 from 1.0 and True."""

    def encode(self, records: Sequence[Any]) -> bytes:
        return super().encode([encode([record]).hex() for record in records])


scenario = ORACLES[settings["oracle"]](Draw(f"{settings['oracle']}/{settings['seed']}"))
pipeline = scenario.pipeline
for node in pipeline.nodes:
    if node.kind == "sink":
        node.subject = Encoded(Path(settings["out"]) / node.name)
    elif node.kind == "source":
        records = [each.record if isinstance(each, At) else each for each in scenario.inputs[node.name]]
        lists = records if records and all(type(each) is list for each in records) else [records]
        node.subject = Drawn([*lists, *([] for _ in range(node.subject.partitions - len(lists)))], node.subject.vectors)
