"""A job on this machine, with `causal run` as the root of all its processes.

`causal run` starts the supervisor and the agent, restarts them when they die, and leaves no process running when it
ends, for whatever reason.  It makes no decisions about the job; it follows the supervisor's latest view.
"""

from __future__ import annotations

import os
import select
import signal
import socket
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Protocol

from causal.errors import PipelineError
from causal.process.interpreter import module_command
from causal.process.signal_wake import woken_by_signals
from deploy.jobs.hints import resume_command
from deploy.jobs.latest_view import latest
from deploy.launching.parts import Parts
from standby.host.forked import Forked
from standby.host.parentage import PARENT, adopt_orphans
from standby.host.processes import kill_marked
from standby.host.room import pinned_environment
from standby.supervision.job_view import JobView

TURN_S = 0.25
"""The interval between reads of the supervisor's view, which is also that of the progress line."""

DEATHS_MAX, DEATHS_WITHIN_S = 20, 30.0
"""The number of consecutive deaths of the supervisor or the agent at which the job ends, as restarts do not help."""

SILENT_S = 15.0
"""The silence after which a supervisor or an agent counts as hung, in a job on one machine."""

LOAD_S = 60.0
"""The same limit for an agent that has been silent since it started, because its modules may be on a slow disk."""

ANSWER_S = 2.0
"""The time that a silent supervisor has to answer before it is killed."""

FREE_BYTES_MIN = 1 << 16
"""If less space than this is free, a disk counts as full."""

STATUS_HOPELESS = 2
"""The exit status of a supervisor or an agent that would fail in the same way after a restart."""

SUPERVISOR_STOP_S = 3.0
AGENT_STOP_S = 9.0
"""The time for the agent to end: longer than it needs to ask its processes to end, kill them and sweep."""
SPARK_STOP_S = 10.0
"""The time for Spark to end, including its executors."""

KILL_S = 3.0

SIGNALS = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)


@dataclass(frozen=True, slots=True)
class Outcome:
    """The end of a run."""

    status: int
    """0 if the job finished, 1 if it failed, 128 + the signal's number if it was interrupted."""
    reason: str
    view: JobView | None
    wall_s: float
    signal: int = 0
    """The signal that interrupted the run; 0 for none."""


class Started(Protocol):
    """A child process, as `subprocess.Popen` and `standby.host.forked.Forked` represent it."""

    pid: int
    returncode: Any


class Forker(Protocol):
    """The process that forks servers (`standby.host.template`)."""

    def start(self, argv: Sequence[str], log: Path, environment: Mapping[str, str]) -> Forked | None: ...

    def close(self) -> None: ...


@dataclass(slots=True)
class Server:
    """The supervisor or the agent, as a process that is restarted when it dies."""

    module: str
    name: str
    stop_s: float
    """The time that the process has to end after it is asked to."""
    endings: tuple[int, ...] = ()
    """The exit statuses with which the process ends the whole deployment as intended, without being restarted."""
    interruptible: bool = False
    """Whether Ctrl-C is forwarded as SIGINT, because SIGINT ends the job, whereas SIGTERM may end only this process."""
    process: Started | None = None
    deaths: list[float] = field(default_factory=list)
    due: float = 0.0
    started_s: float = 0.0
    killed_pid: int = 0
    """The pid of the last process that was killed because it was silent; such a process may take a while to end."""


def supervisor(endings: tuple[int, ...] = ()) -> Server:
    """Return a server that keeps a job's supervisor running."""
    return Server("standby.daemon", "supervisor", SUPERVISOR_STOP_S, endings, interruptible=not endings)


def agent(endings: tuple[int, ...] = (), drain_s: float = 0.0) -> Server:
    """Return a server that keeps a host's agent running."""
    return Server("standby.agent", "agent", AGENT_STOP_S + drain_s, endings)


def executors() -> Server:
    """Return a server that keeps the driver of a job's agents in a Spark cluster running."""
    return Server("deploy.spark.driver", "spark", SPARK_STOP_S)


def _free_bytes(job: Path) -> int:
    disk = os.statvfs(job)
    return disk.f_bavail * disk.f_frsize


def _is_begun(job: Path) -> bool:
    from deploy.jobs.jobdirectory import begun  # imported here because only the end of an interrupted job needs it

    return begun(job)


