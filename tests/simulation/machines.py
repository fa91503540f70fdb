"""The hosts of a simulation, each with its disk and its agent, and what passes between them.

A direction between two hosts may be cut for a while.  Messages sent meanwhile arrives when it is open again, as TCP
sends again what was not acknowledged; or it is lost, as when the connection is given up.
"""

from __future__ import annotations

import random
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from causal.commands import HighestTerm
from tests.simulation.clockwork import MS, Clockwork
from tests.simulation.peers import Disk

if TYPE_CHECKING:
    from tests.simulation.host import Agent, Supervisor

SUPERVISOR, STORE = "supervisor", "store"
"""The ends of directions that are no host."""


@dataclass(slots=True, eq=False)
class Machine:
    """One machine: the only one of a job (named ""), or a host.

    Attributes:
        table: the agent's table: slots of processes that it started and has not seen end.
        dead: the ended ones, each with its status; killed: when the agent killed them.
        session: marks a life of all its processes; incarnation: as the supervisor has given it, 0 before.
        shift_ns: what its monotonic clock is ahead of the supervisor's.
        up: its root process lives.
        revoked: its key is not in the roster any more.
        tether: the supervisor that notices immediately when its kernel ends all its processes.
        terms: the highest leadership term of which it has heard.
    """

    name: str = ""
    disk: Disk = field(default_factory=Disk)
    table: list[str] = field(default_factory=list)
    dead: dict[str, int | None] = field(default_factory=dict)
    killed: dict[str, int] = field(default_factory=dict)
    agent: Agent | None = None
    lives: int = 1
    incarnation: int = 0
    shift_ns: int = 0
    up: bool = False
    revoked: bool = False
    tether: Supervisor | None = None
    terms: HighestTerm = field(default_factory=HighestTerm)

    @property
    def session(self) -> str:
        return f"{self.name}-{self.lives}"

    @property
    def who(self) -> str:
        """The name of its agent in the story."""
        return f"agent {self.name}".rstrip()

    def end_life(self) -> None:
        """Everything on it has ended together; the next life of a host begins with an empty directory."""
        self.forget()
        self.up, self.lives, self.incarnation = False, self.lives + 1, 0
        self.tether, self.terms = None, HighestTerm()
        self.disk = Disk() if self.name else self.disk

    def forget(self) -> None:
        """Every process on it has ended."""
        self.table.clear()
        self.dead.clear()
        self.killed.clear()


@dataclass(slots=True)
class _Wire:
    """One direction between two ends.

    Attributes:
        keeps: a message sent while it is cut waits in `waiting`, with the life of the machine that sent it.
    """

    cut_until_ns: int = 0
    keeps: bool = True
    waiting: list[tuple[int, Callable[[], object]]] = field(default_factory=list)


class Fabric:
    """All directions between the machines of a simulation.

    Args:
        life: the number of the present life of a machine: what a dead one had not got through is lost.
    """

    def __init__(self, clock: Clockwork, rng: random.Random, life: Callable[[str], int]) -> None:
        self._clock = clock
        self._rng = rng
        self._life = life
        self._wires: dict[tuple[str, str], _Wire] = {}
        self._last_ns: dict[tuple[str, str], int] = {}

    def open_at(self, source: str, target: str) -> int:
        """Return the time from which messages pass; not later than now where they do."""
        wire = self._wires.get((source, target))
        return 0 if wire is None else wire.cut_until_ns

    def open(self, source: str, target: str) -> bool:
        """Return whether messages pass now."""
        return self.open_at(source, target) <= self._clock.now_ns

    def carry(self, source: str, target: str, arrive: Callable[[], object]) -> None:
        """Deliver a message, after earlier ones of the same direction, if its direction lets it pass."""
        life, direction = self._life(source), (source, target)
        earliest_ns = self._clock.now_ns + self._rng.randint(50_000, 3 * MS)
        at_ns = self._last_ns[direction] = max(earliest_ns, self._last_ns.get(direction, 0))
        self._clock.at(at_ns, lambda: self._arrived(direction, life, arrive))

    def _arrived(self, direction: tuple[str, str], life: int, arrive: Callable[[], object]) -> None:
        if self.open(*direction):
            arrive()
        elif self._wires[direction].keeps:
            self._wires[direction].waiting.append((life, arrive))

    def cut(self, source: str, target: str, until_ns: int, keeps: bool) -> None:
        """Block all messages until then."""
        wire = self._wires.setdefault((source, target), _Wire())
        wire.cut_until_ns, wire.keeps = max(wire.cut_until_ns, until_ns), keeps
        if not keeps:
            wire.waiting.clear()
        self._clock.at(wire.cut_until_ns, lambda: self._heal((source, target), wire))

    def _heal(self, direction: tuple[str, str], wire: _Wire) -> None:
        if self._clock.now_ns < wire.cut_until_ns:
            return
        waiting, wire.waiting = wire.waiting, []
        for life, arrive in waiting:
            if life == self._life(direction[0]):
                self.carry(*direction, arrive)
