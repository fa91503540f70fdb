"""One state of the whole tiny world, as a value; and the draft of the next one while an action changes it."""

from __future__ import annotations

from functools import cached_property
from typing import Any, NamedTuple

from causal.logs.rollback import Extent

Life = tuple[int, int]
"""(task, incarnation)."""
End = tuple[int, int, int, int]
"""A direction of a connection: (task, incarnation) → (task, incarnation)."""
Written = tuple[tuple[int, int, int, bytes], ...]
"""(task, epoch, offset, bytes) of a log, on the way to disk."""


class State(NamedTuple):
    """Numbers stand for values that are kept once (`cores.Cores`, `stores.Stores`).

    Attributes:
        processes: the living, each with the state of its core; a zombie's incarnation is not the present.
        incarnations: the present one of each task.
        links: frames in transit, per direction of each connection.
        orders: what the supervisor has sent and a process has not read yet.
        stores: by channel.
        writing: (task, incarnation, epoch, snapshot) on its way to disk.
        acks: the snapshot with which each task acknowledged the checkpoint under way; -1 for none.
        restore: the snapshot of each task in the last complete checkpoint; -1 for none.
        crashes, losses, asks, hurries: how many of them may still happen; ticks: how often the clock has moved.
        stopped: the job has ended with an error that names nondeterministic user code.
        lost: what an inquiry is about; findings: (task, incarnation, finding) that have been answered.
        stable: the files that incarnations have begun, by epoch; flushing: (task, incarnation, what is under way).
    """

    processes: tuple[tuple[Life, int], ...]
    incarnations: tuple[int, ...]
    links: tuple[tuple[End, tuple[int, ...]], ...]
    orders: tuple[tuple[Life, tuple[Any, ...]], ...]
    stores: tuple[tuple[int, int], ...]
    writing: tuple[tuple[int, int, int, int], ...]
    acks: tuple[int, ...]
    restore: tuple[int, ...]
    complete: int
    asked: int
    crashes: int
    losses: int
    asks: int
    hurries: int
    ticks: int
    stopped: bool = False
    rollback: int = -1
    inquiry: int = 0
    lost: tuple[Extent, ...] = ()
    findings: tuple[tuple[int, int, int], ...] = ()
    stable: tuple[tuple[Life, tuple[tuple[int, bytes], ...]], ...] = ()
    flushing: tuple[tuple[int, int, Written], ...] = ()


class Draft:
    """A state that is being changed; parts that are not asked for are taken over as they are."""

    def __init__(self, state: State) -> None:
        self.base = state
        self.changes: dict[str, Any] = {}
        self.broken: list[str] = []
        """The breaches on the way; a path ends here."""

    @cached_property
    def processes(self) -> dict[Life, int]:
        return dict(self.base.processes)

    @cached_property
    def incarnations(self) -> list[int]:
        return list(self.base.incarnations)

    @cached_property
    def links(self) -> dict[End, tuple[int, ...]]:
        return dict(self.base.links)

    @cached_property
    def orders(self) -> dict[Life, tuple[Any, ...]]:
        return dict(self.base.orders)

    @cached_property
    def stores(self) -> dict[int, int]:
        return dict(self.base.stores)

    @cached_property
    def writing(self) -> list[tuple[int, int, int, int]]:
        return list(self.base.writing)

    @cached_property
    def acks(self) -> list[int]:
        return list(self.base.acks)

    @cached_property
    def restore(self) -> list[int]:
        return list(self.base.restore)

    @cached_property
    def stable(self) -> dict[Life, tuple[tuple[int, bytes], ...]]:
        return dict(self.base.stable)

    @cached_property
    def flushing(self) -> list[tuple[int, int, Written]]:
        return list(self.base.flushing)

    @cached_property
    def findings(self) -> dict[int, tuple[int, int, int]]:
        """The findings, by task."""
        return {finding[0]: finding for finding in self.base.findings}

    def present(self, task: int) -> Life | None:
        """Return the process that is this task now, if it lives."""
        life = (task, self.incarnations[task])
        return life if life in self.processes else None

    def send(self, end: End, frame: int) -> None:
        self.links[end] = (*self.links.get(end, ()), frame)

    def end(self, life: Life) -> None:
        """A process is gone, with what was on its way to it; what it had sent may still arrive."""
        del self.processes[life]
        self.orders.pop(life, None)
        self.links = {end: frames for end, frames in self.links.items() if end[2:] != life}
        self.writing = [each for each in self.writing if each[:2] != life]
        self.flushing = [each for each in self.flushing if each[:2] != life]

    def state(self) -> State:
        """Return the state that it has become; parts without order are sorted."""
        changed = vars(self)
        parts: dict[str, Any] = {}
        parts |= {
            name: tuple(sorted(changed[name].items())) for name in ("processes", "stores", "stable") if name in changed
        }
        parts |= {
            name: tuple(sorted(item for item in changed[name].items() if item[1]))
            for name in ("links", "orders")
            if name in changed
        }
        parts |= {name: tuple(changed[name]) for name in ("incarnations", "acks", "restore") if name in changed}
        parts |= {"writing": tuple(sorted(self.writing))} if "writing" in changed else {}
        parts |= {"flushing": tuple(sorted(self.flushing))} if "flushing" in changed else {}
        parts |= {"findings": tuple(sorted(self.findings.values()))} if "findings" in changed else {}
        return self.base._replace(**parts, **self.changes)
