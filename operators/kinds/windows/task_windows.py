"""Tumbling processing-time windows for a function of all of a key's records.

A window contains exactly the elements that are delivered between its opening and its firing
(`operators.kinds.windows.clock_bounds`). The firing is logged (`services.window`) as an interval of arrival numbers.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import Any

from causal.errors import CausalError, OperatorFailed
from causal.records.values import NotCarried, decode, encode
from operators.graph import Node
from operators.kinds.windows.clock_bounds import ClockBounds
from operators.records.keys import canonical_key, key_group
from operators.records.ownership import copy_containers
from operators.records.seconds import seconds_of
from operators.stage.failures import NO_KEY, shown
from operators.stage.scope import Scope
from operators.stage.stages import check_records
from operators.state.keyed_tables import CORRECT, FragmentJob


@dataclass(frozen=True, slots=True)
class Window:
    """The bounds of a window in seconds; `end` does not belong to the window."""

    start: float
    end: float


WindowFunction = Callable[[Any, list[Any], Window], "Iterable[Any] | None"]
"""A function of (key, records in order of arrival, window) that returns records."""

Contents = defaultdict[Any, list[Any]]


def results_of(fn: WindowFunction, key: Any, records: list[Any], window: Window, operator: str) -> list[Any]:
    """Return the records that the function returns; they share no containers with anything else."""
    result = fn(key, records, window)
    if result is None:
        return []
    check_records(result, operator)
    return list(map(copy_containers, result))


class WindowStage(ClockBounds):
    """The stage of `window(name, size_s, fn)`: all keys fire together, in the order of their first elements.

    Contents are kept in generations, one per interval between snapshots. An older generation does not change until it
    fires, so a snapshot encodes only the newest generation, and no copies on write are needed.
    """

    def __init__(self, node: Node, scope: Scope) -> None:
        super().__init__(node.name, scope)
        self._fn: WindowFunction = node.subject
        self._bound_by(node.options["assigner"])
        self._keyed = node.keyed
        self._key_groups = scope.config.key_groups
        self._generations: dict[int, Contents] = {}
        self._loaded: dict[int, list[tuple[int, Any, list[Any]]]] = {}
        self._job: WindowJob | None = None
        self._generation = 0
        self._current: Contents = Contents(list)
        self._arrivals = 0
        self._since = 0
        self._oldest = 0

    @property
    def _table(self) -> str:
        return f"{self.name}:window"

    def run(self, records: list[Any], keys: list[Any] | None) -> list[Any]:
        if records:
            self._open()
            contents = self._current
            if keys is None:
                contents[None].extend(records)
            else:
                for key, record in zip(keys, records, strict=True):
                    contents[key].append(record)
            self._arrivals += len(records)
        return []

    def _slide(self, end_ns: int) -> Any:
        self._services.window(self.ordinal, end_ns, [(self._since, self._arrivals - self._since)])
        window = Window(seconds_of(end_ns - self._every_ns), seconds_of(end_ns))
        self._last_end_ns, self._end_ns = end_ns, None
        return self._emptied(window)

    def _emptied(self, window: Window) -> Any:
        """Remove all contents and return the records that the function returns for them."""
        if self._job is not None:  # the function may change records that the snapshot has not encoded yet
            self._job.step(len(self._job.left))
        contents = self._gathered()
        self._generation += 1
        self._oldest = self._generation
        self._generations, self._current = {}, Contents(list)
        self._since = self._arrivals
        out: list[Any] = []
        for key, records in contents.items():
            self._fire_key(key, records, window, out)
        return out

    def _fire_key(self, key: Any, records: list[Any], window: Window, out: list[Any]) -> None:
        letter = {"window": [window.start, window.end], "records": len(records)}
        try:
            out += results_of(self._fn, key, records, window, self.name)
        except CausalError:
            raise
        except Exception as problem:
            self.failures.failed(self.name, key if self._keyed else NO_KEY, None, letter, problem)

    def _gathered(self) -> dict[Any, list[Any]]:
        """Return the contents by key, in the order of each key's first element."""
        self._settle()
        if not self._generations:
            return self._current
        gathered: dict[Any, list[Any]] = {}
        for generation in [*(self._generations[g] for g in sorted(self._generations)), self._current]:
            for key, records in generation.items():
                gathered.setdefault(key, []).extend(records)
        return gathered

    # Snapshots.

    def inspect(self, key: Any) -> dict[str, Any]:
        """Return the key's records in the open window."""
        records = self._gathered().get(key)
        return {self._table: records} if records else {}

    def kept_keys(self) -> Iterable[Any]:
        return self._gathered()

    def freeze(self, full: bool) -> tuple[dict[str, Any], list[FragmentJob]]:
        self._settle()
        if self._job is not None:
            self._job.step(len(self._job.left))
        frozen = dict(self._generations) if full else {}
        if self._current:
            frozen[self._generation] = self._generations[self._generation] = self._current
            self._generation += 1
            self._current = Contents(list)
        self._job = WindowJob(self._table, self.name, frozen, self._key_groups)
        return self.header(), [self._job]

    def header(self) -> dict[str, Any]:
        return {
            "generation": self._generation,
            "oldest": self._oldest,
            "arrivals": self._arrivals,
            "since": self._since,
            "end_ns": self._end_ns,
            "last_end_ns": self._last_end_ns,
        }

    def load_header(self, header: dict[str, Any], full: bool) -> None:
        self._generation, self._oldest = header["generation"], header["oldest"]
        self._arrivals, self._since = header["arrivals"], header["since"]
        self._end_ns, self._last_end_ns = header["end_ns"], header["last_end_ns"]
        self._current = Contents(list)
        oldest = self._generation if full else self._oldest
        self._generations = {g: contents for g, contents in self._generations.items() if g >= oldest}
        self._loaded = {g: entries for g, entries in self._loaded.items() if g >= oldest}

    def merge_headers(self, headers: Sequence[dict[str, Any]]) -> dict[str, Any]:
        """Adopt the latest end, so that no end is used twice, and add up the arrivals of all tasks."""
        arrivals = sum(header["arrivals"] for header in headers)
        return {
            "generation": max(header["generation"] for header in headers),
            "oldest": min(header["oldest"] for header in headers),
            "arrivals": arrivals,
            "since": arrivals - sum(header["arrivals"] - header["since"] for header in headers),
            **self._merged_bounds(headers),
        }

    def loaders(self) -> dict[str, Callable[[bytes], None]]:
        return {self._table: self._load}

    def _load(self, fragment: bytes) -> None:
        generation, entries = decode(fragment)
        self._loaded.setdefault(generation, []).extend(
            [(order, canonical_key(key), records) for order, key, records in entries]
        )

    def _settle(self) -> None:
        """Sort restored contents into their order of arrival."""
        for generation, entries in self._loaded.items():
            entries.sort(key=lambda entry: entry[0])
            self._generations[generation] = Contents(list, {key: records for _, key, records in entries})
        self._loaded = {}


