"""Checks that rows which were visible before a failure are the same ones after it.

    python -m deploy.ui.seen_rows        a process of its own, because it loads the pipeline's code

The first line of its input is the job's directory.  Then `remember` has it remember the newest rows of each sink that
can be read from here, and `check` has it read them again and compare.  It answers each with a line of JSON, and ends
with its input.
"""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Iterator, Mapping
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from xxhash import xxh3_64_intdigest

from causal.config import JobConfig
from causal.errors import CausalError, PipelineError
from operators.builder.loading import load_of_job
from operators.outputs import Output, open_output

ROWS_MAX = 100_000
"""The rows that are remembered of all sinks together, the newest of each task."""
READABLE = frozenset(("SqliteSink", "JsonLinesSink", "ParquetSink"))

Place = Path | str
Rows = dict[int, int]
"""Position → digest of the row there."""


@dataclass
class Findings:
    """The findings of a look at the sinks.

    Attributes:
        rows: the number that was remembered, or compared.
        changed: rows that are others than before, or whose position had none.
        missing: rows that are gone.
        unreadable: sink → why it was not compared.
    """

    rows: int = 0
    changed: int = 0
    missing: int = 0
    unreadable: dict[str, str] = field(default_factory=dict)


class SeenRows:
    """The rows of a job's sinks at one moment.

    Args:
        places: sink → where its rows can be read; None where they cannot.
    """

    def __init__(self, places: Mapping[str, Place | None]) -> None:
        self._places = places
        self._seen: dict[str, tuple[str, dict[str, tuple[int, int, Rows]]]] = {}
        """Sink → the run, and by task the first position, the end and the rows between them."""

    def remember(self) -> Findings:
        """Remember the newest rows that no recovery may take back."""
        findings = Findings()
        self._seen = {}
        for sink, output in self._outputs(findings):
            ends = output.ends(uncovered=False)
            share = ROWS_MAX // max(1, len(ends) * len(self._places))
            ranges = {task: (max(0, end - share), end) for task, end in ends.items()}
            seen = {task: (first, end, _digests(output, task, first, end)) for task, (first, end) in ranges.items()}
            self._seen[sink] = output.run, seen
            findings.rows += sum(len(rows) for _, _, rows in seen.values())
        return findings

    def check(self) -> Findings:
        """Read the remembered rows again, and compare them."""
        findings = Findings()
        for sink, output in self._outputs(findings):
            run, seen = self._seen.get(sink, ("", {}))
            ends = output.ends(uncovered=True)
            for task, (first, end, before) in seen.items():
                end = min(end, ends.get(task, 0)) if output.run == run else first
                now = _digests(output, task, first, end) if end > first else {}
                findings.rows += len(before)
                findings.missing += sum(position not in now for position in before)
                findings.changed += sum(before.get(position) != digest for position, digest in now.items())
        return findings

    def _outputs(self, findings: Findings) -> Iterator[tuple[str, Output]]:
        """Yield the sinks that can be read, and note the others."""
        for sink, place in self._places.items():
            try:
                if place is None:
                    raise PipelineError("its store has no reader here")
                output = open_output(place)
                output.look()
                yield sink, output
            except (CausalError, OSError) as problem:
                findings.unreadable[sink] = " ".join(str(problem).split())[:300]


def _digests(output: Output, task: str, first: int, end: int) -> Rows:
    rows: Rows = {}
    for positions, piece in output.rows(task, first, end):
        at = positions.to_pylist() if hasattr(positions, "to_pylist") else positions
        texts = piece.to_pylist() if hasattr(piece, "to_pylist") else piece
        for position, text in zip(at, texts, strict=True):
            rows[position] = xxh3_64_intdigest(text if isinstance(text, bytes) else _text(text).encode())
    return rows


def _text(row: Any) -> str:
    return row if isinstance(row, str) else repr(row)


def places(job: Path) -> dict[str, Place | None]:
    """Sink → where its rows can be read from here; None where they cannot.

    Raises:
        CausalError: the job's code cannot be loaded.
    """
    sinks: dict[str, Place | None] = {}
    for node in load_of_job(job, JobConfig.load(job)).nodes:
        names = {each.__name__ for each in type(node.subject).__mro__}
        if "Sink" in names:
            kept = [getattr(node.subject, name, None) for name in ("url", "directory", "path")]
            sinks[node.name] = next((each for each in kept if each), None) if READABLE & names else None
    return sinks


def main() -> int:
    """Answer until standard input ends; what the pipeline's code prints goes nowhere."""
    answers = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)
    rows: SeenRows | None = None
    job = Path(os.fsdecode(sys.stdin.buffer.readline().rstrip(b"\n")))
    for line in sys.stdin.buffer:
        try:
            if rows is None:
                rows = SeenRows(places(job))
            answer: dict[str, Any] = asdict(rows.remember() if line.strip() == b"remember" else rows.check())
        except (CausalError, OSError) as problem:
            answer = {"problem": " ".join(str(problem).split())}
        print(json.dumps(answer), file=answers, flush=True)
    return 0


if __name__ == "__main__":
    sys.exit(main())
