"""Failures of user code inside Spark: the error and its location, and how often in a row a micro-batch failed."""

from __future__ import annotations

import re
from pathlib import Path

from causal.errors import CorruptData
from operators.ingest.contract import seal, unseal

_TRACEBACK = "Traceback (most recent call last):"
_FRAME = re.compile(r'\s+File "([^"]+)", line (\d+), in (.+)')
_ERROR = re.compile(r"([A-Za-z_][\w.]*)(: .*)?$")
_NOT_THEIRS = re.compile(r"/(pyspark|py4j|site-packages|dist-packages)/|/lib/python3|pyspark\.zip|<frozen ")
_OURS = "causal.errors."
LINE_MAX = 500


class UserCodeFailed(Exception):
    """A user's function raised an exception in one of Spark's Python workers."""


def user_error(text: str) -> str | None:
    """Return the error of the last traceback, as `ValueError: … at file.py:12 in parse`.

    The result is None if no user code raised the error.
    """
    lines = text[text.rfind(_TRACEBACK) :].splitlines() if _TRACEBACK in text else []
    where = ""
    for line in lines[1:]:
        frame = _FRAME.match(line)
        if frame is not None:
            if not _NOT_THEIRS.search(frame[1]):
                where = f" at {frame[1]}:{frame[2]} in {frame[3]}"
        elif line.strip() and not line[0].isspace():
            error = _ERROR.match(line)
            if error is None or error[1].startswith(_OURS):
                return None
            return line.strip()[:LINE_MAX] + where
    return None


class Failures:
    """The count of failures of the driver's query in the next batch, on this host."""

    def __init__(self, directory: Path) -> None:
        self._path = directory / "failures.json"

    def count(self, batch: int) -> int:
        """Count a failure of user code in this batch, and return the number of failures since a batch was published."""
        try:
            failures = unseal(self._path.read_bytes(), str(self._path))
            count = int(failures["count"]) + 1 if failures["batch"] == batch else 1
        except (FileNotFoundError, CorruptData, KeyError, TypeError, ValueError):
            count = 1
        fresh = self._path.with_name(f".{self._path.name}")
        fresh.write_bytes(seal({"batch": batch, "count": count}))
        fresh.rename(self._path)
        return count

    def forget(self) -> None:
        """Reset the count, because the code may be corrected before the next start."""
        self._path.unlink(missing_ok=True)
