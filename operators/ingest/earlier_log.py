"""The conversion of an ingest log's files in a directory from the names used before 0031 to the current names.

    fence.json                → tokens/<token>
    manifests/<batch>.json    → manifests/<batch>
    ended.json                → the manifest of the end

The readers' marks are not converted, because the next checkpoint writes them again.
"""

from __future__ import annotations

from contextlib import suppress
from pathlib import Path

from causal.errors import CorruptData
from causal.storage.directory import Directory
from causal.storage.files import sync_directory
from operators.ingest.contract import RESTORE, Manifest, manifest_of, unseal

FENCE, ENDED, HEADER = "fence.json", "ended.json", "log.json"


def adopt(directory: Path) -> None:
    """Rename the files of an earlier version, if there are any; an interrupted call can be repeated.

    The lowest manifest is renamed first, because a reader begins with the lowest one that exists.

    Raises:
        CorruptData: the last driver's token, the header or the end marker is damaged or missing.
    """
    fence, manifests = directory / FENCE, directory / "manifests"
    try:
        token = _number(fence, "token")
    except FileNotFoundError:  # this file is removed last, so no old manifest may exist without it
        if any(manifests.glob("*.json")):
            raise CorruptData(f"{fence} is missing although batches exist; {RESTORE}") from None
        return
    Directory(directory).create(f"tokens/{token:010d}", b"")
    for manifest in sorted(manifests.glob("*.json")):
        with suppress(FileNotFoundError):  # another process is renaming the files too
            manifest.rename(manifest.with_suffix(""))
    sync_directory(manifests)
    if (directory / ENDED).exists():
        _create_end(directory, token)
    for name in (ENDED, "backlog.json", "lock"):
        (directory / name).unlink(missing_ok=True)
    for mark in (directory / "low-water").glob("*.json"):
        mark.unlink(missing_ok=True)
    fence.unlink(missing_ok=True)


def _create_end(directory: Path, token: int) -> None:
    """Create the manifest that states that no batch follows."""
    try:
        query, before, batches = (
            "",
            (0,) * _number(directory / HEADER, "channels"),
            _number(directory / ENDED, "batches"),
        )
        if batches:
            path = directory / "manifests" / f"{batches - 1:010d}"
            last = manifest_of(path.read_bytes(), str(path))
            query, before = last.query, last.after()
    except FileNotFoundError as problem:
        if (directory / FENCE).exists():  # without the fence file, another process has completed the conversion
            raise CorruptData(f"{problem.filename} is missing although the query has ended; {RESTORE}") from None
        return
    end = Manifest(query, batches, token, "", 0, before, (), ended=True)
    Directory(directory).create(f"manifests/{batches:010d}", end.packed())


def _number(path: Path, name: str) -> int:
    """Return the number with the given name from a sealed file."""
    try:
        return int(unseal(path.read_bytes(), str(path))[name])
    except (KeyError, TypeError, ValueError) as problem:
        raise CorruptData(f"{path}: {problem}; {RESTORE}") from None
