"""The host agent: starts, kills and reaps the processes of a job on one host.

`python -m standby.agent JOB_DIRECTORY`.  It notices an exit through the process's pidfd, at once, and the
death of a worker with much memory to free even earlier, through its lifeline.  It may be killed at any
moment: its processes live on, and the next agent adopts them.  It signals no process that it has not
proved to be its own by start time or by the marks in its environment.
"""

from __future__ import annotations

import fcntl
import logging
import math
import os
import signal
import socket
import sys
import time
from pathlib import Path
from typing import Any

import zmq

from causal.config import JobConfig
from causal.errors import CausalError, PeerViolation, PipelineError, Unavailable
from causal.shell import processlog
from causal.shell.forks import close as close_lock
from causal.shell.forks import keep_from_children
from standby.blueprint import Blueprint
from standby.control import AGENT, MESSAGE_BYTES_MAX, pack, unpack
from standby.host.children import Child, Children, End, command
from standby.host.computing import Computing
from standby.host.lifelines import Lifelines
from standby.host.parentage import adopt_orphans, die_with_parent
from standby.host.processes import kill_marked, send_signal

LOCK = "agent.lock"
"""Held while an agent lives: one at a time on a job."""

LOCK_S = 5.0
"""The time for which the lock of a killed agent may still be held: a process that it was about to start has its
descriptors until it executes another program."""

GRACE_S = 3.0
"""The time that processes have to end when they are asked to."""

KILL_S = 2.0
"""The time that a killed process has to disappear."""

BACKOFF_S_MIN, BACKOFF_S_MAX = 0.1, 5.0
"""Wait before a companion that crashed is started again; doubles with each crash in a row."""

SOUND_S = 30.0
"""A companion that ran this long did not crash in a row with the time before."""

CRASHES_MAX = 20
"""Crashes of a companion in a row that end the job."""

LOOKS_PER_LIMIT = 4
"""Checks of which processes use the processor, within the silence that counts as death."""

SOCKET_QUEUE = 1000

STATUS_DONE, STATUS_WRONG = 0, 2
"""Exit statuses of a companion: it is done; its configuration is wrong."""

_log = logging.getLogger("standby.agent")


