"""The supervisor process: it connects `standby.supervision.supervision` to sockets, the clock and the disk.

`python -m standby.daemon JOB_DIRECTORY`. The supervisor may be killed at any moment. The next one reads the decisions
from the journal and learns everything else from heartbeats. The supervisor ends when the job ends. On a multi-host job,
it starts as a candidate (`standby.candidate.election`) and also ends when another supervisor replaces it.
"""

from __future__ import annotations

import errno
import logging
import math
import os
import signal
import socket
import sys
import time
from collections import deque
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import zmq
from msgspec.structs import replace

from causal.commands import Files
from causal.config import JobConfig
from causal.errors import CausalError, CorruptData, Fenced, PipelineError, Unavailable
from causal.network.roster import load_key
from causal.process import processlog
from causal.process.open_files import raise_limit
from causal.process.signal_wake import woken_by_signals
from causal.recording_window import OFF
from causal.records.values import encode
from causal.storage.shared import Depot
from causal.task.activity import PULSE_SUFFIX
from standby.blueprint import Blueprint
from standby.candidate.candidate_watch import CandidateWatch
from standby.candidate.election import STATUS_NEWER, Election, JobClock, Led, begun, leader_shown, write_status
from standby.candidate.takeover import take_time
from standby.host.parentage import die_with_parent, parent_ended
from standby.leadership.hearing import Hearing
from standby.leadership.terms import DEAF, RESIGNED, STOPPED
from standby.network.control import AGENT, MESSAGE_BYTES_MAX, Inbox, is_leaving
from standby.network.gate import Gate, description_of, rosters_of, start_order, version_order
from standby.storage.change_files import CHANGE, ROLLBACK
from standby.storage.decisions import Decisions
from standby.storage.host_logs import HostLogs
from standby.storage.journal import Journal as JournalFile
from standby.storage.manifest_files import newest_manifest
from standby.storage.manifests import restore_manifest, sweep, write_manifest
from standby.storage.prepared_change import adopt, carry_out, decide, is_prepared, make_final, version_of
from standby.storage.store_journal import StoreJournal
from standby.storage.store_sweeper import StoreSweeper
from standby.supervision import events, orders
from standby.supervision.effects import (
    Answer,
    CommitChange,
    Effect,
    EndJob,
    Journal,
    KillProcess,
    Note,
    RecordEpoch,
    RemoveFiles,
    Send,
    SendHost,
    StartProcess,
    WriteManifest,
)
from standby.supervision.log_lines import line_of
from standby.supervision.savepoints import withdraws
from standby.supervision.supervision import ANY_SESSION, Supervision
from standby.supervision.task_counters import lasting

if TYPE_CHECKING:
    from standby.storage.recorder import Recorder

STATUS_S = 0.5
DRAIN_MAX = 1000
"""The number of messages that are received in a row before the clock is read again."""

AGENT_QUEUE_MAX = 10_000
"""The number of orders that are kept for an agent that has not connected yet."""

RECORDED_S = 1.0
"""The time that the recorder has to enter the last checkpoint before this process ends."""

DISMISS_S, DISMISS_AGAIN_MS = 1.2, 100
"""The time that hosts have to confirm the end of the job, which is shorter than the time that a supervisor has to end;
and the time between two such orders."""

HELD_MAX = 10_000
"""The number of effects that may wait for decisions to be written; further effects are dropped, because each of them is
repeated if it is still needed."""

SOCKET_QUEUE = 10_000
LINGER_MS = 300

_log = logging.getLogger("standby.daemon")


