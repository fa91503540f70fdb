"""The window of a recording (`causal run --record 24h,10GB`), which is bounded in time and in bytes."""

from __future__ import annotations

import re
from dataclasses import dataclass

OFF = "off"
DEFAULT = "24h,10GB"
"""The window of `--record` without a value; a part that a value leaves out is that of this one."""
FORM = "off, or a window such as 24h,10GB"

_SPAN = re.compile(r"([1-9]\d{0,8})(s|m|h|d)")
_SIZE = re.compile(r"([1-9]\d{0,8})(KB|MB|GB|TB)")
_SECONDS = {"s": 1, "m": 60, "h": 3600, "d": 86_400}
_BYTES = {"KB": 10**3, "MB": 10**6, "GB": 10**9, "TB": 10**12}
CHECKPOINTS = 1000
"""About the number of checkpoints that are kept in a window, from which replays begin."""
SHARE = 16
"""The part of a window's bytes, as a divisor, after which another checkpoint is kept, however soon."""


@dataclass(frozen=True, slots=True)
class Window:
    """The bounds of a recording."""

    seconds: int
    bytes: int

    def keeps(self, since_s: float, bytes_since: int) -> bool:
        """Return whether a checkpoint is to be kept, so that a replay can begin there.

        Args:
            since_s: the time since the last checkpoint that was kept.
            bytes_since: the size of what was recorded since then.
        """
        return since_s >= self.seconds / CHECKPOINTS or bytes_since >= self.bytes // SHARE


def window_of(text: str) -> Window | None:
    """Return the window that a setting describes; None if nothing is recorded.

    Raises:
        ValueError: the text does not have the form `FORM`.
    """
    if text == OFF:
        return None
    seconds, size = 0, 0
    for part in text.split(","):
        span, amount = _SPAN.fullmatch(part.strip()), _SIZE.fullmatch(part.strip())
        if span is not None and not seconds:
            seconds = int(span[1]) * _SECONDS[span[2]]
        elif amount is not None and not size:
            size = int(amount[1]) * _BYTES[amount[2]]
        else:
            raise ValueError(f"{part!r:.40} is neither a time nor a size")
    default = Window(86_400, 10 * 10**9)
    return Window(seconds or default.seconds, size or default.bytes)
