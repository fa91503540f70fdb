"""The boundaries of wall-clock windows, which are logged events instead of clock readings for each record.

A window is *open* from its first element until it fires, and the firing is logged.  A replay repeats deliveries and
firings in the logged order, and therefore repeats the contents of the window without reading a clock.

A replay must also know the end of a window, because it decides when the window is due. The end could be derived from
the `due_ns` of the firing alone. But then a firing for a timer of the same chain could not be distinguished from the
window's firing, and an element that arrived after a boundary would belong to the previous window. So the clock is read
once when a window opens, as an ordinary determinant: a few bytes per window and operator, and none per record or key.
The end is the next multiple of the period, but never one that has been used before, even if the wall clock steps back.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from causal.records.rows import joined
from operators.kinds.windows.assigners import Sliding, Tumbling
from operators.stage.stages import Due, ServedStage


class ClockBounds(ServedStage):
    """The base class of stages whose windows end at multiples of a wall-clock period."""

    _end_ns: int | None = None
    """The end of the open slide, at which the next firing is due; None if no window is open."""
    _last_end_ns = 0

    def _bound_by(self, assigner: Tumbling | Sliding) -> None:
        self._every_ns = assigner.every_ns if isinstance(assigner, Sliding) else assigner.size_ns
        self._offset_ns = assigner.offset_ns
        """Windows end at this time plus multiples of the period."""

    def _open(self) -> None:
        """Open a slide if none is open."""
        if self._end_ns is None:
            opened_ns = max(self._services.now_ns(), self._last_end_ns)
            self._end_ns = opened_ns - (opened_ns - self._offset_ns) % self._every_ns + self._every_ns

    def _slide(self, end_ns: int) -> Any:
        """End the open slide and return the results of the windows that end with it."""
        raise NotImplementedError

    def next_ns(self) -> int | None:
        return self._end_ns

    def fire(self, entries: Sequence[Due]) -> Any:
        return self._slide(entries[0][0])

    def finish(self) -> Any:
        out = []
        while self._end_ns is not None:
            out.append(self._slide(self._end_ns))
        return joined(out)

    def _merged_bounds(self, headers: Sequence[dict[str, Any]]) -> dict[str, Any]:
        """Return bounds for the open windows of several tasks: the latest end, but never one that has been used."""
        last_end_ns = max(header["last_end_ns"] for header in headers)
        end_ns = max((header["end_ns"] for header in headers if header["end_ns"] is not None), default=None)
        if end_ns is not None and end_ns <= last_end_ns:
            end_ns = last_end_ns + self._every_ns
        return {"end_ns": end_ns, "last_end_ns": last_end_ns}
