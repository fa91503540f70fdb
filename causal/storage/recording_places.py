"""The place of a recording: a folder of the job directory or, in a multi-host job, of the shared store (0053)."""

from __future__ import annotations

import os
import shutil
from pathlib import Path
from typing import Protocol

from causal.config import JobConfig
from causal.errors import Unavailable
from causal.recorded_files import DIRECTORY
from causal.storage.directory import Directory
from causal.storage.objects import Missing, Objects
from causal.storage.shared import Depot


class RecordingPlace(Protocol):
    """The files of a recording.

    Attributes:
        objects: the recording's files, with names relative to `recording/`.
    """

    objects: Objects

    def size(self, name: str) -> int | None:
        """Return the size of a file of the recording; None if there is none."""
        ...

    def keep(self, name: str) -> None:
        """Keep a file of the job in the recording, under the same name; a file that is kept already stays.

        Raises:
            Missing: the job has no such file any more.
            Unavailable: the file cannot be kept now.
        """
        ...


class LocalPlace:
    """The recording in a job directory, whose files are hard links to files of the job, which never change."""

    def __init__(self, job: Path) -> None:
        self._job = job
        self._root = job / DIRECTORY
        self._root.mkdir(mode=0o700, exist_ok=True)
        self.objects: Objects = Directory(self._root)

    def size(self, name: str) -> int | None:
        try:
            return (self._root / name).stat().st_size
        except FileNotFoundError:
            return None

    def keep(self, name: str) -> None:
        source, target = self._job / name, self._root / name
        try:
            target.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
            _link(source, target)
        except FileNotFoundError:
            raise Missing(f"{source} is missing; restore it from a copy") from None
        except OSError as problem:
            raise Unavailable(f"{target} cannot be written: {problem.strerror}") from None


def _link(source: Path, target: Path) -> None:
    """Create a hard link, or a copy if the file system does not support hard links."""
    try:
        os.link(source, target)
    except (FileExistsError, FileNotFoundError):
        if not target.exists():
            raise
    except OSError:
        aside = target.with_name(f".{target.name}")
        shutil.copy(source, aside)
        os.replace(aside, target)


class StoredPlace:
    """The recording in the shared store of a multi-host job."""

    def __init__(self, config: JobConfig) -> None:
        self._job: Objects = Depot(config.store, config.place_in_store, proof="")
        self.objects: Objects = Depot(config.store, f"{config.place_in_store}/{DIRECTORY}", proof=None)
        self._kept: set[str] = set()
        """The names of files that are known to be kept."""

    def size(self, name: str) -> int | None:
        folder, _, base = name.rpartition("/")
        return self.objects.sizes(folder, after=base[:-1]).get(name)

    def keep(self, name: str) -> None:
        if name not in self._kept:
            if self.size(name) is None:
                self.objects.create(name, self._job.read(name))
            self._kept.add(name)


def place_of(job: Path, config: JobConfig) -> RecordingPlace:
    """Return the place of a job's recording."""
    return StoredPlace(config) if config.store else LocalPlace(job)
