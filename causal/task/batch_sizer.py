"""The size of one turn of a task: as many elements as can be performed quickly, and few bytes.

Between turns a process sends heartbeats, answers its neighbours and learns of barriers; a process that is silent for
longer counts as hung. So a task begins with few elements per event and more as long as they are quickly performed, up
to the job's limit; where records take long, or are large, an event has few. The core has no clock: the shell reports
how long a turn took. The size is in the log like every event, so a replay uses the same.
"""

from __future__ import annotations

FIRST_ELEMENTS = 16
SHARE_OF_SUSPICION = 25
"""The divisor of the silence after which a process counts as hung: a turn should take at most that part of it."""


class BatchSizer:
    """The number of elements per event, of one incarnation of one task.

    Args:
        elements_max: the most elements of an event.
        bytes_max: the bytes that the output of an event should not exceed, over all channels.

    Attributes:
        elements: the elements that an event may have now.
        turn_elements: the elements that this turn has delivered, or written.
        turn_bytes: the bytes of its output.
    """

    def __init__(self, elements_max: int, bytes_max: int, heartbeat_timeout_ms: int) -> None:
        self._elements_max = elements_max
        self._bytes_max = bytes_max
        self._took_ns_max = heartbeat_timeout_ms * 1_000_000 // SHARE_OF_SUSPICION
        self.elements = min(FIRST_ELEMENTS, elements_max)
        self.turn_elements = self.turn_bytes = 0

    @property
    def reduced(self) -> bool:
        """Whether an event may have fewer elements than the job allows: then chunks are cut, and bundles are small."""
        return self.elements < self._elements_max

    def begin_turn(self, took_ns: int) -> None:
        """Record how long the previous turn lasted, 0 where no clock was read, and begin another one."""
        elements, over = self.turn_elements, max(took_ns / self._took_ns_max, self.turn_bytes / self._bytes_max)
        self.turn_elements = self.turn_bytes = 0
        if over > 1 and elements:
            self.elements = max(1, min(self.elements, int(elements / over)))
        elif over <= 0.25 and elements * 2 >= self.elements:  # four times as many would still be in time
            self.elements = min(self._elements_max, self.elements * 2)
