"""A reader of the output of a `JsonLinesSink`.

The journal of a task contains the position up to which rows can be read. The position of a row is its line number,
because a `JsonLinesSink` never refuses a row. The byte offset of a line is remembered about once per megabyte.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterator
from itertools import islice
from pathlib import Path
from typing import Any

from causal.errors import CorruptData, PipelineError
from operators.outputs.output import Piece
from operators.sinks.journaled.ledger import covered, ledger_in

LINES_AT_ONCE = 5000
_SCANNED_BYTES = 1 << 20


class LinesOutput:
    """A reader of one output directory."""

    def __init__(self, directory: Path) -> None:
        self._directory = directory
        self._run = ""
        self._tasks: dict[str, tuple[int, int]] = {}
        self._files: dict[str, _Lines] = {}
        self._ended = False

    @property
    def run(self) -> str:
        """See `Output.run`."""
        return self._run

    @property
    def ended(self) -> bool:
        """See `Output.ended`."""
        return self._ended

    def look(self) -> None:
        """See `Output.look`."""
        tasks: dict[str, tuple[int, int]] = {}
        runs: dict[str, str] = {}
        files: dict[str, _Lines] = {}
        ended: dict[str, bool] = {}
        for journal in sorted(self._directory.glob(".*.journal")):
            try:
                account = ledger_in(journal).account
            except FileNotFoundError:
                continue  # a new run is clearing the directory
            path = journal.with_name(f"{journal.stem[1:]}.jsonl")
            known = self._files.get(account.task)
            if known is None or (known.run, known.withdrawn) != (account.run, account.withdrawn):
                known = _Lines(path, account.run, account.withdrawn)
            files[account.task], runs[account.task] = known, account.run
            # After a kill, a bundle may exist only in the journal until the next process writes its lines to the file.
            there = known.count(account.next, covered(account))
            tasks[account.task] = (min(there, covered(account)), there)
            ended[account.task] = account.ended and there == account.next
        if not tasks:
            raise PipelineError(
                f"{self._directory} has no rows of a JsonLinesSink; use the directory of a JsonLinesSink"
            )
        self._run = max(runs.values())
        self._tasks = {task: ends for task, ends in tasks.items() if runs[task] == self._run}
        self._files = files
        self._ended = all(ended[task] for task in self._tasks)

    def ends(self, uncovered: bool) -> dict[str, int]:
        """See `Output.ends`."""
        return {task: next_ if uncovered else safe for task, (safe, next_) in self._tasks.items()}

    def withdrawn(self) -> dict[str, int]:
        """See `Output.withdrawn`."""
        return {task: self._files[task].withdrawn for task in self._tasks}

    def hint(self, task: str, position: int) -> Any:
        """Return (line, byte offset) of a line at or before `position`."""
        return self._files[task].before(position)

    def rows(self, task: str, start: int, stop: int, hint: Any = None) -> Iterator[Piece]:
        """See `Output.rows`."""
        line, byte = self.hint(task, start) if hint is None else hint
        path = self._directory / f"{task.replace('/', '-')}.jsonl"
        with open(path, "rb") as file:
            file.seek(byte)
            next(islice(file, start - line, start - line), None)
            for first in range(start, stop, LINES_AT_ONCE):
                texts = list(islice(file, min(LINES_AT_ONCE, stop - first)))
                if len(texts) < min(LINES_AT_ONCE, stop - first) or not texts[-1].endswith(b"\n"):
                    raise CorruptData(f"{path} has lost rows that were written; restore it")
                yield range(first, first + len(texts)), texts


class _Lines:
    """An index of the byte offsets of lines in a growing file."""

    def __init__(self, path: Path, run: str, withdrawn: int) -> None:
        self._path = path
        self.run = run
        self.withdrawn = withdrawn
        """The number of rows ever withdrawn; once more are, other lines may follow at other offsets."""
        self._lines = [0]
        self._bytes = [0]

    def count(self, wanted: int, lasting: int) -> int:
        """Return the number of complete lines, at most `wanted`; lines after line `lasting` may still change."""
        line, byte = self._lines[-1], self._bytes[-1]
        try:
            with open(self._path, "rb") as file:
                file.seek(byte)
                while line < wanted:
                    chunk = file.read(_SCANNED_BYTES) + file.readline()
                    end = chunk.rfind(b"\n") + 1
                    if end == 0:
                        break
                    line += chunk.count(b"\n")
                    byte += end
                    if line <= lasting and end == len(chunk):
                        self._lines.append(line)
                        self._bytes.append(byte)
        except FileNotFoundError:
            return 0
        return min(line, wanted)

    def before(self, position: int) -> tuple[int, int]:
        place = bisect_right(self._lines, position) - 1
        return self._lines[place], self._bytes[place]
