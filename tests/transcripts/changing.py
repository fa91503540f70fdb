"""The stage with a command that changes the job to its next version, request by request (docs/design/0040).

The command converts the state of the tasks as `operators.runtime.rescaling` does: each task of the next version has the
counts of the records that it gets, partitions and stores continue where they are, and all other channels begin at 0.
"""

from __future__ import annotations

from typing import Any

from causal.config import JobConfig
from causal.cut import Cut
from causal.ids import OUTSIDE
from causal.ports import Bundle
from causal.records.values import decode, encode
from causal.topology import Topology
from standby.blueprint import Blueprint
from standby.supervision import effects as fx
from standby.supervision import events
from standby.supervision.next_version import FACTS, FOLLOW, PREPARE
from standby.supervision.orders import NEXT_WORKER
from standby.supervision.supervision import Supervision
from tests.transcripts.supervised import Supervised
from tests.transcripts.words import Words

LATER = 1000
COMMAND = "admin-1"


class Changing(Supervised):
    """A supervised stage whose job can change."""

    def __init__(self, topology: Topology, config: JobConfig, traits: dict[str, dict[str, int]]) -> None:
        super().__init__(topology, config, traits)
        self.next = topology
        """The graph of the next version."""
        self._incarnation = 0
        """The first incarnation of the next version."""
        self._converted: dict[tuple[int, int], list[bytes]] = {}
        self._prepared: list[fx.Record] = []
        """The journal of the next version, in `change/`."""

    def request(self, step: str, following: Topology | None) -> None:
        """The command makes a request of the supervisor."""
        facts: dict[str, Any] = {}
        if step == PREPARE:
            self.next = following or self.topology
            names = [str(task.name) for task in self.next.tasks]
            facts = {"tasks": names, "rollback": "", "incarnation": self._incarnation}
        elif step == FOLLOW:
            self._convert()
            facts = {"epoch": self.complete, "files": self._files()}
        self.say("command -> supervisor", "CHANGE", step, f"to {' '.join(facts['tasks'])}" if "tasks" in facts else "")
        arguments = {"step": step, "change": "t", **facts}
        self._control.append((COMMAND, "supervisor", {"kind": "admin", "verb": "change", "arguments": arguments}))

    def write_change(self) -> None:
        """The command opens the stores for the next version, converts the final checkpoint, and writes `change/`."""
        for store in self.outside.stores.values():
            self.say("command -> store", "OPEN", f"for incarnation {self._incarnation}")
            store.open(store.task, self.config.run, self._incarnation)
            store.truncate(self.complete)
            at = store.account
            store.write(
                Bundle(at.next, 0, b"", at.digest, self.complete, self._incarnation, (), depends=())
            )  # nothing before is replayed
        self._convert()
        begins = {"incarnation": self._incarnation, "savepoint": f"{self.complete}-r", "stores": {}, "left": {}}
        self._prepared = [
            {"kind": "changed", **begins},
            {"kind": "savepoint", "epoch": self.complete, "final": True},
            {"kind": "checkpoint", "count": 0, "epoch": self.complete, "files": self._files(), "took_ms": 0.0},
        ]
        self.say("command -> disk", "CHANGE", f"begin at checkpoint {self.complete}")

    def _files(self) -> dict[str, list[list[Any]]]:
        end = f"e{self.complete:08}-i{self._incarnation}.snap"
        return {str(task.name): [[f"checkpoints/{task.name}/{end}", 1, "d"]] for task in self.next.tasks}

    def _convert(self) -> None:
        """Convert the last complete checkpoint into snapshots of the next version."""
        for task in self.next.tasks:
            old = self._ancestor(self.next, task.index)
            cut, *chain = self.outside.snapshots[old, self.complete]
            parts = [_converted_cut(Cut.unpack(cut), self.topology, old, self.next, task.index).pack(), *chain]
            counts = decode(parts[1])
            kept = {name: count for name, count in counts.items() if self._owns(task.index, name)}
            self._converted[task.index, self.complete] = [parts[0], encode(kept)]
        self.say("command -> disk", "CONVERT", f"checkpoint {self.complete} for {' '.join(self.words_of(self.next))}")

    def _ancestor(self, topology: Topology, task: int) -> int:
        """Return the task of the current version from which a task gets its state."""
        names = self.words_of(self.topology)
        if topology.tasks[task].name in names:
            return names.index(topology.tasks[task].name)
        upstream = {topology.tasks[other].name for other in topology.upstream(task)}  # type: ignore[arg-type]
        return next(
            each.index
            for each in self.topology.tasks
            if {self.topology.tasks[other].name for other in self.topology.upstream(each.index)} == upstream
        )

    def _owns(self, task: int, name: str) -> bool:
        """Return whether a task gets the records whose count has this name."""
        letter = name.removeprefix("count ")
        sender = next(iter(self.next.upstream(task)), None)  # type: ignore[arg-type]
        if letter == name or sender is None:
            return True
        targets = [channel.target for channel in self.next.outputs(sender)]
        return targets[ord(letter) % len(targets)] == task

    @staticmethod
    def words_of(topology: Topology) -> list[str]:
        """Return the names of the tasks."""
        return [str(task.name) for task in topology.tasks]

    # -- the supervisor ----------------------------------------------------------------------------------

    def _act_for_supervisor(self, effect: fx.Effect) -> None:
        if isinstance(effect, fx.Answer):
            self._answer(effect.body)
        elif isinstance(effect, fx.CommitChange):
            self._commit(effect)
        elif isinstance(effect, fx.StartProcess) and effect.role == NEXT_WORKER:
            self.say("supervisor -> agent", "START", effect.slot, "for the next version")
            self._start_worker(effect.slot, self.next)
        else:
            super()._act_for_supervisor(effect)

    def _answer(self, body: Any) -> None:
        if not body["ok"]:
            self.say("supervisor -> command", "ANSWER", str(body["error"]))
            return
        if body.get("step") == FACTS:
            self._incarnation = int(body["incarnation"]) + LATER
        facts = "done"
        if "epoch" in body:
            facts = f"checkpoint {body['epoch']} is complete, {body['incarnation']} the highest incarnation"
        self.say("supervisor -> command", "ANSWER", str(body.get("step", "commit")), facts)

    def _commit(self, change: fx.CommitChange) -> None:
        """Make the change final, and begin again as the supervisor of the next version (`standby.daemon`)."""
        assert self.supervision is not None
        beats = self.supervision.next_version.beats
        resumed = {"kind": "resumed", "at_ns": self.now_ns, "figures": {}}
        self.journal = [*self._prepared, resumed, *change.processes]
        self.say("supervisor -> disk", "READY", "the job is its next version")
        self._become_next()
        self.supervision = Supervision(self.config, Blueprint(self.topology))
        self.say("supervisor", "begins", f"again, with the {len(self.journal)} decisions of the new journal")
        self.supervise(events.Restored(tuple(self.journal)))
        for beat in beats:
            self.supervise(beat)
        self._answer({"ok": True})

    def _become_next(self) -> None:
        before, self.topology = self.topology, self.next
        stores = {
            before.tasks[c.source].name: self.outside.stores[c.id] for c in before.channels if c.target == OUTSIDE
        }
        inputs = {
            before.tasks[c.target].name: self.outside.partitions[c.id] for c in before.channels if c.source == OUTSIDE
        }
        channels, tasks = self.topology.channels, self.topology.tasks
        self.outside.stores = {c.id: stores[tasks[c.source].name] for c in channels if c.target == OUTSIDE}
        self.outside.partitions = {c.id: inputs[tasks[c.target].name] for c in channels if c.source == OUTSIDE}
        self.outside.snapshots = dict(self._converted)
        self.words = Words(self.topology, self.outside.filed)
        self.incarnations = dict.fromkeys(range(len(tasks)), 0)
        self._elements.clear()


def _converted_cut(cut: Cut, before: Topology, old: int, after: Topology, new: int) -> Cut:
    """Return where a task of the next version begins."""
    sides = [
        (
            [c.id for c in topology.inputs(task) if c.source == OUTSIDE],  # type: ignore[arg-type]
            [c.id for c in topology.outputs(task) if c.target == OUTSIDE],  # type: ignore[arg-type]
        )
        for topology, task in ((before, old), (after, new))
    ]
    inputs: dict[int, tuple[int, int, bool]] = {
        channel: cut.inputs[was] for was, channel in zip(sides[0][0], sides[1][0])
    }
    inner: dict[int, tuple[int, int, bool]] = {c.id: (0, 0, False) for c in after.inputs(new) if c.source != OUTSIDE}  # type: ignore[arg-type]
    outputs: dict[int, tuple[int, int]] = {channel: cut.outputs[was] for was, channel in zip(sides[0][1], sides[1][1])}
    return Cut(cut.epoch, {**inner, **inputs}, outputs, cut.last_ns, cut.finished)
