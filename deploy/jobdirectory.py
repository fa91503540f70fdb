"""The directory of a job: whose it is, what of it is discarded, and that one job at a time uses it."""

from __future__ import annotations

import fcntl
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
from causal.shell.files import sync_directory
from causal.shell.forks import close as close_lock
from causal.shell.forks import keep_from_children
from causal.shell.modes import closed_to_others
from causal.shell.stable import DIRECTORY as DETERMINANTS
from operators.frozen.archive import DIRECTORY as CODE
from operators.requests import DIRECTORY as REQUESTS
from operators.sinks.staged import DIRECTORY as STAGED
from standby.agent import LOCK as AGENT_LOCK
from standby.children import kill_listed
from standby.journal import FILE as JOURNAL
from standby.journal import LOCK as SUPERVISOR_LOCK
from standby.journal import Journal
from standby.manifests import DIRECTORY as MANIFESTS
from standby.manifests import epoch_of, manifests_from, newest_manifest
from standby.processes import kill_marked
from standby.savepoints import finished, stopped_at

ROOT = Path(".causal")
"""Where jobs are kept unless `--state-dir` says otherwise."""

BEGAN = "began"
"""When the first source began to read: by that clock sources know which of their records are due."""

CHANGE = "change"
"""A change of the job's graph that is being prepared, and from the moment that `ready` is in it, is decided."""

SAVEPOINTS = "savepoints"
"""Savepoints that are kept, each until it is deleted: also when a job begins anew."""

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
    "status.json",
    BEGAN,
    "checkpoints",
    DETERMINANTS,
    "spill",
    "ingest",
    "logs",
    "dead-letters",
    REQUESTS,
    STAGED,
    "deliveries",
    "console",
    CHANGE,
    CODE,
    SAVEPOINTS,
)
"""What a job makes in its directory; nothing else in there is ever touched."""

KILL_S = 5.0

RELEASE_S = 10.0
"""How long the agent of a job whose `causal run` was killed may take to end its processes."""


