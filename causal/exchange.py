"""The conversation with the neighbours: handshake, data, credit, fencing.  Bytes in, frames out.

One handshake serves the first connection, a cut network and a promoted standby (D5).  A bad frame is
counted, told of once, and dropped; it changes nothing.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from operator import itemgetter

from causal import wire
from causal.config import JobConfig
from causal.deltas import pack_deltas, split_deltas, unpack_deltas
from causal.dissemination import Following, Holdings
from causal.effects import Effect, ReadSegment, Reply, Send
from causal.errors import Fenced, Lost, PeerViolation, ReplayDivergence
from causal.ids import OUTSIDE, TaskIndex
from causal.inflight import Entry
from causal.input_channel import EarlyHello, InputChannel
from causal.log import LogDelta
from causal.output_channel import CONTRADICTED_NS_MAX, OutputChannel
from causal.topology import Topology

HELLO_AGAIN_NS = 100_000_000
"""A HELLO without an answer is repeated after this."""
PROBE_AFTER_NS = 1_000_000_000
"""Without credit for what is outstanding for so long, frames may have been lost: ask."""
CREDIT_WITHIN_NS = 200_000_000
RESYNC_NOT_BEFORE_NS = 20_000_000
CORRUPT_FRAMES_MAX = 5
"""So many frames in a row that do not fit, although each was asked for again: the sender cannot do better."""
DELTA_BYTES_TARGET = 16 << 20
"""Determinants beyond it travel ahead, in frames of their own."""
FAULT_SORTS_MAX = 64
TOLD_MAX = 200
_task_of = itemgetter(0)
_NOTHING: list[Following] = []


class Exchange:
    """All network channels of one task.

    `tell` is called with one line per *sort* of bad frame; `faults` counts them all.
    """

    def __init__(
        self, topology: Topology, task: TaskIndex, incarnation: int, config: JobConfig, holdings: Holdings,
        inputs: dict[int, InputChannel], outputs: dict[int, OutputChannel], tell: Callable[[str], None],
    ) -> None:  # fmt: skip
        self.name = topology.tasks[task].name
        self.incarnation = incarnation
        self.job = config.fingerprint(topology)
        self.holdings = holdings
        self.inputs = inputs
        self.outputs = outputs
        self.keeping = config.guarantee != "none"
        self.logging = config.guarantee == "causal"
        self.adapting = config.guarantee in ("at-least-once", "none")
        """Ends of a channel may stand at different places after a failure, and meet where they can."""
        self.faults: Counter[str] = Counter()
        self.compress: dict[int, bool] = {}
        self.first_output = False
        self.delta_bytes = 0
        self.collect = True
        self._credit_bytes = config.credit_bytes
        self._tell = tell
        self._loading: set[int] = set()
        depth = config.sharing_depth
        senders: dict[int, TaskIndex] = {c.id: c.source for c in topology.inputs(task) if c.source != OUTSIDE}
        self._behind = {id: (sender, *topology.ancestors(sender)) for id, sender in senders.items()}
        """Channel → the tasks whose logs its elements may depend on."""
        self._shared_by = {id: frozenset(topology.shared_by(sender, depth)) for id, sender in senders.items()}
        # Another way may lead here past the sender, so that we hold logs that it is too far away to hold.
        self._held_by = {id: topology.held_by(sender, depth) for id, sender in senders.items()}

    # -- in ------------------------------------------------------------------------------------------

    def receive(self, link: bytes, parts: list[bytes], answers: bool, replaying: bool, now_ns: int) -> list[Effect]:
        """Take one frame in.

        Args:
            answers: whether this task may answer upstream yet.
            replaying: whether outputs may still be regenerated.

        Raises:
            Fenced, ReplayDivergence, Lost: this task cannot go on.
        """
        try:
            header = wire.read_header(parts, self.job)
            if bool(link) != (header.kind in wire.FROM_UPSTREAM):
                raise PeerViolation("a frame that came by the wrong way")
            if header.kind == wire.DATA:
                return self._data(link, header, parts, answers, now_ns)
            if header.kind == wire.HELLO:
                return self._hello(link, header, wire.read_hello(parts[1]), answers)
            output = self.outputs.get(header.channel)
            if output is None:
                raise PeerViolation(f"an answer on channel {header.channel}, which does not start here")
            if header.kind == wire.FENCED:
                return self._fenced(header)
            if header.incarnation < output.peer_incarnation:
                raise PeerViolation("an answer of an old incarnation")
            if header.incarnation > output.peer_incarnation:
                raise PeerViolation("an answer of an incarnation that the supervisor has not announced")
            if header.kind == wire.LOGS:
                output.stage(unpack_deltas(bytes(parts[1]))[0], header.incarnation)
                return []
            if header.kind == wire.CREDIT:
                output.credit(header.position, header.count, now_ns)
            else:
                self._welcome(output, wire.read_welcome(parts[1]), header.incarnation, replaying, now_ns)
            return self.pump(now_ns)
        except PeerViolation as problem:
            self.fault(str(problem))
            return []

    def fault(self, what: str) -> None:
        """Count a dropped frame; tell of the first of its sort."""
        sort = "".join(ch for ch in what if not ch.isdigit())[:TOLD_MAX]
        if sort not in self.faults and len(self.faults) >= FAULT_SORTS_MAX:
            sort = "of other sorts"
        self.faults[sort] += 1
        if self.faults[sort] == 1:
            self._tell(f"dropped a frame: {what[:TOLD_MAX]}")

    def _data(self, link: bytes, header: wire.Header, parts: list[bytes], answers: bool, now_ns: int) -> list[Effect]:
        channel = self.inputs.get(header.channel)
        if channel is None:
            raise PeerViolation(f"data on channel {header.channel}, which does not end here")
        if header.incarnation < channel.peer_incarnation:
            return self._fence(link, channel)
        if header.incarnation != channel.peer_incarnation or not answers:
            raise PeerViolation("data before the handshake")
        follows = channel.follows(header.session, header.sequence)
        if follows is None:
            self.faults["repeated"] += 1
            return []
        if not follows or header.position > channel.next:
            return self._resync(link, channel, now_ns)
        channel.link = link
        try:
            self._take(channel, header, parts)
        except PeerViolation as problem:
            channel.corrupt_frames += 1
            if channel.corrupt_frames >= CORRUPT_FRAMES_MAX:
                raise ReplayDivergence(
                    f"an operator before {self.name}",
                    f"channel {channel.id}, position {channel.next}: what upstream sends now does not follow from what "
                    f"it sent before: {problem}",
                ) from None
            self.fault(f"{problem}; asked for again")
            return self._resync(link, channel, now_ns)
        channel.corrupt_frames = 0
        return []

    def _take(self, channel: InputChannel, header: wire.Header, parts: list[bytes]) -> None:
        """Determinants first: they are stored before an element of the frame can be delivered (D4)."""
        deltas, depends = channel.deltas.read(bytes(parts[1]), begins=not header.sequence)
        payload = wire.unpack_payload(header, parts[2])
        if not self._shared_by[channel.id].issuperset(map(_task_of, deltas)):
            unshared = sorted(set(map(_task_of, deltas)) - self._shared_by[channel.id])
            raise PeerViolation(f"a delta of task {unshared[0]}, whose log the sender does not share")
        if not header.sequence:
            channel.staged.clear()
        if not header.count:  # half a determinant must not be held, so what travels ahead waits for the rest
            channel.staged += deltas
            channel.followed(header.session, header.sequence)
            return
        if channel.staged:
            deltas = [*channel.staged, *deltas]
        holdings = self.holdings
        following = holdings.following(deltas) if deltas else _NOTHING
        if following is None:
            holdings.check(deltas)
        position = max(header.position, channel.next)
        channel.accept(header, payload)
        # Bytes of a frame that is refused must not stay: what depends on them, nobody would be told (seed 15780).
        if following is None:
            holdings.store(deltas)
        else:
            holdings.follow(following)
        channel.staged.clear()
        channel.note_depends(position, depends)
        channel.followed(header.session, header.sequence)

    def _resync(self, link: bytes, channel: InputChannel, now_ns: int) -> list[Effect]:
        """Something is missing before this frame: say where we stand, but not for every frame behind the gap."""
        self.faults["gap"] += 1
        if now_ns < channel.resync_at_ns:
            return []
        channel.resync_at_ns = now_ns + RESYNC_NOT_BEFORE_NS
        return self._welcome_frames(link, channel, 0, collect=False)

    def _fence(self, link: bytes, channel: InputChannel) -> list[Effect]:
        self.faults["fenced"] += 1
        header = wire.Header(wire.FENCED, self.job, channel.id, channel.peer_incarnation)
        return [Reply(link, [header.pack()])]

    def _fenced(self, header: wire.Header) -> list[Effect]:
        if header.incarnation > self.incarnation:
            raise Fenced(f"incarnation {header.incarnation} of this task lives, this is {self.incarnation}")
        raise PeerViolation("fenced by an incarnation that is not younger")

    def _hello(self, link: bytes, header: wire.Header, hello: wire.Hello, answers: bool) -> list[Effect]:
        channel = self.inputs.get(header.channel)
        if channel is None:
            raise PeerViolation(f"a HELLO on channel {header.channel}, which does not end here")
        if header.incarnation < channel.peer_incarnation:
            return self._fence(link, channel)
        if header.incarnation > channel.peer_incarnation:
            channel.keep_early(EarlyHello(header.incarnation, link, hello))
            return []
        return self._greeted(link, channel, hello, answers)

    def _greeted(self, link: bytes, channel: InputChannel, hello: wire.Hello, answers: bool) -> list[Effect]:
        channel.link = link
        if not answers:
            channel.held_hello = hello
            return []
        return self._answer(channel, hello)

    def announce(self, source: int, incarnation: int) -> None:
        """The supervisor says which incarnation of a task upstream lives.

        Only the supervisor raises what is believed here: a frame that did would let anybody who can reach the socket
        fence the real sender.
        """
        for channel in self.inputs.values():
            if channel.source == source:
                channel.introduce(max(channel.peer_incarnation, incarnation))

    def answer_early(self, answers: bool) -> list[Effect]:
        """Take the HELLOs that came before their incarnations were announced, and have been by now."""
        effects: list[Effect] = []
        for channel in self.inputs.values():
            early = channel.take_early()
            if early is not None and early.incarnation == channel.peer_incarnation:
                effects += self._greeted(early.link, channel, early.hello, answers)
        return effects

    def answer_held(self) -> list[Effect]:
        """This task has collected: answer those upstream that were waiting for it."""
        effects: list[Effect] = []
        for channel in self.inputs.values():
            if channel.held_hello is not None:
                effects += self._answer(channel, channel.held_hello)
                channel.held_hello = None
        return effects

    def _answer(self, channel: InputChannel, hello: wire.Hello) -> list[Effect]:
        if self.adapting:
            # Nothing lines up with an earlier incarnation: a new receiver begins where the sender can, an old
            # one goes on with a new sender behind what it has.
            if channel.fresh:
                channel.restart(hello.low, hello.low_digest)
            elif hello.collect:
                channel.rebase()
        return self._welcome_frames(channel.link or b"", channel, hello.attempt, hello.collect)

    def _welcome_frames(self, link: bytes, channel: InputChannel, attempt: int, collect: bool) -> list[Effect]:
        welcome = channel.welcome(attempt)
        ahead: list[list[LogDelta]] = []
        if self.logging:
            behind = self._behind[channel.id]
            welcome.extents = self.holdings.extents_for(behind)
            if collect:
                depends = self.holdings.dependencies() + channel.queued_depends()
                welcome.depends = [extent for extent in depends if extent[0] in behind]
                logs = self.holdings.logs_for(self._held_by[channel.id], depends)
                welcome.extents = [(d.task, d.epoch, d.offset + len(d.bytes)) for d in logs]
                *ahead, welcome.logs = split_deltas(logs, DELTA_BYTES_TARGET)
        header = wire.Header(wire.LOGS, self.job, channel.id, self.incarnation)
        frames = [[header.pack(), pack_deltas(logs, [])] for logs in ahead]
        header = wire.Header(wire.WELCOME, self.job, channel.id, self.incarnation)
        return [Reply(link, parts) for parts in (*frames, [header.pack(), welcome.pack()])]

    def _welcome(
        self, output: OutputChannel, welcome: wire.Welcome, incarnation: int, replaying: bool, now_ns: int
    ) -> None:
        staged = output.unstage(incarnation)
        if self.collect and self.logging:
            try:
                self.holdings.merge([*staged, *welcome.logs], welcome.extents)
            except PeerViolation as problem:
                if output.contradicted(now_ns):
                    raise Lost(
                        f"{output.name}: what the peer holds of determinants has not fitted to what others hold for "
                        f"{CONTRADICTED_NS_MAX / 1e9:g} s ({problem}); start the job anew without --resume"
                    ) from None
                raise
            self.holdings.depend(welcome.depends)
        if self.collect and self.adapting and not output.welcomed:
            output.renumber(welcome)
        output.welcome(welcome, replaying, now_ns)

    # -- out -----------------------------------------------------------------------------------------

    def pump(self, now_ns: int) -> list[Effect]:
        """Send whatever there is, peer, and credit for."""
        effects: list[Effect] = []
        for output in self.outputs.values():
            if output.needs_hello:
                if now_ns >= output.hello_at_ns:
                    effects.append(self._hello_frame(output, now_ns))
                continue
            entry = output.next_entry()
            while entry is not None:
                if entry.payload is None:
                    if entry.segment not in self._loading:
                        self._loading.add(entry.segment)
                        effects.append(ReadSegment(output.id, entry.segment))
                    break
                effects += self._data_frames(output, entry)
                output.sent(entry, now_ns)
                self.first_output = True
                entry = output.next_entry()
            if output.waiting_for_credit and now_ns - output.progress_at_ns > PROBE_AFTER_NS:
                output.progress_at_ns = now_ns
                effects.append(self._hello_frame(output, now_ns))
        return effects

    def loaded(self, segment: int) -> None:
        self._loading.discard(segment)

    def _data_frames(self, output: OutputChannel, entry: Entry) -> list[Effect]:
        effects: list[Effect] = []
        deltas = b""
        if self.logging:
            lacking, depends = self.holdings.lacking(output.seen)
            *ahead, rest = split_deltas(lacking, DELTA_BYTES_TARGET)
            for group in ahead:  # no elements of its own: only what those of the last frame depend on
                deltas = output.deltas.pack(group, [])
                self.delta_bytes += len(deltas)
                header = self._data_header(output, 0, entry.first)
                effects.append(Send(output.target, [header.pack(), deltas, b""]))
                output.sequence += 1
            deltas = output.deltas.pack(rest, depends)
            self.delta_bytes += len(deltas)
        header = self._data_header(output, entry.count, entry.first)
        header.digest, header.origin_ns = entry.digest, entry.origin_ns
        first, payload = wire.pack_payload(header, entry.payload or b"", self.compress.get(output.target, False))
        return [*effects, Send(output.target, [first, deltas, payload])]

    def _data_header(self, output: OutputChannel, count: int, position: int) -> wire.Header:
        return wire.Header(
            wire.DATA, self.job, output.id, self.incarnation, output.session, output.sequence, count, position
        )

    def _hello_frame(self, output: OutputChannel, now_ns: int) -> Effect:
        hello = output.hello(self.collect)
        output.hello_at_ns = now_ns + min(HELLO_AGAIN_NS * hello.attempt, PROBE_AFTER_NS)
        header = wire.Header(wire.HELLO, self.job, output.id, self.incarnation)
        return Send(output.target, [header.pack(), hello.pack()])

    def credit(self, channel: InputChannel, now_ns: int) -> list[Effect]:
        """Tell upstream how far delivery has come: soon when much was delivered, a little later when little."""
        if channel.link is None:
            return []
        if channel.short:
            return self._grant(channel, channel.link, now_ns)
        if not channel.uncredited_bytes:
            return []
        if channel.uncredited_bytes < min(self._credit_bytes, channel.allowance_bytes) // 8:
            if not channel.credit_due_ns:
                channel.credit_due_ns = now_ns + CREDIT_WITHIN_NS
            if now_ns < channel.credit_due_ns:
                return []
        channel.uncredited_bytes = 0
        channel.credit_due_ns = 0
        channel.resize(self._credit_bytes, now_ns)
        return self._credit_frame(channel, channel.link)

    def _grant(self, channel: InputChannel, link: bytes, now_ns: int) -> list[Effect]:
        """The log tells of an event with more elements than are here: what was delivered at once may come at once.

        Live, the allowance had grown until that much was here; a sender to a successor begins with the least.  Said
        again while the replay waits: the frame may be lost, and the sender be replaced.
        """
        if now_ns < channel.grant_due_ns:
            return []
        channel.grant_due_ns = now_ns + CREDIT_WITHIN_NS
        channel.allowance_bytes = self._credit_bytes
        channel.uncredited_bytes = 0
        channel.credit_due_ns = 0
        return self._credit_frame(channel, link)

    def _credit_frame(self, channel: InputChannel, link: bytes) -> list[Effect]:
        allowance_bytes, position = min(self._credit_bytes, channel.allowance_bytes), channel.credited
        header = wire.Header(
            wire.CREDIT, self.job, channel.id, self.incarnation, count=allowance_bytes, position=position
        )
        return [Reply(link, [header.pack()])]

    def next_deadline_ns(self) -> int | None:
        """When `pump` or `credit` has something to do although nothing arrives."""
        due = [o.hello_at_ns for o in self.outputs.values() if o.needs_hello]
        due += [o.progress_at_ns + PROBE_AFTER_NS + 1 for o in self.outputs.values() if o.waiting_for_credit]
        due += [c.credit_due_ns for c in self.inputs.values() if c.credit_due_ns]
        due += [c.grant_due_ns for c in self.inputs.values() if c.short and c.link is not None]
        return min(due, default=None)