def _ignored(number: signal.Signals) -> bool:
    """Return whether this process was started so as to ignore the signal, by `nohup` or by a shell with &."""
    return number != signal.SIGTERM and signal.getsignal(number) is signal.SIG_IGN


class LocalDeployment:
    """One run of one job, from the start of its first process to the end of its last.

    Args:
        job: the job directory, locked and prepared.
        progress: a function that is called from time to time with the latest view and the seconds since the start.
        servers: the processes to keep running, in the order in which they are stopped; the supervisor and the agent by
            default.
        template: the process that forks the servers; without one, each server is started as a new interpreter.
        say: a function that is called with a message about each action on a server.
        savepoint: whether the first SIGTERM ends the job at a savepoint, so that it may resume with other code.
        small: whether the template ends once it has started the servers; a server that dies later is then replaced by a
            new interpreter.
        started: a function that is called once the servers have been started for the first time, with the time at which
            the run began and a function that returns whether a signal has arrived.
        alone: as for `Parts`.
    """

    def __init__(
        self,
        job: Path,
        progress: Callable[[JobView, float], None],
        servers: Sequence[Server] = (),
        template: Forker | None = None,
        say: Callable[[str], None] = lambda line: None,
        savepoint: bool = False,
        small: bool = False,
        started: Callable[[float, Callable[[], bool]], None] = lambda began_s, interrupted: None,
        alone: bool | None = None,
    ) -> None:
        self._job = job
        self._small = small
        self._started = started
        self._savepoint = savepoint
        self._progress = progress
        self._servers = servers or (supervisor(), agent())
        self._template = template
        self._say = say
        self._parts = Parts(job, say, alone)
        self._runtime: Path | None = None
        self._regular: int | None = None
        """The exit status of a server that ended the deployment as intended."""
        self._statuses: dict[int, int] = {}
        self._signal = self._signals = 0
        self._ending = False
        """Whether the job was asked to end at a savepoint."""
        self._failure = ""
        self._shown_ns = 0
        self._news_s = self._turned_s = self._attentive_s = 0.0

    def run(self, began_s: float = 0.0) -> Outcome:
        """Run the job until it ends or a signal arrives.

        Python handles signals only in the main thread.  If this method runs in another thread, the program itself must
        handle them.

        Args:
            began_s: the monotonic time at which another program of this process began to run the job; 0 for now.
        """
        self._news_s = self._turned_s = time.monotonic()
        began = began_s or self._news_s
        adopt_orphans()
        before: dict[signal.Signals, Any] = {}
        main = threading.current_thread() is threading.main_thread()
        if main:
            before = {number: signal.signal(number, self._on_signal) for number in SIGNALS if not _ignored(number)}
            before[signal.SIGCHLD] = signal.signal(signal.SIGCHLD, lambda number, frame: None)
            signal.pthread_sigmask(signal.SIG_UNBLOCK, SIGNALS)  # blocked if this program was executed for this job
        try:
            with woken_by_signals() as wake:
                self._attend(wake, began)
                view = self._end()
        finally:
            self._leave_nothing()
            for number, handler in before.items():
                # A second Ctrl-C must not prevent the removal of the socket directory.
                signal.signal(number, signal.SIG_IGN if self._signal and number in SIGNALS else handler)
        return self._outcome(view, time.monotonic() - began)

    def _outcome(self, view: JobView | None, wall_s: float) -> Outcome:
        ended = view.ended if view is not None else None
        if ended is not None:
            return Outcome(ended.status, ended.reason, view, wall_s)
        if self._regular is not None:
            return Outcome(self._regular, "", view, wall_s, self._signal)
        removed = self._removed()
        if self._signal and not removed:
            name = signal.Signals(self._signal).name
            if view is not None and view.elsewhere:
                reason = f"interrupted by {name}; the job continues; follow it with: {resume_command(self._job)}"
            elif _is_begun(self._job):
                reason = f"interrupted by {name}; resume it with: {resume_command(self._job)}"
            else:
                reason = f"interrupted by {name} before it started; start it again without --resume"
            return Outcome(128 + self._signal, reason, view, wall_s, self._signal)
        return Outcome(1, self._failure or removed, view, wall_s)

    def _on_signal(self, number: int, frame: object) -> None:
        self._signal = self._signal or number
        self._signals += 1

    def _attend(self, wake: socket.socket, began: float) -> None:
        """Keep the supervisor and the agent running until the job has ended."""
        started = False
        poll = select.poll()
        poll.register(wake, select.POLLIN)
        if (self._job / "runtime").exists():
            self._runtime = Path((self._job / "runtime").read_text().strip())
        while not self._interrupted() and not self._failure and self._regular is None:
            self._failure = self._removed()
            if self._failure:
                return
            for server in self._servers:
                if server.process is None and time.monotonic() >= server.due:
                    self._start(server)
            if not started and all(server.process is not None for server in self._servers):
                started = True
                if self._small:
                    self._end_template()
                self._started(began, lambda: bool(self._signal))
            if poll.poll(TURN_S * 1000):
                try:
                    wake.recv(4096)
                except BlockingIOError:
                    continue
            self._reap()
            view = latest(self._job)
            if view is not None and view.ended is not None:
                return
            # A supervisor that only follows the job writes its view just once.
            if view is not None and (view.at_ns != self._shown_ns or view.elsewhere):
                if view.at_ns != self._shown_ns:
                    self._shown_ns, self._news_s = view.at_ns, time.monotonic()
                self._progress(view, time.monotonic() - began)
            self._note_deaths()
            if view is not None and not view.hosts and view.leader is None:
                self._kill_silent(view)

    def _interrupted(self) -> bool:
        """Return whether a signal ends the job; the first SIGTERM may instead request a savepoint at which the job
        ends.
        """
        if not self._signal or self._signals > 1 or self._signal != signal.SIGTERM:
            return bool(self._signal)
        if self._savepoint:
            self._savepoint = False
            answer = self._asked("savepoint", final=True)
            self._ending = answer is not None and bool(answer.get("ok"))
            why = "the supervisor does not answer" if answer is None else str(answer.get("error"))
            self._say("SIGTERM: the job ends at a savepoint" if self._ending else f"SIGTERM: no savepoint: {why}")
        return not self._ending

    def _kill_silent(self, view: JobView) -> None:
        """Kill a server that hangs.  This is safe at any time, because its successor continues the work."""
        now = time.monotonic()
        if now - self._turned_s > SILENT_S / 4:  # this process was stopped, and perhaps the servers with it
            self._attentive_s = now
        self._turned_s = now
        for server in self._servers:
            if server.process is None or server.process.returncode is not None:
                continue
            if server.process.pid == server.killed_pid:
                continue
            silent_s = min(self._silent_s(server, view), now - max(self._attentive_s, server.started_s))
            loading = server.name == "agent" and self._news_s - view.agent_silent_s <= server.started_s
            if silent_s < (LOAD_S if loading else SILENT_S):
                continue
            # A supervisor that answers is alive but cannot write its view, for example because the disk is full.
            if server.name == "supervisor" and self._answers():
                self._attentive_s = now
                continue
            self._say(f"the {server.name} has been silent for {silent_s:.0f} s and is replaced")
            server.killed_pid = server.process.pid
            os.kill(server.process.pid, signal.SIGKILL)  # the process has not been reaped, so the pid is still its own

    def _silent_s(self, server: Server, view: JobView) -> float:
        old_s = time.monotonic() - self._news_s
        if server.name == "agent":
            return float(view.agent_silent_s) if old_s < SILENT_S else 0.0
        # A supervisor that has not written a view yet may have a lot to read.
        written = server.process is not None and view.supervisor_pid == server.process.pid
        return old_s if written else 0.0

    def _answers(self) -> bool:
        return self._runtime is None or self._asked("status") is not None

    def _asked(self, kind: str, **facts: bool) -> Any:
        from standby.network.control import ask  # imported here because most jobs never need it

        return ask(str(self._runtime), kind, facts, ANSWER_S) if self._runtime is not None else None

    def _removed(self) -> str:
        """Return a message about a missing part without which recovery is impossible; empty if all parts exist."""
        return self._parts.lost(self._runtime)

    def _start(self, server: Server) -> None:
        server.started_s = time.monotonic()
        argv, path = module_command(server.module, str(self._job)), self._job / "logs" / f"{server.name}.log"
        environment = {**os.environ, **pinned_environment(), PARENT: str(os.getpid()), "PYTHONUNBUFFERED": "1"}
        if self._template is not None:
            server.process = self._template.start(argv, path, environment)
            if server.process is not None:
                return
        # Imported here because most jobs have a template.
        import subprocess

        from causal.process.processlog import open_log

        with open(open_log(path), "ab") as log:
            server.process = subprocess.Popen(
                argv,
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=subprocess.STDOUT,
                start_new_session=True,  # Ctrl-C on a terminal must reach only this process
                env=environment,
            )

    def _end_template(self) -> None:
        """End the template, whose memory is a large share of that of a small job."""
        if self._template is not None:
            self._template.close()
            self._template = None

    def _reap(self) -> None:
        """Reap every child process that has ended, including adopted orphans."""
        while True:
            try:
                pid, status = os.waitpid(-1, os.WNOHANG)
            except ChildProcessError:
                return
            if not pid:
                return
            for server in self._servers:
                if server.process is not None and server.process.pid == pid:
                    server.process.returncode = self._statuses[pid] = os.waitstatus_to_exitcode(status)

    def _note_deaths(self) -> None:
        for server in self._servers:
            if server.process is None or server.process.returncode is None:
                continue
            status, server.process = server.process.returncode, None
            if status in server.endings:
                self._regular = status
                return
            now = time.monotonic()
            server.deaths = [at for at in server.deaths if now - at < DEATHS_WITHIN_S] + [now]
            # The first restart is immediate.  Repeated deaths delay it, so that their cause has time to disappear.
            server.due = now + 0.05 * (len(server.deaths) - 1)
            # A server that retries for seconds before it fails, for example because the disk is full, does not die
            # often.
            fruitless = len(server.deaths) > 1 and now - self._news_s > DEATHS_WITHIN_S
            if status == STATUS_HOPELESS or len(server.deaths) > DEATHS_MAX or fruitless:
                self._failure = self._cause(server.name) or f"the {server.name} ended with status {status}"

    def _cause(self, name: str) -> str:
        """Return why a server ended, from its log; a cause that prevents logging takes precedence."""
        if removed := self._removed():
            return removed
        if _free_bytes(self._job) < FREE_BYTES_MIN:
            return (
                f"no space is left for {self._job}; free space, then resume the job with: {resume_command(self._job)}"
            )
        from standby.host.last_line import last_line  # imported here because only a failure needs it

        return last_line(self._job / "logs" / f"{name}.log")

    def _end(self) -> JobView | None:
        """Stop the supervisor first, so that it counts no end as a failure, and then the agent with all its
        processes.
        """
        for server in self._servers:
            self._stop(server, server.stop_s)
            if server.process is not None and server.process.returncode in server.endings:
                self._regular = server.process.returncode
        return latest(self._job)

    def _stop(self, server: Server, within_s: float) -> None:
        if server.process is None:
            return
        deadline = time.monotonic() + within_s
        asked = -1
        while server.process.returncode is None:
            if asked < self._signals:  # a second Ctrl-C asks a slow server again
                interrupted = server.interruptible and self._signal == signal.SIGINT
                # The process has not been reaped, so the pid still refers to it.
                os.kill(server.process.pid, signal.SIGINT if interrupted else signal.SIGTERM)
                asked = self._signals
            if time.monotonic() >= deadline:
                os.kill(server.process.pid, signal.SIGKILL)
                deadline = time.monotonic() + KILL_S
            time.sleep(0.005)
            self._reap()

    def _leave_nothing(self) -> None:
        """Kill every remaining process of the job, no matter what has happened."""
        for server in self._servers:
            if server.process is not None and server.process.returncode is None:
                os.kill(server.process.pid, signal.SIGKILL)
        left = kill_marked(self._job, KILL_S)
        deadline = time.monotonic() + KILL_S
        while any(s.process is not None and s.process.returncode is None for s in self._servers):
            if time.monotonic() >= deadline:
                break
            self._reap()
            time.sleep(0.005)
        self._reap()
        if left:
            raise PipelineError(f"processes of the job in {self._job} cannot be killed ({left} left)")
