"""The state of a job's current version, converted for its next version, one checkpoint after another (0040).

The first conversion reads everything; each later one reads only what the current version has written since, where the
operators permit it.  So the time that the last conversion takes does not depend on the size of the state.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from contextlib import nullcontext
from dataclasses import dataclass
from functools import cache
from pathlib import Path

from causal.commands import Files
from causal.config import JobConfig
from causal.errors import PipelineError
from causal.ids import OUTSIDE
from causal.snapshot_files import span_of
from causal.storage.files import write_parts
from deploy.savepoints import savepoint_store
from deploy.savepoints.stored_checkpoints import fetch, first_name, unload, upload
from deploy.savepoints.upgrading import Stood, present, read_saved
from operators.code_archive.archive import Archive
from operators.engine.plan import Plan
from operators.runtime.later_changes import later_changes
from operators.runtime.regrouping import Saved
from operators.runtime.rescaling import Rescaling
from operators.runtime.sent_rows import Written
from operators.runtime.unchanged_state import converted
from standby.blueprint import Blueprint
from standby.storage.manifest_files import newest_manifest


@dataclass(frozen=True, slots=True)
class Version:
    """The version to which a job changes."""

    config: JobConfig
    planned: Plan
    blueprint: Blueprint
    archive: Archive
    allow_dropped: bool = False

    def positions(self, stores: Stood) -> Stood:
        """Return the positions of all stores of the version; stores that are new have no rows."""
        topology = self.planned.topology
        names = [topology.account(channel) for channel in topology.channels if channel.target == OUTSIDE]
        return {name: stores.get(name, (0, 0)) for name in names}


class Snapshots:
    """The snapshot files that a command writes for the tasks of a version.

    Args:
        incarnation: the first incarnation of the version, from which the names of the files are made.
    """

    def __init__(self, job: Path, version: Version, incarnation: int) -> None:
        self._job = job
        self._config = version.config
        self._incarnation = incarnation
        self.files: dict[str, Files] = {}

    def add(self, epoch: int, cuts: Mapping[str, bytes], chains: Mapping[str, Sequence[bytes]], whole: bool) -> None:
        """Write one more file for each task, from its packed cut and the parts that follow, also to a shared store.

        Args:
            whole: whether the files contain the whole state, so that earlier files are not needed.

        Raises:
            Unavailable: the disk or the store is unavailable.
        """
        durable, shared = self._config.durability == "os", bool(self._config.store)
        for task, parts in chains.items():
            path = first_name(task, epoch, self._incarnation, shared)
            size, digest = write_parts(self._job / path, [cuts[task], *parts], durable)
            self.files[task] = (*(() if whole else self.files[task]), (path, size, digest))
        upload(self._job, self._config, (self.files[task][-1:] for task in chains))

    def remove(self) -> None:
        """Remove the files, because the version does not begin."""
        paths = [path for each in self.files.values() for path, _, _ in each]
        for path in paths:
            (self._job / path).unlink(missing_ok=True)
        unload(self._config, paths)


class Conversion:
    """The conversion of the state of the job in a directory to a version.

    Attributes:
        epoch: the checkpoint that has been converted last; 0 for none.
        snapshots: the converted files.
        obstacle: the reason why the last conversion had to convert everything; empty if it did not.

    Raises:
        PipelineError: the version cannot begin with this state; raised by `advance`.
    """

    def __init__(self, job: Path, version: Version, incarnation: int) -> None:
        self._job = job
        self._version = version
        self.topology = Blueprint.load(job).topology
        self.snapshots = Snapshots(job, version, incarnation)
        self.epoch = 0
        self.obstacle = ""
        self._rescaling: Rescaling | None = None
        self._written: Written | None = None
        """Returns the plan of the current version; None if the code is the same, so that it is not needed."""
        if version.archive.digest != JobConfig.load(job).code:
            written = cache(lambda: present(job))
            self._written = lambda: nullcontext(written())
        self._read: Mapping[str, Files] = {}

    @property
    def rescaling(self) -> Rescaling:
        """The last conversion."""
        if self._rescaling is None:
            raise PipelineError(f"the job in {self._job} has not completed a checkpoint yet; repeat the command later")
        return self._rescaling

    @property
    def stores(self) -> Stood:
        """The positions of the current version's stores at the checkpoint that has been converted."""
        return savepoint_store.stood(self._job, self.topology, self._read)

    def advance(self, stores: Stood | None = None) -> bool:
        """Convert the latest checkpoint; return whether there was a new one.

        Args:
            stores: the positions at which the version's stores begin; by default, those at the checkpoint.
        """
        newest = newest_manifest(self._job)
        if newest is None or newest[0] == self.epoch and stores is None:
            return False
        epoch, files = newest
        fetch(self._job, files.values())
        rescaling, chains, whole = self._converted(epoch, files)
        self._read = files
        stood = self._version.positions(self.stores) if stores is None else stores
        cuts = {task: cut.pack() for task, cut in rescaling.cuts(stood).items()}
        self.snapshots.add(epoch, cuts, chains, whole)
        self.epoch, self._rescaling = epoch, rescaling
        return True

    def _converted(
        self, epoch: int, files: Mapping[str, Files]
    ) -> tuple[Rescaling, Mapping[str, Sequence[bytes]], bool]:
        """Return the conversion of a checkpoint, with its chains, and whether these contain the whole state."""
        self.obstacle = ""
        if self._rescaling is not None:
            later = later_changes(
                self._rescaling, self._saved(epoch, {task: self._later(task, files) for task in files})
            )
            if not isinstance(later, str):
                return *later, False
            self.obstacle = later
        config, dropped = self._version.config, self._version.allow_dropped
        saved = self._saved(epoch, files)
        return *converted(self.topology, saved, self._version.planned, config.key_groups, dropped, self._written), True

    def _later(self, task: str, files: Mapping[str, Files]) -> Files:
        """Return the files with which a task has written its changes since the last conversion."""
        read = self._read.get(task, ())
        if tuple(files[task][: len(read)]) == tuple(read):
            return files[task][len(read) :]
        # Files have been merged: those that end later contain the changes, and perhaps others that are known.
        spans = [(file, span_of(file[0])) for file in files[task]]
        return tuple(file for file, span in spans if span is None or span.last > self.epoch)

    def _saved(self, epoch: int, files: Mapping[str, Files]) -> list[Saved]:
        return [read_saved(self._job, task, files[task.name], epoch) for task in self.topology.tasks]
