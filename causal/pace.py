"""How much one turn of a task may take on: as many elements as are done with in a moment, and small in bytes.

Between turns a process beats, answers its neighbours and hears of barriers; whoever falls silent for longer counts as
hung.  So a task begins with few elements per event and takes more as long as they are quickly done, up to the most
that it is ever given at once; where records take their time, or are large, an event keeps to few.  The core has no
clock: the shell says how long a turn took.  What was taken is in the log like every event, so a replay takes the same.
"""

from __future__ import annotations

FIRST_ELEMENTS = 16
SHARE_OF_SUSPICION = 25
"""A turn should take at most this part of the silence after which a process counts as hung."""


class Pace:
    """Of one incarnation of one task.

    Args:
        bytes_max: that what an event made should have, over all outputs.
        elements_max: never more than these.

    Attributes:
        elements: that an event may have now.
    """

    def __init__(self, elements_max: int, bytes_max: int, suspect_after_ms: int) -> None:
        self._elements_max = elements_max
        self._bytes_max = bytes_max
        self._took_ns_max = suspect_after_ms * 1_000_000 // SHARE_OF_SUSPICION
        self.elements = min(FIRST_ELEMENTS, elements_max)

    @property
    def held(self) -> bool:
        """Whether an event may have fewer elements than the job allows: then chunks are cut, and bundles are small."""
        return self.elements < self._elements_max

    def took(self, elements: int, made_bytes: int, took_ns: int) -> None:
        """A turn that delivered, or wrote, so many elements took that long; 0 where nobody looked at a clock."""
        over = max(took_ns / self._took_ns_max, made_bytes / self._bytes_max)
        if over > 1 and elements:
            self.elements = max(1, min(self.elements, int(elements / over)))
        elif over <= 0.25 and elements * 2 >= self.elements:  # four times as many would still be in time
            self.elements = min(self._elements_max, self.elements * 2)
