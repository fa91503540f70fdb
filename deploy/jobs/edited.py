"""The files of a job's code that were edited since the job began, which does not change the code that it runs.

The module imports little, so that a command that only reads is quick.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

from causal.config import JobConfig
from operators.code_archive.archive import Archive

SHOWN_MAX = 5


def changed_since(job: Path, config: JobConfig) -> list[str]:
    """Return the names of the files of a job's code that have changed since the job began.

    Raises:
        CorruptData: the archive of the job is damaged.
    """
    if not config.code:
        return []
    return list(_differing(Archive.load(job, config.code)))


def _differing(kept: Archive) -> Iterator[str]:
    for module in kept.modules:
        try:
            now = Path(module.path).read_bytes()
        except OSError:
            yield f"{kept.shown(module)} (gone)"
            continue
        if now != module.source:
            yield kept.shown(module)


def listed(names: list[str] | tuple[str, ...]) -> str:
    """Return the names as text for one line; only some if there are many."""
    shown = ", ".join(names[:SHOWN_MAX])
    return f"{shown} and {len(names) - SHOWN_MAX} more files" if len(names) > SHOWN_MAX else shown
