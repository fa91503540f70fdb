"""The lineage of a row: its input records, what happened to their keys in between, and what else it depends on.

The recorded job is performed again from a kept checkpoint to the event that emits the row (0054), with chains that know
what each record comes from. The result is a graph of values that JSON has, which the command and the dashboard show.
Everything happens in forks of this process, because a process loads the code of one version once.
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

from causal.determinants import Answer, Barrier, Call, Clock, DeterminantCodec, Order, Random, Run, Timer, User, Window
from causal.errors import CausalError, PeerViolation, PipelineError, invariant
from causal.records.batch import decode_rows
from causal.records.rows import Counted, listed
from causal.records.values import NotCarried, decode
from causal.records.vectors import Vectors
from operators.engine.plan import Plan
from operators.graph import Node
from operators.queries.key_spelling import json_of
from operators.recordings.recording import RecordedVersion, Recording, shown_time
from operators.records.seconds import seconds_of
from operators.replay.exact import Replay
from operators.replay.located_rows import located
from operators.replay.performance import rows_in
from operators.replay.provenance import Bound, Cause, Derivation, Event, Origins
from operators.replay.separately import separately
from operators.replay.traced_chain import Passage, traced_plan

NODES_MAX = 1_000
"""The number of input records, and of events, that a lineage lists unless it is asked for more."""
REPLAY_S = 900.0
_ROW = "row"
_TEXT_MAX = 2_000


@dataclass(frozen=True, slots=True)
class RowOf:
    """A row that was written.

    Attributes:
        account: the task of the sink, as `out/0`.
        position: the number of rows of the account before it.
    """

    account: str
    position: int


def lineage_of(
    recording: Recording, job: Path, scratch: Path, row: RowOf, back: int = 0, nodes_max: int = NODES_MAX
) -> dict[str, Any]:
    """Return the lineage of a row, as values of JSON; `docs/guide/lineage.md` describes them.

    Args:
        job: the directory of the job; nothing is written there.
        scratch: an empty directory for what readers write.
        back: the number of epochs before that of the row to which it looks back; the replay begins at the kept
            checkpoint before them.
        nodes_max: the number of input records, and of events, that are listed; the latest ones are.

    Raises:
        PipelineError: there is no such row, it is not recorded, or a source cannot be read again.
        CausalError: the replay differs from the recording, or something that it reads is missing or damaged.
    """
    epoch, task, channel = located(recording, row.account, row.position)
    traced = partial(_traced, recording, job, scratch, row, epoch, task, channel, back, nodes_max)
    lineage: dict[str, Any] = json.loads(separately(traced, REPLAY_S))
    return lineage


def _traced(
    recording: Recording, job: Path, scratch: Path, row: RowOf, epoch: int, task: str, channel: int, back: int,
    nodes_max: int,
) -> bytes:  # fmt: skip
    """Perform the recording up to the row, and return its lineage as JSON."""
    passage = Passage()
    passage.wanted = channel, row.position
    version = recording.version_at(epoch)
    first = max(epoch - back, version.first)
    replay = Replay(recording, job, first, scratch, (task,), planned=partial(traced_plan, passage))
    begun = replay.epoch
    replay.cone.emitted = passage.emitted
    while passage.cause is None and replay.epoch <= epoch:
        replay.begin_epoch()
        numbers = Counter[str]()
        while passage.cause is None and (following := replay.next()) is not None:
            name, event = following
            numbers[name] += 1
            passage.begin(Event(replay.epoch, name, numbers[name], event.kind, replay.task(name).begun_bytes))
            replay.perform()
    if passage.cause is None:
        raise PipelineError(f"{row.account} has no row {row.position} in epoch {epoch}; see `causal recordings`")
    lineage = _Lineage(recording, version, replay.plan, passage, row, epoch, begun, nodes_max)
    content = json.dumps(lineage.as_json()).encode()
    replay.close()
    return content


class _Lineage:
    """Shows the origins of a row as values of JSON."""

    def __init__(
        self, recording: Recording, version: RecordedVersion, plan: Plan, passage: Passage, row: RowOf, epoch: int,
        begun: int, nodes_max: int,
    ) -> None:  # fmt: skip
        invariant(passage.cause is not None, "the row has been emitted")
        self._recording = recording
        self._version = version
        self._plan = plan
        self._passage = passage
        self._provenance = passage.provenance
        self._row = row
        self._account = plan.topology.account(plan.topology.channels[passage.wanted[0]])
        self._sink = self._account.rpartition("/")[0]
        self._epoch = epoch
        self._begun = begun
        self._origins = Origins(passage.provenance, passage.cause or 0)
        self._graph = _Graph(plan.operators, {each.name for each in self._provenance.operators if each.stateful})
        self._bodies: dict[int, Any] = {}
        visits = [each for each in self._origins.nodes if type(each) is int]
        derivations = [each for each in self._origins.nodes if isinstance(each, Derivation)]
        self._visits: list[int] = sorted(visits)[-nodes_max:]
        self._derivations: list[Derivation] = derivations[:nodes_max]
        self._inputs = self._origins.inputs[-nodes_max:]
        self._left_out = len(visits) + len(derivations) - len(self._visits) - len(self._derivations)
        self._ids: dict[Cause, str] = {-1 - element: self._id_of_input(element) for element in self._inputs}
        self._ids.update((visit, f"v{visit}") for visit in self._visits)
        self._ids.update((each, f"d{place}") for place, each in enumerate(self._derivations))

    def as_json(self) -> dict[str, Any]:
        operators = [self._operator(place, bound) for place, bound in sorted(self._origins.bounds.items())]
        exact = all(each["exact"] and not each["older_keys"] for each in operators)
        nodes = [
            *map(self._input, self._inputs),
            *map(self._visit, self._visits),
            *map(self._derived, self._derivations),
        ]
        return {
            "row": self._row_node(),
            "exact": exact,
            "from_epoch": self._begun,
            "version": self._version.number,
            "code": self._version.config.code,
            "inputs": len(self._origins.inputs),
            "events": len(self._origins.nodes),
            "left_out": {"inputs": len(self._origins.inputs) - len(self._inputs), "events": self._left_out},
            "operators": [each for each in operators if each["events"] or not each["exact"] or each["older_keys"]],
            "notes": self._notes(operators),
            "nodes": nodes,
            "edges": self._edges(),
            "determinants": self._determinants(),
        }

    # Nodes.

    def _row_node(self) -> dict[str, Any]:
        row = self._passage.row
        invariant(row is not None, "the row has been emitted")
        chunk, place = row or (None, 0)
        channel = self._plan.topology.channels[self._passage.wanted[0]]
        document = rows_in(self._plan.sink_of(channel), chunk)[place] if chunk is not None else b"null"
        return {
            "id": _ROW, "kind": "row", "operator": self._sink, "account": self._account, "position": self._row.position,
            "epoch": self._epoch, "record": _document(document),
        }  # fmt: skip

    def _source_of(self, element: int) -> tuple[str, int, int]:
        """Return the source, the partition and the position of an input record."""
        channel_id, position = self._provenance.place(element)
        channel = self._plan.topology.channels[self._passage.entries[channel_id]]
        name, _ = self._plan.source_of(channel)
        return name, channel.partition, position

    def _id_of_input(self, element: int) -> str:
        return "{}/{}:{}".format(*self._source_of(element))

    def _input(self, element: int) -> dict[str, Any]:
        source, partition, position = self._source_of(element)
        return {
            "id": self._ids[-1 - element], "kind": "input", "operator": source, "partition": partition,
            "position": position, "record": self._record(element),
        }  # fmt: skip

    def _visit(self, visit: int) -> dict[str, Any]:
        provenance = self._provenance
        element = provenance.element_of[visit]
        return {
            "id": self._ids[visit], "kind": "record",
            **self._place(provenance.operator_of[visit], provenance.event_of[visit]),
            "key": _shown(provenance.key_of[visit]), "record": None if element < 0 else self._record(element),
        }  # fmt: skip

    def _derived(self, derivation: Derivation) -> dict[str, Any]:
        keys = derivation.keys
        window = derivation.window
        return {
            "id": self._ids[derivation], "kind": derivation.kind, **self._place(derivation.operator, derivation.event),
            "key": _shown(keys[0]) if keys else None,
            "window": None if window is None else list(map(seconds_of, window)),
        }  # fmt: skip

    def _place(self, operator: int, event: int) -> dict[str, Any]:
        traced, place = self._provenance.operators[operator], self._provenance.events[event]
        return {
            "operator": traced.name, "subtask": traced.subtask, "task": place.task, "epoch": place.epoch,
            "event": place.number,
        }  # fmt: skip

    def _record(self, element: int) -> Any:
        """Return the content of an element; None if it is not kept."""
        body, place = self._provenance.body(element)
        if not body:
            return None
        known = self._bodies.get(id(body))
        if known is None:
            known = self._bodies[id(body)] = decode_rows(body)
        if isinstance(known, Counted):
            return [_shown(known.keys[place]), known.counts[place]]
        if isinstance(known, Vectors):
            from operators.records.arrow_rows import rows_of

            return _shown(rows_of(known.batch, place, 1)[0])
        return _shown(listed(known)[place])

    # Edges.

    def _edges(self) -> list[dict[str, Any]]:
        edges = []
        for source, target, role in self._origins.edges:
            if source in self._ids and (target is None or target in self._ids):
                between = self._graph.between(self._name_of(source), self._name_of(target))
                edges.append({
                    "from": self._ids[source], "to": _ROW if target is None else self._ids[target], "role": role,
                    "through": [] if role != "record" else between,
                })  # fmt: skip
        return edges

    def _name_of(self, cause: Cause | None) -> str:
        if cause is None:
            return self._sink
        if isinstance(cause, Derivation):
            return self._provenance.operators[cause.operator].name
        if cause < 0:
            return self._source_of(-1 - cause)[0]
        return self._provenance.operators[self._provenance.operator_of[cause]].name

    # How complete it is.

    def _operator(self, place: int, bound: Bound) -> dict[str, Any]:
        traced = self._provenance.operators[place]
        return {
            "operator": traced.name, "kind": traced.kind, "subtask": traced.subtask, "events": bound.visits,
            "exact": bound.exact, "older_keys": [_shown(key) for key in bound.older][:NODES_MAX],
        }  # fmt: skip

    def _notes(self, operators: Sequence[dict[str, Any]]) -> list[str]:
        """Return a line for each thing that is not known exactly, with what can be done."""
        notes = []
        for each in operators:
            if not each["exact"]:
                notes.append(
                    f"{each['operator']}: an upper bound; any earlier record of the key since its state was last empty "
                    "may have had a part in it"
                )
        older = dict.fromkeys(each["operator"] for each in operators if each["older_keys"])
        if older:
            names = ", ".join(older)
            notes.append(
                f"{names}: there was state before epoch {self._begun}, where this replay began; {self._remedy()}"
            )
        return notes

    def _remedy(self) -> str:
        if self._begun > self._version.first:
            return (
                f"look further back with --back {self._epoch - self._version.first} (version {self._version.number} is "
                f"recorded from epoch {self._version.first} on)"
            )
        if self._begun > self._recording.epochs().start:
            return "another version performed the epochs before, and this lineage ends there"
        return "nothing before is recorded; a larger window of --record keeps more"

    # Determinants.

    def _determinants(self) -> list[dict[str, Any]]:
        """Return what each listed event depends on besides records, in the order of the events."""
        events = {self._provenance.event_of[visit] for visit in self._visits}
        events.update(each.event for each in self._derivations)
        logs: dict[tuple[str, int], _Log] = {}
        shown = []
        for event in (self._provenance.events[place] for place in sorted(events)):
            log = logs.get((event.task, event.epoch))
            if log is None:
                log = logs[event.task, event.epoch] = _Log(self._recording.log(event.task, event.epoch).log)
            time = shown_time(self._recording.time_ns(event.epoch))
            shown.append({
                "task": event.task, "epoch": event.epoch, "event": event.number, "kind": event.kind,
                "epoch_began": time,
                "values": log.values_at(event.begun_bytes),
            })  # fmt: skip
        return shown


class _Log:
    """The determinants in a log, by the place at which they begin."""

    def __init__(self, log: bytes) -> None:
        self._entries: list[tuple[int, Any]] = []
        codec, place = DeterminantCodec(), 0
        while place < len(log):
            try:
                entry, following = codec.decode(log, place)
            except PeerViolation:
                break  # a kind that this pipeline does not register
            self._entries.append((place, entry))
            place = following

    def values_at(self, begun: int) -> list[dict[str, Any]]:
        """Return what the event that begins at a byte has logged, and the seed of the epoch if there is one before."""
        values = list[dict[str, Any]]()
        seed: Random | None = None
        for place, entry in self._entries:
            if place < begun:
                seed = entry if isinstance(entry, Random) else seed
            elif place > begun and isinstance(entry, (Order, Run, Timer, Answer, Barrier)):
                break
            else:
                values.append(_value(entry))
        if seed is not None:
            values.append({"kind": "random", "value": seed.seed.hex(), "of": "the epoch"})
        return values


def _value(entry: Any) -> dict[str, Any]:
    """Return a determinant as values of JSON."""
    value: Any = None
    if isinstance(entry, Order):
        value = {"input": entry.input, "elements": entry.count}
    elif isinstance(entry, Run):
        value = {"events": entry.count}
    elif isinstance(entry, Clock):
        value = entry.time_ns
    elif isinstance(entry, Timer):
        value = entry.due_ns
    elif isinstance(entry, Random):
        value = entry.seed.hex()
    elif isinstance(entry, Call):
        value = _answer(entry.answer)
    elif isinstance(entry, Answer):
        value = {"number": entry.number, "answer": _answer(entry.body)}
    elif isinstance(entry, User):
        value = {"name": entry.name, "value": _answer(entry.value)}
    elif isinstance(entry, Window):
        value = {"end_ns": entry.end_ns, "intervals": [list(each) for each in entry.intervals]}
    elif isinstance(entry, Barrier):
        value = {"epoch": entry.epoch}
    return {"kind": entry.kind, "value": value}


def _answer(body: bytes) -> Any:
    try:
        return _shown(decode(body))
    except CausalError:
        return body.hex()[:_TEXT_MAX]


def _shown(value: Any) -> Any:
    """Return a value in its JSON form, or as text if it has none."""
    try:
        return json_of(value)
    except (NotCarried, TypeError, ValueError, CausalError):
        return repr(value)[:_TEXT_MAX]


def _document(document: bytes) -> Any:
    try:
        return json.loads(document)
    except ValueError:
        return document.decode(errors="replace")[:_TEXT_MAX]


class _Graph:
    """The operators between two others."""

    def __init__(self, nodes: Iterable[Node], shown: set[str]) -> None:
        self._shown = shown
        self._before: dict[str, set[str]] = {}
        self._order: list[str] = []
        self._between: dict[tuple[str, str], list[str]] = {}
        for node in nodes:
            self._order.append(node.name)
            self._before[node.name] = {edge.source.name for edge in node.edges}

    def between(self, source: str, target: str) -> list[str]:
        """Return the names of the operators between two others, from which nothing of its own is shown."""
        known = self._between.get((source, target))
        if known is None:
            above = self._above(target)
            known = [
                name
                for name in self._order
                if name in above and source in self._above(name) and name not in self._shown and name != source
            ]
            self._between[source, target] = known
        return known

    def _above(self, name: str) -> set[str]:
        above, waiting = set[str](), [name]
        while waiting:
            for each in self._before.get(waiting.pop(), ()):
                if each not in above:
                    above.add(each)
                    waiting.append(each)
        return above
