"""The exchange of frames between a task and its neighbours: arriving frames are dispatched, and due frames sent.

The same handshake is used for the first connection, after a network interruption and for a promoted standby (D5).
`causal.channels.frames` defines which frames are legal in which state, and `causal.channels.states` defines the
transitions. A dropped frame is counted, is reported once per kind of fault, and changes no state.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping
from operator import itemgetter

from causal.channels import wire
from causal.channels.frames import FRAMES, Refusal, Rule
from causal.channels.receiver import EarlyHello, Receiver
from causal.channels.sender import CONTRADICTED_NS_MAX, Sender
from causal.channels.states import SenderState
from causal.config import JobConfig
from causal.effects import Effect, ReadSegment, Reply, Send
from causal.errors import DeterminantsLost, Fenced, PeerViolation, ReplayDivergence
from causal.ids import TaskIndex
from causal.inflight import Entry
from causal.logs.deltas import pack_deltas, split_deltas, unpack_deltas
from causal.logs.dissemination import Following, Holdings
from causal.logs.log import LogDelta
from causal.logs.rollback import Extent
from causal.topology import Topology

CORRUPT_FRAMES_MAX = 5
"""The number of consecutive unusable frames, each requested again, after which the task gives up because the sender
cannot send anything better."""
DELTA_BYTES_TARGET = 16 << 20
"""The size in bytes above which determinants are sent ahead in separate frames."""
FAULT_SORTS_MAX = 64
FAULT_CHARACTERS_MAX = 200
_OPEN = SenderState.OPEN
_task_of = itemgetter(0)
_NOTHING: list[Following] = []


class Exchange:
    """All network channels of one task.

    Args:
        report: called with one line for the first bad frame of each *kind*; `faults` counts all bad frames.
    """

    def __init__(
        self, topology: Topology, task: TaskIndex, incarnation: int, config: JobConfig, holdings: Holdings,
        inputs: dict[int, Receiver], outputs: dict[int, Sender], report: Callable[[str], None],
    ) -> None:  # fmt: skip
        self.name = topology.tasks[task].name
        self.incarnation = incarnation
        self.job = config.fingerprint(topology)
        self.holdings = holdings
        self.inputs = inputs
        self.outputs = outputs
        self.logging = config.guarantee == "causal"
        self.adapting = config.guarantee in ("at-least-once", "none")
        """Whether the ends of a channel may differ in position after a failure and then agree on a common one."""
        self.collecting = True
        """Whether this task is still collecting its determinants from downstream; meanwhile it answers no HELLO."""
        self.compress: dict[int, bool] = {}
        self.first_output = False
        self.taken: Callable[[wire.Header, bytes | memoryview, list[Extent]], None] | None = None
        """The callback for the task's echo. Its arguments are the header of each accepted DATA frame, the uncompressed
        payload, and the dependencies of the elements."""
        self.echoed: Callable[[wire.Header, int], None] | None = None
        """The callback for each ECHOED; its arguments are the header and the current time."""
        self.faults: Counter[str] = Counter()
        self._report = report

    @property
    def delta_bytes(self) -> int:
        """The number of determinant bytes that have been sent."""
        return sum(sender.delta_bytes for sender in self.outputs.values())

    # -- announcements by the supervisor ---------------------------------------------------------------------

    def peer_up(self, task: int, incarnation: int, compress: bool, now_ns: int) -> None:
        """Record that `incarnation` of a neighbour is running and can be reached."""
        self.compress[task] = compress
        for sender in self.outputs.values():
            if sender.target == task and incarnation >= sender.peer_incarnation:
                sender.dial(incarnation, now_ns)
        self.announce(task, incarnation)

    def greet_ahead(self, peers: Mapping[int, int], incarnation: int) -> list[Effect]:
        """Return the HELLOs with which a hot standby greets downstream tasks as the next incarnation of its task.

        A receiver keeps such a HELLO until the supervisor announces that incarnation, and then answers it.

        Args:
            peers: downstream task → its incarnation.
        """
        effects: list[Effect] = []
        for sender in self.outputs.values():
            if sender.target in peers:
                hello = sender.greet_ahead(peers[sender.target])
                header = self._header(wire.HELLO, sender, incarnation)
                effects.append(Send(sender.target, [header.pack(), hello.pack()]))
        return effects

    def peer_down(self, task: int, incarnation: int) -> None:
        """Record that a neighbour has died."""
        for sender in self.outputs.values():
            if sender.target == task and incarnation >= sender.peer_incarnation:
                sender.lose()

    def announce(self, source: int, incarnation: int) -> None:
        """Record the announced incarnation of an upstream task.

        Only the supervisor's announcements raise the incarnation. If a frame could raise it, any process that can reach
        the socket could fence the real sender.
        """
        for receiver in self.inputs.values():
            if receiver.source == source:
                receiver.announce(max(receiver.peer_incarnation, incarnation))

    def collected(self) -> list[Effect]:
        """Stop collecting, and answer the senders whose HELLOs have been waiting for this."""
        self.collecting = False
        effects: list[Effect] = []
        for receiver in self.inputs.values():
            hello = receiver.collected()
            if hello is not None:
                effects += self._answer(receiver, hello)
        return effects

    def answer_early(self) -> list[Effect]:
        """Process each HELLO that arrived before its incarnation was announced, if it has been announced by now."""
        effects: list[Effect] = []
        for receiver in self.inputs.values():
            early = receiver.take_early()
            if early is not None:
                effects += self._greet(receiver, early.link, early.hello)
        return effects

    # -- incoming frames -------------------------------------------------------------------------------------

    def receive(self, link: bytes, parts: list[bytes], replaying: bool, now_ns: int) -> list[Effect]:
        """Process one frame and return the resulting effects.

        Args:
            replaying: whether outputs may still be regenerated.

        Raises:
            Fenced, ReplayDivergence, DeterminantsLost: this task cannot continue.
        """
        try:
            header = wire.read_header(parts, self.job)
            if header.kind in wire.ECHOES:
                return self._answered_echo(link, header, now_ns)
            rule = FRAMES[header.kind]
            if rule.from_upstream is (not link):
                raise PeerViolation("a frame arrived from the wrong end of its channel")
            end = self.inputs.get(header.channel) if rule.from_upstream else self.outputs.get(header.channel)
            if end is None:
                raise PeerViolation(rule.misplaced.format(channel=header.channel))
            if header.incarnation != end.peer_incarnation and rule.of_peer:
                return self._refuse(rule, end, link, header, parts)
            if end.state not in rule.legal:
                raise PeerViolation(rule.illegal)
            return _HANDLERS[header.kind](self, end, link, header, parts, replaying, now_ns)
        except PeerViolation as problem:
            self.fault(str(problem))
            return []

    def _answered_echo(self, link: bytes, header: wire.Header, now_ns: int) -> list[Effect]:
        """Pass a hot standby's answer to the echo; ignore answers that arrive after the echo has ended."""
        if link or header.kind != wire.ECHOED:
            raise PeerViolation("an echo was sent to a task that is not a hot standby")
        if self.echoed is not None:
            self.echoed(header, now_ns)
        return []

    def fault(self, what: str) -> None:
        """Count a dropped frame, and report the first frame of each kind of fault."""
        sort = "".join(ch for ch in what if not ch.isdigit())[:FAULT_CHARACTERS_MAX]
        if sort not in self.faults and len(self.faults) >= FAULT_SORTS_MAX:
            sort = "other faults"
        self.faults[sort] += 1
        if self.faults[sort] == 1:
            self._report(f"dropped a frame: {what[:FAULT_CHARACTERS_MAX]}")

    def _refuse(
        self, rule: Rule, end: Receiver | Sender, link: bytes, header: wire.Header, parts: list[bytes]
    ) -> list[Effect]:
        """Apply `rule` to a frame whose incarnation differs from the announced one."""
        refusal = rule.older if header.incarnation < end.peer_incarnation else rule.younger
        if isinstance(end, Receiver) and refusal is Refusal.KEEP:
            end.keep_early(EarlyHello(header.incarnation, link, wire.read_hello(parts[1])))
            return []
        if refusal is Refusal.FENCE:
            self.faults["fenced"] += 1
            return [Reply(link, [self._header(wire.FENCED, end, incarnation=end.peer_incarnation).pack()])]
        raise PeerViolation(refusal)

    # -- at a receiver -----------------------------------------------------------------------------------------

    def _data(
        self, receiver: Receiver, link: bytes, header: wire.Header, parts: list[bytes], replaying: bool, now_ns: int
    ) -> list[Effect]:
        follows = receiver.follows(header.session, header.sequence)
        if follows is None:
            self.faults["repeated"] += 1
            return []
        if not follows or header.position > receiver.next:
            return self._resync(link, receiver, now_ns)
        receiver.link = link
        try:
            self._take(receiver, header, parts)
        except PeerViolation as problem:
            receiver.corrupt_frames += 1
            if receiver.corrupt_frames >= CORRUPT_FRAMES_MAX:
                raise ReplayDivergence(
                    f"an operator upstream of {self.name}",
                    f"channel {receiver.id}, position {receiver.next}: the upstream task sends elements that do "
                    f"not continue the elements that it sent before: {problem}",
                ) from None
            self.fault(f"{problem}; the frame is requested again")
            return self._resync(link, receiver, now_ns)
        receiver.corrupt_frames = 0
        return []

    def _take(self, receiver: Receiver, header: wire.Header, parts: list[bytes]) -> None:
        """Accept the frame, and store its determinants before any of its elements can be delivered (D4)."""
        deltas, depends = receiver.deltas.read(bytes(parts[1]), begins=not header.sequence)
        payload = wire.unpack_payload(header, parts[2])
        if not receiver.upstream.shared.issuperset(map(_task_of, deltas)):
            unshared = sorted(set(map(_task_of, deltas)) - receiver.upstream.shared)
            raise PeerViolation(f"a frame has a delta of task {unshared[0]}, whose log the sender does not share")
        if not header.sequence:
            receiver.ahead.clear()
        if not header.count:  # deltas sent ahead wait for the last ones: a log must not end inside a determinant
            receiver.ahead += deltas
            receiver.followed(header.session, header.sequence)
            return
        if receiver.ahead:
            deltas = [*receiver.ahead, *deltas]
        holdings = self.holdings
        following = holdings.following(deltas) if deltas else _NOTHING
        if following is None:
            holdings.check(deltas)
        position = max(header.position, receiver.next)
        receiver.accept(header, payload)
        if self.taken is not None:
            self.taken(header, payload, depends)
        # Deltas are stored only after the frame has been accepted. If they were stored and the frame was then refused,
        # no task would learn which elements depend on them (seed 15780).
        if following is None:
            holdings.store(deltas)
        else:
            holdings.follow(following)
        receiver.ahead.clear()
        receiver.note_depends(position, depends)
        receiver.followed(header.session, header.sequence)

    def _resync(self, link: bytes, receiver: Receiver, now_ns: int) -> list[Effect]:
        """Report the position of this end, because frames before the current one are missing."""
        self.faults["gap"] += 1
        return self._welcome_frames(link, receiver, 0, collecting=False) if receiver.resync_due(now_ns) else []

    def _hello(
        self, receiver: Receiver, link: bytes, header: wire.Header, parts: list[bytes], replaying: bool, now_ns: int
    ) -> list[Effect]:
        return self._greet(receiver, link, wire.read_hello(parts[1]))

    def _greet(self, receiver: Receiver, link: bytes, hello: wire.Hello) -> list[Effect]:
        answerable = receiver.greet(link, hello)
        return self._answer(receiver, answerable) if answerable is not None else []

    def _answer(self, receiver: Receiver, hello: wire.Hello) -> list[Effect]:
        if self.adapting:
            # Positions need not match those of an earlier incarnation. A new receiver begins at the position from which
            # the sender can replay. An existing receiver continues with a new sender after the last accepted element.
            if receiver.fresh:
                receiver.restart(hello.low, hello.low_digest)
            elif hello.collect:
                receiver.rebase()
        return self._welcome_frames(receiver.link or b"", receiver, hello.attempt, hello.collect)

    def _welcome_frames(self, link: bytes, receiver: Receiver, attempt: int, collecting: bool) -> list[Effect]:
        welcome = receiver.welcome(attempt)
        ahead: list[list[LogDelta]] = []
        if self.logging:
            behind = receiver.upstream.behind
            welcome.extents = self.holdings.extents_for(behind)
            if collecting:
                depends = self.holdings.dependencies() + receiver.queued_depends()
                welcome.depends = [extent for extent in depends if extent[0] in behind]
                logs = self.holdings.logs_for(receiver.upstream.held_by_sender, depends)
                welcome.extents = [(d.task, d.epoch, d.offset + len(d.bytes)) for d in logs]
                *ahead, welcome.logs = split_deltas(logs, DELTA_BYTES_TARGET)
        header = self._header(wire.LOGS, receiver)
        frames = [[header.pack(), pack_deltas(logs, [])] for logs in ahead]
        header = self._header(wire.WELCOME, receiver)
        return [Reply(link, parts) for parts in (*frames, [header.pack(), welcome.pack()])]

    def credit(self, receiver: Receiver, now_ns: int) -> list[Effect]:
        """Return a CREDIT frame, if due, with the delivered position and the number of bytes allowed beyond it."""
        if receiver.link is None:
            return []
        flow = receiver.flow
        due = flow.grant(now_ns) if receiver.starved else flow.credit(now_ns)
        if not due:
            return []
        header = wire.Header(
            wire.CREDIT,
            self.job,
            receiver.id,
            self.incarnation,
            count=flow.allowance_bytes,
            position=receiver.credited,
        )
        return [Reply(receiver.link, [header.pack()])]

    # -- at a sender -------------------------------------------------------------------------------------------

    def _fenced(
        self, sender: Sender, link: bytes, header: wire.Header, parts: list[bytes], replaying: bool, now_ns: int
    ) -> list[Effect]:
        if header.incarnation > self.incarnation:
            raise Fenced(
                f"incarnation {header.incarnation} of this task is running; this process is incarnation "
                f"{self.incarnation} and must exit"
            )
        raise PeerViolation("a FENCED names an incarnation that is not newer than this one")

    def _logs(
        self, sender: Sender, link: bytes, header: wire.Header, parts: list[bytes], replaying: bool, now_ns: int
    ) -> list[Effect]:
        sender.keep_ahead(unpack_deltas(bytes(parts[1]))[0])
        return []

    def _credit(
        self, sender: Sender, link: bytes, header: wire.Header, parts: list[bytes], replaying: bool, now_ns: int
    ) -> list[Effect]:
        sender.credit(header.position, header.count, now_ns)
        return self.pump(now_ns)

    def _welcome(
        self, sender: Sender, link: bytes, header: wire.Header, parts: list[bytes], replaying: bool, now_ns: int
    ) -> list[Effect]:
        welcome = wire.read_welcome(parts[1])
        ahead = sender.release_ahead()
        if self.collecting and self.logging:
            try:
                self.holdings.merge([*ahead, *welcome.logs], welcome.extents)
            except PeerViolation as problem:
                if sender.contradicted(now_ns):
                    raise DeterminantsLost(
                        f"{sender.name}: the determinants that the receiver holds have contradicted those of "
                        f"other holders for {CONTRADICTED_NS_MAX / 1e9:g} s ({problem}); start the job without "
                        "--resume"
                    ) from None
                raise
            self.holdings.depend(welcome.depends)
        if self.collecting and self.adapting and not sender.welcomed:
            sender.renumber(welcome.next, welcome.digest)
        sender.welcome(welcome, replaying, now_ns)
        return self.pump(now_ns)

    # -- outgoing frames ---------------------------------------------------------------------------------------

    def pump(self, now_ns: int) -> list[Effect]:
        """Return the DATA frames that connected peers have credit for, and the HELLOs that are due."""
        effects: list[Effect] = []
        for sender in self.outputs.values():
            entry = sender.prepare_entry()
            while entry is not None:
                if entry.payload is None:
                    if entry.segment not in sender.loading:
                        sender.loading.add(entry.segment)
                        effects.append(ReadSegment(sender.id, entry.segment))
                    break
                effects += self._data_frames(sender, entry)
                sender.sent(entry, now_ns)
                self.first_output = True
                entry = sender.prepare_entry()
            if now_ns >= sender.hello_at_ns and sender.waiting:
                effects.append(self._hello_frame(sender, now_ns))
        return effects

    def _data_frames(self, sender: Sender, entry: Entry) -> list[Effect]:
        effects: list[Effect] = []
        deltas = b""
        if self.logging:
            lacking, depends = self.holdings.lacking(sender.seen)
            *ahead, rest = split_deltas(lacking, DELTA_BYTES_TARGET)
            for group in ahead:  # frames without elements, only with deltas that the elements of the last frame need
                deltas = sender.deltas.pack(group, [])
                sender.delta_bytes += len(deltas)
                header = self._data_header(sender, 0, entry.first)
                effects.append(Send(sender.target, [header.pack(), deltas, b""]))
                sender.sequence += 1
            deltas = sender.deltas.pack(rest, depends)
            sender.delta_bytes += len(deltas)
        header = self._data_header(sender, entry.count, entry.first)
        header.digest, header.origin_ns = entry.digest, entry.origin_ns
        first, payload = wire.pack_payload(header, entry.payload or b"", self.compress.get(sender.target, False))
        return [*effects, Send(sender.target, [first, deltas, payload])]

    def _data_header(self, sender: Sender, count: int, position: int) -> wire.Header:
        return wire.Header(
            wire.DATA, self.job, sender.id, self.incarnation, sender.session, sender.sequence, count, position
        )

    def _hello_frame(self, sender: Sender, now_ns: int) -> Effect:
        hello = sender.hello(self.collecting, now_ns)
        return Send(sender.target, [self._header(wire.HELLO, sender).pack(), hello.pack()])

    def _header(self, kind: int, end: Receiver | Sender, incarnation: int | None = None) -> wire.Header:
        return wire.Header(kind, self.job, end.id, self.incarnation if incarnation is None else incarnation)

    def next_deadline_ns(self) -> int | None:
        """Return the earliest time at which `pump` or `credit` has work to do even if nothing arrives."""
        due = [sender.hello_at_ns for sender in self.outputs.values() if sender.waiting]
        for receiver in self.inputs.values():
            if receiver.flow.credit_due_ns:
                due.append(receiver.flow.credit_due_ns)
            if receiver.starved and receiver.link is not None:
                due.append(receiver.flow.grant_due_ns)
        return min(due, default=None)


_HANDLERS: Mapping[int, Callable[..., list[Effect]]] = {
    wire.DATA: Exchange._data,
    wire.HELLO: Exchange._hello,
    wire.WELCOME: Exchange._welcome,
    wire.CREDIT: Exchange._credit,
    wire.FENCED: Exchange._fenced,
    wire.LOGS: Exchange._logs,
}
