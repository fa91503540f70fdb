"""The places at which a job begins to read a system that keeps its messages: decided once, and durable before any read.

The first reader that asks writes its decision; everybody else reads it.
"""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from causal.errors import CorruptData
from causal.storage.directory import Directory
from causal.storage.objects import Missing, Objects
from causal.storage.shared import Depot
from operators.source import SourceContext

FOLDER = "ingest"


class Beginnings:
    """The first places of one source, in the directory of the job or in the store that its hosts share."""

    def __init__(self, objects: Objects, source: str) -> None:
        self._objects = objects
        self._folder = f"{FOLDER}/{source}"

    def offset(self, partition: int, first: Callable[[], Mapping[int, int]], added: Callable[[], int]) -> int:
        """Return the offset at which a partition begins; one that the first reader did not know was added later.

        Args:
            first: returns the offsets of all partitions; it is called by the first reader of the job.
            added: returns the first offset of this partition, which was added later.

        Raises:
            Unavailable: the storage or the cluster does not answer.
        """
        offsets = self.agreed("begins", lambda: {str(each): offset for each, offset in first().items()})
        if str(partition) not in offsets:
            offsets = self.agreed(f"begins-{partition}", lambda: {str(partition): added()})
        return int(offsets[str(partition)])

    def agreed(self, name: str, decide: Callable[[], Mapping[str, Any]]) -> Mapping[str, Any]:
        """Return what the first reader that asked under this name has decided, and no other reader decides again."""
        path = f"{self._folder}/{name}"
        try:
            return self._read(path)
        except Missing:
            self._objects.create(path, json.dumps(decide(), sort_keys=True).encode())
            return self._read(path)

    def _read(self, path: str) -> Mapping[str, Any]:
        try:
            return dict(json.loads(self._objects.read(path)))
        except ValueError as problem:
            raise CorruptData(f"{self._objects.where(path)} is damaged ({problem}); use a new --state-dir") from None


def lend_beginnings(source: str, job_directory: Path, elsewhere: Path) -> None:
    """Copy what the readers of a job have decided to another directory, in which readers begin at the same places."""
    decided, copied = job_directory / FOLDER / source, elsewhere / FOLDER / source
    copied.mkdir(parents=True, exist_ok=True)
    for path in decided.iterdir() if decided.exists() else ():
        if path.name.startswith("begins") and path.suffix == "":
            shutil.copyfile(path, copied / path.name)


def beginnings_of(context: SourceContext) -> Beginnings:
    """Return the first places of the source of this context."""
    if context.store:
        return Beginnings(Depot(context.store, context.place_in_store, proof=""), context.name)
    return Beginnings(Directory(context.job_directory), context.name)
