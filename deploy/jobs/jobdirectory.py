"""The job directory: its lock, its contents, and what is discarded or replaced between two runs."""

from __future__ import annotations

import json
import os
import shutil
import signal
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from causal.config import JobConfig
from causal.errors import CorruptData, PipelineError
from causal.network.host_file import FILE as HOST
from causal.network.host_file import INCARNATION, SIGN
from causal.network.host_file import KEY as HOST_KEY
from causal.network.host_file import TERM as HOST_TERM
from causal.network.roster import ROSTER
from causal.process.clock import OFFSET
from causal.process.forks import close as close_lock
from causal.process.forks import keep_from_children, lock
from causal.recorded_files import DIRECTORY as RECORDED
from causal.recorded_files import INPUT as RECORDED_INPUT
from causal.storage.files import sync_directory
from causal.storage.modes import closed_to_others
from causal.storage.stable import DIRECTORY as DETERMINANTS
from deploy.jobs.lookup import VIEW, VIEW_BEFORE
from operators.code_archive.archive import DIRECTORY as CODE
from operators.sinks.journaled.request_store import DIRECTORY as REQUESTS
from operators.sinks.staging.staged_place import DIRECTORY as STAGED
from standby.agent import LOCK as AGENT_LOCK
from standby.candidate.election import FILE as IDENTITY
from standby.candidate.election import RESUMPTION
from standby.host.children import kill_listed
from standby.host.log_sender import SENT
from standby.host.processes import kill_marked
from standby.network.gate import EXECUTORS_ROSTER
from standby.storage import prepared_change
from standby.storage.change_files import CHANGE, CHANGE_LOCK, CHANGED, NEXT, ROLLBACK, WITHDRAWAL_LOCK
from standby.storage.journal import FILE as JOURNAL
from standby.storage.journal import LOCK as SUPERVISOR_LOCK
from standby.storage.journal import Journal, journaled
from standby.storage.manifest_files import newest_manifest
from standby.supervision.savepoints import finished, stopped_at
from standby.supervision.task_counters import lasting

BEGAN = "began"
"""The file with the time at which the first source began to read, from which sources compute when records are due."""

SAVEPOINTS = "savepoints"
"""The directory of savepoints, which are kept until they are deleted, even when a new job begins."""

SPARK = EXECUTORS_ROSTER.partition("/")[0]
"""The directory for a job on a Spark cluster: the supervisor's key, agents' keys, and the driver's scratch files."""

OWNED = (
    "job.json",
    "topology.json",
    "runtime",
    JOURNAL,
    JOURNAL + "-wal",
    JOURNAL + "-shm",
    SUPERVISOR_LOCK,
    AGENT_LOCK,
    "processes.json",
    VIEW,
    VIEW_BEFORE,
    BEGAN,
    "checkpoints",
    RECORDED,
    RECORDED_INPUT,
    DETERMINANTS,
    "spill",
    "ingest",
    "file-listings",
    "logs",
    "dead-letters",
    REQUESTS,
    STAGED,
    "deliveries",
    "console",
    CHANGE,
    CHANGED,
    CHANGE_LOCK,
    WITHDRAWAL_LOCK,
    NEXT,
    ROLLBACK,
    CODE,
    SAVEPOINTS,
    HOST,
    HOST_KEY,
    INCARNATION,
    ROSTER,
    OFFSET,
    HOST_TERM,
    IDENTITY,
    RESUMPTION,
    SIGN,
    SPARK,
    SENT,
)
"""The names that a job creates in its directory; the job never changes any other file there."""

SOCKET_BYTES_MAX = 107
"""The length in bytes of the longest socket path."""

KILL_S = 5.0

LOOK_S = 0.2
"""The time for which the lock is retried while another process shares it."""

RELEASE_S = 10.0
"""The time that the agent of a job has to end its processes after the job's `causal run` was killed."""


