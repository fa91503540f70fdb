"""The supervisor process: sockets, clock and disk around `standby.supervision.supervision`.

`python -m standby.daemon JOB_DIRECTORY`.  It may be killed at any moment; the next one takes the
decisions from the journal and everything else from the beats.  It ends by itself when the job ends.
"""

from __future__ import annotations

import errno
import json
import logging
import math
import os
import signal
import socket
import sys
import time
from collections import deque
from pathlib import Path
from typing import Any

import zmq

from causal.config import JobConfig
from causal.errors import CausalError, CorruptData, PipelineError, Unavailable
from causal.records.values import encode
from causal.shell import processlog
from causal.shell.depot import Depot
from causal.shell.roster import load_key
from causal.task.activity import PULSE_SUFFIX
from standby import orders
from standby.blueprint import FILE as GRAPH
from standby.blueprint import Blueprint
from standby.control import AGENT, MESSAGE_BYTES_MAX, Inbox, is_leaving
from standby.gate import Gate
from standby.host.parentage import die_with_parent
from standby.journal import Journal as JournalFile
from standby.manifests import newest_manifest, sweep, write_manifest
from standby.store_sweeper import StoreSweeper
from standby.supervision import events
from standby.supervision.effects import (
    Answer,
    Effect,
    EndJob,
    Journal,
    KillProcess,
    Note,
    RemoveFiles,
    Send,
    SendHost,
    StartProcess,
    WriteManifest,
)
from standby.supervision.log_lines import line_of
from standby.supervision.supervision import ANY_SESSION, Supervision

STATUS_S = 0.5
DRAIN_MAX = 1000
"""The number of messages taken in a row before the time is read again."""

AGENT_QUEUE_MAX = 10_000
"""The number of orders kept for an agent that has not connected yet."""

DISMISS_S, DISMISS_AGAIN_MS = 1.2, 100
"""The time that hosts have to confirm the end of the job, less than a supervisor has to end; and between two orders."""

SOCKET_QUEUE = 10_000
LINGER_MS = 300

_log = logging.getLogger("standby.daemon")


