"""The agent's table of processes, which it starts, adopts and reaps; the table is stored for the next agent.

An entry is written before its process is started, and is completed afterwards. Every process is therefore either in the
table or identified by the marks in its environment, and none is ever started twice or forgotten.
"""

from __future__ import annotations

import json
import logging
import os
import signal
import subprocess
import time
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path

from causal.errors import Unavailable
from causal.process.processlog import bound, open_log
from standby.host.forks import ForkServer
from standby.host.last_line import last_line
from standby.host.parentage import PARENT
from standby.host.processes import dying_status, has_ended, marked, open_process, send_signal, start_time
from standby.host.room import JOB_MARK, SLOT_MARK

_log = logging.getLogger("standby.agent")

FILE = "processes.json"
DEAD_KEPT = 256
"""The number of ended processes that each beat reports again; the oldest are dropped first."""

LOGS_KEPT = 200
"""The number of log files of ended processes that are kept; the oldest are removed first."""


@dataclass(slots=True)
class Child:
    """One process of the job."""

    slot: str
    role: str
    argv: tuple[str, ...]
    environment: Mapping[str, str]
    pid: int = 0
    started: int = 0
    """The start time of the process, in clock ticks since boot."""
    pidfd: int = -1
    process: subprocess.Popen[bytes] | None = None
    """None for a process that was forked or adopted."""
    killed_ns: int | None = None
    crashes: int = 0
    began_ns: int = 0

    @property
    def companion(self) -> bool:
        """Whether the process is a companion rather than a worker."""
        return self.role.startswith("companion:")


@dataclass(frozen=True, slots=True)
class End:
    """The end of a process."""

    child: Child
    at_ns: int
    status: int | None
    last_line: str


