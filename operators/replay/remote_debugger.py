"""A stop of a replay in an IDE: `debugpy` suspends it at the first line of the user's function, before it runs.

The port is opened at the first stop, so the way there is as fast as without a debugger. It accepts connections of this
machine only. In the IDE's console, `replay` is the stop: `replay.record`, `replay.key`, `replay.state`, `replay.after`,
and `replay.next_event()` and `replay.back()`, after which the IDE continues.
"""

from __future__ import annotations

import builtins
import os
import sys
from collections.abc import Callable
from dataclasses import dataclass, replace
from types import FrameType
from typing import Any

from causal.errors import PipelineError
from operators.capture.active import RUNNING
from operators.capture.replacing import spare_modules
from operators.replay.debugger import lines_at, repeats
from operators.replay.search import Outlook, Search, Stop, Wanted, calls_of_users
from operators.tracebacks import LIBRARIES, OURS

LOOPBACK = "127.0.0.1"
ENVIRONMENT = {
    "PYDEVD_DISABLE_FILE_VALIDATION": "1",
    "PYDEVD_USE_SYS_MONITORING": "0",  # its callbacks would also be called in the copies that look ahead
    "LIBRARY_ROOTS": os.pathsep.join((*OURS, *LIBRARIES)),  # so that a step never enters this runtime
}


@dataclass(frozen=True, slots=True)
class StopInIde:
    """A stop, as a person finds it under the name `replay`.

    Attributes:
        after: the state after the event, as it is shown.
    """

    record: Any
    key: Any
    state: Any
    after: str
    ctx: Any
    task: str
    operator: str
    epoch: int
    kind: str
    next_event: Callable[[], str]
    back: Callable[[], None]


class RemoteDebugger:
    """The connection of one replay to an IDE.

    Args:
        port: the port to which the IDE connects; 0 for any free one.
        say: prints a line for the person.
        back: called with an earlier event; the replay begins again, and this process ends.

    Raises:
        PipelineError: debugpy is not installed.
    """

    def __init__(self, port: int, say: Callable[[str], None], back: Callable[[Wanted], None]) -> None:
        os.environ.update(ENVIRONMENT)
        try:
            import debugpy
        except ImportError:
            raise PipelineError("--debugpy needs debugpy; run `pip install 'causal-streams[debug]'`") from None
        self._debugpy = debugpy
        self._port = port
        self._say = say
        self._back = back
        self._listening = False

    def stopped(self, search: Search, stop: Stop) -> None:
        """Suspend the replay before the event, in the user's function if it calls one.

        Raises:
            PipelineError: the port cannot be opened.
        """
        outlook = search.outlook(stop)
        if outlook is None:
            return
        self._say("\n".join(lines_at(stop, outlook)))
        if search.wanted is not None and not repeats(search.wanted):
            search.wanted = None
        builtins.replay = self._shown(search, stop, outlook)  # type: ignore[attr-defined]
        with RUNNING.suspended():  # the debugger asks for the time and for random bytes
            self._attach()
        if outlook.where:
            sys.setprofile(calls_of_users(self._entered))  # debugpy sets trace functions, also from its own threads
        else:
            self._say("the event calls no code of yours; the IDE is suspended where the replay performs it")
            self._debugpy.breakpoint()

    def _entered(self, frame: FrameType) -> None:
        import pydevd

        sys.setprofile(None)
        spare_modules(os.path.dirname(self._debugpy.__file__))
        pydevd.settrace(suspend=True, trace_only_current_thread=True, stop_at_frame=frame)

    def _attach(self) -> None:
        """Open the port if it is not open yet, and wait until an IDE has connected."""
        debugpy = self._debugpy
        if not self._listening:
            debugpy.configure(subProcess=False, python=sys.executable)
            try:
                _, port = debugpy.listen((LOOPBACK, self._port))
            except RuntimeError as problem:
                raise PipelineError(f"--debugpy {self._port}: the port cannot be opened: {problem}") from None
            self._listening = True
            suspends_outside_operators()
            self._say(f"attach an IDE to {LOOPBACK}:{port}; the replay waits for it, and Ctrl-C ends it")
        if not debugpy.is_client_connected():
            debugpy.wait_for_client()

    def _shown(self, search: Search, stop: Stop, outlook: Outlook) -> StopInIde:
        def next_event() -> str:
            """Stop at the next event of the same key and operator."""
            if stop.visit is None:
                return "this event is not one of a key"
            search.watched = None
            search.wanted = Wanted(stop.epoch, visit=replace(stop.visit, number=stop.visit.number + 1))
            return "continue, and the replay stops at the next event of this key"

        def back() -> None:
            """Begin again, and stop at the last event of the same key and operator; attach the IDE again then."""
            if stop.visit is None or stop.visit.number == 1:
                raise PipelineError("there is no earlier event of this key since the checkpoint")
            self._back(Wanted(stop.epoch, visit=replace(stop.visit, number=stop.visit.number - 1)))

        return StopInIde(
            stop.record, stop.key, stop.state, outlook.state, stop.ctx, stop.task, stop.operator, stop.epoch, stop.kind,
            next_event, back,
        )  # fmt: skip


def suspends_outside_operators() -> None:
    """Make expressions that a person evaluates during a stop read the process's own clock and random numbers."""
    import pydevd

    debugger = pydevd.get_global_debugger()
    wait = debugger.do_wait_suspend

    def suspended(*arguments: Any, **options: Any) -> Any:
        with RUNNING.suspended():
            return wait(*arguments, **options)

    debugger.do_wait_suspend = suspended
