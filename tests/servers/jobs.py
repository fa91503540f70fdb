"""A job that writes to a server, held until the test lets it end."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from benchmarks.harness.runs import sets
from tests.faults.conftest import Start
from tests.faults.job import Job, wait_for

PIPELINE = Path(__file__).resolve().parent / "pipelines" / "chained.py"
COUNT = 3000
RATE = 20.0
"""Elements a second: slow enough to have rows for minutes, which show that an outage begins and ends."""


class Chained:
    """A run of `pipelines/chained.py`."""

    def __init__(
        self, start: Start, directory: Path, *arguments: str, config: dict[str, Any] | None = None, **sink: str
    ):
        self._gate = directory / "gate"
        values = {"count": str(COUNT), "rate": str(RATE), "gate": str(self._gate), **sink}
        self.job: Job = start(PIPELINE, *sets(**values), *arguments, config=config)

    def written(self) -> int:
        """Return rows that the sink has counted as acknowledged."""
        view = self.job.view()
        if view is None:
            return 0
        return sum(int(task["figures"].get("records_out", 0)) for task in view["tasks"] if task["sink"])

    def until_more(self, rows: int = 30) -> None:
        """Wait until this many more rows are acknowledged: the job works again."""
        wanted = self.written() + rows
        self.job.until(f"{rows} more rows", lambda view: self.written() >= wanted)

    def until_waiting(self, words: str) -> None:
        """Wait until the sink task says that it waits for its store, in these words."""

        def says(view: dict[str, Any]) -> bool:
            return any(words in str(task.get("waiting")) for task in view["tasks"])

        self.job.until(f"it waits, and says {words!r}", says)

    def finish(self) -> dict[str, Any]:
        """End the sources, and return the report."""
        self._gate.touch()
        return self.job.finish_well()


__all__ = ["COUNT", "Chained", "wait_for"]
