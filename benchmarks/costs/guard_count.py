"""Counts what a call makes the interpreter do: bytecode instructions, calls, and bytes of memory at its peak.

Why not instructions of the processor: `perf stat` needs counters that virtual machines and containers mostly do
not give (and are not here), callgrind needs a package, is fifty times slower, and its numbers hold for one build of
Python, one libc and one set of wheels only.  What the interpreter executes is the same on every machine that has
the same minor version, needs nothing installed, and repeats exactly; nothing else that runs can disturb it.

What it cannot see is the work inside one call into C, say a slower codec.  The peak of memory shows part of it
(another list or copy per record), and the ratios of `benchmarks throughput` show the rest.
"""

from __future__ import annotations

import gc
import sys
import tracemalloc
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from types import CodeType, FrameType
from typing import Any, TypeVar

Result = TypeVar("Result")
TOOL = "causal guard"
INSTRUCTIONS, CALLS, PEAK_BYTES = "instructions", "calls", "peak_bytes"


class Counter:
    """Counts what happens inside `measure`, in this thread; `counts` holds the last one's.

    Args:
        memory: count the peak of memory and nothing else: counting itself takes memory.

    Raises (from `measure`):
        RuntimeError: a debugger or a coverage tool looks on already; its own work would be counted.
    """

    def __init__(self, memory: bool = False) -> None:
        self.counts: dict[str, int] = {}
        self._measure = _peak if memory else _executed

    def measure(self, act: Callable[[], Result]) -> Result:
        """Do it, and count.

        The garbage of others is not collected meanwhile: its finalizers would be counted.
        """
        collects = gc.isenabled()
        gc.disable()
        try:
            result, self.counts = self._measure(act)
        finally:
            if collects:
                gc.enable()
        return result


def _peak(act: Callable[[], Result]) -> tuple[Result, dict[str, int]]:
    if not tracemalloc.is_tracing():
        tracemalloc.start()
    before, _ = tracemalloc.get_traced_memory()
    tracemalloc.reset_peak()
    result = act()
    _, peak = tracemalloc.get_traced_memory()
    return result, {PEAK_BYTES: max(0, peak - before)}


def _executed(act: Callable[[], Result]) -> tuple[Result, dict[str, int]]:
    tally = [0, 0]
    with _traced(tally) if sys.version_info < (3, 12) else _monitored(tally):
        result = act()
    return result, {INSTRUCTIONS: tally[0], CALLS: tally[1]}


@contextmanager
def _traced(tally: list[int]) -> Iterator[None]:
    """Python 3.11: instructions from the tracing, calls of both sorts from the profiling function."""

    def trace(frame: FrameType, event: str, argument: Any) -> Any:
        frame.f_trace_opcodes, frame.f_trace_lines = True, False
        if event == "opcode":
            tally[0] += 1
        return trace

    def profile(frame: FrameType, event: str, argument: Any) -> None:
        if event in ("call", "c_call"):
            tally[1] += 1

    if sys.gettrace() is not None or sys.getprofile() is not None:
        raise RuntimeError("another tool traces this process already; run the guard without debugger and coverage")
    sys.setprofile(profile)
    sys.settrace(trace)
    try:
        yield
    finally:
        sys.settrace(None)
        sys.setprofile(None)


@contextmanager
def _monitored(tally: list[int]) -> Iterator[None]:
    """Python 3.12 and later."""
    monitoring: Any = sys.monitoring  # type: ignore[attr-defined,unused-ignore]
    events = monitoring.events

    def instruction(code: CodeType, offset: int) -> None:
        tally[0] += 1

    def start(code: CodeType, offset: int) -> None:
        tally[1] += 1

    def call(code: CodeType, offset: int, function: object, argument: object) -> None:
        tally[1] += 1

    tool = next((number for number in range(5, -1, -1) if monitoring.get_tool(number) is None), None)
    if tool is None:
        raise RuntimeError("all six monitoring tools are taken; run the guard without debugger and coverage")
    monitoring.use_tool_id(tool, TOOL)
    for event, callback in ((events.INSTRUCTION, instruction), (events.PY_START, start), (events.CALL, call)):
        monitoring.register_callback(tool, event, callback)
    monitoring.set_events(tool, events.INSTRUCTION | events.PY_START | events.CALL)
    try:
        yield
    finally:
        monitoring.set_events(tool, 0)
        for event in (events.INSTRUCTION, events.PY_START, events.CALL):
            monitoring.register_callback(tool, event, None)
        monitoring.free_tool_id(tool)