@dataclass(slots=True)
class Children:
    """All processes of one agent."""

    job: Path
    living: dict[str, Child] = field(default_factory=dict)
    dead: dict[str, int | None] = field(default_factory=dict)
    killed: dict[str, int] = field(default_factory=dict)
    dying: list[Child] = field(default_factory=list)
    """Processes that count as dead while the kernel frees their memory."""
    forks: ForkServer | None = None
    patient: bool = True
    """Whether the very first start waits for the fork server; the agent does nothing else while it waits."""

    def save(self) -> None:
        """Write the table to disk, replacing the file atomically.

        Raises:
            Unavailable: the table cannot be written.
        """
        table = {
            "living": [
                [c.slot, c.role, list(c.argv), dict(c.environment), c.pid, c.started, c.killed_ns]
                for c in self.living.values()
            ],
            "dead": self.dead,
            "killed": self.killed,
        }
        path = self.job / FILE
        try:
            fresh = path.with_suffix(".new")
            fresh.write_text(json.dumps(table))
            os.replace(fresh, path)
        except OSError as problem:
            raise Unavailable(f"{path} cannot be written: {problem.strerror}") from None

    def start(self, child: Child) -> None:
        """Start the process in a new Unix session, with its output redirected to its log.

        Raises:
            Unavailable: the process could not be started; its entry has been removed.
        """
        self.living[child.slot] = child
        child.pid = child.started = 0
        child.killed_ns = None
        self.save()
        self._remove_old_logs()
        try:
            child.pid = self._forked(child) or self._spawned(child)
        except OSError as problem:
            del self.living[child.slot]
            missing = problem.filename or child.argv[0]
            raise Unavailable(f"{child.slot} cannot be started: {missing}: {problem.strerror}") from None
        # The process has not been reaped, so the pid and the start time still refer to it even if it has already ended.
        child.pidfd = os.pidfd_open(child.pid)
        child.started = start_time(child.pid) or 0
        child.began_ns = time.monotonic_ns()
        self.save()

    def serve_forks(self, module: str, idle_s_max: float = 0.0) -> None:
        """Start a fork server, so that workers that run `module` are forked from it where possible from now on."""
        self.forks = ForkServer(self.job, module, environment(self.job, {}, ""), idle_s_max)
        self.forks.begin()

    def await_forks(self) -> None:
        """Wait until the fork server is ready.

        Waiting for it later, once the agent must send beats, would delay them.
        """
        self.patient = False
        if self.forks is not None:
            self.forks.await_ready()

    def close(self) -> None:
        """End the fork server."""
        if self.forks is not None:
            self.forks.close()

    def _forked(self, child: Child) -> int | None:
        child.process = None
        if self.forks is None or child.companion or child.environment:
            return None
        # While the job starts, the agent has nothing else to do, so it waits for the server to load.  Later starts do
        # not wait.
        patient = self.patient and len(self.living) == 1
        return self.forks.start(child.argv, child.slot, self._log_of(child), patient=patient)

    def _spawned(self, child: Child) -> int:
        with open(open_log(self._log_of(child)), "ab") as log:
            child.process = subprocess.Popen(
                child.argv,
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=subprocess.STDOUT,
                start_new_session=True,
                env=environment(self.job, child.environment, child.slot),
            )
        return child.process.pid

    def bound_logs(self) -> None:
        """Limit the size of logs to which writers other than `ProcessLog` append, such as child processes of user
        code.
        """
        for child in self.living.values():
            with suppress(OSError):
                bound(self._log_of(child))

    def _log_of(self, child: Child) -> Path:
        return self.job / "logs" / f"{child.slot}.log"

    def _remove_old_logs(self) -> None:
        """Remove the oldest log files of ended workers, so that their number does not grow with failures."""
        present = {child.slot for child in (*self.living.values(), *self.dying)}
        files = (self.job / "logs").glob("w*.log*")
        ended = [path for path in files if path.name.partition(".")[0] not in present]
        try:
            ended.sort(key=lambda path: path.stat().st_mtime_ns)
            for path in ended[:-LOGS_KEPT]:
                path.unlink()
        except OSError as problem:  # removal is tried again at the next start
            _log.warning("old logs of %s cannot be removed: %s", self.job, problem.strerror)

    def adopt(self) -> list[End]:
        """Adopt those processes of the previous agent that are alive, and return how the others ended."""
        try:
            table = json.loads((self.job / FILE).read_text())
        except FileNotFoundError:
            return []
        except ValueError:
            table = {"living": [], "dead": {}, "killed": {}}  # the marks still identify the processes that are alive
        self.dead, self.killed = table["dead"], table["killed"]
        by_slot: dict[str, int] = {}
        for process in marked(self.job):
            by_slot[process.slot] = min(process.pid, by_slot.get(process.slot, process.pid))
        ends: list[End] = []
        for slot, role, argv, environment, pid, started, killed_ns in table["living"]:
            child = Child(slot, role, tuple(argv), environment, pid, started, killed_ns=killed_ns)
            if not pid and slot in by_slot:  # the process was started, but its pid had not been written yet
                child.pid, child.started = by_slot[slot], start_time(by_slot[slot]) or 0
            child.began_ns = time.monotonic_ns()
            pidfd = open_process(child.pid, child.started) if child.pid else None
            self.living[slot] = child
            if pidfd is None:
                ends.append(self._end(child, None))
            else:
                child.pidfd = pidfd
        self.save()
        return ends

    def reap(self, child: Child) -> End | None:
        """Reap a process and return how it ended; None if it has not ended."""
        if not has_ended(child.pidfd):
            return None
        return self._end(child, self._bury(child))

    def _bury(self, child: Child) -> int | None:
        status = child.process.wait() if child.process is not None else _waited(child.pidfd)
        os.close(child.pidfd)
        child.pidfd = -1
        return status

    def lose(self, child: Child) -> End:
        """Record the death of a process whose pidfd does not show it yet, and return how it ended.

        SIGKILL makes sure that none of the process's threads continues.
        """
        status = dying_status(child.pid)
        send_signal(child.pidfd, signal.SIGKILL)
        self.dying.append(child)
        return self._end(child, status)

    def reap_dying(self) -> list[int]:
        """Collect the exit statuses of dying processes that have ended, and return the pidfds that were closed."""
        dying, self.dying = self.dying, []
        closed: list[int] = []
        for child in dying:
            if not has_ended(child.pidfd):
                self.dying.append(child)
                continue
            closed.append(child.pidfd)
            status = self._bury(child)
            if child.slot in self.dead:
                self.dead[child.slot] = status
        return closed

    def _end(self, child: Child, status: int | None) -> End:
        at_ns = time.monotonic_ns()
        del self.living[child.slot]
        self.dead[child.slot] = status
        with suppress(OSError):  # the file does not exist if the process had no socket
            Path((self.job / "runtime").read_text().strip(), child.slot).unlink()
        if child.killed_ns is not None:
            self.killed[child.slot] = child.killed_ns
        for table in (self.dead, self.killed):
            while len(table) > DEAD_KEPT:
                del table[next(iter(table))]
        quiet = status == 0 or child.killed_ns is not None
        return End(child, at_ns, status, "" if quiet else last_line(self.job / "logs" / f"{child.slot}.log"))

    def reap_orphans(self) -> None:
        """Reap descendants that were orphaned and whose parent is now the agent."""
        ours = [child.pid for child in (*self.living.values(), *self.dying)]
        if self.forks is not None:
            self.forks.attend(workers=bool(self.living))
            ours.append(self.forks.pid)
        while True:
            try:
                ended = os.waitid(os.P_ALL, 0, os.WEXITED | os.WNOHANG | os.WNOWAIT)
            except ChildProcessError:
                return
            if ended is None or ended.si_pid in ours:
                return  # a process in the table is reaped elsewhere; later calls reap any orphans that ended after it
            os.waitpid(ended.si_pid, 0)

    def kill(self, child: Child) -> None:
        """Send SIGKILL to the process, and record the time just before the signal."""
        if child.pidfd >= 0:
            if child.killed_ns is None:
                child.killed_ns = time.monotonic_ns()
            send_signal(child.pidfd, signal.SIGKILL)


def environment(job: Path, extra: Mapping[str, str], slot: str) -> dict[str, str]:
    """Return the environment for a process of the job."""
    own = {name: value for name, value in os.environ.items() if name != PARENT}
    marks = {JOB_MARK: str(job), SLOT_MARK: slot}
    # The hash seed determines the order of sets.  It is fixed so that a replay sees the same order as the first run
    # (D10).
    return {**own, "PYTHONUNBUFFERED": "1", **extra, "PYTHONHASHSEED": "0", **marks}


def _waited(pidfd: int) -> int | None:
    """Return the exit status of a process that has ended; None if it is not a child of this process."""
    try:
        ended = os.waitid(os.P_PIDFD, pidfd, os.WEXITED)
    except ChildProcessError:
        return None
    if ended is None:
        return None
    return ended.si_status if ended.si_code == os.CLD_EXITED else -ended.si_status


def kill_listed(job: Path) -> None:
    """Send SIGKILL to every process in an ended agent's table whose pid still belongs to that process."""
    try:
        table = json.loads((job / FILE).read_text())
        listed = [(pid, started) for _, _, _, _, pid, started, _ in table["living"] if pid]
    except (FileNotFoundError, ValueError, KeyError, TypeError):
        return  # the processes are also identified by the marks in their environment
    for pid, started in listed:
        pidfd = open_process(pid, started)
        if pidfd is not None:
            send_signal(pidfd, signal.SIGKILL)
            os.close(pidfd)
