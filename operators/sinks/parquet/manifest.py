"""The manifest of a directory of Parquet files: the run that owns the rows, their schema, and the existing files.

`_causal/manifest.json` is always replaced as a whole, under the directory's lock. A file contains the rows of one task
from one position up to another, and is named after these positions; a task's files are contiguous. A file whose name
has this form but is not in the manifest was left by a process that died before it could record the file.
"""

from __future__ import annotations

import base64
import json
import os
import re
from contextlib import AbstractContextManager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pyarrow as pa
from xxhash import xxh3_64_hexdigest

from causal.errors import CorruptData, PipelineError
from causal.storage.framing import replace_file
from causal.storage.lock import locked_once
from causal.storage.modes import mode_of_files

OURS = "_causal"
"""The directory of everything that is not rows; readers of Parquet directories pass over such names."""
_VERSION = 1
_ROWS = re.compile(r"(.+)-(\d{12,})-(\d{12,})\.parquet")


@dataclass(slots=True)
class Manifest:
    """The facts about a directory that a reader needs before it can open any file in it."""

    run: str
    schema: pa.Schema | None = None
    """The schema of all files; None until the first bundle has rows."""
    files: dict[str, list[tuple[int, int]]] = field(default_factory=dict)
    """The (first, next) of each file, in order, by task."""
    emptying: bool = False
    """Whether files of earlier runs are being removed: no task of this run has begun to write."""

    def end_of(self, task: str) -> int:
        """Return the position of the task's first row that is not in any file."""
        ranges = self.files.get(task)
        return ranges[-1][1] if ranges else 0


def stem_of(task: str) -> str:
    """Return the prefix of the names of a task's files."""
    return task.replace("/", "-")


def file_name(task: str, first: int, next_: int) -> str:
    """Return the name of the file that contains these rows; sorting the names sorts the rows."""
    return f"{stem_of(task)}-{first:012d}-{next_:012d}.parquet"


def rows_in(name: str, task: str) -> tuple[int, int] | None:
    """Return (first, next) of the rows in the file named `name`, or None if it is not one of the task's files."""
    match = _ROWS.fullmatch(name)
    return (int(match[2]), int(match[3])) if match is not None and match[1] == stem_of(task) else None


def manifest_path(directory: Path) -> Path:
    """Return the path of a directory's manifest."""
    return directory / OURS / "manifest.json"


def load_manifest(directory: Path) -> Manifest | None:
    """Return the current manifest, or None if there is none.

    Raises:
        CorruptData: the file is not a valid manifest.
    """
    path = manifest_path(directory)
    try:
        stored = path.read_bytes()
    except FileNotFoundError:
        return None
    try:
        fields = json.loads(stored)
        if fields["version"] > _VERSION:
            raise PipelineError(f"{directory} was written by a later version of this package; use another path")
        if fields.pop("digest") != _digest(fields):
            raise ValueError("it does not match its digest")
        schema = None
        if fields["schema"] is not None:
            schema = pa.ipc.read_schema(pa.py_buffer(base64.b64decode(fields["schema"], validate=True)))
        files = {
            task: [(int(first), int(next_)) for first, next_ in ranges] for task, ranges in fields["files"].items()
        }
        return Manifest(str(fields["run"]), schema, files, bool(fields.get("emptying")))
    except (ValueError, KeyError, TypeError, AttributeError, OSError, pa.ArrowException) as problem:
        raise CorruptData(f"{path} is not a manifest ({problem}); restore it") from None


def _digest(fields: dict[str, Any]) -> str:
    return xxh3_64_hexdigest(json.dumps(fields, sort_keys=True).encode())


def store_manifest(directory: Path, manifest: Manifest, sync: bool) -> None:
    """Replace the manifest in one step; the caller holds the directory's lock."""
    schema = manifest.schema
    fields: dict[str, Any] = {
        "version": _VERSION,
        "run": manifest.run,
        "columns": None if schema is None else [[column.name, str(column.type)] for column in schema],
        "schema": None if schema is None else base64.b64encode(schema.serialize().to_pybytes()).decode(),
        "files": manifest.files,
    }
    if manifest.emptying:
        fields["emptying"] = True
    fields["digest"] = _digest(fields)
    os.close(replace_file(manifest_path(directory), (json.dumps(fields) + "\n").encode(), sync, mode_of_files()))


def holding_directory(directory: Path, wait_ms: int) -> AbstractContextManager[None]:
    """Hold the directory's lock; raises the same errors as `causal.storage.lock.FileLock.locked`."""
    return locked_once(directory / OURS / "directory.lock", wait_ms, directory, mode_of_files())
