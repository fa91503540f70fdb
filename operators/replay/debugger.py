"""A debugger for a replay: `pdb`, with what a stream adds: the events of a key, the way back, and the state.

It stops at the first line of the user's function that gets the record, before it runs. `record`, `key`, `ctx`, `state`
(before the event) and `after` (as text) are names there. An operator without user code stops at the event itself.
"""

from __future__ import annotations

import dis
import inspect
import os
import sys
from bdb import BdbQuit
from collections.abc import Callable
from dataclasses import replace
from pdb import Pdb
from types import FrameType, TracebackType
from typing import IO, Any, cast

from operators.capture.active import RUNNING
from operators.replay.search import ANY, Outlook, Search, Stop, Wanted, calls_of_users, names_at, shown_state

RUNTIME = ("causal.*", "operators.*", "standby.*", "deploy.*")
"""The modules in which `next` and `step` do not stop."""


def lines_at(stop: Stop, outlook: Outlook) -> list[str]:
    """Return what people see of a stop."""
    lines = [f"{stop.task}, epoch {stop.epoch}, event {stop.event}: {stop.kind}"]
    if stop.visit is not None:
        lines[0] += f" {stop.visit.number} of its key at {stop.operator!r} since the checkpoint"
        lines += [f"  {stop.kind:<6}  {stop.record!r}"] if stop.record is not None else []
        lines.append(f"  key     {stop.key!r}")
    if outlook.where:
        lines.append(f"  code    {outlook.where}")
    if stop.visit is not None:
        before = shown_state(stop.state)
        lines.append(f"  state   {before}")
        lines.append(f"  after   {'the same' if outlook.state == before else outlook.state}")
    if outlook.failure:
        lines.append(f"  raises  {outlook.failure}")
    return lines


class Debugger(Pdb):
    """The debugger of one replay.

    Args:
        back: called with an earlier event; the replay begins again, and this process ends.
        end: ends this process.
    """

    def __init__(self, back: Callable[[Wanted], None], end: Callable[[], None]) -> None:
        lines = None if sys.stdin.isatty() else cast(IO[str], _Lines())
        out = None if lines is None else sys.stdout
        super().__init__(stdin=lines, stdout=out, skip=RUNTIME, nosigint=True, readrc=False)
        self.prompt = "(replay) "
        self._back = back
        self._end = end
        self._stop: Stop | None = None
        self._search: Search | None = None
        self._names: dict[str, Any] = {}
        self._frame: FrameType | None = None
        """The function in which the replay stopped."""

    def stopped(self, search: Search, stop: Stop) -> None:
        """Show a stop, and let the person continue from there."""
        outlook = search.outlook(stop)
        if outlook is None:
            return
        self._search, self._stop = search, stop
        self._names = {**names_at(stop), "after": outlook.state}
        self.message("\n".join(lines_at(stop, outlook)))
        if search.wanted is not None and not repeats(search.wanted):
            search.wanted = None
        if outlook.where:
            sys.settrace(calls_of_users(self._entered))
        else:
            self.reset()
            self.interaction(sys._getframe(), None)

    def _entered(self, frame: FrameType) -> Any:
        self._frame = frame
        self.set_trace(frame)
        return self.trace_dispatch

    def dispatch_return(self, frame: FrameType, arg: Any) -> Any:
        """Stop also at the end of a generator, which `bdb` takes for a `yield`; the names end with the function."""
        ended = not yields(frame)
        if ended and frame is self.stopframe and frame.f_code.co_flags & inspect.CO_GENERATOR:
            self.user_return(frame, arg)
            if self.quitting:
                raise BdbQuit
            if self.stopframe is frame and self.stoplineno != -1:  # `next`: stop where the code is called next
                self._set_stopinfo(None, None)  # type: ignore[attr-defined]
            handler: Any = self.trace_dispatch
        else:
            handler = super().dispatch_return(frame, arg)
        if ended and frame is self._frame:
            self._names = {}
        return handler

    def setup(self, f: FrameType | None, tb: Any) -> None:
        """Add the names of the stop to those of the frame, which win."""
        super().setup(f, tb)
        self.curframe_locals = {**self._names, **self.curframe_locals}

    def interaction(self, frame: FrameType | None, traceback: TracebackType | None) -> None:
        """Talk with the person, whose expressions read the process's own clock and random numbers."""
        with RUNNING.suspended():
            super().interaction(frame, traceback)

    def do_ne(self, argument: str) -> bool:
        """ne(xt_event)
        Perform this event, and stop at the next one of the same key and operator.
        """
        return self._visit(1)

    do_next_event = do_ne

    def do_back(self, argument: str) -> bool:
        """back
        Return to the last event of the same key and operator; it is performed again from the checkpoint.
        """
        stop = self._stop
        if stop is None or stop.visit is None:
            self.error("this event is not one of a key")
        elif stop.visit.number == 1:
            self.error("this is the first event of its key since the checkpoint; begin earlier with --epoch")
        else:
            self._back(Wanted(stop.epoch, visit=replace(stop.visit, number=stop.visit.number - 1)))
        return False

    def do_watch(self, argument: str) -> bool:
        """watch state
        Perform events until the state of this key has changed, and stop at the next event of the key.
        """
        if argument.strip() != "state":
            self.error("watch what? The state of the key is watched: watch state")
            return False
        stop = self._stop
        if stop is not None and stop.visit is not None and self._search is not None:
            self._search.watched = stop.visit, shown_state(stop.state)
        return self._visit(1, watching=True)

    def _visit(self, more: int, watching: bool = False) -> bool:
        stop, search = self._stop, self._search
        if stop is None or stop.visit is None or search is None:
            self.error("this event is not one of a key; c continues")
            return False
        if not watching:
            search.watched = None
        search.wanted = Wanted(stop.epoch, visit=replace(stop.visit, number=stop.visit.number + more))
        return bool(self.do_continue(""))

    def do_quit(self, arg: str) -> bool | None:
        """q(uit)
        End the replay; nothing of the job has changed.
        """
        self._end()
        return True

    do_q = do_exit = do_quit

    def do_EOF(self, argument: str) -> bool:
        """End the replay at the end of standard input."""
        self.message("")
        self._end()
        return True


class _Lines:
    """Commands from a pipe, read byte by byte, because the next replay continues with the line after the last one."""

    def readline(self) -> str:
        line = b""
        while not line.endswith(b"\n") and (part := os.read(0, 1)):
            line += part
        return line.decode(errors="replace")


def yields(frame: FrameType) -> bool:
    """Return whether a frame that returns to its caller will continue after a `yield`."""
    return dis.opname[frame.f_code.co_code[frame.f_lasti]] == "YIELD_VALUE"


def repeats(wanted: Wanted) -> bool:
    """Return whether a search stops again after its first stop: it does if it asks for records of a kind."""
    return wanted.visit is None and wanted.element is None and (bool(wanted.condition) or wanted.key is not ANY)
