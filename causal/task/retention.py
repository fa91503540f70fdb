"""The bounds on what a task keeps until the next checkpoint: in-flight entries, determinants, staged rows.

Only a complete checkpoint shortens any of them, so a task that has reached half of a bound requests one.  The
supervisor begins it immediately and has the sources hold back records until it is complete (design page 0021).
"""

from __future__ import annotations

from causal.channels.ends import Channels
from causal.config import JobConfig
from causal.logs.dissemination import Holdings


class Retention:
    """The bounds of one incarnation of one task.

    Args:
        epoch: the epoch of the checkpoint that it was restored from.
    """

    def __init__(self, channels: Channels, holdings: Holdings, config: JobConfig, epoch: int) -> None:
        self._channels = channels
        self._holdings = holdings
        self._inflight_max = config.inflight_disk_bytes_max
        self._log_max = config.log_bytes_max
        self._staged_max = config.staged_bytes_max
        self._completed_epoch = epoch

    def completed(self, epoch: int) -> None:
        """Record that checkpoint `epoch` is complete, and what it covers is forgotten."""
        self._completed_epoch = max(self._completed_epoch, epoch)

    @property
    def wanted_epoch(self) -> int:
        """The checkpoint that should complete now because half of a bound is reached; 0 if none should."""
        epoch = 0
        if 2 * sum(self._channels.inflight_bytes()) > self._inflight_max or 2 * self._holdings.size > self._log_max:
            epoch = self._completed_epoch + 1
        for sink in self._channels.sinks.values():
            if 2 * sink.staged_bytes > self._staged_max:  # the last checkpoint may be complete and not committed yet
                epoch = max(epoch, sink.committed + 1)
        return epoch
