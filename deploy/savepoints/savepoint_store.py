"""The savepoints that a job keeps, each in a directory under `savepoints/` with everything needed to begin from it.

The savepoint of `causal savepoint --stop`, and one with which another version begins, are kept until `causal savepoint
--delete NAME`; a service that stops and resumes unchanged leaves none.  The directory of a savepoint has the same
layout as a copy created with `--to`, so `causal run --from` can also begin from it.  Snapshots are hard links.
"""

from __future__ import annotations

import os
import shutil
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from causal.commands import Files
from causal.config import JobConfig
from causal.cut import Cut
from causal.errors import CorruptData, PipelineError
from causal.ids import OUTSIDE
from causal.sealed import seal, unseal
from causal.storage.files import make_directory, naming, read_parts, sync_directory, sync_tree
from causal.topology import Topology
from deploy.jobs.jobdirectory import BEGAN, SAVEPOINTS
from deploy.savepoints import recorded_input
from deploy.savepoints.stored_checkpoints import fetch
from operators.code_archive.archive import path_of
from standby.blueprint import Blueprint
from standby.storage.journal import journaled
from standby.storage.manifests import write_manifest
from standby.supervision.assignments import Assignments
from standby.supervision.effects import Record
from standby.supervision.savepoints import stopped_at

FILE = "savepoint.json"
WITHDRAWN = "withdrawn"
"""The file in a savepoint's directory which says that the rows of the savepoint have been withdrawn."""
KEPT_MAX = 100


@dataclass(frozen=True, slots=True)
class Savepoint:
    """A savepoint of a job.

    Attributes:
        incarnation: a number that was higher than all incarnations when the savepoint was created.
        stores: (rows, digest) of each sink task's store at the savepoint.
        made_s: when the savepoint was created, in seconds since 1970.
        left: (rows, digest) of the stores to which earlier versions of the job wrote, and the version at the savepoint
            did not.
    """

    name: str
    where: Path
    epoch: int
    incarnation: int
    stores: Mapping[str, tuple[int, int]]
    made_s: float
    left: Mapping[str, tuple[int, int]] = field(default_factory=dict)

    def save(self, durable: bool = True) -> None:
        """Write the savepoint's file.

        Args:
            durable: whether the file must survive a power failure.
        """
        content = {
            "name": self.name,
            "epoch": self.epoch,
            "incarnation": self.incarnation,
            "stores": {task: list(stood) for task, stood in self.stores.items()},
            "made_s": self.made_s,
            "left": {task: list(stood) for task, stood in self.left.items()},
        }
        with naming(self.where / FILE), open(self.where / FILE, "w") as file:
            file.write(seal(content))
            file.flush()
            if durable:
                os.fsync(file.fileno())
        if durable:
            sync_directory(self.where)

    def make_durable(self) -> None:
        """Make the savepoint survive a power failure."""
        sync_tree(self.where)
        sync_directory(self.where.parent)

    @classmethod
    def load(cls, where: Path) -> Savepoint:
        """Read the file that `save` wrote.

        Raises:
            CorruptData: the file is damaged or missing.
        """
        try:
            content = unseal((where / FILE).read_text())
            stores, left = positions(content["stores"]), positions(content.get("left", {}))
            epoch, incarnation = int(content["epoch"]), int(content["incarnation"])
            return cls(str(content["name"]), where, epoch, incarnation, stores, float(content["made_s"]), left)
        except (OSError, ValueError, KeyError, TypeError, AttributeError, RecursionError) as problem:
            raise CorruptData(f"{where / FILE} cannot be read ({problem}); restore it from a copy") from None

    @property
    def withdrawn(self) -> bool:
        """Whether the job has been rolled back to an earlier savepoint since, so that its rows are withdrawn."""
        return (self.where / WITHDRAWN).exists()

    def note_withdrawn(self) -> None:
        """Record durably that the job is being rolled back to an earlier savepoint."""
        (self.where / WITHDRAWN).touch()
        sync_directory(self.where)

    @property
    def command(self) -> str:
        """The command that begins a new job with this savepoint."""
        return f"causal run PIPELINE.py --from {self.where} --state-dir ELSEWHERE"

    def stood(self, account: str) -> tuple[int, int]:
        """Return (rows, digest) of a store at the savepoint; a store that was added later had no rows."""
        return self.stores[account] if account in self.stores else self.left.get(account, (0, 0))

    def size(self) -> int:
        """Return the total size of the savepoint's files in bytes."""
        return sum(path.stat().st_size for path in self.where.rglob("*") if path.is_file())


def positions(content: Mapping[str, Any]) -> dict[str, tuple[int, int]]:
    """Return (rows, digest) by task, as stored in JSON or in the journal."""
    return {str(task): (int(rows), int(digest)) for task, (rows, digest) in content.items()}


