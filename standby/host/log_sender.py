"""The agent's reader of its host's logs, whose new lines are sent to the supervisor at a limited rate.

If a process prints faster than the limit, only its newest lines are sent.  A separate line states how much was left
out, and the host's own files contain everything.
"""

from __future__ import annotations

import json
import os
from pathlib import Path

from causal.process.log_tails import LogTails

LOOK_S = 0.5
"""The interval between reads of new lines."""

TEXT_BYTES_MAX = 1 << 16
"""The number of bytes that are read at one time: 128 KiB per second for a host."""

LINE_CHARACTERS_MAX = 4096
"""Longer lines are truncated to this many characters."""

SENT = "sent.json"
"""The file with the positions up to which lines have been sent, for the next agent."""


class LogSender:
    """The log lines of one host that the supervisor does not have yet."""

    def __init__(self, job: Path) -> None:
        self._file = job / SENT
        self._tails = LogTails(job / "logs", self._read())
        self._due_s = 0.0

    def _read(self) -> dict[str, tuple[int, int]]:
        try:
            positions = json.loads(self._file.read_text())
            return {name: (int(inode), int(offset)) for name, (inode, offset) in positions.items()}
        except (FileNotFoundError, ValueError, TypeError, AttributeError):
            return {}

    def take(self, now_s: float, last: bool = False) -> str:
        """Return the lines added since the last call and record them as sent; empty if there are none.

        Args:
            last: whether the host is ending; otherwise nothing is returned if the last call was very recent.
        """
        if now_s < self._due_s and not last:
            return ""
        self._due_s = now_s + LOOK_S
        lines = [(time, line[:LINE_CHARACTERS_MAX]) for _, (time, _, line) in self._tails.newest(TEXT_BYTES_MAX)]
        at = next((time for time, _ in lines if time), "")
        skipped = [
            (
                f"{at} agent WARNING standby.logs: {count:,} bytes of {name} are only on this host, because they "
                "were written too fast"
            )
            for name, count in self._tails.skipped().items()
        ]
        if not lines:
            return ""
        fresh = self._file.with_name(SENT + ".new")
        fresh.write_text(json.dumps(self._tails.read_up_to()))
        os.replace(fresh, self._file)
        return "".join(f"{line}\n" for line in (*skipped, *(line for _, line in lines)))
