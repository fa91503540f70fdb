"""The host agent, which starts, kills and reaps the processes of a job on one host.

`python -m standby.agent JOB_DIRECTORY`.  For a supervisor on the same machine, `causal run` starts the agent.  An agent
that `causal agent` starts serves one of several hosts and joins a supervisor elsewhere (design 0024).  The agent starts
only programs that the job's own description names; no order contains a command line.  It notices the exit of a process
immediately, through the process's pidfd.  The death of a worker that has much memory to free is noticed even earlier,
through the worker's lifeline.  The agent may be killed at any moment: its processes continue to run, and the next agent
adopts them.  It signals a process only after the start time, or the marks in the process environment, have proved that
the process belongs to the job.
"""

from __future__ import annotations

import logging
import math
import os
import signal
import socket
import sys
import time
from contextlib import suppress
from pathlib import Path
from typing import Any

import zmq

from causal.config import JobConfig
from causal.errors import CausalError, PipelineError, Unavailable
from causal.network.host_file import (
    HostFile,
    keys_of,
    read_incarnation,
    roster_mark,
    save_began,
    save_incarnation,
    save_roster,
    save_sign,
)
from causal.network.seats import seats_of
from causal.process import processlog
from causal.process.clock import read_offset, save_offset
from causal.process.forks import close as close_lock
from causal.process.forks import keep_from_children, lock
from causal.process.interpreter import module_command, on_this_host
from causal.process.open_files import raise_limit
from causal.process.signal_wake import woken_by_signals
from standby.blueprint import Blueprint
from standby.exit_status import ending
from standby.host.children import Child, Children, End
from standby.host.clock_offset import ClockOffset
from standby.host.computing import Computing
from standby.host.leaving import UNHEARD_S, Leaving
from standby.host.lifelines import Lifelines
from standby.host.log_sender import LogSender
from standby.host.parentage import adopt_orphans, die_with_parent
from standby.host.processes import kill_marked, send_signal
from standby.host.versions import companions_of, store_next, store_version
from standby.network.control import LEAVING
from standby.network.uplink import HostUplink, LocalUplink, Uplink, runtime_of
from standby.storage.change_files import NEXT
from standby.supervision import orders
from standby.supervision.hosts import BEATS_PER_TIMEOUT
from standby.supervision.orders import NEXT_WORKER, AnyOrder

LOCK = "agent.lock"
"""The file that a running agent keeps locked so that a job has only one agent on this host."""

LOCK_S = 5.0
"""The time that the lock of a killed agent may take to become free: a process that the agent was about to start has the
agent's descriptors until it executes another program."""

GRACE_S = 3.0
"""The time that processes have to end after they are asked to."""

KILL_S = 2.0
"""The time that a killed process has to disappear."""

BACKOFF_S_MIN, BACKOFF_S_MAX = 0.1, 5.0
"""The shortest and the longest wait before a crashed companion is restarted; the wait doubles with each consecutive
crash."""

SOUND_S = 30.0
"""If a companion has run for this long, its next crash is not counted as consecutive to the previous one."""

CRASHES_MAX = 20
"""The number of consecutive crashes of a companion after which the job ends."""

LOOKS_PER_LIMIT = 4
"""The number of checks for processes that use the processor, within the silence that counts as a death."""

BEAT_MS_MAX = 500
"""The longest interval between the agent's beats.  The beats also repeat messages that were lost."""

SENDS_LOGS_S = 1.5
"""If the supervisor has been silent for this long, log lines stay in their files instead of being sent."""

SIGN_S = 1.0
"""The interval at which the agent of a multi-host job renews its sign of life."""

HELLO_AGAIN_S = 0.5
"""The interval at which an agent that is not part of the job asks to join."""

STATUS_DONE, STATUS_WRONG = 0, 2
"""Exit statuses of a companion or an agent: its work is done, or its configuration is wrong."""

STATUS_AGAIN = 75
"""The exit status of an agent whose job was stopped and may be resumed; the agent should then be restarted."""

STATUS_LEFT = 76
"""The exit status of an agent of a multi-host job that was asked to end and whose tasks have moved to other hosts."""

