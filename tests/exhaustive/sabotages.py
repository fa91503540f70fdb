"""Ways to break the protocol on purpose, each with a tiny job that must find it: what the invariants are worth.

A sabotage changes one rule of the code under test while it is in force, and nothing of what watches it.
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import AbstractContextManager
from dataclasses import dataclass
from typing import Any

from causal.channels import wire
from causal.channels.exchange import Exchange
from causal.channels.receiver import Receiver
from causal.channels.sender import Sender
from causal.events import Turn
from causal.logs.dissemination import Holdings, Seen
from causal.logs.log import DeterminantLog, LogDelta
from causal.task import task as task_module
from causal.task.determinant_cursor import DeterminantCursor
from causal.task.task import TaskProtocol
from tests.exhaustive.world import Job
from tests.exhaustive.worlds import CHAIN, PAIR, TRIANGLE
from tests.simulation.breaking import Patches, replaced
from tests.simulation.sabotage import SABOTAGES as SIMULATED


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
    patches: Callable[[], Patches]
    choices: tuple[int, ...] = ()


def in_force(sabotage: Sabotage) -> AbstractContextManager[None]:
    """Break the rule while the context lasts."""
    return replaced(sabotage.patches())


def broken(name: str) -> Callable[[], Patches]:
    """Return how the simulator breaks a rule."""
    return SIMULATED[name].patches


def _stored_late() -> Patches:
    def take(self: Exchange, channel: Receiver, header: wire.Header, parts: list[bytes]) -> None:
        deltas, depends = channel.deltas.read(parts[1], begins=not header.sequence)
        self.holdings.merge(channel.ahead)
        channel.ahead = list(deltas)
        position = max(header.position, channel.next)
        channel.accept(header, wire.unpack_payload(header, parts[2]))
        channel.note_depends(position, depends)
        channel.followed(header.session, header.sequence)

    return {(Exchange, "_take"): take}


def _determinants_truncated_early() -> Patches:
    rule = DeterminantLog.truncate
    return {(DeterminantLog, "truncate"): lambda self, epoch: rule(self, epoch + 1)}


def _begins_after_one_answer() -> Patches:
    rule = TaskProtocol._collected

    def collected(self: TaskProtocol, now_ns: int) -> Any:
        outputs = self.channels.downstream
        heard = {channel: output for channel, output in outputs.items() if output.welcomed}
        self.channels.downstream = heard or outputs
        try:
            return rule(self, now_ns)
        finally:
            self.channels.downstream = outputs

    return {(TaskProtocol, "_collected"): collected}


def _last_delta_skipped() -> Patches:
    rule = Holdings.lacking

    def lacking(self: Holdings, seen: Seen, store: bool = False) -> tuple[list[LogDelta], list[Any]]:
        deltas, depends = rule(self, seen, store)
        return ([] if self.own.grown > 40 else deltas), depends

    return {(Holdings, "lacking"): lacking}


def _store_hears_of_own_log_alone() -> Patches:
    rule = Holdings.lacking

    def lacking(self: Holdings, seen: Seen, store: bool = False) -> tuple[list[LogDelta], list[Any]]:
        deltas, depends = rule(self, seen, store)
        return [delta for delta in deltas if not store or delta.task == self.task], depends

    return {(Holdings, "lacking"): lacking}


def _gaps_by_position_alone() -> Patches:
    return {(Receiver, "follows"): lambda self, session, sequence: True}


def _orders_not_logged() -> Patches:
    return {(DeterminantCursor, "record_order"): lambda self, input, count: None}


def _sleeps_on_work() -> Patches:
    rule = TaskProtocol._turn

    def turn(self: TaskProtocol, event: Any, now_ns: int) -> Any:
        effects = rule(self, event, now_ns)
        self.idle = True
        return effects

    return {(task_module, "_HANDLERS"): {**task_module._HANDLERS, Turn: turn}}


def _cursor_not_set_back() -> Patches:
    rule = Sender.welcome

    def welcome(self: Sender, message: wire.Welcome, replaying: bool, now_ns: int) -> bool:
        before = self.cursor
        news = rule(self, message, replaying, now_ns)
        self.cursor = max(self.cursor, before)
        return news

    return {(Sender, "welcome"): welcome}


SABOTAGES = {
    sabotage.name: sabotage
    for sabotage in (
        Sabotage(
            "stored-late", "a delta is stored when the next frame comes, behind the delivery of its elements",
            Job("pair", PAIR, records=1), "no orphans", _stored_late,
        ),
        Sabotage(
            "unfenced-store", "a store takes bundles of any incarnation",
            Job("pair with zombies", PAIR, records=1, zombies=True), "one writer", broken("no-fence-at-the-store"),
        ),
        Sabotage(
            "frames-truncated-early", "a complete checkpoint drops frames of the next epoch, too",
            Job("pair with a checkpoint", PAIR, records=1, crashes=0, asks=1), "truncation",
            broken("truncate-in-flight-early"),
        ),
        Sabotage(
            "determinants-truncated-early", "a complete checkpoint drops determinants of the next epoch, too",
            Job("pair with a checkpoint", PAIR, records=1, crashes=0, asks=1), "truncation",
            _determinants_truncated_early,
        ),
        Sabotage(
            "answers-while-collecting", "a task that has not collected yet sends its WELCOME",
            Job("chain, two crashes", CHAIN, records=1, crashes=2), "prefix",
            broken("answer-while-collecting"),
            (0, 0, 0, 0, 0, 0, 0, 1, 0, 2, 1, 5, 2, 0, 0, 1, 1),
        ),
        Sabotage(
            "begins-after-one-answer", "a task replays when the first neighbour downstream has answered",
            Job("triangle", TRIANGLE, records=1), "in flight", _begins_after_one_answer,
            (0, 1, 1, 1, 1, 1, 0, 4, 3, 1, 1, 1),
        ),
        Sabotage(
            "digest-skipped", "digests are not compared, and an operator is nondeterministic behind our back",
            Job("betrayed chain", CHAIN, records=2, betrays=1), "contradict", broken("no-digest"),
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