def keep(job: Path) -> Savepoint | None:
    """Store the savepoint at which the job stopped, unless it is already stored; return None if there is none.

    The caller ensures that no process of the job is running.

    Raises:
        PipelineError: too many savepoints are stored.
    """
    topology = Blueprint.load(job).topology
    records = journaled(job)
    stopped = stopped_at(records)
    if stopped is None:
        return None
    epoch, files = stopped
    name = f"{epoch}-{JobConfig.load(job).run[-6:]}"
    where = job / SAVEPOINTS / name
    if where.is_dir():
        return Savepoint.load(where)
    check_room(job)
    assignments = Assignments(topology)
    for record in records:
        assignments.apply(record)
    incarnation = 1 + max(entry.incarnation for entry in assignments.tasks.values())
    fetch(job, files.values())
    stores, left = stood(job, topology, files), left_behind(records)
    return store(job, Savepoint(name, where, epoch, incarnation, stores, time.time(), left), files)


def store(job: Path, savepoint: Savepoint, files: Mapping[str, Files], durable: bool = True) -> Savepoint:
    """Store a savepoint in its directory, which then exists completely or not at all, and keep the input since then.

    Args:
        durable: whether the savepoint must survive a power failure from now on; otherwise `make_durable` follows.
    """
    where = savepoint.where
    positions = recorded_input.positions_at(job, Blueprint.load(job).topology, files)
    recorded_input.keep(job, savepoint.name, positions, {each.name for each in kept(job)})
    fresh = where.with_name(f"{savepoint.name}.new")
    shutil.rmtree(fresh, ignore_errors=True)
    copy_state(job, replace(savepoint, where=fresh), files, linked=True, durable=durable)
    os.replace(fresh, where)
    if durable:
        sync_directory(where.parent)
    return Savepoint.load(where)


def delete(job: Path, savepoint: Savepoint) -> None:
    """Remove a savepoint, whose input is no longer kept then; an interrupted call can be repeated."""
    recorded_input.forget(job, {savepoint.name}, Blueprint.load(savepoint.where).topology)
    shutil.rmtree(savepoint.where)


def check_room(job: Path) -> None:
    """Raise `PipelineError` if the job keeps as many savepoints as it may."""
    if len(kept(job)) >= KEPT_MAX:
        raise PipelineError(
            f"{KEPT_MAX} savepoints are already kept in {job / SAVEPOINTS}; delete some with: causal savepoint --delete"
        )


def left_behind(records: Sequence[Record]) -> dict[str, tuple[int, int]]:
    """Return (rows, digest) of the stores that earlier versions of the job have left, from the job's decisions."""
    first = records[0] if records else None
    return positions(first.get("left", {})) if first is not None and first["kind"] == "changed" else {}


def kept(job: Path) -> list[Savepoint]:
    """Return all stored savepoints of the job, oldest first."""
    savepoints = [
        Savepoint.load(path.parent) for path in sorted((job / SAVEPOINTS).glob(f"*/{FILE}")) if path.parent.suffix == ""
    ]
    return sorted(savepoints, key=lambda each: (each.made_s, each.epoch))


def named(job: Path, name: str) -> Savepoint:
    """Return the savepoint with this name.

    Raises:
        PipelineError: there is no such savepoint.
    """
    savepoints = {each.name: each for each in kept(job)}
    if name not in savepoints:
        known = f"there are {', '.join(savepoints)}" if savepoints else "it has none"
        raise PipelineError(f"the job in {job} has no savepoint {name}; {known}")
    return savepoints[name]


def stood(job: Path, topology: Topology, files: Mapping[str, Files]) -> dict[str, tuple[int, int]]:
    """Return (rows, digest) of each store at a checkpoint, by the name of the subtask that writes to it."""
    places: dict[str, tuple[int, int]] = {}
    for task in topology.tasks:
        stores = [channel for channel in topology.outputs(task.index) if channel.target == OUTSIDE]
        if stores:
            path, _, digest = files[task.name][-1]
            cut = Cut.unpack(read_parts(job / path, digest)[0])
            places |= {topology.account(channel): cut.outputs[channel.id] for channel in stores}
    return places


def copy_state(job: Path, savepoint: Savepoint, files: Mapping[str, Files], linked: bool, durable: bool = True) -> None:
    """Create a directory from which a job can begin; its manifest is written last.

    Args:
        linked: whether snapshots, which never change, may be hard links.
        durable: whether the directory must survive a power failure.

    Raises:
        FileNotFoundError: the checkpoint has been superseded, and its files have been removed.
    """
    to = savepoint.where
    for path, _, _ in (file for each in files.values() for file in each):
        make_directory((to / path).parent, durable)
        (_linked if linked else _copied)(job / path, to / path, durable)
    code = JobConfig.load(job).code
    archived = [str(path_of(Path(), code))] if code else []
    for name in ("job.json", "topology.json", BEGAN, *archived):
        if (job / name).exists():
            make_directory((to / name).parent, durable)
            _copied(job / name, to / name, durable)
    savepoint.save(durable)
    if durable:
        sync_directory(to.parent)
    write_manifest(to, savepoint.epoch, files, durable)


def _linked(source: Path, target: Path, durable: bool) -> None:
    """Create a hard link, or a copy if the file system does not support hard links."""
    try:
        os.link(source, target)
    except FileNotFoundError:
        raise
    except OSError:
        shutil.copy(source, target)
    if durable:
        _made_durable(target)


def _copied(source: Path, target: Path, durable: bool) -> None:
    shutil.copy(source, target)
    if durable:
        _made_durable(target)


def _made_durable(path: Path) -> None:
    with naming(path), open(path, "rb") as file:
        os.fsync(file.fileno())
    sync_directory(path.parent)
