"""Connections between processes: in order, delayed, lost only where one is cut, as with a socket that resets."""

from __future__ import annotations

import random
from collections.abc import Callable
from dataclasses import dataclass

from tests.simulation.clockwork import Clockwork

Frame = tuple[bytes, ...]


@dataclass(slots=True, eq=False)
class Connection:
    """A connection from a task that dialled to the process downstream; answers come back along it.

    State: `generation` rises when it is cut: what was under way is lost, and answers to the old link go nowhere.
    """

    number: int
    source: str
    target: str
    generation: int = 0
    free_ns: int = 0
    back_free_ns: int = 0
    down_until_ns: int = 0
    closed: bool = False
    garbled: int = 0
    """Frames of data still to be damaged on the way."""

    @property
    def link(self) -> bytes:
        return f"{self.number}.{self.generation}".encode()


class Network:
    """All connections of a simulation.

    Args:
        receive: called with (slot, link, frame) when a frame arrives; the link is empty for answers.
        open_at: the time from which frames pass from one process to another, where their hosts are cut off.
    """

    def __init__(
        self,
        clock: Clockwork,
        rng: random.Random,
        latency_us: int,
        receive: Callable[[str, bytes, Frame], None],
        open_at: Callable[[str, str], int] = lambda source, target: 0,
    ) -> None:
        self._clock = clock
        self._rng = rng
        self._latency_ns = latency_us * 1000
        self._receive = receive
        self._open_at = open_at
        self._connections: dict[int, Connection] = {}
        self.seen: list[tuple[int, int, str, str, int]] | None = None
        """(sent, arrived, from, to, kind) of each frame, kept for a drawing."""

    def dial(self, source: str, target: str) -> Connection:
        """Open a connection of its own for each dialling; the dialler closes the one before."""
        connection = Connection(len(self._connections), source, target)
        self._connections[connection.number] = connection
        return connection

    def send(self, connection: Connection, frame: Frame) -> None:
        if connection.garbled and len(frame) == 3 and frame[2]:
            connection.garbled -= 1
            frame = (frame[0], frame[1], _damaged(frame[2], self._rng))
        connection.free_ns = self._carry(connection, connection.free_ns, connection.target, connection.link, frame)

    def reply(self, slot: str, link: bytes, frame: Frame) -> None:
        """Send a frame back along the connection that a frame came from, if it is still that connection."""
        if not link:
            return
        connection = self._connections[int(link.split(b".")[0])]
        if connection.link == link and connection.target == slot:
            connection.back_free_ns = self._carry(connection, connection.back_free_ns, connection.source, b"", frame)

    def _carry(self, connection: Connection, free_ns: int, to: str, link: bytes, frame: Frame) -> int:
        if connection.closed:
            return free_ns
        generation, sent_ns = connection.generation, self._clock.now_ns
        delay_ns = self._rng.randint(self._latency_ns // 4, self._latency_ns)
        origin = connection.source if link else connection.target
        at_ns = max(sent_ns + delay_ns, free_ns, connection.down_until_ns, self._open_at(origin, to))

        def arrive() -> None:
            if connection.generation == generation and not connection.closed:
                if self.seen is not None:
                    self.seen.append((sent_ns, self._clock.now_ns, origin, to, frame[0][3]))
                self._receive(to, link, frame)

        self._clock.at(at_ns, arrive)
        return at_ns

    def dialler(self, link: bytes) -> str:
        """Return the process that dialled the connection of a link."""
        return self._connections[int(link.split(b".")[0])].source

    def cut(self, connection: Connection, down_ns: int) -> None:
        """Reset it: frames under way are lost in both directions; it comes back after `down_ns`."""
        connection.generation += 1
        connection.down_until_ns = self._clock.now_ns + down_ns

    def of(self, slots: frozenset[str]) -> list[Connection]:
        """Return connections that end in one of these processes, or begin there."""
        return [c for c in self._connections.values() if not c.closed and (c.source in slots or c.target in slots)]

    def close(self, slot: str) -> None:
        """A process has ended: what it had sent and is under way still arrives, nothing else does."""
        for connection in self._connections.values():
            if connection.source == slot:
                connection.down_until_ns = 0

    @property
    def open(self) -> list[Connection]:
        return [c for c in self._connections.values() if not c.closed]


def _damaged(payload: bytes, rng: random.Random) -> bytes:
    place = rng.randrange(len(payload))
    return payload[:place] + bytes((payload[place] ^ 1 << rng.randrange(8),)) + payload[place + 1 :]
