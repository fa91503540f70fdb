"""A supervisor's logic with hosts on a stage: agents that join, beat, fall silent and come back."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from standby.supervision import effects as fx
from standby.supervision import events
from tests.unit.standby.scene import MS, Scene, of


@dataclass(slots=True)
class StagedHost:
    """An agent and its processes, as far as the supervisor can see them."""

    name: str
    session: str
    incarnation: int = 0
    reachable: bool = True
    slots: dict[str, int] = field(default_factory=dict)
    dead: dict[str, int | None] = field(default_factory=dict)


class HostScene(Scene):
    """A job of several hosts.  Processes of a host that is cut off live on, and are not heard."""

    def __init__(self, *names: str, join: tuple[str, ...] = ("a", "b", "c"), **config: Any) -> None:
        self.hosts: dict[str, StagedHost] = {}
        self.sessions = 0
        super().__init__(*names, **{"listen": "tcp://127.0.0.1:1", "hosts_expected": len(join), **config})
        for name in join:
            self.join(name)

    def step(self, event: events.Event, after_ms: float = 1) -> list[fx.Effect]:
        effects = super().step(event, after_ms)
        for effect in effects:
            if isinstance(effect, fx.StartProcess):
                if self._hears(effect.host):
                    self.hosts[effect.host].slots[effect.slot] = int(effect.slot[1:]) + 100
                elif self.host_of(effect.slot) is None:
                    self.living.pop(effect.slot, None)  # the order is lost, and no such process lives
            elif isinstance(effect, fx.SendHost) and self._hears(effect.host):
                self._order(self.hosts[effect.host], effect.message)
        for effect in effects:
            if isinstance(effect, fx.KillProcess):
                host = self.hosts.get(effect.host) or self.host_of(effect.slot)
                if host is not None and host.reachable:
                    self.end(effect.slot)
        return effects

    def _hears(self, host: str) -> bool:
        return host in self.hosts and self.hosts[host].reachable

    def _order(self, host: StagedHost, message: Any) -> None:
        if message["kind"] == "welcome":
            if message["incarnation"] != host.incarnation:
                for slot in list(host.slots):
                    self.living.pop(slot, None)
                host.slots.clear()
                host.dead.clear()
            host.incarnation = message["incarnation"]
        elif message["kind"] == "fenced":
            self.hello(host.name)

    def host_of(self, slot: str) -> StagedHost | None:
        return next((host for host in self.hosts.values() if slot in host.slots), None)

    def join(self, name: str, **facts: Any) -> list[fx.Effect]:
        """Start an agent with a new session: nothing of an earlier one lives."""
        self.sessions += 1
        old = self.hosts.get(name)
        for slot in old.slots if old is not None else ():
            self.living.pop(slot, None)
        self.hosts[name] = StagedHost(name, f"s{self.sessions}")
        return self.hello(name, **facts)

    def hello(self, name: str, **facts: Any) -> list[fx.Effect]:
        return self.step(events.HostHello(name, self.hosts[name].session, **{"slots": 8, "changes": True, **facts}))

    def agent_beats(self) -> list[fx.Effect]:
        heard: list[fx.Effect] = []
        for host in self.hosts.values():
            if host.reachable:
                heard += self.agent_beat_of(host)
        return heard

    def agent_beat_of(self, host: StagedHost) -> list[fx.Effect]:
        beat = events.AgentBeat(dict(host.slots), dict(host.dead), host=host.name, incarnation=host.incarnation)
        return self.step(beat)

    def beat(self, slot: str, after_ms: float = 1, **changes: Any) -> list[fx.Effect]:
        host = self.host_of(slot)
        if slot not in self.living or (host is not None and not host.reachable):
            return []
        return super().beat(slot, after_ms, **{"remote": f"tcp://10.0.0.1:{slot[1:]}", **changes})

    def beats(self, rounds: int = 3, **changes: Any) -> list[fx.Effect]:
        heard: list[fx.Effect] = []
        for _ in range(rounds):
            heard += self.agent_beats()
            heard += super().beats(1, **changes)
        return heard

    def end(self, slot: str) -> list[fx.Effect]:
        """End a process, as its agent reports."""
        host = self.host_of(slot)
        if host is None:
            return []
        del host.slots[slot]
        host.dead[slot] = -9
        self.living.pop(slot, None)
        return self.step(events.Exited(slot, int(slot[1:]) + 100, self.now, status=-9, host=host.name))

    def pass_time(self, span_ms: float) -> list[fx.Effect]:
        """Time passes in small steps; everything that can be heard beats."""
        heard: list[fx.Effect] = []
        end = self.now + int(span_ms * MS)
        while self.now < end:
            heard += self.step(events.Tick(), 40)
            heard += self.beats(1)
        return heard

    def host_of_task(self, task: str) -> str:
        slot = self.slot_of(task)
        return self.supervision.assignments.slots[slot].host if slot else ""

    def hosts_of_standbys(self, task: str) -> list[str]:
        slots = self.supervision.assignments.slots.values()
        return [slot.host for slot in slots if slot.purpose == task and not slot.task]

    def starts(self, effects: list[fx.Effect]) -> list[tuple[str, str]]:
        return [(each.slot, each.host) for each in of(effects, fx.StartProcess)]


def settled(*names: str, **config: Any) -> HostScene:
    """Return a job whose tasks and standbys are all up, on the hosts a, b and c."""
    scene = HostScene(*names, **config)
    scene.beats(8)
    return scene
