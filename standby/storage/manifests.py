"""Checkpoints on disk: manifests, each complete or absent, and the removal of files that no manifest lists."""

from __future__ import annotations

import json
import logging
import os
import re
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

from causal.commands import Files
from causal.errors import InvariantViolation, Unavailable
from causal.sealed import digest_of
from causal.snapshot_files import Span, span_of
from causal.storage.files import ASIDE, make_directory, sync_directory
from standby.storage.manifest_files import DIRECTORY, MANIFEST, manifests_from, names_in
from standby.supervision.effects import Record, RemoveFiles
from standby.supervision.file_lists import as_files

_SNAPSHOT = re.compile(r"e(\d+)-i\d+\.snap.*")
_FIRST = re.compile(r"e(\d+)-i\d+-[0-9a-f]+\.snap.*")
"""The file name of a version's first snapshot in the shared store; its epoch is that of the savepoint from which
the version began."""
_RECORDING = re.compile(r"e(\d+)-i\d+\.rec.*")
"""The file name of the recording of one epoch, which standbys read once the epoch's checkpoint is complete."""

_log = logging.getLogger("standby.manifests")


def write_manifest(job: Path, epoch: int, files: Mapping[str, Files], sync: bool) -> None:
    """Write the manifest atomically; when this function returns, the checkpoint is complete.

    Args:
        sync: whether the manifest must also survive a power failure.

    Raises:
        Unavailable: the manifest was not written, and no file remains that could be read as a manifest.
        InvariantViolation: the manifest could be neither made durable nor removed, so this supervisor must make no more
        decisions.
    """
    manifest: dict[str, Any] = {
        "epoch": epoch,
        "files": {task: [list(file) for file in fs] for task, fs in files.items()},
    }
    manifest["digest"] = digest_of(manifest)
    folder = job / DIRECTORY
    path, fresh = folder / f"manifest-{epoch}.json", folder / f"manifest-{epoch}.json.new"
    try:
        make_directory(folder, sync)
        with open(fresh, "w") as file:
            file.write(json.dumps(manifest, sort_keys=True))
            file.flush()
            if sync:
                os.fsync(file.fileno())
        os.replace(fresh, path)
    except OSError as problem:
        _remove(fresh)
        raise Unavailable(f"{path} cannot be written: {problem.strerror}") from None
    if sync:
        _make_durable(folder, path)


def restore_manifest(job: Path, records: Sequence[Record]) -> None:
    """Make the manifest of the last complete checkpoint, as decisions have it, the newest one in a job directory.

    Raises: as `write_manifest`.
    """
    last = next((record for record in reversed(records) if record["kind"] == "checkpoint"), None)
    for path in manifests_from(job, last["epoch"] if last is not None else 0):
        path.unlink()
    if last is not None:
        write_manifest(job, last["epoch"], as_files(last["files"]), sync=False)


def _make_durable(folder: Path, path: Path) -> None:
    try:
        sync_directory(folder)
        return
    except OSError as problem:
        cause = problem.strerror
    try:
        path.unlink(missing_ok=True)
    except OSError as problem:
        # Another supervisor would count the checkpoint as complete, regardless of what this supervisor decides from now
        # on.
        raise InvariantViolation(f"{path} cannot be made durable ({cause}), nor removed ({problem.strerror})") from None
    raise Unavailable(f"{path} cannot be made durable: {cause}")


def sweep(job: Path, order: RemoveFiles) -> None:
    """Remove old manifests and the files of past epochs, except those that the order keeps.

    A file that cannot be removed only wastes space, so the failure is just logged.
    """
    folder, kept = job / DIRECTORY, _Kept(order)
    for name in names_in(folder):
        match = MANIFEST.fullmatch(name)
        if match and int(match[1]) < order.manifests_from:
            _remove(folder / name)
    for place, _, names in os.walk(folder):
        before = f"{Path(place).relative_to(job)}/"
        for name in names:  # every checkpoint examines all files and keeps most of them, so the fast checks come first
            if kept.allow(before + name):
                _remove(Path(place, name))


def unnecessary(names: Iterable[str], order: RemoveFiles) -> list[str]:
    """Return the files, relative to the job directory, that the order allows to be removed because no manifest lists
    them.
    """
    kept = _Kept(order)
    return [name for name in names if kept.allow(name)]


class _Kept:
    """The files that manifests list, and the rule for those that none lists."""

    def __init__(self, order: RemoveFiles) -> None:
        self._order = order
        self._spans: dict[str, list[Span]] = {}
        for path in order.keep:
            span = span_of(path)
            if span is not None:
                self._spans.setdefault(path.rpartition("/")[0], []).append(span)

    def allow(self, path: str) -> bool:
        """Return whether a file may be removed."""
        if path in self._order.keep:
            return False
        folder, _, name = path.rpartition("/")
        span = span_of(name.removesuffix(ASIDE))
        if span is not None and span.merged:
            return self._merged_is_over(span, self._spans.get(folder, ()))
        return _is_over(name, self._order.through_epoch)

    def _merged_is_over(self, span: Span, kept: Iterable[Span]) -> bool:
        """Return whether no task will name a merged file that no manifest lists (yet).

        A task that still merges, or has just merged, names the newest source of the merge in its last checkpoint.
        """
        if span.last > self._order.through_epoch:
            return False
        newer = max((each.incarnation for each in kept), default=0) > span.incarnation
        return newer or not any(each.last == span.last and not each.merged for each in kept)


def _is_over(name: str, through_epoch: int) -> bool:
    """Return whether a file belongs to a past checkpoint, assuming that no manifest lists it."""
    snapshot = _SNAPSHOT.fullmatch(name)
    if snapshot:
        return int(snapshot[1]) <= through_epoch
    # A supervisor of the previous version, whose last epoch is this one, must not remove files that it does not know.
    other = _FIRST.fullmatch(name) or _RECORDING.fullmatch(name)
    return other is not None and int(other[1]) < through_epoch


def _remove(path: Path) -> None:
    try:
        path.unlink(missing_ok=True)
    except OSError as problem:
        _log.warning("%s cannot be removed: %s", path, problem.strerror)