class JobDirectory:
    """A job directory that this process keeps locked until `close`.

    Attributes:
        lock: the descriptor of the lock.
    """

    def __init__(self, path: Path) -> None:
        """Lock the directory.

        Raises:
            PipelineError: the directory cannot be used, contains other files under the names of job files, or is the
            directory of a running job.
        """
        self.path = path.resolve()
        self._runtime: Path | None = None
        self._new_directories = [each for each in (self.path, *self.path.parents) if not os.path.lexists(each)]
        try:
            self.path.mkdir(parents=True, exist_ok=True)
            self._close_to_others()
            ours = (self.path / "lock").exists()
            self._new_lock = not ours
            foreign = [name for name in OWNED if (self.path / name).exists()]
            if foreign and not ours:
                raise PipelineError(
                    f"{self.path} has {', '.join(foreign)} but is not a job directory; use another --state-dir"
                )
            self.lock = keep_from_children(os.open(self.path / "lock", os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600))
        except OSError as problem:
            raise PipelineError(f"--state-dir {self.path} cannot be used: {problem.strerror}") from None
        if not self._locked():
            close_lock(self.lock)
            raise PipelineError(f"a job runs in {self.path}; stop it first, or use another --state-dir")
        if not self._locks_what_is_there():
            close_lock(self.lock)
            raise PipelineError(f"another job was refused in {self.path} at the same time; start this job again")
        self._note_view()

    def _note_view(self) -> None:
        """Record in the lock file that the existing view is that of the previous process (see `coming_up`)."""
        with suppress(OSError):  # for example, the disk is full
            os.ftruncate(self.lock, 0)
            os.pwrite(self.lock, str((self.path / VIEW).stat().st_mtime_ns).encode(), 0)

    def _locked(self) -> bool:
        """Return whether this process can lock the directory now.

        A dashboard or `causal status` briefly shares the lock when it calls `running`, so locking is retried.
        """
        return lock(self.lock, LOOK_S, 0.01)

    def _locks_what_is_there(self) -> bool:
        """Return whether the locked file is still the one in the directory, because a refused job removes its lock
        file.
        """
        try:
            return os.path.samestat(os.fstat(self.lock), os.stat(self.path / "lock"))
        except FileNotFoundError:
            return False

    def _close_to_others(self) -> None:
        """Remove the permissions of other users, which an earlier version or the directory's creator may have granted.

        The directory itself keeps its mode if it contains other files or belongs to another user.
        """
        if all(path.name in (*OWNED, "lock") for path in self.path.iterdir()):
            with suppress(PermissionError):
                self.path.chmod(0o700)
        if (self.path / "lock").exists():
            for name in (*OWNED, "lock"):
                closed_to_others(self.path / name)

    def clear(self) -> None:
        """End the remaining processes of the previous job, and discard that job's state except its savepoints."""
        self.end_leftovers()
        try:
            for name in OWNED:
                path = self.path / name
                if name == SAVEPOINTS:
                    continue
                if path.is_dir() and not path.is_symlink():
                    shutil.rmtree(path)
                else:
                    path.unlink(missing_ok=True)
        except OSError as problem:
            raise PipelineError(f"{problem.filename} cannot be removed: {problem.strerror}") from None

    def take_over(self) -> JobConfig:
        """End the remaining processes of the job's previous run, and take over its state.

        Raises:
            PipelineError: there is no job to resume.
            CorruptData: the state is damaged.
        """
        self.end_leftovers()
        prepared_change.carry_out(self.path)
        prepared_change.discard(self.path)
        if not (self.path / "job.json").exists() or not (self.path / JOURNAL).exists():
            raise PipelineError(f"{self.path} does not contain a job to resume; start one without --resume")
        config = JobConfig.load(self.path)
        self._check_journal()
        self._check_began()
        return config

    def _check_journal(self) -> None:
        """Compare the journal with the other files to detect damage.

        SQLite reads an empty file as a new database, and ignores a damaged log next to it.
        """
        records = journaled(self.path)
        decided = max((record["epoch"] for record in records if record["kind"] == "checkpoint"), default=0)
        newest = newest_manifest(self.path)
        complete = newest[0] if newest is not None else 0  # a manifest is written before its checkpoint is journaled
        if complete > decided + 1 or (not records and (self.path / BEGAN).exists()):
            raise CorruptData(
                f"{self.path / JOURNAL} lacks decisions of this job; restore it from a copy, or start again "
                "without --resume"
            )

    def _check_began(self) -> None:
        path = self.path / BEGAN
        try:
            began = path.read_bytes() if path.exists() else b""
        except OSError as problem:
            raise CorruptData(
                f"{path} cannot be read: {problem.strerror}; remove it, and the rates of sources start again"
            ) from None
        if began and not began.removeprefix(b"-").isdigit():
            raise CorruptData(f"{path} is damaged; remove it, and the rates of sources start again")

    def change(self) -> None:
        """Make the prepared change final, and carry it out."""
        prepared_change.make_final(self.path)
        prepared_change.carry_out(self.path)

    def sync(self) -> None:
        """Make the files in the directory survive a power failure.

        The job's processes themselves sync the files that they write.
        """
        for name in OWNED:
            path = self.path / name
            if path.is_file():
                with open(path, "rb") as file:
                    os.fsync(file.fileno())
        for folder in (self.path, self.path.parent):
            sync_directory(folder)

    def note_resumption(self) -> None:
        """Journal that all earlier processes of the job have ended, so that the supervisor starts every task again."""
        figures = {}
        with suppress(FileNotFoundError):  # the previous run was killed before it wrote a view
            os.replace(self.path / VIEW, self.path / VIEW_BEFORE)
            with suppress(ValueError, KeyError, TypeError):  # the view may be damaged
                figures = lasting(json.loads((self.path / VIEW_BEFORE).read_text())["tasks"])
        (self.path / "processes.json").unlink(missing_ok=True)
        shutil.rmtree(self.path / "spill", ignore_errors=True)  # these files belonged to processes that have ended
        journal = Journal(self.path)
        journal.append([{"kind": "resumed", "at_ns": time.monotonic_ns(), "figures": figures}])
        journal.close()

    def finished(self) -> bool:
        """Return whether the job finished instead of stopping at a savepoint, so that there is nothing to resume."""
        return finished(journaled(self.path))

    def stopped(self) -> bool:
        """Return whether the job ended at a savepoint and has not been resumed since then."""
        return stopped_at(journaled(self.path)) is not None

    def resumable(self) -> bool:
        """Return whether the journal belongs to a job that neither finished nor stopped at a savepoint.

        A savepoint would be kept even if a new job began here.
        """
        try:
            records = journaled(self.path)
        except CorruptData:
            return False
        return bool(records) and not finished(records) and stopped_at(records) is None

    def begun(self) -> bool:
        """Return whether there is state of an earlier job that may still be resumed or queried; if so, end its
        processes.
        """
        if not begun(self.path):
            return False
        self.end_leftovers()
        return True

    def open_runtime(self) -> None:
        """Create the directories that a job's processes need, including one for sockets, which has a short path.

        Raises:
            PipelineError: as `check_room_for_sockets`.
        """
        check_room_for_sockets()
        self._drop_runtime()
        with _whole():
            self._runtime = Path(tempfile.mkdtemp(prefix="causal-"))
        fresh = self.path / "runtime.new"
        fresh.write_text(str(self._runtime))
        os.replace(fresh, self.path / "runtime")
        for name in ("logs", "checkpoints", "spill"):
            (self.path / name).mkdir(exist_ok=True)

    def close(self) -> None:
        """Remove the socket directory, as well as everything that was created for a refused job, and release the
        lock.
        """
        if self._runtime is not None:
            shutil.rmtree(self._runtime, ignore_errors=True)
        if self._new_lock and not any((self.path / name).exists() for name in OWNED):
            (self.path / "lock").unlink(missing_ok=True)
            with suppress(OSError):  # directories that are not empty cannot be removed
                for each in self._new_directories:
                    each.rmdir()
        close_lock(self.lock)

    def end_leftovers(self) -> None:
        """End the remaining processes of a job whose `causal run` was killed."""
        # This process has the lock, so the earlier `causal run` has ended, and its agent and supervisor are ending.
        # Without a supervisor, no command can begin to withdraw rows, but one may not have noticed its end.
        for name in (SUPERVISOR_LOCK, AGENT_LOCK, WITHDRAWAL_LOCK):
            self._await_release(name)
        kill_listed(self.path)
        left = kill_marked(self.path, KILL_S)
        if left:
            raise PipelineError(
                f"{left} processes of the previous job in {self.path} still run after SIGKILL; wait for their end"
            )
        self._drop_runtime()

    def _await_release(self, name: str) -> None:
        """Wait until the process that has this lock has ended."""
        if not (self.path / name).exists():
            return
        handle = os.open(self.path / name, os.O_RDWR | os.O_CLOEXEC)
        try:
            if not lock(handle, RELEASE_S):
                raise PipelineError(f"{self.path / name} is in use by a process of the previous job; stop that process")
        finally:
            os.close(handle)

    def _drop_runtime(self) -> None:
        """Remove the socket directory of a job that was unable to clean up."""
        note = self.path / "runtime"
        if note.exists():
            old = Path(note.read_text(errors="replace").strip())
            if old.name.startswith("causal-") and old.parent == Path(tempfile.gettempdir()):
                shutil.rmtree(old, ignore_errors=True)


