"""Checks, while a job runs, for the parts of its directory without which recovery is impossible.

If the code archive or the log directory is missing, it is recreated and the job continues.  If any other part is
missing, the job ends, because it could not recover from a failure, or because another `causal run` could begin in
parallel.
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable
from pathlib import Path

from causal.errors import CorruptData, PipelineError
from deploy.jobs.hints import resume_command
from standby.storage.change_files import is_of_change
from standby.storage.manifest_files import newest_manifest

DESCRIPTION = "job.json"
"""The file in a job directory that describes the job."""

RENEWED = ("topology.json", "lock", "agent.lock", "supervisor.lock", "runtime", "processes.json")
"""The files that `--resume` recreates."""

LASTING = ("journal.sqlite", "checkpoints")
"""The parts that only this run has; a different file or directory with the same name does not replace them.

With a shared store, these parts are in the store, and a journal that a resumption has copied here is removed when the
term begins.
"""

LOOK_S = 1.0
"""The interval between checks for the files of the last checkpoint and for the code."""

Identity = tuple[int, int]


def _identity(path: Path) -> Identity | None:
    """Return the device and inode that identify a file or directory; None if it does not exist."""
    try:
        known = path.stat()
    except OSError:
        return None
    return known.st_dev, known.st_ino


class Parts:
    """The parts of one job directory; each part is expected to exist once a check has found it.

    Args:
        say: a function that is called with a message about each part that was recreated.
        alone: whether the job has no shared store; None if the caller does not know.
    """

    def __init__(self, job: Path, say: Callable[[str], None], alone: bool | None = None) -> None:
        self._job = job
        self._say = say
        self._identity = _identity(job)
        self._described = (job / DESCRIPTION).exists()
        self._renewed: set[str] = set()
        self._lasting: dict[str, Identity] = {}
        self._alone = alone
        """Whether the job has no shared store; None until its settings have been read."""
        self._code: dict[Path, bytes] = {}
        self._checkpointed = self._logged = False
        self._look_due_s = 0.0
        self._unwritten = ""

    def lost(self, runtime: Path | None) -> str:
        """Return a message about a missing part without which recovery is impossible; empty if all parts exist.

        Args:
            runtime: the directory that contains the job's sockets.
        """
        lost = self._lost(runtime) if _identity(self._job) == self._identity else ""
        # The directory may be replaced during the check, in which case the check did not see its contents.
        if _identity(self._job) != self._identity:
            return (
                f"its directory {self._job} was removed or moved while the job was running; put it back, or if "
                "it is lost, start the job again without --resume"
            )
        return lost

    def _lost(self, runtime: Path | None) -> str:
        if self._described and not (self._job / DESCRIPTION).exists():
            return (
                f"{self._job / DESCRIPTION} was removed while the job was running; start the job again without --resume"
            )
        if runtime is not None and not runtime.exists():
            return f"its socket directory {runtime} was removed; resume the job with: {resume_command(self._job)}"
        return self._renewable() or self._irreplaceable() or self._unchecked()

    def _renewable(self) -> str:
        for name in RENEWED:
            if (self._job / name).exists():
                self._renewed.add(name)
            elif name in self._renewed:
                return (
                    f"{self._job / name} was removed while the job was running; resume the job with: "
                    f"{resume_command(self._job)}"
                )
        return ""

    @property
    def _only_here(self) -> bool:
        """Whether the checkpoints and the journal are only in this directory."""
        if self._alone is None:
            from causal.config import JobConfig  # imported here because `causal run` usually does not need it

            try:
                self._alone = not JobConfig.load(self._job).store
            except PipelineError:
                return False  # a directory without settings was not written by a job
        return self._alone

    def _irreplaceable(self) -> str:
        for name in LASTING if self._only_here else ():
            known = _identity(self._job / name)
            before = self._lasting.get(name)
            if before is None and known is not None:
                self._lasting[name] = known
            elif known != before and known is not None and is_of_change(self._job, self._job / name):
                self._lasting[name] = known
            elif known != before:
                return self._gone(self._job / name)
        return ""

    def _gone(self, path: Path) -> str:
        return (
            f"{path} was removed or moved while the job was running; put it back and resume the job with: "
            f"{resume_command(self._job)}; if it is lost, start the job again without --resume"
        )

    def _unchecked(self) -> str:
        """Check periodically for the parts whose check takes longer."""
        if time.monotonic() < self._look_due_s:
            return ""
        self._look_due_s = time.monotonic() + LOOK_S
        self._keep()
        return self._checkpoint_lost() if self._only_here else ""

    def _checkpoint_lost(self) -> str:
        """Check that all files of the last complete checkpoint exist; they may be removed only once a newer one is
        complete.
        """
        try:
            newest = newest_manifest(self._job)
            if newest is None:
                return self._gone(self._job / "checkpoints" / "manifest-*.json") if self._checkpointed else ""
            self._checkpointed = True
            missing = [file[0] for files in newest[1].values() for file in files if not (self._job / file[0]).exists()]
            if missing and newest_manifest(self._job) == newest:
                return self._gone(self._job / missing[0])
        except CorruptData:
            pass  # the manifest was just replaced, or it is damaged, which the process that needs it will report
        return ""

    def _keep(self) -> None:
        unwritten = ""
        try:
            self._keep_logs()
            self._keep_code()
        except OSError as problem:
            unwritten = (
                f"{problem.filename} was removed while the job was running, and cannot be created again: "
                f"{problem.strerror}"
            )
        if unwritten != self._unwritten:
            self._unwritten = unwritten
            if unwritten:
                self._say(unwritten)

    def _keep_logs(self) -> None:
        """Recreate the log directory; processes reopen their logs when they write the next line."""
        logs = self._job / "logs"
        if logs.exists():
            self._logged = True
        elif self._logged:
            logs.mkdir(exist_ok=True)
            self._say(f"{logs} was removed while the job was running; it is created again without the earlier logs")

    def _keep_code(self) -> None:
        """Restore the code archive, which each process needs at its start, from the content read when the job began."""
        for path in (self._job / "code").glob("*.zip"):
            if path not in self._code:
                self._code[path] = path.read_bytes()
        for path, content in self._code.items():
            if not path.exists():
                path.parent.mkdir(exist_ok=True)
                fresh = path.with_name(f"{path.name}.{os.getpid()}.tmp")
                fresh.write_bytes(content)
                os.replace(fresh, path)
                self._say(f"{path}, the code of the run, was removed while the job was running; it is written again")
