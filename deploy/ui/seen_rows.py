"""Checks that rows that were visible before a failure are unchanged afterwards.

    python -m deploy.ui.seen_rows        a separate process, because it loads the pipeline's code

The first line of its input is the job directory.  After that, the line `remember` makes the process remember the newest
rows of each sink that can be read from here, and `check` makes it read these rows again and compare them.  The process
answers each line with a line of JSON, and ends when its input ends.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator, Mapping
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from xxhash import xxh3_64_intdigest

from causal.config import JobConfig
from causal.errors import CausalError, PipelineError
from deploy.ui.child import answer_questions
from operators.builder.loading import load_of_job
from operators.outputs import Output, open_output

ROWS_MAX = 100_000
"""The number of rows that are remembered for all sinks together, the newest of each task."""
READABLE = frozenset(("SqliteSink", "JsonLinesSink", "ParquetSink"))

Place = Path | str
Rows = dict[int, int]
"""Position → the digest of the row at that position."""


@dataclass
class Findings:
    """The results of reading the sinks.

    Attributes:
        rows: how many rows were remembered or compared.
        changed: how many rows differ from before.
        missing: how many rows no longer exist.
        unreadable: sink → why its rows were not compared.
    """

    rows: int = 0
    changed: int = 0
    missing: int = 0
    unreadable: dict[str, str] = field(default_factory=dict)


class SeenRows:
    """The rows in a job's sinks at one moment.

    Args:
        places: sink → the place from which its rows can be read; None if they cannot be read.
    """

    def __init__(self, places: Mapping[str, Place | None]) -> None:
        self._places = places
        self._seen: dict[str, tuple[str, dict[str, tuple[int, int, Rows]]]] = {}
        """Sink → its run and, by task, the first position, the end, and the rows in between."""

    def remember(self) -> Findings:
        """Remember the newest rows that no recovery can withdraw."""
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
        """Read the remembered rows again and compare them."""
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
        """Yield the sinks that can be read, and record the others as unreadable."""
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
    """Return, for each sink, the place from which its rows can be read; None if they cannot be read.

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
    """Answer requests until standard input ends."""
    rows: SeenRows | None = None

    def answer(job: Path, question: str) -> dict[str, Any]:
        nonlocal rows
        if rows is None:
            rows = SeenRows(places(job))
        return asdict(rows.remember() if question == "remember" else rows.check())

    return answer_questions(answer, idle_s=0)


if __name__ == "__main__":
    sys.exit(main())