WORKER = "worker"
"""The role of a process that is a standby or runs a task."""

FORKS_IDLE_S_MAX = 5.0
"""The time after which the fork server of a job in cells ends; later workers are started as new interpreters."""

_log = logging.getLogger("standby.agent")


class Agent:
    """The agent of one job on one host."""

    def __init__(self, job: Path) -> None:
        self._job = job
        self._parent = os.getppid()
        config = JobConfig.load(job)
        self._beat_s = config.heartbeat_ms / 1000
        self._host_beat_s = host_beat_s(config)
        self._look_s = config.heartbeat_timeout_ms / 1000 / LOOKS_PER_LIMIT
        self._look_due = 0.0
        self._rest_s = max(self._beat_s, min(self._look_s, BEAT_MS_MAX / 1000))
        """The interval between beats on one machine while the set of processes is unchanged.  Deaths are reported
        immediately."""
        self._last_processes: dict[str, dict[str, object]] = {}
        self._computing = Computing()
        self._lock = _locked(job)
        self._children = Children(job)
        self._lifelines = Lifelines()
        (job / "logs").mkdir(exist_ok=True)
        adopt_orphans()  # forked workers become orphans, and then children of this process
        blueprint = Blueprint.load(job)
        self._mark = blueprint.mark(config)
        self._worker = blueprint.worker
        self._companions = companions_of(blueprint)
        if not config.verify_replay:  # forked workers share addresses, which would hide a dependence on addresses
            self._children.serve_forks(self._worker, FORKS_IDLE_S_MAX if blueprint.topology.cells else 0.0)
        self._restarts: dict[str, tuple[float, Child]] = {}
        self._starts: dict[str, Child] = {}
        self._stopping = False
        self._context: zmq.Context[Any] = zmq.Context()
        self._host = HostFile.load(job)
        self._roster_mark = roster_mark(job)
        self._log_sender = LogSender(job) if self._host is not None else None
        self._incarnation = 0
        """The host incarnation to which the processes belong; 0 until the supervisor has welcomed the host."""
        self._welcomed = self._host is None
        self._hello_due = self._host_beat_due = self._sign_due = self._heard_s = 0.0
        self._status = 0
        self._leaving: Leaving | None = None
        self._clock = ClockOffset(read_offset(job))
        self._uplink = self._connected()
        self._poller = zmq.Poller()
        for each in self._uplink.sockets:
            self._poller.register(each, zmq.POLLIN)
        self._poller.register(self._lifelines.wake, zmq.POLLIN)

    def _connected(self) -> Uplink:
        if self._host is None:
            return LocalUplink(self._context, runtime_of(self._job))
        key, roster = keys_of(self._job)
        self._incarnation = read_incarnation(self._job, self._host.session)
        supervisors = seats_of(self._host.join, roster)
        return HostUplink(self._context, self._host.host, supervisors, self._job, key)

    def run(self) -> int:
        """Serve until SIGTERM arrives or the supervisor ends the agent, then end every process.

        Returns: the exit status.
        """
        signal.signal(signal.SIGTERM, self._on_terminate)
        signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C is for `causal run`, which then sends SIGTERM
        with woken_by_signals() as wake:
            self._serve(wake)
        return self._status

    def _serve(self, wake: socket.socket) -> None:
        self._poller.register(wake, zmq.POLLIN)
        for ended in self._children.adopt():
            self._ended(ended)
        for child in self._children.living.values():
            self._poller.register(child.pidfd, zmq.POLLIN)
        if self._host is not None:
            self._children.await_forks()  # once the agent has joined, the supervisor expects beats without a gap
        beat_due = 0.0
        while not self._stopping:
            beat_due = self._turn(beat_due)
            with suppress(BlockingIOError):
                wake.recv(64)  # unless this is read, every wait after the first signal would end immediately
        self._end_all()

    def close(self) -> None:
        self._uplink.close()
        self._context.term()  # waits no longer than the sockets' linger time
        close_lock(self._lock)

    def _on_terminate(self, number: int, frame: object) -> None:
        """End the agent.  If it has joined a multi-host job, end it once its tasks have moved, or when it is asked a
        second time.

        If the `causal agent` process has ended, this agent ends immediately, because the supervisor already counts the
        host as lost.
        """
        orphaned = os.getppid() != self._parent
        if self._host is None or self._leaving is not None or not self._welcomed or orphaned:
            self._stopping = True
            self._status = 0 if self._host is None else 128 + number
        else:
            self._leaving, self._host_beat_due = Leaving(time.monotonic(), self._host.drain_s), 0.0

    def _leave(self, leaving: Leaving) -> None:
        if leaving.left(len(self._starts) + sum(1 for each in self._children.living.values() if not each.companion)):
            self._stopping, self._status = True, STATUS_LEFT
        elif leaving.in_vain(time.monotonic()):
            self._stopping, self._status = True, 128 + signal.SIGTERM

    def _turn(self, beat_due: float) -> float:
        """Perform one round: wait, handle exits, then orders, then due work.  Return when the next beat is due.

        Each round starts at most one ordered process.  A start takes a while, and deaths and kills must not wait for
        several starts.
        """
        startable = bool(self._starts) and self._may_start
        due = 0.0 if startable else min([beat_due, *(at for at, _ in self._restarts.values())])
        self._poller.poll(max(0, math.ceil((due - time.monotonic()) * 1e3)))
        self._notice_deaths()
        self._reap()
        self._uplink.relay()
        for order in self._uplink.orders():
            self._obey(order)
        for slot in list(self._starts)[:1] if self._may_start else ():
            self._start(self._starts.pop(slot))
        for slot, (at, child) in list(self._restarts.items()):
            if time.monotonic() >= at:
                del self._restarts[slot]
                self._start(child)
        self._send_logs(last=self._stopping)
        if self._leaving is not None and not self._stopping:
            self._leave(self._leaving)
        if time.monotonic() < beat_due:
            return beat_due
        self._children.reap_orphans()
        self._children.bound_logs()
        self._lifelines.watch(self._children.living)
        news = self._beat()
        return time.monotonic() + (self._beat_s if news else self._rest_s)

    @property
    def _may_start(self) -> bool:
        """Whether processes may start.  On a multi-host job, processes use the supervisor's time, so the offset of the
        supervisor's clock must be known first.
        """
        return self._host is None or self._clock.known

    def _beat(self) -> bool:
        """Report the existing processes; return whether the next beat should follow soon."""
        if self._host is not None and time.monotonic() >= self._sign_due:
            self._sign_due = time.monotonic() + SIGN_S
            save_sign(self._job, self._welcomed and time.monotonic() - self._heard_s < UNHEARD_S)
        if not self._welcomed:
            self._hello()
            return True
        if self._host is not None:
            if self._clock.settled and time.monotonic() < self._host_beat_due:
                return True
            self._host_beat_due = time.monotonic() + self._host_beat_s
        computing: list[str] = []
        if time.monotonic() >= self._look_due:
            self._look_due = time.monotonic() + self._look_s
            computing = self._computing.look({c.slot: c.pid for c in self._children.living.values()})
        processes: dict[str, dict[str, object]] = {
            # A companion that awaits its restart counts as living; otherwise the supervisor would start it a second
            # time.
            "slots": {**{c.slot: c.pid for c in self._children.living.values()}, **dict.fromkeys(self._restarts, 0)},
            "dead": {slot: status for slot, status in self._children.dead.items() if slot not in self._restarts},
            "killed": {slot: self._shifted(at_ns) for slot, at_ns in self._children.killed.items()},
        }
        of_host = {} if self._host is None else self._facts_of_host()
        self._uplink.send("agent_beat", computing=computing, **processes, **of_host)
        before, self._last_processes = self._last_processes, processes
        return self._host is not None or processes != before

    def _send_logs(self, last: bool = False) -> None:
        """Send the log lines of this host's processes if the supervisor was heard recently."""
        now_s = time.monotonic()
        if self._log_sender is not None and self._welcomed and now_s - self._heard_s < SENDS_LOGS_S:
            text = self._log_sender.take(now_s, last)
            if text:
                self._uplink.send("host_log", text=text)

    def _facts_of_host(self) -> dict[str, object]:
        now_ns = time.monotonic_ns()
        facts: dict[str, object] = {"incarnation": self._incarnation, "clock_ns": now_ns}
        if self._clock.known:
            facts["job_ns"] = self._shifted(now_ns)
        facts.update(roster=self._roster_mark, mark=self._mark)
        if self._clock.error_ns:
            facts["clock_error_ns"] = self._clock.error_ns
        return {**facts, "leaving": True} if self._leaving is not None else facts

    def _hello(self) -> None:
        """Ask to join if a request is due; requests are repeated until the supervisor answers."""
        host = self._host
        if host is None or time.monotonic() < self._hello_due:
            return
        self._hello_due = time.monotonic() + HELLO_AGAIN_S
        facts = {"slots": host.slots, "zone": host.zone, "machine": host.machine, "labels": host.labels}
        facts.update(version=host.version, breakable=host.breakable, changes=True)
        self._uplink.send("host_hello", mark=self._mark, session=host.session, clock_ns=time.monotonic_ns(), **facts)

    def _shifted(self, at_ns: int) -> int:
        """Convert a time on this host's clock to the supervisor's clock."""
        return at_ns + self._clock.offset_ns

    def _obey(self, order: AnyOrder) -> None:
        match order:
            case orders.Kill(slot):
                if slot in self._starts:
                    # The supervisor has ordered both the start and the kill, and now awaits `exited`.
                    self._report_unstarted(self._starts.pop(slot))
                if slot in self._children.living:
                    self._children.kill(self._children.living[slot])
                    self._reap()
            case orders.Start() if not self._welcomed:
                pass  # the order is for an earlier incarnation of the host with this name
            case orders.Start(mark=mark) if mark not in ("", self._mark):
                pass  # this agent has yet to learn that the job is another version
            case orders.Start(slot, role, _, settings):
                known = (self._children.living, self._children.dead, self._restarts, self._starts)
                if not any(slot in table for table in known):  # a repeated order must not start a second process
                    self._order_start(slot, role, settings)
            case orders.Welcome(incarnation):
                self._join(incarnation)
            case orders.Heard(sent_ns, at_ns, began_ns):
                first, before_ns = not self._clock.known, self._clock.offset_ns
                self._heard_s = time.monotonic()
                self._clock.sample(sent_ns, at_ns, time.monotonic_ns())
                if first and self._clock.known:
                    _log.info("the supervisor's clock is known to %.3f ms", self._clock.error_ns / 1e6)
                if self._leaving is not None:
                    self._leaving.heard(sent_ns / 1e9, time.monotonic())
                if self._clock.offset_ns != before_ns:
                    save_offset(self._job, self._clock.offset_ns)
                if began_ns:
                    save_began(self._job, began_ns)
            case orders.Fenced():
                self._welcomed, self._hello_due, self._sign_due = False, 0.0, 0.0
            case orders.Roster(text):
                save_roster(self._job, text)
                self._roster_mark = roster_mark(self._job)
            case orders.Version(job, graph):
                self._become(job, graph)
            case orders.Refused(reason, session):
                if self._host is None or session != self._host.session:
                    return  # the refusal is meant for another agent with the same key
                _log.error("the supervisor refuses this host: %s", reason)
                self._stopping, self._status = True, STATUS_WRONG
            case orders.Ended(again):
                _log.info("the job %s", "has stopped and may be resumed" if again else "has ended")
                self._stopping, self._status = True, STATUS_AGAIN if again else STATUS_DONE
                self._send_logs(last=True)
                self._uplink.send(LEAVING)
            case orders.Crash(incarnation):
                self._crash(incarnation)

    def _become(self, job: str, graph: str) -> None:
        """Store another version of the job, as which all processes start from now on."""
        try:
            store_version(self._job, job, graph)
        except Unavailable as problem:
            _log.error("%s", problem)
            return  # the next beat has the mark of the version before, so the order is repeated
        config, blueprint = JobConfig.load(self._job), Blueprint.load(self._job)
        self._mark, self._host_beat_s = blueprint.mark(config), host_beat_s(config)
        self._companions = companions_of(blueprint)
        _log.info("the job is another version")

    def _crash(self, incarnation: int) -> None:
        """Kill this process with SIGKILL if the host permits it and the order names the current incarnation."""
        if self._host is None or not self._host.breakable:
            _log.warning("an order to kill this agent is ignored, because it is not permitted here")
        elif incarnation == self._incarnation:
            _log.warning("this agent is killed on request")
            os.kill(os.getpid(), signal.SIGKILL)

    def _join(self, incarnation: int) -> None:
        """Join with the assigned incarnation, after ending any processes here that belong to an older incarnation."""
        if self._incarnation != incarnation:
            if self._incarnation:
                _log.info("host incarnation %d has ended; its processes are being stopped", self._incarnation)
            self._kill_all()
            self._children.dead.clear()
            self._children.killed.clear()
            self._incarnation = incarnation
            if self._host is not None:
                save_incarnation(self._job, self._host.session, incarnation)
            _log.info("joined as incarnation %d", incarnation)
        self._welcomed, self._heard_s = True, time.monotonic()
        # A beat and a sign of life are due now, so that the supervisor and `causal probe` learn of the join
        # immediately.
        self._host_beat_due = self._sign_due = 0.0
        self._beat()

    def _kill_all(self) -> None:
        self._restarts.clear()
        self._starts.clear()
        slots = list(self._children.living)
        for child in self._children.living.values():
            self._children.kill(child)
        self._await_ends(KILL_S)
        # The remaining marked processes are those that the killed workers had started.
        left = sum(kill_marked(self._job, KILL_S, only=slot) for slot in slots)
        if left:
            _log.error("%d processes of an older incarnation could not be killed", left)

    def _order_start(self, slot: str, role: str, settings: str) -> None:
        """Queue a process to be started.  Its program comes from the job's description, not from the order.

        Args:
            settings: the settings of the next version, where no command on this machine has written them.
        """
        if role == NEXT_WORKER and settings:
            try:
                store_next(self._job, settings)
            except Unavailable as problem:
                self._report_unstarted(Child(slot, role, (), {}), STATUS_WRONG, str(problem))
                return
        call = self._companions.get(role)
        if call is not None:
            self._starts[slot] = Child(slot, role, on_this_host(call.argv, self._job), call.environment)
        elif role in (WORKER, NEXT_WORKER):
            where = [NEXT] if role == NEXT_WORKER else []
            argv = module_command(self._worker, str(self._job), slot, *where)
            self._starts[slot] = Child(slot, role, tuple(argv), {})
        else:
            _log.warning("an order to start %s as %.80r, which the job's description does not name", slot, role)

    def _start(self, child: Child) -> None:
        try:
            self._children.start(child)
        except Unavailable as problem:
            _log.error("%s", problem)
            self._report_unstarted(child, STATUS_WRONG, str(problem))
            return
        self._children.dead.pop(child.slot, None)
        self._poller.register(child.pidfd, zmq.POLLIN)
        self._uplink.send("started", slot=child.slot, pid=child.pid, at_ns=self._shifted(child.began_ns))

    def _report_unstarted(self, child: Child, status: int | None = None, why: str = "") -> None:
        """Report the end of a process whose start was ordered but that never ran."""
        self._children.dead[child.slot] = status
        at_ns = self._shifted(time.monotonic_ns())
        self._uplink.send("exited", slot=child.slot, pid=0, at_ns=at_ns, status=status, last_line=why)

    def _notice_deaths(self) -> None:
        """Report workers that can no longer run any code.  The kernel ends them only after it has freed their
        memory.
        """
        for child in self._lifelines.broken():
            if self._children.living.get(child.slot) is child:
                self._ended(self._children.lose(child))
                self._children.save()

    def _reap(self) -> None:
        gone = False
        for pidfd in self._children.reap_dying():
            self._poller.unregister(pidfd)
            gone = True
        for child in list(self._children.living.values()):
            pidfd = child.pidfd
            ended = self._children.reap(child)
            if ended is not None:
                self._poller.unregister(pidfd)
                self._ended(ended)
                gone = True
        if gone:
            self._children.save()

    def _ended(self, end: End) -> None:
        child = end.child
        asked = child.killed_ns is not None
        if not self._stopping:  # otherwise, a supervisor that is still running must not count these ends as failures
            restarting = child.companion and self._again(end)
            self._uplink.send(
                "exited",
                slot=child.slot,
                pid=child.pid,
                at_ns=self._shifted(end.at_ns),
                status=end.status,
                killed_ns=None if child.killed_ns is None else self._shifted(child.killed_ns),
                last_line=end.last_line,
                restarting=restarting,
            )
        how = "died" if end.status is None else ending(end.status, asked)
        _log.info("%s (pid %d) %s%s", child.slot, child.pid, how, " by this agent" if asked else "")

    def _again(self, end: End) -> bool:
        """Queue a crashed companion for a restart; return whether it will be restarted."""
        child = end.child
        if end.status in (STATUS_DONE, STATUS_WRONG):
            return False
        lived_s = (end.at_ns - child.began_ns) / 1e9
        child.crashes = 1 if lived_s >= SOUND_S else child.crashes + 1
        if child.crashes > CRASHES_MAX:
            return False
        # A companion may leave processes running, such as a Java virtual machine that outlives its driver.  The
        # restarted companion must not encounter them.
        kill_marked(self._job, 0.0, only=child.slot)
        wait_s = min(BACKOFF_S_MIN * 2 ** (child.crashes - 1), BACKOFF_S_MAX)
        self._restarts[child.slot] = (time.monotonic() + wait_s, child)
        return True

    def _end_all(self) -> None:
        """Ask every process to end and kill those that do not, so that no process is left running."""
        self._restarts.clear()
        self._starts.clear()
        for child in self._children.living.values():
            send_signal(child.pidfd, signal.SIGTERM)
        self._await_ends(GRACE_S)
        for child in self._children.living.values():
            self._children.kill(child)
        self._await_ends(KILL_S)
        self._children.close()
        left = kill_marked(self._job, KILL_S)
        if left:
            _log.error("%d processes of the job could not be killed", left)
        self._children.save()

    def _await_ends(self, within_s: float) -> None:
        deadline = time.monotonic() + within_s
        while (self._children.living or self._children.dying) and time.monotonic() < deadline:
            poller = zmq.Poller()
            for child in (*self._children.living.values(), *self._children.dying):
                poller.register(child.pidfd, zmq.POLLIN)
            poller.poll(max(0, math.ceil((deadline - time.monotonic()) * 1e3)))
            self._reap()


