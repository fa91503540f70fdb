"""Gives a reader outside the job what an ingest log has: links to its files, which the job never changes (0053).

The readers' marks stay with the job, so a reader elsewhere begins with the lowest batch that is kept.
"""

from __future__ import annotations

import os
from contextlib import suppress
from pathlib import Path

from operators.ingest.place import FOLDER

PARTS = ("segments", "manifests")
"""The folders that are linked, in this order: a manifest that is there has its segments."""


def lend_log(name: str, job_directory: Path, elsewhere: Path) -> None:
    """Link what the log of a source in a job directory has, and what a log elsewhere does not have yet.

    Nothing is written to the job directory. A file that the job removes meanwhile is not needed.
    """
    log, lent = job_directory / FOLDER / name, elsewhere / FOLDER / name
    if not log.exists():
        return
    manifests = set(os.listdir(log / "manifests")) if (log / "manifests").exists() else set[str]()
    for part in PARTS:
        (lent / part).mkdir(parents=True, exist_ok=True)
        for link in (lent / part).iterdir():
            if not link.exists():  # by its path, to what the job has removed
                link.unlink()
        there = manifests if part == "manifests" else os.listdir(log / part) if (log / part).exists() else ()
        for file in sorted(there):
            if not file.startswith("."):
                _link(log / part / file, lent / part / file)
    _link(log / "log.json", lent / "log.json")


def _link(file: Path, link: Path) -> None:
    """Link a file, by its path if the file system is another one, unless it is linked already."""
    if link.exists():
        return
    with suppress(FileNotFoundError):
        try:
            os.link(file, link)
        except FileNotFoundError:
            raise
        except OSError:
            os.symlink(file.resolve(strict=True), link)
