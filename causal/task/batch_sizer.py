"""The size of one turn of a task: as many elements as can be performed quickly, within a size limit in bytes.

A process sends heartbeats, answers its neighbours and learns of barriers only between turns, and a process that stays
silent for too long is considered hung. A task therefore begins with few elements per event. It increases the number, up
to the job's limit, as long as events are performed quickly. If records are slow or large, an event contains only a few.
The core has no clock, so the shell reports the duration of each turn. The log records the size of each event, so a
replay uses the same sizes.
"""

from __future__ import annotations

FIRST_ELEMENTS = 16
SMALL_ELEMENTS, SMALL_BYTES, SHORT_NS = 64, 16 << 10, 2_000_000
"""The elements, bytes of output and duration up to which a turn is small, so that another event may follow in it."""
SHARE_OF_SUSPICION = 25
"""The divisor of the heartbeat timeout that yields the maximum duration of a turn."""


class BatchSizer:
    """The number of elements per event for one incarnation of one task.

    Args:
        elements_max: the maximum number of elements in an event.
        bytes_max: the number of bytes that an event's output on all channels together should not exceed.

    Attributes:
        elements: the number of elements that an event may currently contain.
        turn_elements: the number of elements that the current turn has delivered or written.
        turn_bytes: the size of the current turn's output in bytes.
    """

    def __init__(self, elements_max: int, bytes_max: int, heartbeat_timeout_ms: int) -> None:
        self._elements_max = elements_max
        self._bytes_max = bytes_max
        self._took_ns_max = heartbeat_timeout_ms * 1_000_000 // SHARE_OF_SUSPICION
        self.elements = min(FIRST_ELEMENTS, elements_max)
        self.turn_elements = self.turn_bytes = 0
        self._took_ns = 0

    @property
    def small(self) -> bool:
        """Whether the current turn is small so far and the previous one was short, so its output may wait."""
        few = self.turn_elements < min(self.elements, SMALL_ELEMENTS)
        return few and self._took_ns <= SHORT_NS and self.turn_bytes <= SMALL_BYTES

    @property
    def reduced(self) -> bool:
        """Whether events may have fewer elements than the job allows; if so, chunks are split and bundles small."""
        return self.elements < self._elements_max

    def begin_turn(self, took_ns: int) -> None:
        """Record the duration of the previous turn (0 if no clock was read), and begin another turn."""
        elements, over = self.turn_elements, max(took_ns / self._took_ns_max, self.turn_bytes / self._bytes_max)
        self.turn_elements = self.turn_bytes = 0
        self._took_ns = took_ns
        if over > 1 and elements:
            self.elements = max(1, min(self.elements, int(elements / over)))
        elif over <= 0.25 and elements * 2 >= self.elements:  # even four times as many elements would meet the limits
            self.elements = min(self._elements_max, self.elements * 2)