def host_beat_s(config: JobConfig) -> float:
    """Return the interval at which the agent of a multi-host job sends beats, even if its own turns are more
    frequent.
    """
    wanted_ms = min(config.host_timeout_ms / BEATS_PER_TIMEOUT, BEAT_MS_MAX)
    return max(config.heartbeat_ms, wanted_ms) / 1000


def _locked(job: Path) -> int:
    """Lock the agent's lock file and return its descriptor.

    Raises:
        PipelineError: another agent has kept the lock for longer than `LOCK_S`.
    """
    descriptor = keep_from_children(os.open(job / LOCK, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600))
    if not lock(descriptor, LOCK_S):
        close_lock(descriptor)
        raise PipelineError(f"another agent already serves {job}; `causal status` shows its job")
    return descriptor


def main(argv: list[str]) -> int:
    """Run the agent of one job on this host.

    Returns: 0 if the job has ended or, on one machine, SIGTERM has arrived; 128 + the number of SIGTERM, or
    `STATUS_LEFT`, if a host has left; `STATUS_AGAIN` if the job may be resumed; `STATUS_WRONG` for an error that would
    recur after a restart; otherwise 1.
    """
    if len(argv) != 1:
        print("usage: python -m standby.agent JOB_DIRECTORY", file=sys.stderr)
        return 2
    die_with_parent()
    raise_limit()
    job = Path(argv[0]).resolve()
    processlog.begin(job / "logs" / "agent.log", lambda: "agent")
    try:
        agent = Agent(job)
        try:
            return agent.run()
        finally:
            agent.close()
    except CausalError as problem:
        _log.error("agent: %s", problem)
        return STATUS_WRONG if isinstance(problem, PipelineError) else 1


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
