"""Carries out the commands of a transcript, one after the other, on a stage.

job A -> C, B -> C, C -> D  batch=2 depth=1     tasks and channels; sources read, sinks write; starts them
job A -> B -> C  flush=background               determinants go to stable storage too
supervised job ...                              the same under the production supervisor
operator B: clock timer                         what an operator uses; before `job`
records A: a b c*40000                          what the source can read from now on (`*N`: N bytes long)
end A                                           nothing follows in its partition
turn A [N]                                      it performs what comes next
deliver A->B [N|all]                            frames arrive
lose A->B                                       the oldest frame on its way does not
step [N] | run [until CONDITION]                whatever is next: frames first, then turns
kill A B | pause A | wake A1 | promote A B      incarnations may be named: `A1`
forge HELLO|DATA|FENCED A->B N                  a process outside the job writes to B as incarnation N of A
cut A->B | heal                                 frames of that direction are lost from now on
standby B | hear B                              a hot standby of B starts; it hears which checkpoint is complete
echo B [N|all] | answer B                       frames to that standby arrive, it performs; its answer arrives
lose echo B | lose answer B                     the oldest frame to it, or answer of it, does not
change facts|prepare [A -> B]|follow|stand|write|commit|cancel     the next step of a command that changes the job
kill supervisor [after its next decisions] | restart supervisor
checkpoint | slow disk | fast disk | wait 200ms
quietly COMMAND                                 only a count of the frames is written down
expect CONDITION                                see `conditions`
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Callable, Iterator

from benchmarks.harness.graphs import graph
from causal.config import JobConfig
from causal.events import Turn
from causal.ids import OUTSIDE
from causal.topology import Topology
from tests.transcripts.changing import Changing
from tests.transcripts.conditions import mismatch
from tests.transcripts.operators import TRAITS
from tests.transcripts.peers import Partition
from tests.transcripts.process import Process
from tests.transcripts.script import Block, Line, aligned
from tests.transcripts.stage import Stage
from tests.transcripts.supervised import Supervised

STEPS_MAX = 3000
JUMPS_MAX = 40
LINES_BEFORE = 4
"""Conversations that are shown before a command that fails."""
SETTINGS = {"batch": "batch_elements_max", "depth": "sharing_depth", "credit": "channel_window_bytes"}
SETTINGS |= {"memory": "inflight_memory_bytes_max"}


class Unmet(AssertionError):
    """An `expect` that does not hold, or a command that cannot be carried out here."""


def replayed(blocks: list[Block]) -> list[Block]:
    """Return the same transcript with the conversation that its commands cause now.

    Raises:
        Unmet: an expectation does not hold.
    """
    interpreter = Interpreter()
    conversations: list[list[Line]] = []
    for command in (block.command for block in blocks if block.command is not None):
        try:
            conversations.append(interpreter.carry_out(command))
        except Unmet as problem:
            last = [text for conversation in aligned(conversations)[-LINES_BEFORE:] for text in conversation]
            raise Unmet("\n".join([*last, str(problem)])) from problem
    conversation = aligned(conversations)
    fresh = iter(conversation)
    return [block if block.command is None else Block(block.command, next(fresh)) for block in blocks]


class Interpreter:
    """One scenario."""

    def __init__(self) -> None:
        self._stage: Stage | None = None
        self._traits: dict[str, dict[str, int]] = {}
        self._above: list[str] = []
        """The conversation since the commands that follow the last `expect`."""
        self._expected = False

    @property
    def stage(self) -> Stage:
        if self._stage is None:
            raise Unmet("there is no job yet; begin with: job A -> B")
        return self._stage

    def carry_out(self, command: str) -> list[Line]:
        """Perform a command; returns the conversation that it caused."""
        verb, _, rest = command.partition(" ")
        if verb == "quietly":
            return _counted(self.carry_out(rest))
        act = _VERBS.get(verb)
        if act is None:
            raise Unmet(f"{command!r} is not a command; known are {', '.join(_VERBS)}")
        if verb != "expect" and self._expected:
            self._above, self._expected = [], False
        try:
            act(self, rest.strip())
        except (KeyError, ValueError, IndexError) as problem:
            raise Unmet(f"> {command}: {problem!r}") from problem
        if self._stage is None:
            return []
        self._stage.settle()
        lines, self._stage.lines = self._stage.lines, []
        self._above += [" ".join((line.who, line.what, *line.parts)) for line in lines]
        return lines

    # -- the job ---------------------------------------------------------------------------------------

    def do_job(self, rest: str, supervised: bool = False) -> None:
        words = rest.split()
        values = dict(part.split("=") for part in words if "=" in part)
        flush = values.pop("flush", "off")
        settings = {SETTINGS[name]: int(value) for name, value in values.items()}
        settings.setdefault("channel_window_bytes", 1 << 16)
        config = JobConfig("r", "transcript", "p", determinant_flush=flush, **settings)  # type: ignore[arg-type]
        topology = topology_of(" ".join(part for part in words if "=" not in part))
        self._stage = (Changing if supervised else Stage)(topology, config, self._traits)
        self._stage.start_all()

    def do_supervised(self, rest: str) -> None:
        self.do_job(rest.removeprefix("job "), supervised=True)

    @property
    def supervised(self) -> Supervised:
        if not isinstance(self.stage, Supervised):
            raise Unmet("there is no supervisor; begin with: supervised job A -> B")
        return self.stage

    def do_change(self, rest: str) -> None:
        if not isinstance(self.stage, Changing):
            raise Unmet("only a supervised job changes")
        step, _, text = rest.partition(" ")
        if step == "write":
            self.stage.write_change()
        else:
            self.stage.request(step, topology_of(text) if text else None)

    def do_operator(self, rest: str) -> None:
        if self._stage is not None:
            raise ValueError("say what operators use before the job begins")
        name, _, traits = rest.partition(":")
        found_traits = [trait.partition("=") for trait in traits.split()]
        if any(trait not in TRAITS for trait, _, _ in found_traits):
            raise ValueError(f"traits are {', '.join(TRAITS)}")
        self._traits[name] = {trait: int(count or 4) for trait, _, count in found_traits}

    def do_records(self, rest: str) -> None:
        name, _, words = rest.partition(":")
        partition = self._partition(name)
        for part in words.split():
            text, _, bytes_wanted = part.partition("*")
            partition.records.append((text, "." * int(bytes_wanted)) if bytes_wanted else text)
        self.stage.answer_reads()

    def do_end(self, rest: str) -> None:
        self._partition(rest).ended = True
        self.stage.answer_reads()

    def _partition(self, name: str) -> Partition:
        index = self.stage.words.names.index(name)
        channel = self.stage.topology.inputs(index)[0]  # type: ignore[arg-type]
        if channel.source != OUTSIDE:
            raise ValueError(f"{name} is not a source")
        return self.stage.outside.partitions[channel.id]

    # -- what happens ----------------------------------------------------------------------------------

    def process(self, name: str) -> Process:
        """Return the process of a name: `B` is the highest incarnation, `B1` that one."""
        match = re.fullmatch(r"([A-Z]+)(\d*)", name)
        if match is None:
            raise ValueError(f"{name!r} is no task; say B, or B2 for its incarnation 2")
        task, incarnation = match.groups()
        index = self.stage.words.names.index(task)
        process = self.stage.processes.get((index, int(incarnation or self.stage.incarnations[index])))
        if process is None:
            raise Unmet(f"{name} does not live")
        return process

    def do_turn(self, rest: str) -> None:
        name, *count = rest.split()
        for _ in range(int(count[0]) if count else 1):
            self.stage.feed(self.process(name), Turn())

    def _link(self, text: str) -> tuple[int, int, int, int]:
        source, target = (self.process(name) for name in text.split("->"))
        return source.index, source.incarnation, target.index, target.incarnation

    def do_deliver(self, rest: str) -> None:
        text, *count = rest.split()
        ends = self._link(text)
        frames = self.stage.links.get(ends, ())
        wanted = len(frames) if count == ["all"] else int(count[0]) if count else 1
        if wanted > len(frames) or not wanted:
            raise Unmet(f"{len(frames)} frames are on their way {text}, not {wanted}")
        for _ in range(wanted):
            self.stage.deliver(ends, say=True)

    def do_forge(self, rest: str) -> None:
        kind, ends, incarnation = rest.split()
        source, _, target, _ = self._link(ends)
        self.stage.forge(kind, source, target, int(incarnation))

    def do_lose(self, rest: str) -> None:
        what, _, name = rest.partition(" ")
        if what in ("echo", "answer"):
            self.stage.lose_between(self.process(name), what == "answer")
        else:
            self.stage.lose(self._link(rest))

    def do_standby(self, rest: str) -> None:
        self.stage.stand_by(self.process(rest))

    def do_hear(self, rest: str) -> None:
        self.stage.hear(self.process(rest))

    def do_echo(self, rest: str) -> None:
        name, *count = rest.split()
        standby = self.stage.standbys[self.process(name).index]
        for _ in range(len(standby.echoes) if count == ["all"] else int(count[0]) if count else 1):
            standby.arrives()

    def do_answer(self, rest: str) -> None:
        self.stage.answer(self.process(rest))

    def do_step(self, rest: str) -> None:
        for _ in range(int(rest or 1)):
            if not self.stage.step():
                raise Unmet("nothing is left to happen")

    def do_run(self, rest: str) -> None:
        condition = rest.removeprefix("until ").strip()
        jumps = 0
        for _ in range(STEPS_MAX):
            if condition and not mismatch(self.stage, condition, []):
                return
            if self.stage.step():
                self.stage.settle()
                continue
            if not condition:
                return
            jumps += 1
            if jumps > JUMPS_MAX or not self.stage.jump():
                raise Unmet(f"{condition!r} does not come true: {mismatch(self.stage, condition, [])}")
        raise Unmet(f"{STEPS_MAX} steps and no end")

    def do_kill(self, rest: str) -> None:
        if rest.startswith("supervisor after"):
            self.supervised.dies_after_journal = True
            return
        if rest == "supervisor":
            self.supervised.kill_supervisor()
            return
        victims = [self.process(name) for name in rest.split()]
        self.stage.kill(victims)

    def do_restart(self, rest: str) -> None:
        self.supervised.start_supervisor()

    def do_pause(self, rest: str) -> None:
        self.process(rest).paused = True

    def do_wake(self, rest: str) -> None:
        process = self.process(rest)
        process.paused = False
        self.stage.answer_reads()

    def do_promote(self, rest: str) -> None:
        for name in rest.split():
            self.stage.promote(self.stage.words.names.index(name))

    def do_cut(self, rest: str) -> None:
        source, target = (self.process(name).index for name in rest.split("->"))
        self.stage.cut(source, target)

    def do_heal(self, rest: str) -> None:
        self.stage.cuts.clear()

    def do_checkpoint(self, rest: str) -> None:
        self.stage.checkpoint()

    def do_slow(self, rest: str) -> None:
        self.stage.outside.slow = True

    def do_fast(self, rest: str) -> None:
        self.stage.outside.release_disk()

    def do_wait(self, rest: str) -> None:
        self.stage.wait(int(rest.removesuffix("ms")))

    def do_expect(self, rest: str) -> None:
        self._expected = True
        instead = mismatch(self.stage, rest, self._above)
        if instead:
            raise Unmet(f"> expect {rest}: {instead}")


def topology_of(text: str) -> Topology:
    """Read `A -> C, B -> C, C -> D`: tasks in the order in which they are named first."""
    names: list[str] = []
    joins: list[tuple[str, str]] = []
    for chain in text.split(","):
        links = [name.strip() for name in chain.split("->")]
        names += [name for name in links if name not in names]
        joins += zip(links, links[1:])
    names.sort()
    ends = _ends(names, joins)
    return graph(names, *ends)


def _ends(names: list[str], joins: list[tuple[str, str]]) -> Iterator[tuple[int, int]]:
    yield from ((OUTSIDE, names.index(name)) for name in names if not any(target == name for _, target in joins))
    yield from ((names.index(source), names.index(target)) for source, target in joins)
    yield from ((names.index(name), OUTSIDE) for name in names if not any(source == name for source, _ in joins))


def _counted(lines: list[Line]) -> list[Line]:
    """One line for many: how many of what."""
    kinds = Counter(line.what for line in lines if "->" in line.who)
    return [Line("...", ", ".join(f"{count} {kind}" for kind, count in sorted(kinds.items())))] if kinds else []


_VERBS: dict[str, Callable[[Interpreter, str], None]] = {
    name.removeprefix("do_"): method for name, method in vars(Interpreter).items() if name.startswith("do_")
}
