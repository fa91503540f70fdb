"""Both ends of a session against random frames and reports of the supervisor, in every state, legal or not.

Only transitions of the tables occur, nothing but the supervisor changes which incarnation is announced, a frame that is
dropped is counted and changes nothing, and no frame stops the task with an error that is not promised.
"""

from __future__ import annotations

from typing import Any
from unittest import mock

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from causal.channels import receiver as receiver_module
from causal.channels import sender as sender_module
from causal.channels import wire
from causal.channels.frames import FRAMES, Refusal
from causal.channels.rolling import RollingDigest
from causal.channels.states import RECEIVER, SENDER, SenderState, transition
from causal.channels.wire import Header
from causal.errors import DeterminantsLost, Fenced, ReplayDivergence
from causal.logs.deltas import pack_deltas
from causal.records import batch
from causal.records.batch import Chunk, encode_records, pack_chunks
from tests.exhaustive.frozen import canonical
from tests.unit.causal.middle import ANNOUNCED, DOWNSTREAM, JOB, LINK, UPSTREAM, Middle

STOPPED = (Fenced, ReplayDivergence, DeterminantsLost)
"""The errors by which a frame may stop the task."""
FAULT_OF_ZOMBIES = "fenced"


def records(number: int) -> Chunk:
    return Chunk(batch.RECORDS, 1, encode_records([number]))


def digest_at(position: int) -> int:
    """Return the digest after as many elements of the one stream that all incarnations make."""
    digest = RollingDigest()
    for number in range(position):
        digest.feed(pack_chunks([records(number)]))
    return digest.value


