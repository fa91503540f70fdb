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
from causal.shell.interpreter import module_command
from standby.blueprint import Blueprint
from standby.control import AGENT, MESSAGE_BYTES_MAX, Inbox
from standby.host.parentage import die_with_parent
from standby.journal import Journal as JournalFile
from standby.manifests import newest_manifest, sweep, write_manifest
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
    StartProcess,
    WriteManifest,
)
from standby.supervision.log_lines import line_of
from standby.supervision.supervision import Supervision

STATUS_S = 0.5
DRAIN_MAX = 1000
"""The number of messages taken in a row before the time is read again."""

AGENT_QUEUE_MAX = 10_000
"""The number of orders kept for an agent that has not connected yet."""

SOCKET_QUEUE = 10_000
LINGER_MS = 300

_log = logging.getLogger("standby.daemon")


class Daemon:
    """One supervisor's life."""

    def __init__(self, job: Path) -> None:
        self._job = job
        self._config = JobConfig.load(job)
        blueprint = Blueprint.load(job)
        self._commands = {f"companion:{c.name}": c for c in blueprint.companions}
        self._worker = blueprint.worker
        self._sync = self._config.durability == "os"
        self._journal = JournalFile(job, self._sync)
        self._supervision = Supervision(self._config, blueprint)
        self._inbox = Inbox()
        self._for_agent: deque[bytes] = deque(maxlen=AGENT_QUEUE_MAX)
        self._context = zmq.Context()
        self._socket = self._context.socket(zmq.ROUTER)
        self._open_socket((job / "runtime").read_text().strip())
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

    def run(self) -> None:
        """Supervise until the job ends or SIGTERM comes."""
        wake, waker = socket.socketpair()
        for end in (wake, waker):
            end.setblocking(False)
        signal.signal(signal.SIGTERM, lambda number, frame: None)
        signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C is for `causal run`, which then sends SIGTERM
        signal.set_wakeup_fd(waker.fileno(), warn_on_full_buffer=False)
        poller = zmq.Poller()
        poller.register(self._socket, zmq.POLLIN)
        poller.register(wake, zmq.POLLIN)
        decided = self._journal.records()
        _log.info("supervises, after %d decisions; %s", len(decided), self._config.pipeline)
        self._step(events.Restored(decided, newest_manifest(self._job)))
        while not self._ended:
            due_s = min(self._supervision.next_deadline() / 1e9, self._status_due) - time.monotonic()
            ready = dict(poller.poll(max(0, math.ceil(due_s * 1e3))))
            if wake.fileno() in ready or wake in ready:
                break
            self._drain()
            if not self._ended and time.monotonic_ns() >= self._supervision.next_deadline():
                self._step(events.Tick())
            if time.monotonic() >= self._status_due:
                self._write_status()
        signal.set_wakeup_fd(-1)  # a SIGTERM that comes now has nothing left to wake
        self._write_status()

    def close(self) -> None:
        self._socket.close()
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
                self._send(slot.encode(), encode(dict(message)))
            case StartProcess(slot, role):
                self._order(self._start(slot, role))
            case KillProcess(slot):
                self._order({"kind": "kill", "slot": slot})
            case WriteManifest(epoch, files):
                self._write_manifest(epoch, files)
            case RemoveFiles():
                sweep(self._job, effect)
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

    def _start(self, slot: str, role: str) -> dict[str, Any]:
        if role in self._commands:
            command = self._commands[role]
            invocation = {"argv": list(command.argv), "environment": dict(command.environment)}
        else:
            invocation = {"argv": module_command(self._worker, str(self._job), slot)}
        return {"kind": "start", "slot": slot, "role": role, **invocation}

    def _write_manifest(self, epoch: int, files: Any) -> None:
        # In line on purpose: a promotion would have to wait for the outcome anyhow.
        try:
            write_manifest(self._job, epoch, files, self._sync)
        except Unavailable as problem:
            self._step(events.ManifestFailed(epoch, str(problem)))
        else:
            self._step(events.ManifestWritten(epoch))

    def _order(self, message: dict[str, Any]) -> None:
        """Sends orders to the agent in their order, and keeps them until an agent is connected."""
        self._for_agent.append(encode(message))
        self._flush_to_agent()

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
