"""The progress line of `causal run`: one line about the running job, renewed on a terminal, otherwise repeated.

The line has the rates since the line before, the bytes between the tasks, and what the job waits for.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, TextIO

from causal.task.activity import sentence
from deploy.hints import led_by
from deploy.report import total

LINE_WIDTH = 118
EVERY_S = 5.0
"""The interval between two lines where there is no terminal."""
RATE_S = 1.0
"""The least time over which a rate is measured."""
LONG_NS = 5_000_000_000
"""Work that has taken longer is named; of several, the oldest."""
NAMES_SHOWN = 4


class Progress:
    """Writes lines to `out`, the standard error of `causal run`.

    Args:
        companions: names of the sources that need a process of their own before the first record can enter.
        hosts: the number of hosts that are to join.
    """

    def __init__(self, out: TextIO, companions: Sequence[str] = (), hosts: int = 0) -> None:
        self._out = out
        self._terminal = out.isatty()
        self._companions = tuple(companions)
        self._hosts = hosts
        self._written_s = 0.0
        self._counted: tuple[float, int, int] | None = None
        self._rates: tuple[float, float] | None = None

    def show(self, view: Mapping[str, Any], elapsed_s: float) -> None:
        """Takes a view, and writes a line if one is due."""
        self._measure(view, elapsed_s)
        if self._terminal:
            line = self.line(view, elapsed_s)[:LINE_WIDTH]
            print(f"\r{line:<{LINE_WIDTH}}", end="", file=self._out, flush=True)
        elif elapsed_s - self._written_s >= EVERY_S:
            self._written_s = elapsed_s
            print(f"causal: {self.line(view, elapsed_s)}", file=self._out, flush=True)

    def close(self) -> None:
        """Removes the line from a terminal."""
        if self._terminal:
            print(f"\r{'':<{LINE_WIDTH}}\r", end="", file=self._out, flush=True)

    def _measure(self, view: Mapping[str, Any], elapsed_s: float) -> None:
        entered, written = total(view, "records_in", "source"), total(view, "records_out", "sink")
        if self._counted is None:
            self._counted = (elapsed_s, entered, written)
            return
        since_s, entered_before, written_before = self._counted
        if elapsed_s - since_s >= RATE_S:
            self._rates = tuple(  # type: ignore[assignment]
                max(0, count) / (elapsed_s - since_s) for count in (entered - entered_before, written - written_before)
            )
            self._counted = (elapsed_s, entered, written)

    def line(self, view: Mapping[str, Any], elapsed_s: float) -> str:
        """One line about a view."""
        leader = view.get("leader")
        if leader is not None and not leader["here"]:
            return f"{elapsed_s:.1f} s  followed: led by {led_by(leader)}"
        entering, leaving = ("", "") if self._rates is None else (f" ({rate:,.0f}/s)" for rate in self._rates)
        parts = [
            f"in {total(view, 'records_in', 'source'):,}{entering}",
            f"out {total(view, 'records_out', 'sink'):,}{leaving}",
            f"in flight {_bytes(total(view, 'inflight_bytes') + total(view, 'inflight_disk_bytes'))}",
            f"checkpoint {view['checkpoint']['complete']}",
            f"recoveries {len(view['recoveries'])}",
            *self._waits(view),
        ]
        return f"{elapsed_s:.1f} s  {view['state']}: {', '.join(parts)}"

    def _waits(self, view: Mapping[str, Any]) -> list[str]:
        """Descriptions of what the job waits for."""
        waits = []
        joined = sum(1 for host in view["hosts"] if host["state"] == "joined") if self._hosts else 0
        if joined < self._hosts and view["life"]["first_record_ns"] is None:
            waits.append(f"{joined} of {self._hosts} hosts have joined")
        if view["life"]["first_record_ns"] is None and self._companions:
            waits.append(f"waiting for the first record of {', '.join(self._companions)}")
        recovering = [task["task"] for task in view["tasks"] if task["state"] not in ("running", "finished", "staged")]
        if recovering:
            waits.append(f"not yet running: {_names(recovering)}")
        away = [task["task"] for task in view["tasks"] if task.get("waiting")]
        if away:
            waits.append(f"waiting for its store: {_names(away)}")
        busy = [task for task in view["tasks"] if task.get("doing") and not task.get("waiting")]
        long = [task for task in busy if view["at_ns"] - task["doing"]["since_ns"] >= LONG_NS]
        if long:
            oldest = min(long, key=lambda task: int(task["doing"]["since_ns"]))
            more = f" and {len(long) - 1} more" if len(long) > 1 else ""
            waits.append(f"{oldest['task']} is {sentence(oldest['doing'], view['at_ns'])}{more}")
        full = [task["task"] for task in view["tasks"] if task["figures"].get("ingest_waiting_s", 0)]
        if full:
            waits.append(f"the input waits for {_names(full)} to read")
        unanswered = [task["task"] for task in view["tasks"] if task["figures"].get("ingest_store_waiting_s", 0)]
        if unanswered:
            waits.append(f"the shared store does not answer {_names(unanswered)}")
        return waits


def _names(names: Sequence[str]) -> str:
    more = f" and {len(names) - NAMES_SHOWN} more" if len(names) > NAMES_SHOWN else ""
    return ", ".join(names[:NAMES_SHOWN]) + more


def _bytes(count: int) -> str:
    for unit, size in (("GB", 1 << 30), ("MB", 1 << 20), ("kB", 1 << 10)):
        if count >= size:
            return f"{count / size:.1f} {unit}"
    return f"{count} B"