class Session(RuleBasedStateMachine):
    """One task between two neighbours."""

    def __init__(self) -> None:
        super().__init__()
        self.steps: list[tuple[Any, Any, Any, Any]] = []
        self.patches = [
            mock.patch.object(module, "transition", self._record) for module in (sender_module, receiver_module)
        ]
        for patch in self.patches:
            patch.start()

    def teardown(self) -> None:
        for patch in self.patches:
            patch.stop()

    def _record(self, table: Any, state: Any, step: Any, **where: Any) -> Any:
        after = transition(table, state, step, **where)
        self.steps.append((table, state, step, after))
        return after

    @initialize()
    def begin(self) -> None:
        self.middle = Middle()
        self.now_ns = 0
        self.put = 0
        self.states = (self.middle.sender.state, self.middle.receiver.state)
        self.announced = (0, 0)

    def _stopped(self) -> None:
        """The task has ended with a promised error, and another one begins."""
        self.steps.clear()
        self.begin()

    # -- the supervisor, and the task itself -----------------------------------------------------------------

    @rule(incarnation=st.integers(1, 4))
    def the_receiver_downstream_is_announced(self, incarnation: int) -> None:
        self.middle.exchange.peer_up(DOWNSTREAM.target, incarnation, False, self.now_ns)
        self.announced = (max(self.announced[0], incarnation), self.announced[1])

    @rule(incarnation=st.integers(1, 4))
    def the_receiver_downstream_dies(self, incarnation: int) -> None:
        self.middle.exchange.peer_down(DOWNSTREAM.target, incarnation)

    @rule(incarnation=st.integers(1, 4))
    def the_sender_upstream_is_announced(self, incarnation: int) -> None:
        self.middle.exchange.peer_up(UPSTREAM.source, incarnation, False, self.now_ns)
        self.announced = (self.announced[0], max(self.announced[1], incarnation))
        self.middle.exchange.answer_early()

    @precondition(lambda self: self.middle.exchange.collecting)
    @rule()
    def this_task_has_collected(self) -> None:
        self.middle.exchange.collected()

    @rule()
    def elements_are_put(self) -> None:
        try:
            self.middle.sender.put(records(self.put))
            self.put += 1
        except ReplayDivergence:
            self._stopped()

    @rule(later_ms=st.integers(0, 2000))
    def time_passes(self, later_ms: int) -> None:
        self.now_ns += later_ms * 1_000_000
        self.middle.exchange.pump(self.now_ns)
        self.middle.exchange.credit(self.middle.receiver, self.now_ns)
        deadline_ns = self.middle.exchange.next_deadline_ns()
        assert deadline_ns is None or deadline_ns > self.now_ns, "due work is done"

    @rule()
    def elements_are_delivered(self) -> None:
        receiver = self.middle.receiver
        count = receiver.head_count(2, 1 << 20)
        if count:
            receiver.take(count)
            self.middle.exchange.credit(receiver, self.now_ns)

    # -- frames ----------------------------------------------------------------------------------------------

    @rule(
        kind=st.sampled_from(sorted(FRAMES)),
        age=st.integers(-1, 1),
        session=st.integers(0, 3),
        position=st.integers(0, 6),
        by_the_right_way=st.booleans(),
        misplaced=st.sampled_from((False, False, False, True)),
        replaying=st.booleans(),
    )
    def a_frame_arrives(
        self, kind: int, age: int, session: int, position: int, by_the_right_way: bool, misplaced: bool, replaying: bool
    ) -> None:
        """A frame comes from the announced incarnation, an older or a younger one, mostly not the one that is next."""
        from_upstream = FRAMES[kind].from_upstream
        end = self.middle.receiver if from_upstream else self.middle.sender
        upstream = from_upstream if by_the_right_way else not from_upstream
        header = self._header(kind, upstream, max(0, end.peer_incarnation + age))
        if misplaced:  # on a channel that has its other end here, or none
            header.channel = (DOWNSTREAM.id if upstream else UPSTREAM.id) if position % 2 else 999
        header.session, header.position = session, position
        body: list[bytes] = []
        if kind == wire.DATA:
            payload = pack_chunks([records(position)])
            header.count, header.plain_bytes, header.digest = 1, len(payload), digest_at(position + 1)
            body = [b"", payload]
        elif kind == wire.HELLO:
            body = [wire.Hello(session, 0, position, 0, replaying).pack()]
        elif kind == wire.WELCOME:
            body = [wire.Welcome(session, position, digest_at(position), [], [], [], position // 2).pack()]
        elif kind == wire.LOGS:
            body = [pack_deltas([], [])]
        self._arrive(header, body, upstream, replaying)

    @rule(copies=st.integers(1, 3), damaged=st.booleans())
    def the_next_data_arrives(self, copies: int, damaged: bool) -> None:
        receiver = self.middle.receiver
        header = self._header(wire.DATA, True, receiver.peer_incarnation)
        payload = pack_chunks([records(receiver.next)])
        (header.session, header.sequence), header.position = receiver.next_frame, receiver.next
        header.count, header.plain_bytes = 1, len(payload)
        header.digest = digest_at(receiver.next + 1) ^ damaged
        for _ in range(copies):
            self._arrive(header, [b"", payload], True, False)

    @rule(beyond=st.integers(-2, 2), wrong=st.sampled_from((0, 0, 0, 1)))
    def an_answer_to_the_last_hello_arrives(self, beyond: int, wrong: int) -> None:
        """The receiver has nearly what was put, all of it, or more, which a replay will regenerate."""
        sender = self.middle.sender
        sender.hello(True, self.now_ns)
        following = max(0, sender.position + beyond)
        welcome = wire.Welcome(sender.attempt, following, digest_at(following) ^ wrong, [], [], [], following // 2)
        self._arrive(self._header(wire.WELCOME, False, sender.peer_incarnation), [welcome.pack()], False, True)

    @rule()
    def all_is_credited(self) -> None:
        sender = self.middle.sender
        header = self._header(wire.CREDIT, False, sender.peer_incarnation)
        header.position, header.count = sender.position, 1 << 20
        self._arrive(header, [], False, False)

    def _header(self, kind: int, upstream: bool, incarnation: int) -> Header:
        return Header(kind, JOB, UPSTREAM.id if upstream else DOWNSTREAM.id, incarnation)

    def _arrive(self, header: Header, body: list[bytes], upstream: bool, replaying: bool) -> None:
        middle, rule_of = self.middle, FRAMES[header.kind]
        end = middle.receiver if rule_of.from_upstream else middle.sender
        before, faults = canonical((middle.receiver, middle.sender)), middle.exchange.faults.copy()
        refusal: Refusal | str | None = None
        if upstream is not rule_of.from_upstream:
            refusal = "a frame arrived from the wrong end of its channel"
        elif header.channel != (UPSTREAM.id if upstream else DOWNSTREAM.id):
            refusal = rule_of.misplaced.format(channel="")
        elif rule_of.of_peer and header.incarnation != end.peer_incarnation:
            refusal = rule_of.older if header.incarnation < end.peer_incarnation else rule_of.younger
        elif end.state not in rule_of.legal:
            refusal = rule_of.illegal
        elif header.kind == wire.FENCED and header.incarnation <= ANNOUNCED:
            refusal = "a FENCED names an incarnation that is not newer than this one"
        try:
            link = LINK if upstream else b""
            effects = middle.exchange.receive(link, [header.pack(), *body], replaying, self.now_ns)
        except STOPPED:
            assert refusal is None, "a frame that is not legal stops nothing"
            self._stopped()
            return
        if refusal is Refusal.KEEP:
            assert effects == [] and middle.receiver._early_hello is not None and middle.exchange.faults == faults
        elif refusal is not None:
            assert canonical((middle.receiver, middle.sender)) == before, "what is dropped changes nothing"
            faults[FAULT_OF_ZOMBIES if refusal is Refusal.FENCE else refusal] += 1
            assert middle.exchange.faults == faults, "it is counted as what it is"
            answers = [(effect.link, wire.read_header(effect.parts, JOB)) for effect in effects]  # type: ignore[union-attr]
            fenced = [(LINK, self._header(wire.FENCED, True, end.peer_incarnation))]
            assert answers == (fenced if refusal is Refusal.FENCE else [])

    @rule(parts=st.lists(st.binary(max_size=80), max_size=3), upstream=st.booleans())
    def garbage_arrives(self, parts: list[bytes], upstream: bool) -> None:
        before = canonical((self.middle.receiver, self.middle.sender))
        assert self.middle.exchange.receive(LINK if upstream else b"", parts, True, self.now_ns) == []
        assert canonical((self.middle.receiver, self.middle.sender)) == before

    # -- what holds always -----------------------------------------------------------------------------------

    @invariant()
    def only_transitions_of_the_tables_occur(self) -> None:
        if not hasattr(self, "middle"):
            return
        sender_state, receiver_state = self.states
        for table, before, step, after in self.steps:
            assert table[before][step] is after
            if table is SENDER:
                assert before is sender_state
                sender_state = after
            else:
                assert table is RECEIVER and before is receiver_state
                receiver_state = after
        self.steps.clear()
        self.states = (self.middle.sender.state, self.middle.receiver.state)
        assert (sender_state, receiver_state) == self.states, "a state changes by its table alone"

    @invariant()
    def only_the_supervisor_announces(self) -> None:
        if hasattr(self, "middle"):
            incarnations = (self.middle.sender.peer_incarnation, self.middle.receiver.peer_incarnation)
            assert incarnations == self.announced

    @invariant()
    def states_mean_what_they_say(self) -> None:
        if not hasattr(self, "middle"):
            return
        sender = self.middle.sender
        if sender.state is SenderState.COMPARING:
            assert sender.expecting
        if sender.state in (SenderState.GREETING, SenderState.OPEN):
            assert not sender.expecting
        if sender.state in (SenderState.ABSENT, SenderState.GREETING):
            assert not sender.flow.outstanding_bytes and not sender.congested
        if sender.state is not SenderState.OPEN:
            assert sender.prepare_entry() is None


TestSession = Session.TestCase
TestSession.settings = settings(stateful_step_count=60)
