"""Finds the code files that were edited since a job began; such edits do not change the code that the job runs.

This module imports little, so that commands that only read are fast.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

from causal.config import JobConfig
from operators.code_archive.archive import Archive

SHOWN_MAX = 5


def changed_since(job: Path, config: JobConfig) -> list[str]:
    """Return the names of those code files that have changed since the job began.

    Raises:
        CorruptData: the job's archive is damaged.
    """
    if not config.code:
        return []
    return list(_differing(Archive.load(job, config.code)))


def _differing(kept: Archive) -> Iterator[str]:
    for module in kept.modules:
        try:
            now = Path(module.path).read_bytes()
        except OSError:
            yield f"{kept.shown(module)} (deleted)"
            continue
        if now != module.source:
            yield kept.shown(module)


def listed(names: list[str] | tuple[str, ...]) -> str:
    """Return the names as text for one line; if there are many, list only some."""
    shown = ", ".join(names[:SHOWN_MAX])
    more = len(names) - SHOWN_MAX
    return f"{shown} and {more} more file{'s' * (more != 1)}" if more > 0 else shown