class Daemon:
    """The supervisor of one job."""

    def __init__(self, job: Path, parent: int, wake: socket.socket, led: Led | None) -> None:
        """
        Args:
            parent: the pid of the process that keeps this one running.
            wake: a socket that becomes readable once this process is to end.
            led: the term that this supervisor has won; None for a job on one machine.
        """
        self._job = job
        self._parent = parent
        self._wake = wake
        self._led = led
        self._clock = led.clock if led is not None else JobClock(0)
        if led is None:
            carry_out(job)  # the previous supervisor may have died after a change was final
        self._recorder: Recorder | None = None
        self._begin()
        self._inbox = Inbox()
        self._host_logs = HostLogs(job / "logs")
        self._led_here = True
        self._for_agent: deque[bytes] = deque(maxlen=AGENT_QUEUE_MAX)
        self._route: dict[str, str] = {}
        """Process → the host from which it was last heard; used only in a multi-host job."""
        self._context: zmq.Context[Any] = zmq.Context()
        self._socket = self._context.socket(zmq.ROUTER)
        self._open_socket((job / "runtime").read_text().strip())
        self._gate = self._opened_gate(led) if led is not None else None
        self._candidates = CandidateWatch(led.depot, led.identity.holder) if led is not None else None
        if self._candidates is not None:
            self._candidates.start()
        self._hearing = Hearing(leads=True)
        self._sweeper: StoreSweeper | None = None
        if self._config.store:
            self._sweeper = StoreSweeper(Depot(self._config.store, self._config.place_in_store, proof=""))
            self._sweeper.start()
        self._poller = zmq.Poller()
        self._ended = False
        self._status_due = 0.0

    def _begin(self) -> None:
        """Read the version of the job that is in its directory, and the decisions about it."""
        self._config = JobConfig.load(self._job)
        self._sync = self._config.durability == "os"
        self._journal, self._restored = self._opened_journal()
        self._supervise()

    def _supervise(self) -> None:
        """Begin as the supervisor of the version that is in the job directory."""
        self._supervision = Supervision(self._config, Blueprint.load(self._job))
        self._recorder = self._opened_recorder()
        self._effects: deque[tuple[int, Effect]] = deque()
        """(number of decisions, effect); each effect waits until that many decisions have been written."""
        self._decided = self._journal.written
        self._committing: CommitChange | None = None
        """The change that is being written to the shared store; meanwhile, nothing else is decided."""

    def _opened_recorder(self) -> Recorder | None:
        """Return the recorder of the version, if the job has a recording; it also runs while the job changes."""
        before = self._recorder
        if before is not None:
            before.close(over=self._config.record == OFF)
        if self._config.record == OFF:
            return None
        from standby.storage.recording import started_recorder  # most jobs do not need this module

        return started_recorder(self._job, self._config, self._supervision.assignments.tasks, before)

    def _record(self, epoch: int, files: Mapping[str, Files]) -> None:
        """Hand a complete checkpoint to the recorder, with the latest failures."""
        if self._recorder is None:
            return
        from standby.storage.recording import recent_failures

        at_ns = time.time_ns()
        failures = recent_failures(self._supervision.timeline, self._clock.now_ns(), at_ns)
        self._recorder.completed(epoch, files, at_ns, failures)

    def _commit(self, change: CommitChange) -> None:
        """Make the prepared change final, and begin again as the supervisor of the next version."""
        if not is_prepared(self._job):
            error = f"{self._job / CHANGE} does not contain a change"
            self._perform(Answer(change.to, {"kind": "answer", "ok": False, "error": error, "request": change.request}))
            return
        figures, at_ns = lasting(self._supervision.view().content()["tasks"]), self._clock.now_ns()
        resumed = {"kind": "resumed", "at_ns": at_ns, "figures": figures, "started_max": change.started_max}
        began_ns = self._supervision.figures.first_record_ns
        began = [{"kind": "first_record", "at_ns": began_ns}] if self._led is not None and began_ns else []
        records = [*began, resumed, *self._supervision.hosts.decisions(), *change.processes]
        decided = decide(self._job, records, self._sync)
        if isinstance(self._journal, StoreJournal):
            self._committing = change
            self._decided += 1
            self._effects.clear()  # what the previous version still had to do
            self._journal.change(decided, *version_of(self._job / CHANGE))
            return
        make_final(self._job, self._sync)
        self._journal.close()
        carry_out(self._job, self._sync)
        beats = self._supervision.next_version.beats
        self._begin()
        self._begun_as_next(change, beats)

    def _adopt(self, led: Led, gate: Gate, change: CommitChange) -> None:
        """Begin again as the supervisor of the next version, whose decisions are in the shared store."""
        adopt(self._job, led.ledger.records)
        beats = self._supervision.next_version.beats
        living = [host.name for host in self._supervision.hosts if host.living]
        self._config, self._restored = JobConfig.load(self._job), events.Restored(led.ledger.records)
        self._supervise()
        gate.description = description_of(self._job, self._config)
        for host in living:
            gate.order(host, version_order(self._job, self._config).message())
        self._begun_as_next(change, beats)

    def _begun_as_next(self, change: CommitChange, beats: Sequence[events.Beat]) -> None:
        _log.info("the job is its next version; %s", self._config.pipeline)
        self._step(self._restored)
        for beat in beats:
            self._step(beat)
        self._perform(Answer(change.to, {"kind": "answer", "ok": True, "request": change.request}))

    def _open_socket(self, runtime: str) -> None:
        for option, value in (
            (zmq.LINGER, LINGER_MS),
            (zmq.ROUTER_MANDATORY, 1),
            # A restarted agent takes over the connection of its predecessor, even before the end of that connection is
            # noticed.
            (zmq.ROUTER_HANDOVER, 1),
            (zmq.SNDHWM, SOCKET_QUEUE),
            (zmq.RCVHWM, SOCKET_QUEUE),
            (zmq.MAXMSGSIZE, MESSAGE_BYTES_MAX),
        ):
            self._socket.setsockopt(option, value)
        self._socket.bind(f"ipc://{runtime}/supervisor")

    def _opened_journal(self) -> tuple[Decisions, events.Restored]:
        if self._led is None:
            journal = JournalFile(self._job, self._sync)
            return journal, events.Restored(journal.records(), newest_manifest(self._job))
        ledger = self._led.ledger
        stored = StoreJournal(self._led.depot, ledger, self._clock.now_ns)
        begun(self._job)
        restore_manifest(self._job, ledger.records)  # commands read it here, also after another supervisor has led
        if not withdraws(ledger.records):
            (self._job / ROLLBACK).unlink(missing_ok=True)  # the rollback is complete
        return stored, events.Restored(ledger.records)

    def _opened_gate(self, led: Led) -> Gate:
        config, key = self._config, None
        if config.key:
            key = load_key(Path(config.key))
        rosters, description = rosters_of(config, self._job), description_of(self._job, config)
        return Gate(self._context, config.listen, key, rosters, description, led.term.number)

    def run(self) -> None:
        """Supervise until the job ends or a signal arrives.

        Raises:
            Fenced: another supervisor leads the job, or is about to lead it.
        """
        if self._led is not None and self._gate is not None:
            take_time(self._led, self._gate, self._inbox)
        for each in (self._socket, self._wake, *(self._gate.sockets() if self._gate is not None else ())):
            self._poller.register(each, zmq.POLLIN)
        if self._journal.wake is not None:
            self._poller.register(self._journal.wake, zmq.POLLIN)
        _log.info("supervises, after %d decisions; %s", len(self._restored.records), self._config.pipeline)
        self._step(self._restored)
        while not self._ended:
            due_s = min(self._until_deadline_s(), self._status_due - time.monotonic())
            ready = dict(self._poller.poll(max(0, math.ceil(due_s * 1e3))))
            if self._wake.fileno() in ready or self._wake in ready:
                break
            if self._journal.wake is not None:
                self._journal.check()
                self._release()
            self._drain()
            if self._gate is not None:
                self._attend_hosts(self._gate)
            if not self._ended and self._until_deadline_s() <= 0:
                self._step(events.Tick())
            if time.monotonic() >= self._status_due:
                self._write_status()
                self._leave_if_deaf()
        self._write_status()
        if self._gate is not None and not self._handed_over():
            self._dismiss(self._gate)

    def _until_deadline_s(self) -> float:
        """Return the time until the supervisor's logic is due; that of a version that is being replaced is not."""
        due_s = (self._supervision.next_deadline() - self._clock.now_ns()) / 1e9
        return due_s if self._committing is None else STATUS_S

    def _leave_if_deaf(self) -> None:
        """Leave the job to a candidate that hears hosts if this leader has not heard any for some time.

        Raises:
            Fenced: this supervisor has left the job to the candidate.
        """
        if self._ended or self._gate is None or self._candidates is None or not isinstance(self._journal, StoreJournal):
            return
        self._hearing.look(self._gate.heard, time.monotonic_ns())
        self._candidates.soon = not self._hearing.hears
        successor = self._candidates.hearing()
        if not self._hearing.leaves(self._config.host_timeout_ms * 1_000_000, successor is not None):
            return
        self._journal.leave(DEAF)
        self._led_here = False
        self._write_status()
        where = f"{successor.name or 'a supervisor'} at {successor.listen}" if successor is not None else "a candidate"
        raise Fenced(f"no host reaches this supervisor, but {where} hears some, so that supervisor leads")

    def _handed_over(self) -> bool:
        """Close the journal if this term ends before the job does; return whether the hosts should continue working."""
        led = self._led
        if self._ended or led is None or not isinstance(self._journal, StoreJournal):
            return False
        interrupted = signal.SIGINT in self._signals()
        if led.identity.successor or not interrupted and self._has_successor():
            closing = RESIGNED
        # `causal run` was killed, which does not mean that the job should stop.
        elif not interrupted and parent_ended(self._parent):
            _log.warning("the parent process was killed; the tasks keep running until the job is resumed")
            return True
        else:
            closing = STOPPED
        if not self._journal.leave(closing):
            _log.warning("the store does not answer; candidates will take over without knowing why")
        _log.info("%s as the leader of term %d", closing, led.term.number)
        if closing == RESIGNED:
            self._led_here = False
            self._write_status()
        return closing == RESIGNED

    def _signals(self) -> bytes:
        """Return the numbers of the received signals.  Ctrl-C ends the job; SIGTERM ends only this supervisor."""
        try:
            return self._wake.recv(4096)
        except BlockingIOError:
            return b""

    def _has_successor(self) -> bool:
        """Return whether another supervisor is waiting and can take over."""
        if self._candidates is None:
            return False
        self._candidates.look()
        return bool(self._candidates.shown())

    def _dismiss(self, gate: Gate) -> None:
        """Order every host to end, and wait briefly for each to confirm, because no later order would reach it."""
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
                elif not slot and isinstance(event := self._inbox.receive_from(host, "", data, None), events.HostLog):
                    self._host_logs.take(event.host, event.text)

    def _attend_hosts(self, gate: Gate) -> None:
        """Process handshakes, closed tethers and messages from other hosts."""
        gate.authenticator.serve()
        for host, session in gate.tethers.closed():
            self._step(events.HostClosed(host, session))
        for host, slot, data in gate.receive(DRAIN_MAX):
            name = slot.removesuffix(PULSE_SUFFIX)
            event = self._inbox.receive_from(host, slot, data, self._supervision.host_of(name))
            if isinstance(event, events.HostLog):
                self._host_logs.take(event.host, event.text)
                continue
            if slot and event is not None:
                self._route[name] = host
            if isinstance(event, events.AgentBeat):
                self._bring_up_to_date(gate, event)
            if event is not None:
                self._step(event)
            if self._ended:
                return

    def _bring_up_to_date(self, gate: Gate, beat: events.AgentBeat) -> None:
        """Send a host the roster and the version of the job, if its beat shows that it has earlier ones."""
        if beat.roster != gate.roster_mark:
            gate.order(beat.host, orders.Roster(gate.roster_text).message())
        other = beat.mark not in ("", self._supervision.mark) and self._committing is None
        if other and self._supervision.hosts.accepts(beat.host, beat.incarnation):
            gate.order(beat.host, version_order(self._job, self._config).message())

    def _look_at_roster(self) -> None:
        for name in self._gate.revoked() if self._gate is not None else ():
            _log.warning("the key of %s was revoked", name)
            self._step(events.HostClosed(name, ANY_SESSION, "its key was revoked"))

    def close(self) -> None:
        self._socket.close()
        if self._recorder is not None:
            self._recorder.close(RECORDED_S)
        if self._gate is not None:
            self._gate.close()
        if self._candidates is not None:
            self._candidates.close()
        self._context.term()  # waits no longer than the sockets' linger time
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
        if self._committing is not None:
            return  # this version decides nothing more; whatever has happened is repeated to the next one
        effects = self._supervision.handle(event, self._clock.now_ns())
        decided = [effect.record for effect in effects if isinstance(effect, Journal)]
        self._journal.append(decided)
        self._decided += len(decided)
        if self._recorder is not None and (
            isinstance(event, events.Restored) or any(each["kind"] == "checkpoint" for each in decided)
        ):
            coordinator = self._supervision.coordinator
            self._effects.append((self._decided, RecordEpoch(coordinator.complete, coordinator.files)))
        for effect in effects[len(decided) :]:
            if len(self._effects) < HELD_MAX or isinstance(effect, (WriteManifest, RemoveFiles, EndJob)):
                self._effects.append((self._decided, effect))
        lines = [line_of(record) for record in decided]  # log lines come last, because no process waits for them
        self._effects.extend((self._decided, Note(line)) for line in lines if line is not None)
        self._release()

    def _release(self) -> None:
        """Perform, in order, the effects whose decisions have been written."""
        while self._effects and self._effects[0][0] <= self._journal.written:
            self._perform(self._effects.popleft()[1])
        change, led, gate = self._committing, self._led, self._gate
        if change is not None and led is not None and gate is not None and self._decided <= self._journal.written:
            self._adopt(led, gate, change)

    def _perform(self, effect: Effect) -> None:
        match effect:
            case Send(slot, message):
                self._send_to(slot, message)
            case SendHost(host, message):
                if self._gate is not None:
                    self._gate.order(host, message)
            case StartProcess(slot, role, host):
                self._route[slot] = host
                self._order_start(slot, role, host)
            case KillProcess(slot, host):
                self._order(host or self._route.get(slot, ""), orders.Kill(slot))
            case WriteManifest(epoch, files):
                self._write_manifest(epoch, files)
            case RemoveFiles():
                sweep(self._job, effect)
                if self._sweeper is not None:
                    self._sweeper.take(effect)
            case RecordEpoch(epoch, files):
                self._record(epoch, files)
            case Answer(to, body):
                data = encode(dict(body))
                if len(data) > MESSAGE_BYTES_MAX:
                    data = encode({"kind": "answer", "ok": False, "error": "too long for a message; read status.json"})
                self._send(to.encode(), data)
            case CommitChange():
                self._commit(effect)
            case Note(line):
                _log.info("%s", line)
            case EndJob(status, reason):
                _log.info("the job ends with status %d: %s", status, reason or "all sinks have finished")
                self._ended = True

    def _write_manifest(self, epoch: int, files: Any) -> None:
        # The manifest is deliberately written inline, because a promotion would have to wait for the outcome anyway.
        try:
            write_manifest(self._job, epoch, files, self._sync)
        except Unavailable as problem:
            self._step(events.ManifestFailed(epoch, str(problem)))
        else:
            self._step(events.ManifestWritten(epoch))

    def _order_start(self, slot: str, role: str, host: str) -> None:
        if self._gate is None:
            self._order(host, orders.Start(slot, role))
            return
        try:
            self._order(host, start_order(self._job, slot, role, self._supervision.mark))
        except CausalError as problem:  # the change ends, because its command is silent
            _log.warning("%s cannot be started for the next version: %s", slot, problem)

    def _order(self, host: str, order: orders.Order) -> None:
        """Send an order to an agent, in sequence.  Orders for the agent on this machine wait until it has connected."""
        if self._gate is not None:
            # A lost order is repeated once the beats show that it had no effect.
            self._gate.order(host, order.message())
            return
        self._for_agent.append(encode(order.message()))
        self._flush_to_agent()

    def _send_to(self, slot: str, message: Mapping[str, object]) -> None:
        if self._gate is None:
            self._send(slot.encode(), encode(dict(message)))
        elif slot in self._route:
            self._gate.send(self._route[slot], slot, message)

    def _flush_to_agent(self) -> None:
        while self._for_agent and self._send(AGENT.encode(), self._for_agent[0]):
            self._for_agent.popleft()

    def _send(self, to: bytes, data: bytes) -> bool:
        """Send a message and return whether it could be sent.  If not, it is repeated when the beats show that it is
        missing.
        """
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
        known = self._supervision.host_of
        self._route = {slot: host for slot, host in self._route.items() if known(slot) is not None}
        led, sweeper = self._led, self._sweeper
        view = replace(
            self._supervision.view(),
            supervisor_pid=os.getpid(),
            dropped_messages=self._inbox.dropped,
            refused_connections=self._gate.refused_connections if self._gate is not None else None,
            leader=leader_shown(led.term, self._led_here) if led is not None else None,
            candidates=(self._candidates.shown() if self._candidates is not None else []) if led is not None else None,
            decisions_wait=self._journal.problem or None if led is not None else None,
            store_problem=sweeper.problem or None if sweeper is not None else None,
            recording=self._recorder.shown if self._recorder is not None else None,
        )
        write_status(self._job, view)


def main(argv: list[str]) -> int:
    """Run the supervisor of one job.

    Returns: 0 if the job has ended or SIGTERM arrived, 2 for an error that would recur after a restart, otherwise 1.
    """
    if len(argv) != 1:
        print("usage: python -m standby.daemon JOB_DIRECTORY", file=sys.stderr)
        return 2
    die_with_parent()
    parent = os.getppid()
    raise_limit()
    job = Path(argv[0]).resolve()
    processlog.begin(job / "logs" / "supervisor.log", lambda: "supervisor")
    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, lambda number, frame: None)
    with woken_by_signals() as wake:
        return _served(job, parent, wake)


def _served(job: Path, parent: int, wake: socket.socket) -> int:
    try:
        config = JobConfig.load(job)
        led = None
        if config.listen:
            election = Election(job, config, wake)
            led = election.run()
            if led is None:
                return STATUS_NEWER if election.newer else 0
        daemon = Daemon(job, parent, wake, led)
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
