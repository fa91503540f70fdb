"""Ways to break the protocol on purpose, each with a tiny job that must find it: what the invariants are worth.

A sabotage changes one rule of the code under test while it is in force, and nothing of what watches it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any
from unittest.mock import patch

from causal.channels import receiver as receiver_module
from causal.channels import wire
from causal.channels.exchange import Exchange
from causal.channels.receiver import Receiver
from causal.channels.rolling import RollingDigest
from causal.channels.sender import Sender
from causal.channels.sink_channel import SinkChannel
from causal.channels.states import ReceiverState, ReceiverStep
from causal.events import Turn
from causal.inflight import InflightLog
from causal.logs.dissemination import Holdings, Seen
from causal.logs.log import DeterminantLog, LogDelta
from causal.task import task as task_module
from causal.task.determinant_cursor import DeterminantCursor
from causal.task.task import TaskProtocol
from operators.sinks.contract.account import Account
from tests.exhaustive.world import Job
from tests.exhaustive.worlds import CHAIN, PAIR, TRIANGLE

Change = tuple[Any, str, Any]
"""(owner, name, what stands there instead)."""


@dataclass(frozen=True)
class Sabotage:
    """A broken rule, the job that must find it, and how it must show.

    Attributes:
        shows: a word of the breach that is found first.
        choices: a shortest path to it, as `Exploration.follow` takes it, where a search takes long.
    """

    name: str
    what: str
    job: Job
    shows: str
    changes: Callable[[], Sequence[Change]]
    choices: tuple[int, ...] = ()


@contextmanager
def in_force(sabotage: Sabotage) -> Iterator[None]:
    """Break the rule while the context lasts."""
    patches = [patch.object(owner, name, instead) for owner, name, instead in sabotage.changes()]
    for each in patches:
        each.start()
    try:
        yield
    finally:
        for each in patches:
            each.stop()


def _stored_late() -> Sequence[Change]:
    def take(self: Exchange, channel: Receiver, header: wire.Header, parts: list[bytes]) -> None:
        deltas, depends = channel.deltas.read(parts[1], begins=not header.sequence)
        self.holdings.merge(channel.ahead)
        channel.ahead = list(deltas)
        position = max(header.position, channel.next)
        channel.accept(header, wire.unpack_payload(header, parts[2]))
        channel.note_depends(position, depends)
        channel.followed(header.session, header.sequence)

    return [(Exchange, "_take", take)]


def _unfenced_store() -> Sequence[Change]:
    def fence(self: Account, run: str, incarnation: int) -> None:
        return None

    return [(Account, "fence", fence)]


def _frames_truncated_early() -> Sequence[Change]:
    rule = InflightLog.truncate
    return [(InflightLog, "truncate", lambda self, epoch: rule(self, epoch + 1))]


def _determinants_truncated_early() -> Sequence[Change]:
    rule = DeterminantLog.truncate
    return [(DeterminantLog, "truncate", lambda self, epoch: rule(self, epoch + 1))]


def _answers_while_collecting() -> Sequence[Change]:
    opened = {ReceiverStep.ANNOUNCED: ReceiverState.OPEN, ReceiverStep.COLLECTED: ReceiverState.OPEN}
    return [(receiver_module, "RECEIVER", dict.fromkeys(ReceiverState, opened))]


def _begins_after_one_answer() -> Sequence[Change]:
    rule = TaskProtocol._collected

    def collected(self: TaskProtocol, now_ns: int) -> Any:
        outputs = self.channels.downstream
        heard = {channel: output for channel, output in outputs.items() if output.welcomed}
        self.channels.downstream = heard or outputs
        try:
            return rule(self, now_ns)
        finally:
            self.channels.downstream = outputs

    return [(TaskProtocol, "_collected", collected)]


def _digest_skipped() -> Sequence[Change]:
    def feed(self: RollingDigest, packed: bytes, expected: int) -> bool:
        self.feed(packed)
        return True

    def compared(self: Sender) -> None:
        self._regenerated()

    def nothing(self: Any, *args: Any) -> None:
        return None

    return [
        (RollingDigest, "feed_if", feed),
        (Sender, "_compare", compared),
        (Sender, "_check_known", nothing),
        (SinkChannel, "_compare", nothing),
    ]


def _last_delta_skipped() -> Sequence[Change]:
    rule = Holdings.lacking

    def lacking(self: Holdings, seen: Seen, store: bool = False) -> tuple[list[LogDelta], list[Any]]:
        deltas, depends = rule(self, seen, store)
        return ([] if self.own.grown > 40 else deltas), depends

    return [(Holdings, "lacking", lacking)]


def _store_hears_of_own_log_alone() -> Sequence[Change]:
    rule = Holdings.lacking

    def lacking(self: Holdings, seen: Seen, store: bool = False) -> tuple[list[LogDelta], list[Any]]:
        deltas, depends = rule(self, seen, store)
        return [delta for delta in deltas if not store or delta.task == self.task], depends

    return [(Holdings, "lacking", lacking)]


def _gaps_by_position_alone() -> Sequence[Change]:
    return [(Receiver, "follows", lambda self, session, sequence: True)]


def _orders_not_logged() -> Sequence[Change]:
    return [(DeterminantCursor, "record_order", lambda self, input, count: None)]


def _sleeps_on_work() -> Sequence[Change]:
    rule = TaskProtocol._turn

    def turn(self: TaskProtocol, event: Any, now_ns: int) -> Any:
        effects = rule(self, event, now_ns)
        self.idle = True
        return effects

    return [(task_module, "_HANDLERS", {**task_module._HANDLERS, Turn: turn})]


def _cursor_not_set_back() -> Sequence[Change]:
    rule = Sender.welcome

    def welcome(self: Sender, message: wire.Welcome, replaying: bool, now_ns: int) -> bool:
        before = self.cursor
        news = rule(self, message, replaying, now_ns)
        self.cursor = max(self.cursor, before)
        return news

    return [(Sender, "welcome", welcome)]


SABOTAGES = {
    sabotage.name: sabotage
    for sabotage in (
        Sabotage(
            "stored-late", "a delta is stored when the next frame comes, behind the delivery of its elements",
            Job("pair", PAIR, records=1), "no orphans", _stored_late,
        ),
        Sabotage(
            "unfenced-store", "a store takes bundles of any incarnation",
            Job("pair with zombies", PAIR, records=1, zombies=True), "one writer", _unfenced_store,
        ),
        Sabotage(
            "frames-truncated-early", "a complete checkpoint drops frames of the next epoch, too",
            Job("pair with a checkpoint", PAIR, records=1, crashes=0, asks=1), "truncation", _frames_truncated_early,
        ),
        Sabotage(
            "determinants-truncated-early", "a complete checkpoint drops determinants of the next epoch, too",
            Job("pair with a checkpoint", PAIR, records=1, crashes=0, asks=1), "truncation",
            _determinants_truncated_early,
        ),
        Sabotage(
            "answers-while-collecting", "a task that has not collected yet sends its WELCOME",
            Job("chain, two crashes", CHAIN, records=1, crashes=2), "prefix", _answers_while_collecting,
            (0, 0, 0, 0, 0, 0, 0, 1, 0, 2, 1, 5, 2, 0, 0, 1, 1),
        ),
        Sabotage(
            "begins-after-one-answer", "a task replays when the first neighbour downstream has answered",
            Job("triangle", TRIANGLE, records=1), "in flight", _begins_after_one_answer,
            (0, 1, 1, 1, 1, 1, 0, 4, 3, 1, 1, 1),
        ),
        Sabotage(
            "digest-skipped", "digests are not compared, and an operator is nondeterministic behind our back",
            Job("betrayed chain", CHAIN, records=2, betrays=1), "contradict", _digest_skipped,
            (0, 0, 0, 0, 0, 0, 0, 0, 2, 1, 4, 2, 0, 0, 0, 0, 0, 1, 1, 0, 1),
        ),
        Sabotage(
            "delta-skipped", "what a log has grown by beyond forty bytes is not sent",
            Job("pair", PAIR, records=2), "no orphans", _last_delta_skipped,
        ),
        Sabotage(
            "store-hears-of-own-log", "a bundle carries the sink's determinants and not those of its ancestors",
            Job("pair", PAIR, records=1), "no orphans", _store_hears_of_own_log_alone,
        ),
        Sabotage(
            "gaps-by-position", "a gap in the frames is seen by positions alone",
            # A barrier, because repeated elements joins the frames of one epoch.
            Job("pair, frames are lost", PAIR, records=1, crashes=0, losses=2, hurries=1, asks=1), "no orphans",
            _gaps_by_position_alone,
            (0, 3, 3, 1, 0, 0, 1, 0, 1, 1, 1, 2, 2, 5, 5, 0, 1),
        ),
        Sabotage(
            "orders-not-logged", "the order of deliveries is not logged",
            Job("pair", PAIR, records=1), "ReplayDivergence", _orders_not_logged,
        ),
        Sabotage(
            "sleeps-on-work", "a task says that it has nothing to do",
            Job("pair", PAIR, records=1, crashes=0), "idle", _sleeps_on_work,
        ),
        Sabotage(
            "cursor-not-set-back", "a WELCOME does not set the send cursor back",
            Job("pair", PAIR, records=1), "liveness", _cursor_not_set_back,
        ),
    )
}  # fmt: skip
