"""Changes in the ingest log, and how far the source is behind its server."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

from causal.records.unreadable import Unreadable
from operators.ingest.bound import BOUNDS, LogBounds
from operators.ingest.contract import ReadableLog
from operators.ingest.entry_log import EntryReader, EntryWriter
from operators.ingest.ingest_log import IngestLog
from operators.source import SourceContext

LAG_FILE = "lag.json"


class ChangesWriter(EntryWriter):
    """The only process that writes to a log of changes."""

    def __init__(self, log: IngestLog, bounds: LogBounds = BOUNDS) -> None:
        super().__init__(log, "changes", bounds)


class ChangesReader(EntryReader):
    """A reader of the log's records; a list among them is a bad row.

    Args:
        folder: where the process that writes the log notes how far it is behind.
    """

    def __init__(self, log: ReadableLog, context: SourceContext, folder: Path) -> None:
        super().__init__(log, context)
        self._folder = folder

    def counters(self) -> dict[str, int | float]:
        """Return those of every log, and the bytes of the write-ahead log that are not stored yet."""
        behind = behind_bytes(self._folder)
        return super().counters() | ({} if behind is None else {"input_lag": behind})

    def _record(self, stored: Any, position: int) -> Any:
        return Unreadable(*stored) if type(stored) is list else stored


def note_lag(folder: Path, kept_bytes: int, behind_bytes: int) -> None:
    """Write how much the server keeps for the slot, and how much of it the log does not have, in one step."""
    part = folder / f"{LAG_FILE}.part"
    part.write_text(json.dumps({"kept_bytes": kept_bytes, "behind_bytes": behind_bytes}))
    os.replace(part, folder / LAG_FILE)


def behind_bytes(folder: Path) -> int | None:
    """Return the bytes that the log does not have, as last noted; None if nothing was noted yet."""
    try:
        return int(json.loads((folder / LAG_FILE).read_text())["behind_bytes"])
    except (FileNotFoundError, ValueError, KeyError, TypeError):
        return None
