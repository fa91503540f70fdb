"""A supervisor's logic on a stage: workers and agent played by a few lines, time by an integer.

Every effect is checked against the promise of its order; `restart` builds a second supervisor from
nothing but what the first had journaled.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from benchmarks.harness.graphs import chain_of
from causal.commands import Files
from causal.config import JobConfig
from causal.topology import Topology
from standby.blueprint import Blueprint, CompanionCall
from standby.supervision import effects as fx
from standby.supervision import events
from standby.supervision.supervision import Supervision

MS = 1_000_000
SECOND = 1_000 * MS


def snapshot_files(task: str, epoch: int, incarnation: int) -> Files:
    return ((f"checkpoints/{task}/e{epoch}-i{incarnation}.snap", 10, "00"),)


class Scene:
    """A supervisor and the workers it believes in."""

    def __init__(
        self,
        *names: str,
        companions: tuple[CompanionCall, ...] = (),
        kills: Any = (),
        topology: Topology | None = None,
        **config: Any,
    ) -> None:
        self.topology = topology or chain_of(*(names or ("read/0", "count/0", "out/0")))
        self.config = JobConfig(run="r", name="job", pipeline="/p.py", **config)
        self.blueprint = Blueprint(self.topology, companions, tuple(kills))
        self.now = SECOND
        self.journal: list[Any] = []
        self.living: dict[str, dict[str, Any]] = {}
        self.dead: dict[str, int | None] = {}
        self.said: list[fx.Effect] = []
        self.removed: list[fx.RemoveFiles] = []
        self.manual_manifest = False
        self.supervision = Supervision(self.config, self.blueprint)
        self.step(events.Restored(()))

    def restart(self, manifest: Any = None) -> None:
        """Kill the supervisor and start another one on the same journal."""
        self.supervision = Supervision(self.config, self.blueprint)
        self.step(events.Restored(tuple(self.journal), manifest))

    def step(self, event: events.Event, after_ms: float = 1) -> list[fx.Effect]:
        self.now += int(after_ms * MS)
        effects = self.supervision.handle(event, self.now)
        ranks = [{fx.Journal: 0, fx.EndJob: 2}.get(type(effect), 1) for effect in effects]
        assert ranks == sorted(ranks), "decisions are journaled before anything acts on them, and the end comes last"
        self.said = effects
        everything = list(effects)
        for effect in effects:
            if isinstance(effect, fx.Journal):
                self.journal.append(effect.record)
            elif isinstance(effect, fx.StartProcess) and effect.slot.startswith("w"):
                self.living.setdefault(effect.slot, {"task": None, "incarnation": 0, "epoch": 0, "followed": None})
            elif isinstance(effect, fx.Send):
                self._obey(effect)
            elif isinstance(effect, fx.RemoveFiles):
                self.removed.append(effect)
            elif isinstance(effect, fx.WriteManifest) and not self.manual_manifest:
                everything += self.step(events.ManifestWritten(effect.epoch), 0)
        self.said = everything
        return everything

    def _obey(self, effect: fx.Send) -> None:
        worker, message = self.living.get(effect.slot), effect.message
        if worker is None:
            return
        if message["kind"] == "promote":
            worker.update(task=message["task"], incarnation=message["incarnation"], epoch=message["epoch"])
        elif message["kind"] == "follow":
            worker.update(followed=message["epoch"])
        elif message["kind"] == "checkpoint":
            worker.update(epoch=message["epoch"])

    def beat(self, slot: str, after_ms: float = 1, **changes: Any) -> list[fx.Effect]:
        worker = self.living[slot]
        fields: dict[str, Any] = {
            "pid": int(slot[1:]) + 100,
            "endpoint": f"ipc:///x/{slot}",
            "task": worker["task"],
            "incarnation": worker["incarnation"],
            "state": "running" if worker["task"] else "standby",
            "epoch": worker["epoch"],
            "followed": worker["followed"],
        }
        return self.step(events.Beat(slot=slot, **{**fields, **changes}), after_ms)

    def beats(self, rounds: int = 3, **changes: Any) -> list[fx.Effect]:
        """Make every living worker beat, and time pass, until the supervisor has nothing left to start."""
        heard: list[fx.Effect] = []
        for _ in range(rounds):
            for slot in list(self.living):
                heard += self.beat(slot, **changes)
        return heard

    def beats_of_others(self, silent: str, rounds: int, after_ms: float = 10) -> list[fx.Effect]:
        """Make every living worker but one beat, that long after the one before it."""
        return [
            effect
            for _ in range(rounds)
            for slot in list(self.living)
            if slot != silent
            for effect in self.beat(slot, after_ms)
        ]

    def agent_beat(self) -> list[fx.Effect]:
        slots = {slot: int(slot[1:]) + 100 for slot in self.living}
        return self.step(events.AgentBeat(slots, self.dead))

    def die(self, slot: str, **changes: Any) -> list[fx.Effect]:
        self.living.pop(slot)
        self.dead[slot] = -9
        return self.step(events.Exited(slot, int(slot[1:]) + 100, self.now, status=-9, **changes))

    @property
    def view(self) -> dict[str, Any]:
        """The job as `status.json` shows it."""
        content: dict[str, Any] = self.supervision.view().content()
        return content

    def seen(self, task: str) -> dict[str, Any]:
        """Return a task in the view."""
        return next(each for each in self.view["tasks"] if each["task"] == task)

    def standby_of(self, task: str) -> str:
        """Return the process that is the standby of a task."""
        slots = self.supervision.assignments.slots.values()
        return next(slot.name for slot in slots if slot.purpose == task and not slot.task)

    def slot_of(self, task: str) -> str:
        return self.supervision.assignments.tasks[task].slot

    def incarnation_of(self, task: str) -> int:
        return self.supervision.assignments.tasks[task].incarnation

    def acknowledge(self, task: str, epoch: int) -> list[fx.Effect]:
        slot, incarnation = self.slot_of(task), self.incarnation_of(task)
        files = snapshot_files(task, epoch, incarnation)
        return self.step(events.SnapshotReported(slot, task, incarnation, epoch, files))

    def phase(self, task: str, phase: str, detail: int | None = None) -> list[fx.Effect]:
        return self.step(events.Phase(self.slot_of(task), task, self.incarnation_of(task), phase, self.now, detail))

    def finish(self, task: str, **changes: Any) -> list[fx.Effect]:
        """A task has finished: it says so, and then beats with its last figures."""
        return self.phase(task, "finished") + self.beat(self.slot_of(task), state="finished", **changes)

    def checkpoint(self) -> list[fx.Effect]:
        """Advance the clock by the interval, and acknowledge for every task."""
        epoch = self.supervision.coordinator.complete + 1
        self.idle(self.config.checkpoint_interval_s * 1000)
        heard: list[fx.Effect] = []
        for task in self.supervision.assignments.tasks:
            heard += self.acknowledge(task, epoch)
        return heard

    def idle(self, span_ms: float) -> list[fx.Effect]:
        """Time passes, everybody beats."""
        heard: list[fx.Effect] = []
        end = self.now + int(span_ms * MS)
        while self.now < end:
            heard += self.step(events.Tick(), 50)
            heard += self.beats(1)
        return heard


def sent(effects: list[fx.Effect], kind: str) -> list[tuple[str, dict[str, Any]]]:
    """(slot, message) of each message of that kind."""
    return [(e.slot, dict(e.message)) for e in effects if isinstance(e, fx.Send) and e.message["kind"] == kind]


def of(effects: Sequence[fx.Effect], kind: type) -> list[Any]:
    return [effect for effect in effects if isinstance(effect, kind)]


def running(**config: Any) -> Scene:
    """Return a job of three tasks whose tasks and standbys are all up."""
    scene = Scene(**config)
    scene.beats(6)
    return scene