class JobDirectory:
    """A job's directory, locked by this process until `close`."""

    def __init__(self, path: Path) -> None:
        """Lock it.

        Raises:
            PipelineError: it cannot be used, it holds other things under our names, or a job runs in it.
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
                    f"{self.path} has {', '.join(foreign)} and is no job's directory; give another --state-dir"
                )
            self._lock = keep_from_children(os.open(self.path / "lock", os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600))
        except OSError as problem:
            raise PipelineError(f"--state-dir {self.path} cannot be used: {problem.strerror}") from None
        try:
            fcntl.flock(self._lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            close_lock(self._lock)
            raise PipelineError(f"a job runs in {self.path}; stop it first, or give another --state-dir") from None
        if not self._locks_what_is_there():
            close_lock(self._lock)
            raise PipelineError(f"another job was refused in {self.path} at this moment; start this one again")

    def _locks_what_is_there(self) -> bool:
        """Whether the file that is locked is the one that others find: who is refused removes its own."""
        try:
            return os.path.samestat(os.fstat(self._lock), os.stat(self.path / "lock"))
        except FileNotFoundError:
            return False

    def _close_to_others(self) -> None:
        """Take from others what an earlier version, or whoever made the directory, lets them read.

        The directory itself keeps its mode where other things are in it, or another user owns it.
        """
        if all(path.name in (*OWNED, "lock") for path in self.path.iterdir()):
            with suppress(PermissionError):
                self.path.chmod(0o700)
        if (self.path / "lock").exists():
            for name in (*OWNED, "lock"):
                closed_to_others(self.path / name)

    def clear(self) -> None:
        """End what is left of the job before and discard its state."""
        self._end_leftovers()
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
        """End what is left of the job before and go on with its state.

        Raises:
            PipelineError: there is no job to go on with.
            CorruptData: it cannot be gone on with.
        """
        self._carry_out_change()
        if not (self.path / "job.json").exists() or not (self.path / JOURNAL).exists():
            raise PipelineError(f"{self.path} holds no job to go on with; start one without --resume")
        config = JobConfig.load(self.path)
        self._end_leftovers()
        self._check_journal()
        self._check_began()
        return config

    def _check_journal(self) -> None:
        """SQLite takes an empty file for a store that is new, and a damaged one beside it for nothing at all: compare
        with what else there is.
        """
        journal = Journal(self.path)
        try:
            records = journal.records()
        finally:
            journal.close()
        journaled = max((record["epoch"] for record in records if record["kind"] == "checkpoint"), default=0)
        newest = newest_manifest(self.path)
        complete = newest[0] if newest is not None else 0  # is written, then journaled, and then there is a next one
        if complete > journaled + 1 or (not records and (self.path / BEGAN).exists()):
            raise CorruptData(
                f"{self.path / JOURNAL} lacks decisions of this job; restore it from a copy, or start afresh, "
                "without --resume"
            )

    def _check_began(self) -> None:
        path = self.path / BEGAN
        try:
            told = path.read_bytes() if path.exists() else b""
        except OSError as problem:
            raise CorruptData(f"{path} cannot be read: {problem.strerror}; remove it: rates begin anew then") from None
        if told and not told.isdigit():
            raise CorruptData(f"{path} is damaged; remove it: the rates of sources begin anew then")

    def _carry_out_change(self) -> None:
        """Put in place what `deploy.savepoints.change` has prepared; may be interrupted and done again."""
        prepared = self.path / CHANGE
        if (prepared / "ready").exists():
            for left in (JOURNAL + "-wal", JOURNAL + "-shm"):
                if (prepared / JOURNAL).exists():
                    (self.path / left).unlink(missing_ok=True)
            for name in ("topology.json", "job.json", JOURNAL):
                if (prepared / name).exists():
                    os.replace(prepared / name, self.path / name)
            for manifest in (prepared / MANIFESTS).glob("*.json"):
                for later in manifests_from(self.path, epoch_of(manifest) + 1):  # of a version that is taken back
                    later.unlink()
                os.replace(manifest, self.path / MANIFESTS / manifest.name)
            # What was logged before the change is covered by its checkpoint, and incarnations may be counted anew.
            shutil.rmtree(self.path / DETERMINANTS, ignore_errors=True)
            (prepared / "ready").unlink()
        shutil.rmtree(prepared, ignore_errors=True)

    def change(self) -> None:
        """A change is prepared: decide on it, and carry it out."""
        (self.path / CHANGE / "ready").touch()
        self._carry_out_change()

    def sync(self) -> None:
        """Make what is in it survive a loss of power; what its processes write they sync themselves."""
        for name in OWNED:
            path = self.path / name
            if path.is_file():
                with open(path, "rb") as file:
                    os.fsync(file.fileno())
        for folder in (self.path, self.path.parent):
            sync_directory(folder)

    def note_resumption(self) -> None:
        """Journal that every process of the life before has died, so that the supervisor starts all tasks again."""
        for name in ("status.json", "processes.json"):
            (self.path / name).unlink(missing_ok=True)
        shutil.rmtree(self.path / "spill", ignore_errors=True)  # nothing in there outlives its process
        journal = Journal(self.path)
        journal.append([{"kind": "resumed", "at_ns": time.monotonic_ns()}])
        journal.close()

    def finished(self) -> bool:
        """Whether the job came to its end, and not to a savepoint: it has nothing left to go on with."""
        journal = Journal(self.path)
        try:
            return finished(journal.records())
        finally:
            journal.close()

    def stopped(self) -> bool:
        """Whether the job ended at a savepoint, and has not gone on since."""
        journal = Journal(self.path)
        try:
            return stopped_at(journal.records()) is not None
        finally:
            journal.close()

    def begun(self) -> bool:
        """Whether there is the state of an earlier job, which somebody may want to go on with or to ask; none runs."""
        if not (self.path / JOURNAL).exists():
            return False
        self._end_leftovers()
        return True

    def open_runtime(self) -> None:
        """Make the short directory for sockets (an ipc path may have 107 bytes)."""
        self._drop_runtime()
        with _whole():
            self._runtime = Path(tempfile.mkdtemp(prefix="causal-"))
        fresh = self.path / "runtime.new"
        fresh.write_text(str(self._runtime))
        os.replace(fresh, self.path / "runtime")
        for name in ("logs", "checkpoints", "spill"):
            (self.path / name).mkdir(exist_ok=True)

    def close(self) -> None:
        """Remove the runtime directory, and what was made for a job that was refused; let go of the lock."""
        if self._runtime is not None:
            shutil.rmtree(self._runtime, ignore_errors=True)
        if self._new_lock and not any((self.path / name).exists() for name in OWNED):
            (self.path / "lock").unlink(missing_ok=True)
            with suppress(OSError):  # something else is in one of them
                for each in self._new_directories:
                    each.rmdir()
        close_lock(self._lock)

    def _end_leftovers(self) -> None:
        # We hold the lock, so the `causal run` of these processes is gone: its agent and its supervisor are ending.
        for name in (SUPERVISOR_LOCK, AGENT_LOCK):
            self._await_release(name)
        kill_listed(self.path)
        left = kill_marked(self.path, KILL_S)
        if left:
            raise PipelineError(f"{left} processes of the job before in {self.path} cannot be killed; end them first")
        self._drop_runtime()

    def _await_release(self, name: str) -> None:
        """Wait until the process that holds this lock has ended."""
        if not (self.path / name).exists():
            return
        handle = os.open(self.path / name, os.O_RDWR | os.O_CLOEXEC)
        deadline = time.monotonic() + RELEASE_S
        try:
            while True:
                try:
                    fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
                    return
                except BlockingIOError:
                    if time.monotonic() >= deadline:
                        raise PipelineError(
                            f"{self.path / name} is held by a process of the job before; end it"
                        ) from None
                time.sleep(0.02)
        finally:
            os.close(handle)

    def _drop_runtime(self) -> None:
        """Remove the socket directory of a job that could not clean up."""
        note = self.path / "runtime"
        if note.exists():
            old = Path(note.read_text(errors="replace").strip())
            if old.name.startswith("causal-") and old.parent == Path(tempfile.gettempdir()):
                shutil.rmtree(old, ignore_errors=True)


@contextmanager
def _whole() -> Iterator[None]:
    """No signal comes between making something and knowing that it must be removed."""
    before = signal.pthread_sigmask(signal.SIG_BLOCK, (signal.SIGINT, signal.SIGTERM, signal.SIGHUP))
    try:
        yield
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)


def running(job: Path) -> bool:
    """Whether a `causal run` holds the job in this directory; whoever may read it may ask."""
    try:
        handle = os.open(job / "lock", os.O_RDONLY | os.O_CLOEXEC)
    except FileNotFoundError:
        return False
    try:
        fcntl.flock(handle, fcntl.LOCK_SH | fcntl.LOCK_NB)
    except BlockingIOError:
        return True
    finally:
        os.close(handle)
    return False


def holds_job(directory: Path) -> bool:
    """Whether there is a job in it.

    Raises:
        PipelineError: that cannot be told.
    """
    try:
        (directory / "job.json").stat()
    except (FileNotFoundError, NotADirectoryError):
        return False
    except OSError as problem:
        raise PipelineError(f"{directory} cannot be used: {problem.strerror}") from None
    return True


def find_job(name: str | None, state_dir: str | None) -> Path:
    """The directory that `--job` and `--state-dir` mean; the only job under `.causal` if neither is given.

    Raises:
        PipelineError: there is none, or more than one.
    """
    if state_dir is not None:
        path = Path(state_dir)
    elif name is not None:
        path = ROOT / name
    else:
        jobs = sorted(entry.parent for entry in ROOT.glob("*/job.json"))
        if len(jobs) > 1:
            raise PipelineError(f"there are several jobs here; give --job {', --job '.join(job.name for job in jobs)}")
        if not jobs:
            raise PipelineError(f"there is no job under {ROOT}; give --state-dir DIR")
        path = jobs[0]
    if not holds_job(path):
        raise PipelineError(f"{path} holds no job (job.json is missing); start one with `causal run`")
    return path.resolve()
