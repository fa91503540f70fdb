"""The watermarks that a task's key groups had reached before a change of the job's graph or options.

Tasks may have reached different watermarks: with idle inputs, a task's watermark depends on the order of arrival. After
a change, a task begins at the lowest watermark of the tasks that it continues, but windows and records that were over
must stay over. Each key group therefore keeps the watermark of its former task, and the time up to which that task had
closed windows, until event time has passed both.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from operators.records.keys import key_group, task_of_group
from operators.stage.watermark_merge import least

Floor = Sequence[int]
"""A tuple (key group, watermark of its former task, time up to which that task had closed windows)."""


class Floors:
    """The floors of the key groups that are ahead of their task.

    Attributes:
        of_group: key group -> (watermark, time up to which windows are closed); usually empty, except shortly after a
            change.
    """

    def __init__(self, key_groups: int, keyed: bool) -> None:
        self._key_groups = key_groups
        self._keyed = keyed
        self.of_group: dict[int, tuple[int, int]] = {}

    def mark_ns(self, key: Any, mark_ns: int | None) -> int | None:
        """Return the event time that a key has reached in a task whose watermark is `mark_ns`."""
        floor = self.of_group.get(key_group(key, self._key_groups))
        return mark_ns if floor is None else floor[0] if mark_ns is None else max(floor[0], mark_ns)

    def closed_ns(self, key: Any, mark_ns: int | None, lateness_ns: int) -> int | None:
        """Return the time up to which a key's windows are closed in a task whose watermark is `mark_ns`."""
        reached_ns = self.mark_ns(key, mark_ns)
        closed_ns = None if reached_ns is None else reached_ns - lateness_ns
        floor = self.of_group.get(key_group(key, self._key_groups))
        return closed_ns if floor is None or closed_ns is None else max(floor[1], closed_ns)

    def raise_all(self, mark_ns: int, closed_ns: int) -> None:
        """Record that every key group had reached the watermark `mark_ns` and had closed windows up to `closed_ns`."""
        self._raise(range(self._key_groups), mark_ns, closed_ns)

    def _raise(self, groups: Iterable[int], mark_ns: int, closed_ns: int) -> None:
        for group in groups:
            known = self.of_group.get(group)
            floor = (mark_ns, closed_ns)
            self.of_group[group] = floor if known is None else (max(known[0], mark_ns), max(known[1], closed_ns))

    def passed(self, mark_ns: int, closed_ns: int) -> None:
        """Remove the floors that the task has passed."""
        self.of_group = {
            group: floor for group, floor in self.of_group.items() if floor[0] > mark_ns or floor[1] > closed_ns
        }

    def header(self) -> dict[str, Any]:
        """Return the complete state as a header field, or an empty dict if there are no floors."""
        floors = [[group, *self.of_group[group]] for group in sorted(self.of_group)]
        return {"floors": floors} if floors else {}

    def load(self, header: Mapping[str, Any]) -> None:
        """Restore the state that `header` returned."""
        self.of_group = {group: (mark_ns, closed_ns) for group, mark_ns, closed_ns in header.get("floors", ())}

    def merge(self, headers: Sequence[Mapping[str, Any]], lateness_ns: int = 0) -> dict[str, Any]:
        """Return the watermark and floors of a task that continues all tasks of an operator, from their headers."""
        mark_ns = least(header["mark"] for header in headers)
        self.of_group = {}
        for place, header in enumerate(headers):
            groups = dict.fromkeys(self._groups_of(place, len(headers)))
            if header["mark"] is not None:
                self._raise(groups, header["mark"], header["mark"] - lateness_ns)
            for group, *floor in header.get("floors", ()):
                if group in groups:
                    self._raise([group], *floor)
        if mark_ns is not None:
            self.passed(mark_ns, mark_ns - lateness_ns)
        return {"mark": mark_ns, **self.header()}

    def _groups_of(self, place: int, tasks: int) -> Sequence[int]:
        """Return the key groups of the task with index `place` among `tasks` tasks."""
        if not self._keyed:
            return [key_group(None, self._key_groups)]
        return [group for group in range(self._key_groups) if task_of_group(group, tasks, self._key_groups) == place]


class Reached:
    """The event time that a task has reached, for operators that treat older records as late.

    Attributes:
        mark_ns: the most recent watermark; None before the first.
    """

    def __init__(self, key_groups: int, keyed: bool) -> None:
        self.mark_ns: int | None = None
        self._floors = Floors(key_groups, keyed)

    @property
    def differs(self) -> bool:
        """Whether the event time reached depends on the key."""
        return bool(self._floors.of_group)

    def of(self, key: Any) -> int | None:
        """Return the event time that a key has reached."""
        return self._floors.mark_ns(key, self.mark_ns) if self._floors.of_group else self.mark_ns

    def advance(self, mark_ns: int) -> None:
        """Record a watermark; event time never decreases, even if another operator now generates the watermarks."""
        self.mark_ns = mark_ns if self.mark_ns is None else max(self.mark_ns, mark_ns)
        if self._floors.of_group:
            self._floors.passed(self.mark_ns, self.mark_ns)

    def header(self) -> dict[str, Any]:
        """Return the complete state, for a snapshot."""
        return {"mark": self.mark_ns, **self._floors.header()}

    def load(self, header: Mapping[str, Any]) -> None:
        """Restore the state that `header` returned."""
        self.mark_ns = header.get("mark")
        self._floors.load(header)

    def merged(self, headers: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
        """Return the header of a task that continues all tasks of an operator."""
        return self._floors.merge(headers)
