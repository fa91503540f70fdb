"""The names of the files of a change, and the identity of the journal with which it replaces that of a running job.

The process that watches whether parts of the job directory are lost would otherwise take the old journal for lost.
"""

from __future__ import annotations

from pathlib import Path

CHANGE = "change"
"""The directory in which a change to the job's graph is prepared."""

NEXT = "next"
"""The directory with the settings that the processes of a job's next version read before it is the current one."""

ROLLBACK = "rollback.json"
"""The file that names the savepoint of a rollback which has begun to withdraw rows and is not complete yet."""

CHANGE_LOCK = "change.lock"
"""The file that a command keeps locked while it changes the running job."""

WITHDRAWAL_LOCK = "withdrawal.lock"
"""The file that a command keeps locked while it withdraws rows of the running job; meanwhile, no run can resume it."""

CHANGED = "changed"
"""The file that names the journal of the last change."""


def note(job: Path, journal: Path) -> None:
    """Record that this file will be moved into place as the journal of the job."""
    (job / CHANGED).write_text(_identity(journal))


def is_of_change(job: Path, journal: Path) -> bool:
    """Return whether a journal, which has replaced another one while the job was running, is that of a change."""
    try:
        return (job / CHANGED).read_text() == _identity(journal)
    except OSError:
        return False


def _identity(path: Path) -> str:
    """Return a text that identifies a file, also after it has been moved."""
    known = path.stat()
    return f"{known.st_dev} {known.st_ino}"
