"""The fused operators of one task, as an implementation of `causal.ports.Chain`.

A chain is a tree of stages. An event is processed down the tree batch by batch. Routes collect the output that leaves
the task, and this output is encoded once, when the event ends (D10). A chain that receives the same calls and the same
results from the services returns the same bytes.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from functools import partial
from operator import itemgetter
from typing import Any

from causal.errors import CausalError, PeerViolation, invariant
from causal.ports import MergeRules, Output, Request, Services
from causal.records.batch import RECORDS, ROWS, Chunk, Records, encode_records, watermark
from causal.records.rows import copied, listed, passing
from causal.records.values import NotCarried
from operators.capture.active import NO_OPERATOR, Active
from operators.engine.chain_state import ChainState
from operators.engine.operator_chain import OperatorChain
from operators.records.cutting import CHUNK_BYTES_TARGET, pieces
from operators.records.delivery import unite
from operators.records.item_keys import keys_in
from operators.records.keys import Unroutable, canonical_keys
from operators.records.ownership import copy_containers
from operators.stage.branch import Branch, Input, Numbers, Tracing, descend
from operators.stage.failures import Failures
from operators.stage.scope import Arrival
from operators.stage.stages import Agenda, Ended, Stage
from operators.stage.watermark_merge import END_NS, IDLE_NS, Merge
from operators.state.snapshot_parts import ChainSnapshot, group_of_part
from operators.state.timers import TimerTable

_ORDINAL = itemgetter(0)


_PASSING = frozenset(("watermarks", "revisions", "group_by", "filter", "table_filter"))
"""The operator kinds whose output records are all, or some, of their input records."""


class FusedChain(OperatorChain):
    """The chain of every task that does not belong to a sink."""

    def __init__(
        self,
        root: Branch,
        inputs: Sequence[Input],
        failures: Failures,
        numbers: Numbers,
        record_bytes_max: int,
        arrival: Arrival,
        active: Active,
        dead_letters: int | None = None,
        requests: int | None = None,
        commutes: bool = False,
    ) -> None:
        """
        Args:
            numbers: the counter that orders timers and other state by creation time.
            arrival: the origin of the current records, for the stages.
            active: the `Active` that records which operator is running, for code without `ctx`.
            dead_letters: the ordinal of the dead-letter channel; None if failing records stop the job.
            requests: the ordinal of the channel to the request store; None if no operator makes requests or nothing is
                logged.
            commutes: whether each operator has no state or declares that its records commute.
        """
        self.commutes = commutes
        self._root = root
        self._branches = list(descend(root))
        self._stages = [branch.stage for branch in self._branches]
        self._begun = [stage for stage in self._stages if type(stage).begin is not Stage.begin]
        self._over = [stage for stage in self._stages if type(stage).end is not Stage.end]
        self._marking = [branch for branch in self._branches if branch.stage.makes_marks]
        self._asking = [branch for branch in self._branches if branch.stage.asks]
        for branch in self._branches:
            branch.plain = not (branch.sides or branch.stage.makes_marks)
            readers = len(branch.routes) + len(branch.children)
            branch.shared = failures.set_aside and not branch.vectors and bool(branch.routes) and readers > 1
            for table in branch.stage.tables():
                table.defined = failures.defined(branch.stage.shown_as)
        if failures.set_aside:
            for branch in reversed(self._branches):
                passing = (child.stage for child in branch.children if child.stage.kind in _PASSING)
                branch.stage.leaves = bool(branch.routes) or any(stage.leaves for stage in passing)
                branch.stage.tags_leaving = frozenset(tag for tag, side in branch.sides if side.stage.leaves)
        self._inputs = inputs
        self._failures = failures
        self._record_bytes_max = record_bytes_max
        self._arrival = arrival
        self._active = active
        self._dead_letters = dead_letters
        self._requests = requests
        self._tracing = Tracing(failures, record_bytes_max)
        self._merge = Merge(len(inputs))
        self._numbers = numbers
        self._state = ChainState(self._branches, self._merge, arrival, inputs, numbers)
        self._outputs: list[Output] = []
        self._opened = False

    def draw_as(self, name: str) -> None:
        """Derive random numbers from this name instead of the name of the task."""
        self._active.task = name

    # Events.

    def open(self) -> None:
        if not self._opened:
            self._opened = True
            for stage in self._stages:
                stage.open()

    def deliver(self, input: int, chunks: Sequence[Chunk], first: int, services: Services) -> list[Output]:
        records, origin_ns, mark = unite(chunks)
        self._failures.delivering(self._inputs[input].label, first, chunks)
        self._begin(services, input, first, origin_ns)
        try:
            if records:
                if self._merge.dozing:
                    self._merge.active(input)
                self._feed_root(self._inputs[input], records)
            if mark is not None:
                self._advance_root(self._merge.update(input, mark))
            return self._end()
        finally:
            self._active.end()

    def ended(self, input: int, services: Services) -> list[Output]:
        self._failures.elsewhere("when an input ended")
        self._begin(services)
        try:
            merged = self._merge.ended(input)
            if merged != END_NS:
                for branch in self._marking:
                    branch.stage.ended(input)
                    self._forward(branch, [])
            self._advance_root(merged)
            return self._end()
        finally:
            self._active.end()

    def _advance_root(self, merged: int | None) -> None:
        """Pass the merged watermark of all inputs to the root stage."""
        if merged == END_NS:
            furthest = self._merge.furthest()
            if furthest is not None:
                self._advance(self._root, furthest)
        if merged is not None:
            self._advance(self._root, merged)

    def _feed_root(self, channel: Input, records: Any) -> None:
        stage, key_of = self._root.stage, channel.key_of
        keys: list[Any] | None = None
        if key_of is None or not stage.takes_rows:
            records = listed(records)
        if key_of is not None:
            extracted = keys_in(records, channel.item)
            keys = extracted if type(extracted) is list else self._keys_of(key_of, records)
            keys = self._tracing.keys = self._canonical(keys, records)
        self._run(self._root, channel.side, records, keys)

    def _canonical(self, keys: list[Any], records: Any) -> list[Any]:
        """Return the canonical keys; from here on, equal keys have the same representation (D14)."""
        try:
            return canonical_keys(keys)
        except Unroutable as problem:
            self._failures.stop(self._root.stage.name, listed(records), problem)

    def _run(self, branch: Branch, side: int, records: Any, keys: list[Any] | None) -> None:
        stage = branch.stage
        self._active.operator = stage.name
        self._forward(branch, stage.run_side(side, records, keys) if stage.sides else stage.run(records, keys))

    def _keys_of(self, key_of: Callable[[Any], Any], records: Any) -> list[Any]:
        active = self._active
        active.operator, active.keying = self._root.stage.name, True
        try:
            keys = list(map(key_of, records))
            if len(keys) != len(records):
                raise Ended("the function given to key_by raised StopIteration")
        except CausalError:
            raise
        except Exception as problem:
            self._failures.stop(self._root.stage.name, listed(records), problem)
        active.keying = False
        return keys

    def next_timer_ns(self) -> int | None:
        earliest = None
        for branch in self._branches:
            next_ns = None if branch.received == END_NS else branch.stage.next_ns()
            if next_ns is not None and (earliest is None or next_ns < earliest):
                earliest = next_ns
        return earliest

    def fire(self, due_ns: int, services: Services) -> list[Output]:
        self._failures.elsewhere("when a timer or window fired")
        self._begin(services)
        try:
            waiting = [branch for branch in self._branches if branch.received != END_NS]
            agenda = Agenda([branch.stage for branch in waiting], due_ns)
            while agenda:
                place, entries = agenda.taken()
                branch = waiting[place]
                self._active.operator = branch.stage.name
                self._forward(branch, branch.stage.fire(entries))
                if branch.stage.withholds:
                    if branch.received is not None:
                        self._pass(branch, branch.stage.passes(branch.received))
                    if branch.stage.rests():
                        self._pass(branch, IDLE_NS)
                if branch.stage.renews:
                    agenda.look(place)
            return self._end()
        finally:
            self._active.end()

    def answer(self, operator: int, number: int, body: bytes, services: Services) -> list[Output]:
        branch = next((branch for branch in self._asking if branch.stage.ordinal == operator), None)
        if branch is None:
            raise PeerViolation(f"an answer arrived for operator {operator}, which sends no requests")
        self._failures.elsewhere(f"when an answer to {branch.stage.name!r} arrived")
        self._begin(services)
        try:
            self._active.operator = branch.stage.name
            self._forward(branch, branch.stage.answer(number, body))
            if branch.received is not None:
                self._pass(branch, branch.stage.passes(branch.received))
            if branch.stage.rests():
                self._pass(branch, IDLE_NS)
            return self._end()
        finally:
            self._active.end()

    def finish(self, services: Services) -> list[Output]:
        self._failures.elsewhere("when the input ended")
        self._begin(services)
        try:
            self._advance_root(END_NS)
            return self._end()
        finally:
            self._active.end()

    def _begin(self, services: Services, input: int = -1, first: int = -1, origin_ns: int = 0) -> None:
        if not self._opened:
            self.open()
        arrival = self._arrival
        arrival.input, arrival.first = input, first
        arrival.mark_ns = None if input < 0 else self._merge.marks[input]
        arrival.origin_ns = origin_ns
        self._active.begin(services)
        for stage in self._begun:
            stage.begin(services)

    def _end(self) -> list[Output]:
        for stage in self._over:
            stage.end()
        self._active.operator = NO_OPERATOR
        for branch in self._branches:
            if branch.routes:
                self._drain(branch)
            branch.output = []
        self._tracing.keys = ()
        outputs, self._outputs = self._outputs, []
        if len(outputs) > 1:
            outputs.sort(key=_ORDINAL)
        letters = self._failures.letters
        if letters:
            invariant(self._dead_letters is not None, "dead letters have a channel")
            body = encode_records(letters)
            outputs.append((self._dead_letters or 0, Chunk(RECORDS, len(letters), body, self._arrival.origin_ns)))
            letters.clear()
        if self._requests is not None:
            keys = [key for branch in self._asking for key in branch.stage.requested()]
            if keys:
                outputs.append((self._requests, Chunk(ROWS, len(keys), "".join(keys).encode())))
        return outputs

    # Requests and reports.

    def asked(self) -> list[Request]:
        return [request for branch in self._asking for request in branch.stage.asked()]

    def outstanding(self) -> list[Request]:
        return [request for branch in self._asking for request in branch.stage.outstanding()]

    def waiting(self) -> bool:
        return any(branch.stage.outstanding() for branch in self._asking)

    def full(self) -> bool:
        return any(branch.stage.full for branch in self._asking)

    def counts(self) -> dict[str, dict[str, int]]:
        counts: dict[str, dict[str, int]] = {}
        for stage in self._stages:
            if stage.counts:
                reasons = counts.setdefault(stage.shown_as, {})
                reasons.update({reason: reasons.get(reason, 0) + count for reason, count in stage.counts.items()})
        return counts

    def inspect(self, operator: str, key: Any) -> dict[str, Any]:
        state: dict[str, Any] = {}
        for stage in self._stages:
            if stage.shown_as == operator:
                state.update(stage.inspect(key))
        return state

    # Event time.

    def _advance(self, branch: Branch, mark_ns: int) -> None:
        """Pass a watermark to a stage, then to its successors; at END_NS, the stage also emits its last records."""
        stage = branch.stage
        if mark_ns == IDLE_NS:
            if stage.passes(IDLE_NS) == IDLE_NS:
                self._pass(branch, IDLE_NS)
            return
        if branch.received is not None and mark_ns <= branch.received:
            return
        branch.received = mark_ns
        self._active.operator = stage.name
        self._forward(branch, stage.advance(mark_ns))
        if mark_ns == END_NS:
            self._active.operator = stage.name
            self._forward(branch, stage.finish())
        self._pass(branch, stage.passes(mark_ns))

    def _pass(self, branch: Branch, mark_ns: int | None) -> None:
        """Pass on a watermark after all output of the stage if the watermark is higher than the previous one."""
        if mark_ns is None:
            return
        if mark_ns != IDLE_NS:
            mark_ns = max(mark_ns, IDLE_NS + 1)  # the lowest watermarks may be out of range for the wire format
            if branch.passed is not None and mark_ns <= branch.passed:
                return
            branch.passed = mark_ns
        for child in branch.children:
            self._advance(child, mark_ns)
        for _, side in branch.sides:
            self._advance(side, mark_ns)
        if branch.ordinals and mark_ns != END_NS:
            self._drain(branch)
            chunk = watermark(mark_ns)
            self._outputs += [(ordinal, chunk) for ordinal in branch.ordinals]

    # Records.

    def _forward(self, branch: Branch, output: Any) -> None:
        """Pass on the output of a stage, which consists of its records, its side outputs, and its own watermarks."""
        if branch.plain:
            self._spread(branch, output)
            return
        stage = branch.stage
        if stage.aside:
            aside, stage.aside = stage.aside, {}
            for tag, side in branch.sides:
                self._spread(side, aside.get(tag))
        if not stage.makes_marks:
            self._spread(branch, output)
            return
        for records, mark in stage.pieces():
            self._spread(branch, records)
            self._pass(branch, mark)

    def _spread(self, branch: Branch, records: Any) -> None:
        """Pass the records that a stage emitted to its routes and to the stages fused after it."""
        if not records:
            return
        if branch.children:
            records = listed(records)
        branch.output = records
        if branch.shared:
            records = self._tracing.carried(branch, records)
            if not records:
                return
        active = self._active
        if branch.routes:
            active.operator, active.keying = branch.stage.name, True
            for route in branch.routes:
                route.add(records, partial(self._tracing.unroutable, branch, route.target))
            active.keying = False
        readers = len(branch.routes) + len(branch.children)
        for child in branch.children:
            readers -= 1
            # If the stream has several readers, copy the records so that no reader sees changes made by another reader.
            last = readers == 0 and not branch.routes
            own = records if last else copied(records, copy_containers)
            self._run(child, branch.stage.side, own, branch.stage.keys)

    def _drain(self, branch: Branch) -> None:
        """Encode the records collected in the routes of a branch."""
        for route in branch.routes:
            for ordinal, records in route.drain():
                self._encode(branch, ordinal, records)

    def _encode(self, branch: Branch, ordinal: int, records: Records) -> None:
        """Encode records into chunks; a record that cannot be encoded fails without affecting the others."""
        try:
            body = encode_records(records)
        except NotCarried:
            body = b""
        if not body or len(body) > self._record_bytes_max:
            branch.output = listed(branch.output)
            kept = passing(records, partial(self._tracing.travels, branch), branch.output)
            if not kept:
                return
            if kept is not records:
                records, body = kept, encode_records(kept)
        if len(body) <= CHUNK_BYTES_TARGET or len(records) == 1:
            self._put(ordinal, len(records), body)
            return
        del body
        for piece in pieces(listed(records)):
            self._put(ordinal, len(piece), encode_records(piece))

    def _put(self, ordinal: int, count: int, body: bytes) -> None:
        self._outputs.append((ordinal, Chunk(RECORDS, count, body, self._arrival.origin_ns)))

    # Snapshots.

    @property
    def stages(self) -> Sequence[Stage]:
        return self._stages

    def renumber(self, mixed: bool) -> None:
        """Assign new numbers to state that another task has kept.

        Args:
            mixed: whether it was kept by several tasks; timers of a single one are in order already.
        """
        for stage in self._stages:
            for table in stage.tables():
                if mixed or not isinstance(table, TimerTable):
                    table.renumber(self._numbers)

    @property
    def marks(self) -> Sequence[int | None]:
        """The most recent watermark of each input; None before the first."""
        return self._merge.marks

    def passed(self, ordinal: int) -> int | None:
        """Return the most recent watermark that was passed on to an output channel; None if there was none."""
        return next((branch.passed for branch in self._branches if ordinal in branch.ordinals), None)

    def changed(self, epoch: int, ended: Sequence[int], passed: Sequence[int | None]) -> None:
        """Record that the job graph was changed at the savepoint of `epoch` and that the state has been carried over.

        Args:
            ended: the inputs that had ended before the savepoint; only this call informs a new operator of their end.
            passed: the most recent watermark of each input's sender, from which a new input starts.
        """
        self._arrival.generation = epoch
        self._merge.begin(passed)
        for input in ended:
            self._merge.ended_before(input)
            for branch in self._marking:
                branch.stage.ended_before(input)
        for stage in self._stages:
            stage.changed(epoch)

    def snapshot(self, full: bool, behind: str = "") -> ChainSnapshot:
        return self._state.snapshot(full, behind)

    def merge_rules(self) -> MergeRules:
        rules = self._state.merge_rules()
        return None if rules is None else {"": rules}

    def restore(self, parts: Iterable[bytes]) -> None:
        for _ in self.restoring(parts):
            pass

    def restore_groups(self, parts: Iterable[bytes], groups: Collection[int]) -> None:
        for stage in self._stages:
            for table in stage.tables():
                table.of_one_group = True
        wanted = {None, *groups}
        self.restore(part for part in parts if group_of_part(part) in wanted)

    def restoring(self, parts: Iterable[bytes]) -> Iterator[None]:
        return self._state.restoring(parts)

    def release(self) -> None:
        for stage in self._stages:
            for table in stage.tables():
                table.clear()
            vars(stage).clear()  # break reference cycles now, not at the next collection
