"""Ways to break the protocol on purpose, one rule each: what the checkers are worth is what they find of these."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import causal.channels.receiver
import causal.task.inquiry
from causal.channels import wire
from causal.channels.exchange import Exchange
from causal.channels.receiver import Receiver
from causal.channels.rolling import RollingDigest
from causal.channels.sender import Sender
from causal.channels.sink_channel import SinkChannel
from causal.channels.states import ReceiverState, ReceiverStep
from causal.cut import Cut
from causal.determinants import Clock, Timer
from causal.errors import PeerViolation
from causal.inflight import InflightLog
from causal.logs.dissemination import Holdings
from causal.logs.log import DeterminantLog
from causal.records.batch import BARRIER, LISTED, RECORDS
from causal.task.checkpointing import Checkpointing
from causal.task.determinant_cursor import DeterminantCursor
from causal.task.execution import Execution
from causal.task.picking import ByContent
from causal.task.row_writing import RowWriting
from causal.task.schedule import Schedule, ScheduledEvent
from causal.task.services import CausalServices
from causal.task.step import Step
from operators.sinks.contract.account import Account
from standby.supervision.assignments import Assignments
from standby.supervision.checkpoints import Coordinator
from standby.supervision.effects import Journal, Outbox
from tests.simulation import (
    sabotage_changes,
    sabotage_effects,
    sabotage_hosts,
    sabotage_hot,
    sabotage_requests,
    sabotage_shell,
    sabotage_stable,
    sabotage_staging,
)
from tests.simulation.breaking import SABOTAGES, Patches, found_by, sabotaged

__all__ = ["SABOTAGES", "sabotaged"]

OTHERS = (
    sabotage_changes, sabotage_effects, sabotage_hosts, sabotage_hot, sabotage_requests, sabotage_shell,
    sabotage_stable, sabotage_staging,
)  # fmt: skip
"""The modules that break rules of other parts."""


@found_by(1)
def _skip_a_delta() -> Patches:
    """Logs of ancestors are not passed on."""
    lacking = Holdings.lacking

    def own_only(self: Holdings, seen: Any, store: bool = False) -> Any:
        deltas, depends = lacking(self, seen, store)
        return [delta for delta in deltas if delta.task == self.task], depends

    return {(Holdings, "lacking"): own_only}


@found_by(2)
def _deliver_before_storing() -> Patches:
    """The deltas of a frame are stored when the next one comes."""
    merge = Holdings.merge

    def late(self: Any, deltas: Any, extents: Any = ()) -> None:
        waiting, self.__dict__["late"] = self.__dict__.get("late", []), list(deltas)
        merge(self, waiting)

    return {(Holdings, "merge"): late}


@found_by(0)
def _truncate_determinants_early() -> Patches:
    truncate = Holdings.truncate
    return {(Holdings, "truncate"): lambda self, epoch: truncate(self, epoch + 1)}


@found_by(1)
def _stores_truncate_early() -> Patches:
    """A store forgets determinants that no complete checkpoint covers."""
    truncate = Account.truncate
    return {(Account, "truncate"): lambda self, epoch: truncate(self, epoch + 1)}


@found_by(1)
def _truncate_in_flight_early() -> Patches:
    truncate = InflightLog.truncate
    return {(InflightLog, "truncate"): lambda self, epoch: truncate(self, epoch + 1)}


@found_by(59)
def _no_fence_between_tasks() -> Patches:
    """Every frame counts as one of the incarnation that is known."""
    receive = Exchange.receive

    def taken(self: Exchange, link: bytes, parts: Any, replaying: bool, now_ns: int) -> Any:
        header = _data_header(self, parts)
        channel = self.inputs.get(header.channel) if header is not None else None
        if header is not None and channel is not None:
            header.incarnation = channel.peer_incarnation
            if not channel.follows(header.session, header.sequence) and header.position <= channel.next:
                channel.next_frame = (header.session, header.sequence)
            parts = [header.pack(), *parts[1:]]
        return receive(self, link, parts, replaying, now_ns)

    return {(Exchange, "receive"): taken}


def _data_header(exchange: Exchange, parts: Any) -> Any:
    """Returns the header of a frame, if it is DATA."""
    try:
        header = wire.read_header(parts, exchange.job)
    except PeerViolation:
        return None
    return header if header.kind == wire.DATA else None


@found_by(118)
def _no_fence_at_the_store() -> Patches:
    return {(Account, "fence"): lambda self, run, incarnation: None}


@found_by(2)
def _trust_a_shorter_log() -> Patches:
    """A recovering task receives half of the held part of its log."""
    logs_for = Holdings.logs_for

    def half(self: Holdings, asker: Any, depends: Any) -> Any:
        deltas = logs_for(self, asker, depends)
        return [delta._replace(bytes=delta.bytes[: len(delta.bytes) // 2]) for delta in deltas]

    return {(Holdings, "logs_for"): half}


@found_by(36)
def _no_digest() -> Patches:
    def believed(self: RollingDigest, packed: Any, expected: int) -> bool:
        self.feed(packed)
        return True

    return {
        (RollingDigest, "feed_if"): believed,
        (Sender, "_check_known"): lambda self, place, expected: None,
        (Sender, "_compare"): _as_if_equal,
        (SinkChannel, "_compare"): lambda self: None,
    }


def _as_if_equal(self: Any) -> None:
    self._regenerated()


@found_by(2)
def _count_a_batch_twice() -> Patches:
    """A task that has come to the end of its log performs the last batch once more."""
    take, go_live = Receiver.take, Execution._go_live

    def remembered(self: Receiver, count: int) -> Any:
        taken = take(self, count)
        self.__dict__["last"] = taken
        return taken

    def again(self: Execution, effects: Any, now_ns: int) -> None:
        go_live(self, effects, now_ns)
        step = self.step
        for channel in step._inputs:
            last = channel.__dict__.get("last")
            if last and last[0].kind in (RECORDS, LISTED):
                step._emit(self.chain.deliver(channel.ordinal, last, channel.delivered, step._services))

    return {(Receiver, "take"): remembered, (Execution, "_go_live"): again}


@found_by(2)
def _write_rows_again() -> Patches:
    """A sink does not look at what its store has."""
    opened = SinkChannel.open

    def forgetful(self: SinkChannel, state: Any, aligned: bool) -> None:
        opened(self, replace(state, next=max(self.position, 0), digest=self.digest), aligned)

    return {(SinkChannel, "open"): forgetful}


@found_by(52)
def _answer_while_collecting() -> Patches:
    """A receiver is open as soon as its sender is announced."""
    opened = {ReceiverStep.ANNOUNCED: ReceiverState.OPEN, ReceiverStep.COLLECTED: ReceiverState.OPEN}
    return {(causal.channels.receiver, "RECEIVER"): dict.fromkeys(ReceiverState, opened)}


@found_by(1)
def _no_alignment() -> Patches:
    """Elements after a barrier are delivered before it has come on all inputs."""
    head_count = Receiver.head_count

    def unblocked(self: Receiver, elements_max: int, bytes_max: int, cutting: bool = False) -> int:
        blocked, self.blocked = self.blocked, False
        count = head_count(self, elements_max, bytes_max, cutting)
        self.blocked = blocked
        head = self._queue[0] if self._queue else None
        return 0 if blocked and head is not None and head.kind == BARRIER else count

    return {(Receiver, "head_count"): unblocked}


@found_by(0)
def _complete_with_one_missing() -> Patches:
    """A checkpoint counts as complete when all tasks but one have acknowledged it."""
    reported = Coordinator.snapshot_reported

    def hasty(self: Any, task: str, epoch: int, files: Any, now_ns: int, outbox: Any) -> None:
        absent = sorted(set(self._assignments.tasks) - {*self._acks, task})
        if len(absent) == 1 and self.under_way == epoch and not self.writing:
            self._acks[absent[0]] = self.files.get(absent[0], ())
        reported(self, task, epoch, files, now_ns, outbox)

    return {(Coordinator, "snapshot_reported"): hasty}


@found_by(0)
def _snapshot_of_what_waits() -> Patches:
    """The cut says that elements were delivered that only wait in a queue."""
    freeze = Checkpointing.freeze

    def wrong(self: Checkpointing, cut: Cut) -> None:
        inputs = {channel: (where[0] + 1, *where[1:]) for channel, where in cut.inputs.items()}
        freeze(self, replace(cut, inputs=inputs))

    return {(Checkpointing, "freeze"): wrong}


@found_by(0)
def _clock_is_not_logged() -> Patches:
    record = DeterminantCursor.record
    return {
        (DeterminantCursor, "record"): lambda self, determinant: (
            None if type(determinant) is Clock else record(self, determinant)
        )
    }


@found_by(2)
def _timers_do_not_fire_in_a_replay() -> Patches:
    perform = Step.perform

    def skipping(self: Step, event: ScheduledEvent, effects: Any) -> None:
        if not (type(event) is Timer and self._services.replaying()):
            perform(self, event, effects)

    return {(Step, "perform"): skipping}


@found_by(10)
def _ask_the_world_again() -> Patches:
    """A call runs again in a replay, and its new answer counts."""
    call = CausalServices.call

    def asking_again(self: CausalServices, ask: Callable[[], bytes]) -> bytes:
        answer = call(self, ask)
        return ask() if self._cursor.replaying else answer

    return {(CausalServices, "call"): asking_again}


@found_by(1)
def _store_without_determinants() -> Patches:
    return {(Account, "merge"): lambda self, deltas: ()}


@found_by(15, endless=True)
def _forget_in_flight() -> Patches:
    """Elements that a peer asks for again are not sent again."""
    welcome = Sender.welcome

    def onward(self: Sender, message: Any, replaying: bool, now_ns: int) -> bool:
        news = welcome(self, message, replaying, now_ns)
        if news and self.expected is None:
            self.cursor = self.log.end_place
        return news

    return {(Sender, "welcome"): onward}


@found_by(18)
def _frames_over_barriers() -> Patches:
    """Frames that are sent again do not end where an epoch ends."""
    frame_at = InflightLog.frame_at

    def over(self: InflightLog, place: int, bytes_max: int) -> Any:
        frame = frame_at(self, place, bytes_max)
        if frame.payload is not None and frame.next < self.end:
            behind = self.at(self.place_of(frame.next) or 0)
            if behind.epoch > frame.epoch and behind.payload is not None:
                payload = bytes(frame.payload) + bytes(behind.payload)
                count = frame.count + behind.count
                return replace(frame, count=count, payload=payload, size=len(payload), digest=behind.digest)
        return frame

    return {(InflightLog, "frame_at"): over}


@found_by(18)
def _ignore_gaps() -> Patches:
    """A frame that comes after a lost one is taken as if it came next."""
    accept, receive = Receiver.accept, Exchange.receive

    def onward(self: Receiver, header: Any, payload: Any) -> bool:
        if self.__dict__.pop("gap", False):
            header.digest = self._digest.copy().feed(payload)
        return accept(self, header, payload)

    def taken(self: Exchange, link: bytes, parts: Any, replaying: bool, now_ns: int) -> Any:
        header = _data_header(self, parts)
        channel = self.inputs.get(header.channel) if header is not None else None
        if channel is not None and header.incarnation == channel.peer_incarnation and header.position > channel.next:
            header.position = channel.next
            channel.next_frame = (header.session, header.sequence)
            channel.__dict__["gap"] = True
            parts = [header.pack(), *parts[1:]]
        return receive(self, link, parts, replaying, now_ns)

    return {(Receiver, "accept"): onward, (Exchange, "receive"): taken}


@found_by(1)
def _determinants_one_frame_late() -> Patches:
    """The last byte of the own log waits for the next frame."""
    deltas = DeterminantLog.deltas

    def late(self: DeterminantLog, beyond: Any, limits: Any = None) -> Any:
        all_deltas = deltas(self, beyond, limits)
        if all_deltas and beyond:
            all_deltas[-1] = all_deltas[-1]._replace(bytes=all_deltas[-1].bytes[:-1])
        return all_deltas

    return {(DeterminantLog, "deltas"): late}


@found_by(0)
def _amnesia() -> Patches:
    """Promotions are not journaled."""
    take = Outbox.take

    def unwritten(self: Outbox) -> Any:
        effects = take(self)
        return [e for e in effects if not (isinstance(e, Journal) and e.record["kind"] == "promoted")]

    return {(Outbox, "take"): unwritten}


@found_by(0)
def _same_incarnation() -> Patches:
    """A promoted standby takes the number of the one it replaces."""
    apply = Assignments.apply

    def stuck(self: Assignments, record: Any) -> None:
        if record["kind"] == "promoted" and record["incarnation"] > 1:
            record["incarnation"] = 1
        apply(self, record)

    return {(Assignments, "apply"): stuck}


@found_by(5)
def _forget_dependencies() -> Patches:
    return {(Holdings, "depend"): lambda self, extents: None}


@found_by(None)
def _orphans_stay() -> Patches:
    return {(causal.task.inquiry, "beyond"): lambda depends, lost: None}


@found_by(None)
def _rows_stay() -> Patches:
    return {(SinkChannel, "orphaned"): lambda self, state, rollback: None}


@found_by(0)
def _ordered_by_arrival() -> Patches:
    """An ordered task takes what has come, and logs nothing, as usual."""
    ruled = ByContent.ruled

    def arrived(self: ByContent, full: bool) -> Any:
        there = [each for each in self._inputs if each.head_chunk_count and not full]
        return (there[0], there[0].head_chunk_count) if there else ruled(self, full)

    return {(ByContent, "ruled"): arrived}


@found_by(0)
def _runs_are_not_reported() -> Patches:
    """A replay of an ordered task does not hear where something else could have come."""

    def silent(self: DeterminantCursor) -> None:
        self._ruled = 0

    return {(DeterminantCursor, "log_run"): silent}


@found_by(8)
def _answers_count_twice() -> Patches:
    """An answer that no request waits for any more is performed."""

    return {(RowWriting, "answered"): lambda self, operator, number: True}


@found_by(19, endless=True)
def _nothing_is_asked_again() -> Patches:
    """A task that goes live does not ask again what its predecessor got no answer to."""
    go_live = Execution._go_live

    def forgetful(self: Execution, effects: list[Any], now_ns: int) -> None:
        go_live(self, effects, now_ns)
        self.writing._unsent = []

    return {(Execution, "_go_live"): forgetful}


@found_by(14, endless=True)
def _sources_hold_for_ever() -> Patches:
    """A source that holds back records does not resume when the checkpoint that it waits for is complete."""
    return {(Schedule, "checkpoint_completed"): lambda self, epoch: None}


@found_by(14, endless=True)
def _the_source_that_holds_passes_no_barrier() -> Patches:
    """A source that holds back records performs nothing at all."""
    live = Schedule._live
    return {(Schedule, "_live"): lambda self: None if self.holding else live(self)}


@found_by(None)
def _rest_in_spite_of_events() -> Patches:
    """A task that performs something after a barrier still reports that it has performed nothing."""
    emit = Step._emit

    def unnoticed(self: Step, outputs: Any) -> None:
        before = self.unchanged
        emit(self, outputs)
        self.unchanged = before

    return {(Step, "_emit"): unnoticed}