class Daemon:
    """One supervisor's life."""

    def __init__(self, job: Path) -> None:
        self._job = job
        self._config = JobConfig.load(job)
        blueprint = Blueprint.load(job)
        self._sync = self._config.durability == "os"
        self._journal = JournalFile(job, self._sync)
        self._supervision = Supervision(self._config, blueprint)
        self._inbox = Inbox()
        self._for_agent: deque[bytes] = deque(maxlen=AGENT_QUEUE_MAX)
        self._route: dict[str, str] = {}
        """Process → the host on which it was last heard, of a job of several hosts."""
        self._context: zmq.Context[Any] = zmq.Context()
        self._socket = self._context.socket(zmq.ROUTER)
        self._open_socket((job / "runtime").read_text().strip())
        self._gate = self._opened_gate() if self._config.listen else None
        self._sweeper: StoreSweeper | None = None
        if self._config.store:
            self._sweeper = StoreSweeper(Depot(self._config.store, self._config.place_in_store))
            self._sweeper.start()
        self._poller = zmq.Poller()
        self._ended = False
        self._status_due = 0.0

    def _open_socket(self, runtime: str) -> None:
        for option, value in (
            (zmq.LINGER, LINGER_MS),
            (zmq.ROUTER_MANDATORY, 1),
            (zmq.ROUTER_HANDOVER, 1),  # a restarted agent is the agent, even before the old connection is seen to end
            (zmq.SNDHWM, SOCKET_QUEUE),
            (zmq.RCVHWM, SOCKET_QUEUE),
            (zmq.MAXMSGSIZE, MESSAGE_BYTES_MAX),
        ):
            self._socket.setsockopt(option, value)
        self._socket.bind(f"ipc://{runtime}/supervisor")

    def _opened_gate(self) -> Gate:
        config, key = self._config, None
        if config.key:
            key = load_key(Path(config.key))
        description = {
            "run": config.run,
            "name": config.name,
            "job": (self._job / "job.json").read_text(),
            "graph": (self._job / GRAPH).read_text(),
        }
        return Gate(self._context, config.listen, key, Path(config.hosts) if config.hosts else None, description)

    def run(self) -> None:
        """Supervise until the job ends or SIGTERM comes."""
        wake, waker = socket.socketpair()
        for end in (wake, waker):
            end.setblocking(False)
        signal.signal(signal.SIGTERM, lambda number, frame: None)
        signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C is for `causal run`, which then sends SIGTERM
        signal.set_wakeup_fd(waker.fileno(), warn_on_full_buffer=False)
        for each in (self._socket, wake, *(self._gate.sockets() if self._gate is not None else ())):
            self._poller.register(each, zmq.POLLIN)
        decided = self._journal.records()
        _log.info("supervises, after %d decisions; %s", len(decided), self._config.pipeline)
        self._step(events.Restored(decided, newest_manifest(self._job)))
        while not self._ended:
            due_s = min(self._supervision.next_deadline() / 1e9, self._status_due) - time.monotonic()
            ready = self._ready(max(0, math.ceil(due_s * 1e3)))
            if wake.fileno() in ready or wake in ready:
                break
            self._drain()
            if self._gate is not None:
                self._attend_hosts(self._gate, ready)
            if not self._ended and time.monotonic_ns() >= self._supervision.next_deadline():
                self._step(events.Tick())
            if time.monotonic() >= self._status_due:
                self._write_status()
        signal.set_wakeup_fd(-1)  # a SIGTERM that comes now has nothing left to wake
        self._write_status()
        if self._gate is not None:
            self._dismiss(self._gate)

    def _dismiss(self, gate: Gate) -> None:
        """Ends every host, and waits a moment until each has confirmed it: no later order would reach it."""
        message = orders.Ended(again=not self._ended).message()
        left = {host.name for host in self._supervision.hosts if host.living}
        deadline_s = time.monotonic() + DISMISS_S
        while left and time.monotonic() < deadline_s:
            for host in left:
                gate.order(host, message)
            gate.socket.poll(DISMISS_AGAIN_MS)
            gate.authenticator.serve()
            for host, slot, data in gate.receive(DRAIN_MAX):
                if not slot and is_leaving(data):
                    left.discard(host)

    def _ready(self, wait_ms: int) -> dict[Any, int]:
        """Returns what has something to read; tethers come and go, so they are registered for one wait."""
        tethers = self._gate.tethers.descriptors() if self._gate is not None else []
        for each in tethers:
            self._poller.register(each, zmq.POLLIN)
        ready = dict(self._poller.poll(wait_ms))
        for each in tethers:
            self._poller.unregister(each)
        return ready

    def _attend_hosts(self, gate: Gate, ready: dict[Any, int]) -> None:
        """Takes handshakes, ended tethers and messages of other hosts."""
        gate.authenticator.serve()
        descriptors = {each for each in ready if isinstance(each, int)}
        for host, session in gate.tethers.closed(descriptors):
            self._step(events.HostClosed(host, session))
        for host, slot, data in gate.receive(DRAIN_MAX):
            name = slot.removesuffix(PULSE_SUFFIX)
            entry = self._supervision.roster.slots.get(name)
            event = self._inbox.receive_from(host, slot, data, entry.host if entry is not None else None)
            if slot and event is not None:
                self._route[name] = host
            if event is not None:
                self._step(event)
            if self._ended:
                return

    def _look_at_roster(self) -> None:
        changed = self._gate.roster_changed() if self._gate is not None else None
        if changed is None or self._gate is None:
            return
        text, revoked = changed
        for host in self._supervision.hosts:
            self._gate.order(host.name, orders.Roster(text).message())
        for name in revoked:
            _log.warning("the key of %s was revoked", name)
            self._step(events.HostClosed(name, ANY_SESSION, "its key was revoked"))

    def close(self) -> None:
        self._socket.close()
        if self._gate is not None:
            self._gate.close()
        self._context.term()  # bounded by the socket's linger
        self._journal.close()

    def _drain(self) -> None:
        for _ in range(DRAIN_MAX):
            try:
                parts = self._socket.recv_multipart(zmq.NOBLOCK)
            except zmq.Again:
                return
            if len(parts) != 2:
                self._inbox.dropped += 1
                continue
            event = self._inbox.receive(parts[0], parts[1])
            if parts[0] == AGENT.encode():
                self._flush_to_agent()
            if event is not None:
                self._step(event)
            if self._ended:
                return

    def _step(self, event: events.Event) -> None:
        effects = self._supervision.handle(event, time.monotonic_ns())
        decided = [effect.record for effect in effects if isinstance(effect, Journal)]
        self._journal.append(decided)
        for effect in effects:
            self._perform(effect)
        for record in decided:  # last: no process waits for a line in a log
            line = line_of(record)
            if line is not None:
                _log.info("%s", line)

    def _perform(self, effect: Effect) -> None:
        match effect:
            case Journal():
                pass  # written, all of them at once, before the first of the others
            case Send(slot, message):
                self._send_to(slot, encode(dict(message)))
            case SendHost(host, message):
                if self._gate is not None:
                    self._gate.order(host, message)
            case StartProcess(slot, role, host):
                self._route[slot] = host
                self._order(host, orders.Start(slot, role))
            case KillProcess(slot, host):
                self._order(host or self._route.get(slot, ""), orders.Kill(slot))
            case WriteManifest(epoch, files):
                self._write_manifest(epoch, files)
            case RemoveFiles():
                sweep(self._job, effect)
                if self._sweeper is not None:
                    self._sweeper.take(effect)
            case Answer(to, body):
                data = encode(dict(body))
                if len(data) > MESSAGE_BYTES_MAX:
                    data = encode({"kind": "answer", "ok": False, "error": "too long for a message; read status.json"})
                self._send(to.encode(), data)
            case Note(line):
                _log.info("%s", line)
            case EndJob(status, reason):
                _log.info("the job ends with status %d: %s", status, reason or "all sinks have finished")
                self._ended = True

    def _write_manifest(self, epoch: int, files: Any) -> None:
        # In line on purpose: a promotion would have to wait for the outcome anyhow.
        try:
            write_manifest(self._job, epoch, files, self._sync)
        except Unavailable as problem:
            self._step(events.ManifestFailed(epoch, str(problem)))
        else:
            self._step(events.ManifestWritten(epoch))

    def _order(self, host: str, order: orders.Order) -> None:
        """Sends orders to an agent in their order; those for the one of this machine wait until it is connected."""
        if self._gate is not None:
            self._gate.order(host, order.message())  # one that is lost is repeated when the beats show its absence
            return
        self._for_agent.append(encode(order.message()))
        self._flush_to_agent()

    def _send_to(self, slot: str, data: bytes) -> bool:
        if self._gate is None:
            return self._send(slot.encode(), data)
        host = self._route.get(slot)
        return host is not None and self._gate.send(host, slot, data)

    def _flush_to_agent(self) -> None:
        while self._for_agent and self._send(AGENT.encode(), self._for_agent[0]):
            self._for_agent.popleft()

    def _send(self, to: bytes, data: bytes) -> bool:
        """Sends and returns whether it was possible; what was not sent is repeated when the beats show its absence."""
        try:
            self._socket.send_multipart((to, data), zmq.NOBLOCK)
        except zmq.ZMQError as problem:
            if problem.errno not in (errno.EHOSTUNREACH, zmq.EHOSTUNREACH, zmq.EAGAIN):
                raise
            return False
        return True

    def _write_status(self) -> None:
        self._status_due = time.monotonic() + STATUS_S
        self._look_at_roster()
        self._route = {slot: host for slot, host in self._route.items() if slot in self._supervision.roster.slots}
        content = {**self._supervision.view(), "supervisor_pid": os.getpid(), "dropped_messages": self._inbox.dropped}
        fresh = self._job / "status.json.new"
        try:
            fresh.write_text(json.dumps(content))
            os.replace(fresh, self._job / "status.json")
        except OSError as problem:
            _log.warning("status.json cannot be written: %s", problem.strerror)


def main(argv: list[str]) -> int:
    """Runs the supervisor of one job.

    Returns: 0 when the job has ended or SIGTERM came, 2 for an error that a restart would repeat, otherwise 1.
    """
    if len(argv) != 1:
        print("usage: python -m standby.daemon JOB_DIRECTORY", file=sys.stderr)
        return 2
    die_with_parent()
    job = Path(argv[0]).resolve()
    processlog.begin(job / "logs" / "supervisor.log", lambda: "supervisor")
    try:
        daemon = Daemon(job)
        try:
            daemon.run()
        finally:
            daemon.close()
    except CausalError as problem:
        _log.error("supervisor: %s", problem)
        return 2 if isinstance(problem, (PipelineError, CorruptData)) else 1
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
