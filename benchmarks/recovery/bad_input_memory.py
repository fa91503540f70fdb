"""Memory of every process of a running job against what its budgets allow: the peak of each, sampled while it runs."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

from benchmarks.harness.usage import looking, pss_mib

SAMPLE_S = 0.2
BASE_MIB = 60.0
"""Memory of an interpreter with the runtime, beyond its state and its budgets."""
EVENT_COPIES = 5
"""Number of copies of what one event delivers and makes: frame, chunk, records, records again, chunk."""
MIB = 1 << 20


@dataclass(frozen=True)
class Budget:
    """The memory that the settings of a job allow each process.

    Args:
        inflight_bytes: `inflight_memory_bytes_max`; a task waits for the disk at twice that.
        channel_window_bytes: outstanding per channel; half of it is what an event should make.
        record_bytes: the largest record.
        inputs: channels from tasks, by task; what has none reads a source.
        sinks: tasks without a task downstream.
    """

    inflight_bytes: int
    channel_window_bytes: int
    record_bytes: int
    inputs: Mapping[str, int]
    sinks: frozenset[str]

    def mib(self, task: str) -> float:
        """Return the budget of the process that runs `task`."""
        kept = 0 if task in self.sinks else 2 * self.inflight_bytes
        queued = self.inputs.get(task, 0) * (self.channel_window_bytes + self.record_bytes)
        event = EVENT_COPIES * (self.channel_window_bytes // 2 + self.record_bytes)
        return BASE_MIB + (kept + queued + event) / MIB


@dataclass
class Peaks:
    """The most that each process was seen to hold, in MiB: of tasks and of standbys."""

    tasks: dict[str, float] = field(default_factory=dict)
    standbys: dict[str, float] = field(default_factory=dict)
    samples: int = 0

    def look(self, view: Mapping[str, Any]) -> None:
        """Take one sample of every process in the view."""
        for process in view.get("processes", ()):
            task, standby_of = process["task"], process["standby_of"]
            mib = pss_mib(process["pid"]) if process["pid"] and (task or standby_of) else None
            if mib is not None:
                peaks, name = (self.tasks, task) if task else (self.standbys, standby_of)
                peaks[name] = max(mib, peaks.get(name, 0.0))
                self.samples += 1

    def shares(self, budget: Budget) -> dict[str, float]:
        """Return the peak of each task ÷ what it may hold."""
        return {task: mib / budget.mib(task) for task, mib in self.tasks.items()}


@contextmanager
def sampled(view: Callable[[], Mapping[str, Any] | None]) -> Iterator[Peaks]:
    """Yield peaks that are kept up to date until the block is left.

    Args:
        view: gives the supervisor's last view of the job, where there is one.
    """
    peaks = Peaks()
    with looking(lambda: peaks.look(view() or {}), SAMPLE_S):
        yield peaks