PROCESSES = Path("/proc/self/stat")
"""The file whose existence shows that the machine exposes its processes under `/proc`."""


def check_processes_are_shown() -> None:
    """Refuse to run on a machine or in a container where processes cannot be inspected.

    Raises:
        PipelineError: there is no `/proc`.
    """
    if not PROCESSES.exists():
        raise PipelineError(
            "this machine has no /proc, which a job needs to find its processes; mount it (mount -t proc)"
        )


def check_room_for_sockets() -> None:
    """Refuse a directory for temporary files if socket paths in it would be too long.

    Raises:
        PipelineError: the paths would be too long.
    """
    place = tempfile.gettempdir()
    if len(os.fsencode(f"{place}/causal-{'x' * 8}/supervisor")) > SOCKET_BYTES_MAX:
        raise PipelineError(f"the path {place} is too long for sockets in it; set TMPDIR=/tmp")


@contextmanager
def _whole() -> Iterator[None]:
    """Block signals between the creation of a file and the moment when its removal is arranged."""
    before = signal.pthread_sigmask(signal.SIG_BLOCK, (signal.SIGINT, signal.SIGTERM, signal.SIGHUP))
    try:
        yield
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)


def begun(job: Path) -> bool:
    """Return whether a supervisor may have made decisions about the job in this directory, here or in the store."""
    return (job / JOURNAL).exists() or (job / IDENTITY).exists()
