"""The fused operators of one task: causal.ports.Chain.

A chain is a tree of stages.  An event runs down the tree batch by batch; what leaves the task is
gathered by routes and encoded once, when the event ends (D10).  Given the same calls and the same
answers of the services, a chain gives the same bytes.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from functools import partial
from itertools import groupby
from typing import Any

from causal.batch import RECORDS, Chunk, Records, encode_records, watermark
from causal.errors import CausalError, PipelineError, invariant
from causal.ports import Output, PlainChain, Services
from causal.rows import listed
from causal.values import NotCarried, encode
from causal.vectors import Vectors
from operators.delivery import unite
from operators.failures import NO_KEY, Failures
from operators.ownership import own
from operators.routing import DirectRoute, Route, TurnRoute
from operators.stages import Ended, Stage
from operators.state import ChainSnapshot, FragmentJob, read_part


@dataclass(slots=True)
class Branch:
    """A stage with what its output goes to: fused stages, routes out of the task, or both."""

    stage: Stage
    children: list[Branch] = field(default_factory=list)
    routes: list[Route] = field(default_factory=list)
    made: Any = field(default_factory=list)
    """What the stage gave last in this event, to find the place of a record that cannot travel."""

    @property
    def leaves_straight(self) -> bool:
        """Whether all that the stage gives goes to channels as it is, never taken apart."""
        return all(type(route) is DirectRoute for route in self.routes)


@dataclass(frozen=True, slots=True)
class Input:
    """One input channel: what messages call it, and the key function of its edge."""

    label: str
    key_of: Callable[[Any], Any] | None = None


class Numbers:
    """Hands out 0, 1, 2 …; one per chain, part of its snapshot."""

    __slots__ = ("next",)

    def __init__(self) -> None:
        self.next = 0

    def __call__(self) -> int:
        self.next += 1
        return self.next - 1


class FusedChain(PlainChain):
    """The chain of every task but a sink's."""

    def __init__(
        self,
        root: Branch,
        inputs: Sequence[Input],
        outputs: Sequence[int],
        failures: Failures,
        numbers: Numbers,
        record_bytes_max: int,
        dead_letters: int | None = None,
    ) -> None:
        """
        Args:
            outputs: ordinals of the output channels that watermarks go to.
            numbers: the order in which timers are set.
            dead_letters: ordinal of the channel to the dead letters; None when failing records stop the job.
        """
        self._root = root
        self._branches = list(_descend(root))
        self._stages = [branch.stage for branch in self._branches]
        self._inputs = inputs
        self._outputs = outputs
        self._failures = failures
        self._numbers = numbers
        self._record_bytes_max = record_bytes_max
        self._dead_letters = dead_letters
        self._turns = [route for branch in self._branches for route in branch.routes if isinstance(route, TurnRoute)]
        self._marks: list[int | None] = [None] * len(inputs)
        self._marked: int | None = None
        self._keys: list[Any] = []
        self._opened = False

    # Events.

    def open(self) -> None:
        """Call the operators' `open` now rather than at the first event; a standby does, to be ready.

        Raises:
            OperatorFailed: one of them raised.
        """
        if not self._opened:
            self._opened = True
            for stage in self._stages:
                stage.open()

    def deliver(self, input: int, chunks: Sequence[Chunk], first: int, services: Services) -> list[Output]:
        records, origin_ns, mark = unite(chunks)
        channel = self._inputs[input]
        self._failures.delivering(channel.label, first, chunks)
        self._begin(services)
        if records:
            stage = self._root.stage
            if channel.key_of is None or isinstance(records, Vectors):
                self._spread(self._root, stage.run(listed(records), None))
            else:
                self._feed_keyed(records if stage.takes_rows else listed(records), channel.key_of)
        outputs = self._end(origin_ns)
        if mark is not None:
            outputs += self._watermarks(input, mark)
        return outputs

    def _feed_keyed(self, records: Any, key_of: Callable[[Any], Any]) -> None:
        try:
            keys = self._keys = list(map(key_of, records))
            if len(keys) != len(records):
                raise Ended("the function given to key_by raised StopIteration")
        except CausalError:
            raise
        except Exception as problem:
            self._failures.stop(self._root.stage.name, listed(records), problem)
        self._spread(self._root, self._root.stage.run(records, keys))

    def next_timer_ns(self) -> int | None:
        earliest = None
        for stage in self._stages:
            next_ns = stage.next_ns()
            if next_ns is not None and (earliest is None or next_ns < earliest):
                earliest = next_ns
        return earliest

    def fire(self, due_ns: int, services: Services) -> list[Output]:
        self._failures.elsewhere("as a timer or window fired")
        self._begin(services)
        due = [(entry[:3], entry, branch) for branch in self._branches for entry in branch.stage.due(due_ns)]
        due.sort(key=lambda found: found[0])
        for _, group in groupby(due, key=lambda found: id(found[2])):
            entries = list(group)
            branch = entries[0][2]
            self._spread(branch, branch.stage.fire([entry for _, entry, _ in entries]))
        return self._end(0)

    def finish(self, services: Services) -> list[Output]:
        self._failures.elsewhere("as the input ended")
        self._begin(services)
        for branch in self._branches:
            self._spread(branch, branch.stage.finish())
        return self._end(0)

    def _begin(self, services: Services) -> None:
        if not self._opened:
            self.open()
        for stage in self._stages:
            stage.begin(services)

    def _end(self, origin_ns: int) -> list[Output]:
        for stage in self._stages:
            stage.end()
        outputs: list[Output] = []
        for branch in self._branches:
            for route in branch.routes:
                for ordinal, records in route.drain():
                    self._encode(branch, ordinal, records, origin_ns, outputs)
            branch.made = []
        self._keys = []
        outputs.sort(key=lambda output: output[0])
        letters = self._failures.letters
        if letters:
            invariant(self._dead_letters is not None, "dead letters have a channel")
            outputs.append((self._dead_letters or 0, Chunk(RECORDS, len(letters), encode_records(letters), origin_ns)))
            letters.clear()
        return outputs

    # Records.

    def _spread(self, branch: Branch, records: Any) -> None:
        """Hand what a stage gave to its routes and to the stages fused behind it."""
        if not records:
            return
        if branch.children or not branch.leaves_straight:
            records = listed(records)
        branch.made = records
        for route in branch.routes:
            route.add(records, partial(self._unroutable, branch, route.target))
        readers = len(branch.routes) + len(branch.children)
        for child in branch.children:
            readers -= 1
            # A stream that is used more than once: no branch sees what another does to its records.
            last = readers == 0 and not branch.routes
            given = records if last or isinstance(records, Vectors) else list(map(own, records))
            self._spread(child, child.stage.run(given, None))

    def _unroutable(self, branch: Branch, target: str, index: int, key: Any, problem: Exception) -> None:
        came_from, _ = self._came_from(branch, index)
        self._failures.failed(f"key_by before {target}", key, came_from, branch.made[index], problem)

    def _came_from(self, branch: Branch, index: int | None) -> tuple[int | None, Any]:
        """(index among the delivered records, key) of what led to the stage's output `index`, where it is known."""
        if index is None or not self._failures.delivers:
            return None, NO_KEY
        if not branch.stage.traces:
            return None, NO_KEY
        source = branch.stage.source_of(index)
        came_from = branch.stage.root_index(source)
        return came_from, self._keys[came_from] if self._keys and came_from is not None else NO_KEY

    def _encode(self, branch: Branch, ordinal: int, records: Records, origin_ns: int, outputs: list[Output]) -> None:
        """One chunk of these records; those that cannot travel fail one by one."""
        if isinstance(records, Vectors):
            outputs.append((ordinal, Chunk(RECORDS, len(records), records.encode(), origin_ns)))
            return
        try:
            body = encode_records(records)
        except NotCarried:
            body = b""
        if not body or len(body) > self._record_bytes_max:
            branch.made = listed(branch.made)
            places = iter(enumerate(branch.made))  # records are there in the same order, with others between them
            records = [record for record in listed(records) if self._travels(branch, record, places)]
            if not records:
                return
            body = encode_records(records)
        outputs.append((ordinal, Chunk(RECORDS, len(records), body, origin_ns)))

    def _travels(self, branch: Branch, record: Any, places: Iterator[tuple[int, Any]]) -> bool:
        index = next((index for index, made in places if made is record), None)
        try:
            size = len(encode(record))
            if size <= self._record_bytes_max:
                return True
            raise ValueError(
                f"it is {size} bytes, record_bytes_max allows {self._record_bytes_max}; raise it, or split the record"
            )
        except (NotCarried, ValueError) as problem:
            came_from, key = self._came_from(branch, index)
            self._failures.failed(branch.stage.name, key, came_from, record, problem)
        return False

    def _watermarks(self, input: int, mark: int) -> list[Output]:
        """A watermark on each output when the minimum over the inputs has risen."""
        self._marks[input] = max(mark, self._marks[input] or mark)
        reached = [known for known in self._marks if known is not None]
        lowest = min(reached)
        if len(reached) < len(self._marks) or (self._marked is not None and lowest <= self._marked):
            return []
        self._marked = lowest
        return [(ordinal, watermark(lowest)) for ordinal in self._outputs]

    # Snapshots.

    def snapshot(self, full: bool) -> ChainSnapshot:
        stages: dict[str, Any] = {}
        jobs: list[FragmentJob] = []
        for stage in self._stages:
            stages[stage.name], frozen = stage.freeze(full)
            jobs += frozen
        header = {
            "stages": {name: told for name, told in stages.items() if told},
            "numbers": self._numbers.next,
            "turns": [route.turn for route in self._turns],
            "marks": self._marks,
            "marked": self._marked,
        }
        return ChainSnapshot(full, header, jobs)

    def restore(self, parts: Iterable[bytes]) -> None:
        loaders = {name: load for stage in self._stages for name, load in stage.loaders().items()}
        for part in parts:
            header, tables = read_part(part)
            if header is not None:
                self._restore_header(header)
            for name, fragments in tables.items():
                if name not in loaders:
                    known = ", ".join(loaders) or "none"
                    raise PipelineError(
                        f"the checkpoint holds state {name!r}, which this pipeline has not (it has {known}); "
                        "resume with the pipeline that wrote it, or begin a new job"
                    )
                for fragment in fragments:
                    loaders[name](fragment)
        for stage in self._stages:
            stage.restored()

    def _restore_header(self, header: dict[str, Any]) -> None:
        turns, marks = header["turns"], header["marks"]
        if len(turns) != len(self._turns) or len(marks) != len(self._inputs):
            raise PipelineError("the checkpoint is of another task graph; resume with the pipeline that wrote it")
        for stage in self._stages:
            stage.load_header(header["stages"].get(stage.name, {}), header["full"])
        for route, turn in zip(self._turns, turns, strict=True):
            route.turn = turn
        self._numbers.next = header["numbers"]
        self._marks, self._marked = list(marks), header["marked"]


def _descend(branch: Branch) -> Iterable[Branch]:
    """The branch and all below it, each before its children, in the order of the stages' ordinals."""
    found = [branch]
    place = 0
    while place < len(found):
        found += found[place].children
        place += 1
    return sorted(found, key=lambda branch: branch.stage.ordinal)