class Agent:
    """One agent's life."""

    def __init__(self, job: Path) -> None:
        self._job = job
        config = JobConfig.load(job)
        self._beat_s = config.heartbeat_ms / 1000
        self._look_s = config.heartbeat_timeout_ms / 1000 / LOOKS_PER_LIMIT
        self._look_due = 0.0
        self._computing = Computing()
        self._lock = _locked(job)
        self._children = Children(job)
        self._lifelines = Lifelines()
        (job / "logs").mkdir(exist_ok=True)
        adopt_orphans()  # a forked worker is one
        if not config.verify_replay:  # forked workers share addresses, and a check is to find who depends on them
            self._children.serve_forks(Blueprint.load(job).worker)
        self._restarts: dict[str, tuple[float, Child]] = {}
        self._starts: dict[str, Child] = {}
        self._stopping = False
        self._context = zmq.Context()
        self._socket = self._context.socket(zmq.DEALER)
        for option, value in (
            (zmq.LINGER, 300),
            (zmq.SNDHWM, SOCKET_QUEUE),
            (zmq.RCVHWM, SOCKET_QUEUE),
            (zmq.MAXMSGSIZE, MESSAGE_BYTES_MAX),
            (zmq.RECONNECT_IVL, 20),
            (zmq.RECONNECT_IVL_MAX, 200),
        ):
            self._socket.setsockopt(option, value)
        self._socket.setsockopt_string(zmq.IDENTITY, AGENT)
        self._socket.connect(f"ipc://{(job / 'runtime').read_text().strip()}/supervisor")
        self._poller = zmq.Poller()
        self._poller.register(self._socket, zmq.POLLIN)
        self._poller.register(self._lifelines.wake, zmq.POLLIN)

    def run(self) -> None:
        """Serve until SIGTERM, then end every process of the job."""
        wake, waker = socket.socketpair()
        for end in (wake, waker):
            end.setblocking(False)
        signal.signal(signal.SIGTERM, self._on_terminate)
        signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C is for `causal run`, which then sends SIGTERM
        signal.set_wakeup_fd(waker.fileno(), warn_on_full_buffer=False)
        self._poller.register(wake, zmq.POLLIN)
        for ended in self._children.adopt():
            self._ended(ended)
        for child in self._children.living.values():
            self._poller.register(child.pidfd, zmq.POLLIN)
        beat_due = 0.0
        while not self._stopping:
            beat_due = self._turn(beat_due)
        self._end_all()
        signal.set_wakeup_fd(-1)  # a signal may still come after the descriptor is closed

    def close(self) -> None:
        self._socket.close()
        self._context.term()  # bounded by the socket's linger
        close_lock(self._lock)

    def _on_terminate(self, number: int, frame: object) -> None:
        self._stopping = True

    def _turn(self, beat_due: float) -> float:
        """One round: wait, exits first, then orders, then what is due.  Returns when the next beat is due.

        At most one ordered process is started: a start takes a while, and deaths and kills must not wait for many.
        """
        due = 0.0 if self._starts else min([beat_due, *(at for at, _ in self._restarts.values())])
        self._poller.poll(max(0, math.ceil((due - time.monotonic()) * 1e3)))
        self._notice_deaths()
        self._reap()
        self._take_orders()
        for slot in list(self._starts)[:1]:
            self._start(self._starts.pop(slot))
        for slot, (at, child) in list(self._restarts.items()):
            if time.monotonic() >= at:
                del self._restarts[slot]
                self._start(child)
        if time.monotonic() < beat_due:
            return beat_due
        self._children.reap_orphans()
        self._lifelines.watch(self._children.living)
        self._beat()
        return time.monotonic() + self._beat_s

    def _beat(self) -> None:
        computing: list[str] = []
        if time.monotonic() >= self._look_due:
            self._look_due = time.monotonic() + self._look_s
            computing = self._computing.look({c.slot: c.pid for c in self._children.living.values()})
        self._send(
            "agent_beat",
            computing=computing,
            # A companion that is about to be started again counts as living, or it would be started twice.
            slots={**{c.slot: c.pid for c in self._children.living.values()}, **dict.fromkeys(self._restarts, 0)},
            dead={slot: status for slot, status in self._children.dead.items() if slot not in self._restarts},
            killed=self._children.killed,
        )

    def _send(self, kind: str, **keys: Any) -> None:
        try:
            self._socket.send(pack(kind, **keys), zmq.NOBLOCK)
        except zmq.Again:
            return  # no supervisor for a long while; the next beat repeats it

    def _take_orders(self) -> None:
        while True:
            try:
                data = self._socket.recv(zmq.NOBLOCK)
            except zmq.Again:
                return
            try:
                self._obey(unpack(data))
            except PeerViolation as problem:
                _log.warning("from the supervisor: %s", problem)

    def _obey(self, order: dict[str, Any]) -> None:
        slot = order.get("slot")
        if not isinstance(slot, str) or not slot or "/" in slot or slot.startswith("."):
            raise PeerViolation(f"{order['kind']} without a slot")
        if order["kind"] == "kill":
            if slot in self._starts:
                self._start(self._starts.pop(slot))  # the supervisor ordered both and waits for `exited`
            if slot in self._children.living:
                self._children.kill(self._children.living[slot])
                self._reap()
        elif order["kind"] == "start":
            invocation, role = command(order.get("argv"), order.get("environment")), order.get("role")
            if invocation is None or not isinstance(role, str):
                raise PeerViolation(f"start of {slot} without a command")
            known = (self._children.living, self._children.dead, self._restarts, self._starts)
            if not any(slot in table for table in known):  # a repeated order is no second process
                self._starts[slot] = Child(slot, role, tuple(invocation[0]), invocation[1])
        else:
            raise PeerViolation(f"unknown kind {order['kind']!r:.40}")

    def _start(self, child: Child) -> None:
        try:
            self._children.start(child)
        except Unavailable as problem:
            _log.error("%s", problem)
            self._children.dead[child.slot] = STATUS_WRONG
            self._send(
                "exited", slot=child.slot, pid=0, at_ns=time.monotonic_ns(), status=STATUS_WRONG, last_line=str(problem)
            )
            return
        self._children.dead.pop(child.slot, None)
        self._poller.register(child.pidfd, zmq.POLLIN)
        self._send("started", slot=child.slot, pid=child.pid, at_ns=child.began_ns)

    def _notice_deaths(self) -> None:
        """Report workers that can run no more code; the kernel ends them when it has freed their memory."""
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
        how = "died" if end.status is None else f"ended with status {end.status}"
        _log.info("%s (pid %d) %s", child.slot, child.pid, how)
        if self._stopping:
            return  # the agent ends them all: a supervisor that still lives must not count them as failures
        restarting = child.companion and self._again(end)
        self._send(
            "exited",
            slot=child.slot,
            pid=child.pid,
            at_ns=end.at_ns,
            status=end.status,
            killed_ns=child.killed_ns,
            last_line=end.last_line,
            restarting=restarting,
        )

    def _again(self, end: End) -> bool:
        """Puts a companion that crashed on the list of restarts; returns whether it will be restarted."""
        child = end.child
        if end.status in (STATUS_DONE, STATUS_WRONG):
            return False
        lived_s = (end.at_ns - child.began_ns) / 1e9
        child.crashes = 1 if lived_s >= SOUND_S else child.crashes + 1
        if child.crashes > CRASHES_MAX:
            return False
        # What it leaves behind (a Java virtual machine outlives its driver) must not meet its successor.
        kill_marked(self._job, 0.0, only=child.slot)
        wait_s = min(BACKOFF_S_MIN * 2 ** (child.crashes - 1), BACKOFF_S_MAX)
        self._restarts[child.slot] = (time.monotonic() + wait_s, child)
        return True

    def _end_all(self) -> None:
        """Ask every process to end, kill those that do not, and leave nothing behind."""
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


def _locked(job: Path) -> int:
    """Takes the agent's lock and returns its descriptor.

    Raises:
        PipelineError: another agent holds it for longer than `LOCK_S`.
    """
    lock = keep_from_children(os.open(job / LOCK, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600))
    deadline = time.monotonic() + LOCK_S
    while True:
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
            return lock
        except BlockingIOError:
            if time.monotonic() >= deadline:
                close_lock(lock)
                raise PipelineError(f"another agent serves {job}; `causal status` shows its job") from None
        time.sleep(0.02)


def main(argv: list[str]) -> int:
    """Runs the agent of one job on this host; returns 0 when all its processes have ended after SIGTERM."""
    if len(argv) != 1:
        print("usage: python -m standby.agent JOB_DIRECTORY", file=sys.stderr)
        return 2
    die_with_parent()
    job = Path(argv[0]).resolve()
    processlog.begin(job / "logs" / "agent.log", lambda: "agent")
    try:
        agent = Agent(job)
        try:
            agent.run()
        finally:
            agent.close()
    except CausalError as problem:
        _log.error("agent: %s", problem)
        return 2 if isinstance(problem, PipelineError) else 1
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