class WindowJob:
    """A job that encodes generations of contents into fragments per key group."""

    __slots__ = ("name", "fragments", "left", "_operator", "_key_groups")

    def __init__(self, name: str, operator: str, generations: dict[int, Contents], key_groups: int) -> None:
        self.name = name
        self.fragments: dict[int, list[bytes]] = {}
        self.left = [
            (generation, order, key, records)
            for generation, contents in generations.items()
            for order, (key, records) in enumerate(contents.items())
        ]
        self._operator = operator
        self._key_groups = key_groups

    def step(self, keys_max: int) -> int:
        taken = self.left[-keys_max:] if keys_max else []
        del self.left[len(self.left) - len(taken) :]
        fragments: dict[tuple[int, int], list[Any]] = {}
        for generation, order, key, records in taken:
            group = key_group(key, self._key_groups)
            fragments.setdefault((group, generation), []).append([order, key, records])
        for (group, generation), entries in fragments.items():
            try:
                self.fragments.setdefault(group, []).append(encode([generation, entries]))
            except NotCarried as problem:
                keys = ", ".join(shown(entry[1]) for entry in entries[:3])
                raise OperatorFailed(
                    f"operator {self._operator!r}, among keys {keys}: "
                    f"a record in its window cannot be checkpointed: {problem}; {CORRECT}"
                ) from problem
        return len(taken)
