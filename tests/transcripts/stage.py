"""The world of a transcript: tasks of the production core, links, stores, partitions, disk and death, all by command.

It owns time and chance: nothing happens unless a command says so, and the clock stands still unless one moves it.
Every effect of a task becomes a line of the conversation.  What a supervisor would do on its own (announce a death,
complete a checkpoint) is done here immediately; `supervised.Supervised` puts the real one in its place.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from causal.channels import wire
from causal.config import JobConfig
from causal.effects import Effect
from causal.errors import CausalError
from causal.events import (
    CheckpointCompleted,
    CheckpointRequested,
    Event,
    FrameReceived,
    HotStandbyUp,
    PeerDown,
    Started,
    Turn,
)  # fmt: skip
from causal.ids import HOT_STANDBY
from causal.logs.dissemination import NO_KNOWLEDGE, Knowledge
from causal.logs.rollback import NO_ROLLBACK, Rollback
from causal.records import batch
from causal.task.task import TaskProtocol
from causal.topology import Topology
from operators.testing.cluster import Cluster, Ends
from tests.tasks import task_of
from tests.transcripts.hot import Image, Standby
from tests.transcripts.operators import MS, Numbering, answer_of
from tests.transcripts.outside import NoRequests, NotedDisk, NotedReader, NotedStore, Outside
from tests.transcripts.peers import label
from tests.transcripts.process import Onlooker, Process
from tests.transcripts.script import Line
from tests.transcripts.words import Words, counted, elements_of, size

SILENT_PHASES = ("collected", "replayed", "running", "first_output")
"""The phases that the states already show."""


class Stage(Cluster[Process]):
    """All that there is, in this scenario."""

    def __init__(self, topology: Topology, config: JobConfig, traits: dict[str, dict[str, int]]) -> None:
        super().__init__(topology, config)
        self.traits = traits
        self.lines: list[Line] = []
        self.entropy_drawn = self.asked_outside = 0
        self.cuts: set[tuple[int, int]] = set()
        self.outside = Outside(topology, self.say, self.feed)
        self.words = Words(topology, self.outside.filed)
        self.acked: set[int] = set()
        self.ended: dict[str, str] = {}
        self.standbys: dict[int, Standby] = {}
        self._elements: dict[tuple[int, int], str] = {}

    # -- what tasks have effects on ----------------------------------------------------------------------

    def disk(self, process: Process) -> NotedDisk:
        return NotedDisk(self.outside, process)

    def store(self, process: Process, channel: int) -> NotedStore:
        return NotedStore(self.outside, process, channel)

    def reader(self, process: Process, channel: int) -> NotedReader:
        return NotedReader(self.outside, process, channel)

    def requests(self, process: Process) -> NoRequests:
        return NoRequests()

    def entropy(self) -> bytes:
        self.entropy_drawn += 1
        return bytes((self.entropy_drawn * 0x51 % 256, self.entropy_drawn)) * 8

    # -- tasks -----------------------------------------------------------------------------------------

    def say(self, who: str, what: str, *parts: str) -> None:
        self.lines.append(Line(who, what, tuple(part for part in parts if part)))

    def start_all(self) -> None:
        """The job begins: everybody has been introduced to everybody."""
        started = [self.create(index, 1) for index in self.incarnations]
        for process in started:
            self.introduce(process)
        for process in started:
            self.feed(process, Started())

    def promote(self, index: int) -> None:
        """Promote a standby to the task and announces it to its neighbours."""
        process = self._hot(index, self.incarnations[index] + 1) or self.create(index, self.incarnations[index] + 1)
        self.introduce(process)
        self.feed(process, Started())
        if self.asked > self.complete and self.topology.is_source(process.index):  # type: ignore[arg-type]
            self.say("supervisor", "asks", f"{process.shown} for checkpoint {self.asked} again")
            self.feed(process, CheckpointRequested(self.asked))

    def create(
        self, index: int, incarnation: int, rollback: Rollback = NO_ROLLBACK, retained: Knowledge = NO_KNOWLEDGE
    ) -> Process:
        """Return an incarnation of a task, from the state of the last complete checkpoint."""
        heard: list[str] = []
        protocol = self._protocol(index, incarnation, self._image(index, incarnation), heard, rollback, retained)
        since = f"from checkpoint {self.complete}" if self.complete else "from the beginning"
        return self._begun(index, incarnation, protocol, heard, since)

    def _image(self, index: int, incarnation: int) -> Image:
        """Return the state of a task at the last complete checkpoint."""
        parts = self.outside.snapshots[index, self.complete] if self.complete else []
        return Image(self._operator(index, incarnation), parts)

    def _protocol(
        self,
        index: int,
        incarnation: int,
        image: Image,
        heard: list[str],
        rollback: Rollback = NO_ROLLBACK,
        retained: Knowledge = NO_KNOWLEDGE,
    ) -> TaskProtocol:
        return task_of(
            self.topology, index, incarnation, self.config, image.operator, self, image.cut,
            report=heard.append, rollback=rollback, retained=retained,
            replayed_per_turn=1,  # so that each event can be seen
            small_per_turn=1,
        )  # fmt: skip

    def _begun(self, index: int, incarnation: int, protocol: TaskProtocol, heard: list[str], since: str) -> Process:
        name = self.words.names[index]
        process = Process(
            index=index, incarnation=incarnation, protocol=protocol, name=name, words=self.words, heard=heard
        )
        self.add(process)
        if incarnation > 1:
            self.say(process.shown, "starts", since)
        self.acked.discard(index)
        return process

    # -- hot standbys ----------------------------------------------------------------------------------

    def stand_by(self, process: Process) -> None:
        """A hot standby of a task starts, loads the last complete checkpoint, and is named to its task."""
        index = process.index
        standby = Standby(
            index, self.words, process.protocol.exchange.job,
            lambda image, heard: self._protocol(index, 0, image, heard), self.say, self._element,
        )  # fmt: skip
        self.standbys[index] = standby
        self.hear(process)
        process.dialled[HOT_STANDBY] = 0
        self.feed(process, HotStandbyUp())

    def hear(self, process: Process) -> None:
        """A hot standby hears which checkpoint is complete."""
        index, incarnation = process.life
        self.standbys[index].follow(incarnation, self.complete, lambda: self._image(index, incarnation))

    def answer(self, process: Process) -> None:
        """The oldest answer of a hot standby arrives at its task."""
        parts = self.standbys[process.index].answers.popleft()
        self.say(process.shown, "takes", self.words.gist(parts, process.protocol.exchange.job))
        before = process.protocol.echo.state
        self.feed(process, FrameReceived(b"", parts))
        after = process.protocol.echo.state
        if after is not before:
            self.say(process.shown, "echo is", after.value)

    def lose_between(self, process: Process, answer: bool) -> None:
        """The oldest frame to a hot standby, or the oldest answer of it, is lost."""
        standby, job = self.standbys[process.index], process.protocol.exchange.job
        ends = (standby.shown, process.shown) if answer else (process.shown, standby.shown)
        parts = standby.answers.popleft() if answer else standby.echoes.popleft()
        self.say(f"{ends[0]} -> {ends[1]}", "LOST", self.words.gist(parts, job))

    def _hot(self, index: int, incarnation: int) -> Process | None:
        """Return the hot standby of a task as its next incarnation, if there is one that can take over."""
        standby = self.standbys.pop(index, None)
        protocol = None if standby is None else standby.promoted(incarnation, self.complete)
        if standby is None or protocol is None:
            return None
        return self._begun(index, incarnation, protocol, standby.heard, f"as {standby.shown} is")

    def _operator(self, index: int, incarnation: int) -> Numbering:
        kind = "source" if self.topology.is_source(index) else "sink" if self.topology.is_sink(index) else "operator"  # type: ignore[arg-type]
        traits = self.traits.get(self.words.names[index], {})
        outputs = len(self.topology.outputs(index))  # type: ignore[arg-type]
        return Numbering(kind, outputs, traits, self._ask(index, incarnation), f"#{incarnation}")

    def _ask(self, index: int, incarnation: int) -> Callable[[int], bytes]:
        def ask(bytes_wanted: int) -> bytes:
            self.asked_outside += 1
            text = f"yes{self.asked_outside}"
            answer = text if bytes_wanted <= len(text) else f"{size(bytes_wanted)}"
            self.say(f"{self.words.names[index]}{incarnation} -> outside", "CALL", f"answered: {answer}")
            return answer_of(text, bytes_wanted)

        return ask

    def introduce_to(self, process: Process | None, peer: Process | None) -> None:
        if process is None or not process.paused:
            super().introduce_to(process, peer)

    def answer_reads(self) -> None:
        """Deliver everything that was requested and is available now."""
        for process in self.in_order():
            self.read_again(process)

    def in_order(self) -> list[Process]:
        """Return the processes that live, by task and incarnation."""
        return [process for _, process in sorted(self.processes.items())]

    def kill(self, victims: list[Process]) -> None:
        """Kill processes together, with all they held and all that was on its way to them."""
        for process in victims:
            self.say(process.shown, "dies")
            self.forget(process)
        for process in victims:
            if self._youngest(process):
                self.announce_death(process)

    def _youngest(self, process: Process) -> bool:
        return self.incarnations[process.index] == process.incarnation

    def lose(self, ends: Ends) -> None:
        """The oldest frame on a link is lost."""
        parts = self.links[ends].popleft()
        names = [f"{self.words.names[index]}{incarnation}" for index, incarnation in (ends[:2], ends[2:])]
        job = self.processes[ends[2:]].protocol.exchange.job
        self.say(f"{names[0]} -> {names[1]}", "LOST", self.words.gist(parts, job))

    def forge(self, kind: str, source: int, target: int, incarnation: int) -> None:
        """A process outside the job, which knows its fingerprint, writes to a task's socket as that incarnation."""
        receiver = self.processes[target, self.incarnations[target]]
        channel = next(c.id for c in self.topology.channels if (c.source, c.target) == (source, target))
        if kind == "FENCED":  # an answer, on a channel that begins where it is sent to
            channel = next((c.id for c in self.topology.outputs(receiver.index)), channel)  # type: ignore[arg-type]
        header = wire.Header(getattr(wire, kind), receiver.protocol.exchange.job, channel, incarnation)
        rest = {"HELLO": [wire.Hello(1, 0, 1 << 40, 0, False).pack()], "DATA": [b"", b""], "FENCED": []}[kind]
        self.say(f"forger -> {receiver.shown}", kind, f"as incarnation {incarnation} of {self.words.names[source]}")
        self.feed(receiver, FrameReceived(f"{source}/{incarnation}".encode(), [header.pack(), *rest]))

    def cut(self, source: int, target: int) -> None:
        """Frames of that direction are lost from now on, and those on their way too."""
        self.cuts.add((source, target))
        for ends, frames in self.links.items():
            while frames and (ends[0], ends[2]) == (source, target):
                self.lose(ends)

    def forget(self, process: Process) -> None:
        super().forget(process)
        self.outside.forget(process)
        self.acked.discard(process.index)

    def announce_death(self, process: Process) -> None:
        """Announce a death, as the supervisor does."""
        for other in self.topology.upstream(process.index):  # type: ignore[arg-type]
            neighbour = self.current(other)
            if neighbour is not None:
                self.say(neighbour.shown, "hears", f"{process.shown} is dead")
                self.feed(neighbour, PeerDown(process.index, process.incarnation))

    # -- one step of one task --------------------------------------------------------------------------

    def handled(self, process: Process, event: Event) -> Sequence[Effect]:
        onlooker = Onlooker(process, self._element)
        try:
            return super().handled(process, event)
        finally:
            self.lines += onlooker.lines()

    def act(self, process: Process, action: Callable[[], None]) -> None:
        try:
            action()
        except CausalError as problem:
            self.fail(process, problem)

    def fail(self, process: Process, problem: CausalError) -> None:
        """The process ends with an error."""
        self.say(process.shown, "fails", f"{type(problem).__name__}: {problem}")
        self.ended[process.shown] = type(problem).__name__
        self.forget(process)
        if self._youngest(process):
            self.announce_death(process)

    def _element(self, channel: int, position: int) -> str:
        partition = self.outside.partitions.get(channel)
        if partition is not None:
            return label(partition.records[position]) if position < len(partition.records) else "|end|"
        return self._elements.get((channel, position), "?")

    # -- frames ----------------------------------------------------------------------------------------

    def transmit(self, process: Process, target: int, incarnation: int, parts: list[bytes]) -> None:
        job = process.protocol.exchange.job
        kind, said = self.words.frame(parts, job, process.log_bytes)
        if target == HOT_STANDBY:
            standby = self.standbys[process.index]
            standby.echoes.append(parts)
            self.say(f"{process.shown} -> {standby.shown}", kind, *said)
            return
        if kind == "DATA":
            self._note_elements(parts, job)
        lost = "" if (target, incarnation) in self.processes else "(no process)"
        if (process.index, target) in self.cuts:
            lost = "(lost: the link is cut)"
        else:
            super().transmit(process, target, incarnation, parts)
        self.say(f"{process.shown} -> {self.words.names[target]}{incarnation}", kind, *said, lost)

    def _note_elements(self, parts: list[bytes], job: int) -> None:
        header = wire.read_header(parts, job)
        words = elements_of(batch.unpack_chunks(wire.unpack_payload(header, parts[2]))) if header.count else []
        for place, name in enumerate(words):
            self._elements[header.channel, header.position + place] = name

    def deliver(self, ends: Ends, say: bool = False) -> None:
        """Deliver the oldest frame on a link; with `say` it becomes a line."""
        if say:
            receiver = self.processes[ends[2:]]
            self.say(receiver.shown, "takes", self.words.gist(self.links[ends][0], receiver.protocol.exchange.job))
        super().deliver(ends)

    # -- what a task reports to its supervisor --------------------------------------------------------------

    def reported(self, process: Process, kind: str, facts: dict[str, Any]) -> None:
        if kind == "phase":
            if facts["phase"] not in SILENT_PHASES:
                rows = f" ({counted(facts['detail'], 'row')})" if facts["detail"] else ""
                self.say(process.shown, "reports", facts["phase"] + rows)
        elif kind == "snapshot":
            self.say(f"{process.shown} -> supervisor", "ACK", f"checkpoint {facts['epoch']}")
            if facts["epoch"] == self.asked:
                self.acked.add(process.index)
        elif kind == "finding":
            self.say(process.shown, "answers", f"inquiry {facts['number']}")

    def checkpoint(self) -> None:
        """Request the next checkpoint from the sources."""
        self.asked = self.complete + 1
        for process in self.sources():
            self.say(f"supervisor -> {process.shown}", "BARRIER", f"put barrier {self.asked} into the stream")
            self.feed(process, CheckpointRequested(self.asked))

    def settle(self) -> None:
        """Complete the current checkpoint once all tasks have acknowledged it."""
        if self.asked == self.complete or len(self.acked) < len(self.incarnations):
            return
        self.complete, self.acked = self.asked, set()
        self.say("supervisor", "complete", f"checkpoint {self.complete}; everybody truncates")
        for index in self.incarnations:
            process = self.current(index)
            if process is not None:
                self.complete_at(process)

    def complete_at(self, process: Process) -> None:
        """One task learns that the checkpoint is complete."""
        before = footprint(process)
        self.feed(process, CheckpointCompleted(self.complete))
        self.say(process.shown, "keeps", f"determinants {before[0]} -> {footprint(process)[0]} bytes",
                 f"in flight {before[1]} -> {footprint(process)[1]} elements")  # fmt: skip

    # -- the course of things --------------------------------------------------------------------------

    def step(self) -> bool:
        """Perform the next action: a frame arrives, else a task has a turn; false if there is none."""
        for ends, frames in self.links.items():
            if frames and not self.processes[ends[2:]].paused:
                self.deliver(ends)
                return True
        for process in self.in_order():
            if not process.paused and not process.protocol.idle:
                self.feed(process, Turn())
                return True
        return False

    def deadlines_ns(self) -> list[int]:
        """Return the moments for which a task waits."""
        alive = [process for process in self.processes.values() if not process.paused]
        due = [process.protocol.next_deadline_ns(self.now_ns) for process in alive]
        return [at for at in due if at is not None]

    def jump(self) -> bool:
        """Advance the time to the next moment for which a task waits; false if there is none."""
        due = self.deadlines_ns()
        if not due:
            return False
        span_ms = max(1, -((self.now_ns - min(due)) // MS))
        self.say("time", "passes", f"{span_ms} ms")
        self.wait(span_ms)
        return True

    def wait(self, span_ms: int) -> None:
        """Advance the time; each task that waited for it has a turn."""
        self.now_ns += span_ms * MS
        for process in self.in_order():
            due = process.protocol.next_deadline_ns(self.now_ns)
            if not process.paused and due is not None and due <= self.now_ns:
                self.feed(process, Turn())


def footprint(process: Process) -> tuple[int, int]:
    """Return (bytes of determinants held, elements in flight) of one task."""
    outputs: Any = process.protocol.channels.downstream.values()
    return process.protocol.holdings.size, sum(output.log.end - output.log.start for output in outputs)
