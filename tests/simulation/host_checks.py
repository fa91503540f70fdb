"""The promises about hosts, checked from outside: where processes are, who is fenced, who speaks for whom.

The account of hosts and places is made of the journaled decisions alone.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from standby.supervision import effects as fx
from standby.supervision import events
from standby.supervision.supervision import Supervision
from tests.simulation.machines import Machine
from tests.simulation.peers import Violated

if TYPE_CHECKING:
    from tests.simulation.world import Simulation


class HostChecks:
    """The checks of one job of several hosts; a job of one machine has nothing to check."""

    def __init__(self, world: Simulation) -> None:
        self._world = world
        self._pins = dict(world.layout.pins)
        self._living: dict[str, int] = {}
        """Host → its incarnation, while it is not lost."""
        self._draining: set[str] = set()
        self._youngest: dict[str, int] = {}
        self._places: dict[str, tuple[str, str]] = {}
        """Process → (host, the task that it is or is a standby of)."""
        self._holders: dict[str, str] = {}
        """Task → its process."""
        self._started: set[str] = set()
        self._promoted: set[tuple[str, int]] = set()
        self._obeyed: dict[str, int] = {}
        """Life of a host → the highest term that its agent has obeyed."""

    def decided(self, record: Mapping[str, Any]) -> None:
        """The supervisor has journaled a decision."""
        if not self._world.several:
            return
        kind = record["kind"]
        if kind == "host_joined":
            if record["incarnation"] <= self._youngest.get(record["host"], 0):
                raise Violated(f"hosts: {record['host']} joins a second time as incarnation {record['incarnation']}")
            self._living[record["host"]] = self._youngest[record["host"]] = record["incarnation"]
            self._draining.discard(record["host"])
        elif kind == "host_lost":
            self._living.pop(record["host"], None)
        elif kind == "host_draining":
            (self._draining.add if record["draining"] else self._draining.discard)(record["host"])
        elif kind == "process":
            self._started.add(record["slot"])
            self._placed(record["slot"], record.get("host", ""), record["purpose"])
        elif kind == "promoted":
            self._promoted.add((record["task"], record["incarnation"]))
            host, _ = self._places[record["slot"]]
            self._at_home(record["task"], host)
            self._places[record["slot"]] = (host, record["task"])
            self._holders[record["task"]] = record["slot"]
        elif kind == "rolled_back":
            self._promoted.update(record["tasks"].items())
        elif kind == "gone":
            self._places.pop(record["slot"], None)
            self._holders = {task: slot for task, slot in self._holders.items() if slot != record["slot"]}

    def performs(self, effect: fx.Effect) -> None:
        """A supervisor acts: what it does must be decided in the journal, which a successor reads."""
        if not self._world.several:
            return
        if isinstance(effect, fx.StartProcess) and effect.slot not in self._started:
            raise Violated(f"terms: {effect.slot} is started, and no journal says so")
        message = effect.message if isinstance(effect, fx.Send | fx.SendHost) else {}
        if message.get("kind") == "promote":
            promoted = message["task"], message["incarnation"]
            if promoted not in self._promoted:
                raise Violated(f"terms: {promoted[0]} is promoted as {promoted[1]}, and no journal says so")
        if isinstance(effect, fx.SendHost) and message["kind"] == "welcome":
            if message["incarnation"] > self._youngest.get(effect.host, 0):
                raise Violated(f"terms: {effect.host} joins as {message['incarnation']}, and no journal says so")

    def obeys(self, machine: Machine, term: int) -> None:
        """The agent of a host obeys a message of a supervisor of that term, or one of its processes does."""
        before = self._obeyed.get(machine.session, 0)
        if term < before:
            raise Violated(f"terms: {machine.name} obeys a supervisor of term {term}, and has obeyed one of {before}")
        self._obeyed[machine.session] = term

    def resumed(self) -> None:
        """Every process has ended, and every host is to join again."""
        self._living.clear()
        self._places.clear()
        self._holders.clear()

    def _placed(self, slot: str, host: str, purpose: str) -> None:
        if host not in self._living or host in self._draining:
            raise Violated(f"placement: {slot} is to start on {host or 'no host'}, which is lost or drained")
        self._at_home(purpose, host)
        holder = self._holders.get(purpose)
        if holder is not None and self._places[holder][0] == host and purpose not in self._pins:
            raise Violated(f"placement: the standby {slot} of {purpose} is on its task's host {host}")
        self._places[slot] = (host, purpose)
        room = self._world.layout.slots[self._world.layout.hosts.index(host)]
        there = sum(1 for place, _ in self._places.values() if place == host)
        if there > room:
            raise Violated(f"placement: {there} processes are on {host}, which has room for {room}")

    def _at_home(self, task: str, host: str) -> None:
        if self._pins.get(task, host) != host:
            raise Violated(f"placement: {task} is on {host}, and may be on {self._pins[task]} alone")

    def supervised(self, event: events.Event, effects: Sequence[fx.Effect]) -> None:
        """The supervisor that leads has handled an event; its decision is not journaled yet."""
        leader = self._world.supervisor
        over = leader is not None and leader.supervision.job.ended is not None  # it gives no answer
        if isinstance(event, events.AgentBeat) and self._world.several and not over:
            fenced = any(isinstance(e, fx.SendHost) and e.message["kind"] == "fenced" for e in effects)
            if not fenced and self._living.get(event.host) != event.incarnation:
                raise Violated(
                    f"hosts: a beat of {event.host}, incarnation {event.incarnation}, which is over, is taken"
                )
        if isinstance(event, events.Exited) and self._world.several:
            believed = any(isinstance(e, fx.Journal) and e.record.get("slot") == event.slot for e in effects)
            if believed and self._places.get(event.slot, (event.host, ""))[0] != event.host:
                raise Violated(
                    f"hosts: {event.host} speaks for {event.slot}, which is on another host, and is believed"
                )

    def is_lost(self, host: str, incarnation: int, supervision: Supervision) -> None:
        """The supervisor has had the time to notice the death of a host."""
        if supervision.hosts.accepts(host, incarnation):
            raise Violated(f"hosts: {host}, incarnation {incarnation}, is dead, and the supervisor has not noticed")

    def host_beats(self, machine: Machine) -> None:
        """An agent is about to report the processes of its host."""
        for slot in machine.table:
            process = self._world.processes[slot]
            if process.living and process.host_incarnation != machine.incarnation:
                raise Violated(
                    f"fencing: {machine.name} is back as incarnation {machine.incarnation}, and runs {slot} of "
                    f"incarnation {process.host_incarnation}"
                )
