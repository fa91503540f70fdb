"""Checks a job's output by reading rows that were visible before a kill again after the recovery.

A separate process (`deploy.ui.seen_rows`) reads the rows.  It starts when the page with the kill buttons is opened, or
with the first kill, and ends with this process.  A kill waits for that process only for a limited time, and is carried
out no matter what the process reports.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from causal.errors import Unavailable
from deploy.ui.child import Child

REMEMBER_S, CHECK_S = 15.0, 30.0
"""The time that a kill waits until the rows before it are remembered, and the time that reading them again may take."""


class OutputCheck:
    """The rows that were seen before the latest kill in a job.  Methods may be called from several threads.

    Args:
        job: the job directory.
    """

    def __init__(self, job: Path) -> None:
        self._lock = threading.Lock()
        self._rows = Child("deploy.ui.seen_rows", job, "its rows")
        self._remembered: dict[str, Any] | None = None
        self._checked: dict[str, Any] | None = None
        self._at_s = 0.0

    def remember(self) -> None:
        """Remember the rows that are visible now, so that they can be checked after the kill that follows."""
        with self._lock:
            self._checked = None
            self._remembered = self._asked("remember", REMEMBER_S)
            self._at_s = time.time()

    def shown(self, settled: Callable[[float], bool]) -> dict[str, Any]:
        """Return the text for the page; check once after each kill, as soon as the job has settled.

        Args:
            settled: a function that returns whether all tasks have been at work since a given time.
        """
        with self._lock:
            self._rows.start()
            if self._remembered is None:
                return {"says": "", "holds": None}
            if "problem" in self._remembered:
                return {"says": f"The output is not checked: {self._remembered['problem']}.", "holds": None}
            if self._checked is None and settled(self._at_s):
                self._checked = self._asked("check", CHECK_S)
            return said(self._remembered, self._checked)

    def _asked(self, question: str, within_s: float) -> dict[str, Any]:
        try:
            return self._rows.ask(question, within_s)
        except Unavailable as problem:
            return {"problem": str(problem)}

    def close(self) -> None:
        """End the process that reads the rows."""
        self._rows.close()


def said(remembered: dict[str, Any], checked: dict[str, Any] | None) -> dict[str, Any]:
    """Return sentences about a check, and whether the output is unchanged; None if this is not known yet."""
    others = "".join(f" {name} is not readable from here: {why}." for name, why in remembered["unreadable"].items())
    if not remembered["rows"]:
        return {"says": f"No row was readable before the kill.{others}", "holds": None}
    if checked is None:
        says = f"{remembered['rows']:,} rows were seen before the kill; they are read again once all tasks are at work."
        return {"says": says + others, "holds": None}
    if "problem" in checked or (checked["unreadable"].keys() - remembered["unreadable"].keys()):
        why = checked.get("problem") or "; ".join(checked["unreadable"].values())
        return {"says": f"The rows seen before the kill could not be read again: {why}.", "holds": None}
    says = (
        f"Checked {checked['rows']:,} rows seen before the kill: {checked['changed']:,} changed, "
        f"{checked['missing']:,} missing."
    )
    return {"says": says + others, "holds": not checked["changed"] and not checked["missing"]}
