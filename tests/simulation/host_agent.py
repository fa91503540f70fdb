"""The agent of one of several hosts on virtual time: it joins, relays for its processes, and obeys.

Its promises are those of `standby.agent` and `standby.network.uplink`; the orders and the clock's offset are theirs.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from causal.commands import TERM
from standby.agent import HELLO_AGAIN_S
from standby.host.clock_offset import ClockOffset
from standby.network.control import pack
from standby.supervision import orders
from tests.simulation.clockwork import SECOND
from tests.simulation.host import Agent
from tests.simulation.machines import Machine

if TYPE_CHECKING:
    from tests.simulation.world import Simulation


class HostAgent(Agent):
    """One life of the agent of a host; the table of processes and the incarnation are on its disk."""

    def __init__(self, world: Simulation, machine: Machine) -> None:
        self._welcomed = False
        self._hello_due_ns = 0
        self._clock = ClockOffset()
        self._starts: deque[str] = deque()
        super().__init__(world, machine)

    def _own_ns(self) -> int:
        return self.world.clock.now_ns + self.machine.shift_ns

    def _shifted(self, at_ns: int) -> int:
        return at_ns + self.machine.shift_ns + self._clock.offset_ns

    def _beat(self) -> None:
        if not self.living or self.world.ended is not None:
            return
        if self._welcomed:
            self._beat_now()
        elif self.world.clock.now_ns >= self._hello_due_ns:
            self._hello_due_ns = self.world.clock.now_ns + int(HELLO_AGAIN_S * SECOND)
            layout = self.world.layout
            place = layout.hosts.index(self.machine.name)
            facts = {"slots": layout.slots[place], "zone": layout.zones[place], "machine": self.machine.name}
            mark = self.world.blueprint.mark(self.world.config)
            self._send("host_hello", mark=mark, session=self.machine.session, clock_ns=self._own_ns(), **facts)
        self.world.clock.after(self.world.config.heartbeat_ms * 1_000_000, self._beat)

    def _beat_now(self) -> None:
        machine = self.machine
        living = {slot: self.world.processes[slot].pid for slot in machine.table}
        self.world.host_checks.host_beats(machine)
        self._send(
            "agent_beat",
            slots=living,
            dead=dict(machine.dead),
            killed={slot: self._shifted(at_ns) for slot, at_ns in machine.killed.items()},
            incarnation=machine.incarnation,
            clock_ns=self._own_ns(),
        )

    def _send(self, kind: str, **keys: Any) -> None:
        keys |= {name: self._shifted(keys[name]) for name in ("at_ns", "killed_ns") if name in keys}
        self.relay("", pack(kind, **keys))

    def relay(self, slot: str, data: bytes) -> None:
        """Forward a message of a process, or its own, to the supervisor."""
        for name in self.world.supervisors():
            self._send_to(name, slot, data)

    def _send_to(self, supervisor: str, slot: str, data: bytes) -> None:
        def arrive() -> None:
            listening = self.world.listening(supervisor)
            if listening is not None:
                listening.receive_from(self.machine, slot, data)
            elif supervisor in self.world.terms.seats:
                self.world.terms.seats[supervisor].hear(self.machine)

        self.world.fabric.carry(self.machine.name, supervisor, arrive)

    def take(self, slot: str, message: Mapping[str, Any]) -> None:
        """A message of a supervisor has arrived, for a process or for this agent."""
        if not self.living or not self.machine.terms.admits(message):
            return
        self.world.host_checks.obeys(self.machine, message.get(TERM, 0))
        if not slot:
            self._order(orders.read_order(dict(message)))
            return
        process = self.world.processes.get(slot)
        if process is not None and process.machine is self.machine and process.living:
            self.world.carry(self.machine.who, slot, lambda: process.hear(dict(message)))

    def _order(self, order: orders.AnyOrder) -> None:
        match order:
            case orders.Kill(slot) if slot in self._starts:  # the supervisor ordered both: it awaits `exited`
                self._starts.remove(slot)
                self.machine.dead[slot] = None
                self._send("exited", slot=slot, pid=0, at_ns=self.world.clock.now_ns)
            case orders.Kill(slot):
                self.obey("kill", slot)
            case orders.Start() if not self._welcomed:
                pass
            case orders.Start(slot, _):
                self._starts.append(slot)
                self._start_all()
            case orders.Welcome(incarnation):
                self.join(incarnation)
            case orders.Heard(sent_ns, at_ns, _):
                self._clock.sample(sent_ns, at_ns, self._own_ns())
                self._start_all()
            case orders.Fenced():
                self._welcomed, self._hello_due_ns = False, 0

    def _start_all(self) -> None:
        """Start what is ordered, once the supervisor's time is known, which the processes take."""
        while self._starts and self._clock.known:
            self.obey("start", self._starts.popleft())

    def join(self, incarnation: int) -> None:
        """Take part in that incarnation; whatever runs here is of an older one, and ends first."""
        machine = self.machine
        if machine.incarnation != incarnation:
            self.end_older()
            machine.incarnation = incarnation
        self._welcomed = True
        self._beat_now()

    def end_older(self) -> None:
        """Kill every process of the incarnation that is over."""
        self._starts.clear()
        for process in [p for p in self.world.processes.values() if p.machine is self.machine]:
            self.world.end(process, None)
        self.machine.forget()
