"""The entry point of the `causal` command, which a signal ends exactly once, with cleanup and without a traceback.

Until this module handles signals, it imports no other module of the product, and the interpreter handles signals.
While a job runs, `deploy.launching.local` handles them; this module does so before and afterwards.
"""

from __future__ import annotations

import gc
import os
import signal
import sys
import time
from types import FrameType

SIGNALS = (signal.SIGINT, signal.SIGTERM)
ENOUGH_S = 5.0
"""The time for cleanup, during which another signal is ignored."""

RUNNING = (["run"], ["agent"])
"""The commands that start processes of a job."""
PERFORMING = (["replay"], ["diff"], ["lineage"], ["explain-divergence"])
"""The commands that perform recorded events again; sets of strings must have the order that they have in a job."""
LOOKING = (["status"], ["logs"], ["state"], ["ui"], ["top"], ["serve"])
"""The commands that only show a job; they need little of the product, so they start without loading the rest."""

_came_s: list[float] = []
_numbers: list[int] = []
"""The received signals that end the command; `_came_s` contains the times at which they arrived."""


def main(room: bool = False) -> int:
    """Run the command; return its exit status, or 128 + the number of the signal that interrupted it.

    Args:
        room: whether this process already has reserved space (`standby.host.room`).
    """
    for number in SIGNALS:
        if number == signal.SIGTERM or signal.getsignal(number) is not signal.SIG_IGN:  # a shell ignores it with &
            signal.signal(number, _end)
    from deploy.standard_streams import prepare, show  # from here on, a signal may arrive
    from standby.host.room import FOLLOWED, make_room, pin_hashes

    prepare()
    if state := os.environ.pop(FOLLOWED, ""):
        from deploy.launching.following import follow_again

        return follow_again(state)
    if sys.argv[1:2] in PERFORMING:
        pin_hashes()
    room = room or sys.argv[1:2] in RUNNING and make_room()
    template = None
    try:
        if sys.argv[1:] == ["--version"]:
            from deploy.installation import version_line

            return show(version_line())
        if sys.argv[1:2] in LOOKING:
            from deploy import looking

            return looking.main()
        gc.disable()  # nearly everything that is loaded is kept, so collections would only delay the start
        from deploy import cli  # this import takes a moment

        gc.enable()
        if room:
            from standby.host.template import divide

            template = divide()
        if not isinstance(template, int):
            return cli.main(template=template)
    except SystemExit as ending:
        if during := getattr(ending, "during", ""):  # set by `operators.builder.loading`
            print(
                f"causal: ended by {signal.Signals(_numbers[-1]).name} {during}; nothing was started", file=sys.stderr
            )
        raise
    finally:
        if not isinstance(template, int):
            for number in SIGNALS:
                signal.signal(number, signal.SIG_IGN)  # the interpreter is ending, and no cleanup is left to do
    return template  # the exit status of a process that was forked to run a different program


def _end(number: int, frame: FrameType | None) -> None:
    now_s = time.monotonic()
    if not _came_s or now_s - _came_s[-1] >= ENOUGH_S:
        _came_s.append(now_s)
        _numbers.append(number)
        ending = SystemExit(128 + number)
        ending.signal = number  # type: ignore[attr-defined]  # distinguishes it from a SystemExit in user code
        raise ending
