"""Sessions: one growing window per period of activity of a key; a record between two windows merges them.

The state of a key is the list of its sessions, `[start, end, id, emitted]`, ascending and disjoint; their contents are
stored by (key, id).  The id of a session is its first start: it does not change while the session grows, and no other
session has it.  Records less than the gap apart are in the same session, so sessions do not depend on the order of
records.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Sequence
from operator import itemgetter
from typing import Any

from causal.errors import CausalError
from operators.graph import Node
from operators.kinds.windows.window_stage import WindowedStage, window_of
from operators.records.seconds import seconds_of
from operators.stage.scope import Scope
from operators.stage.stages import Due, ServedStage
from operators.stage.watermark_merge import END_NS
from operators.state.due_index import Pair
from operators.state.keyed_tables import KeyedTable

_START, _END, _ID, _EMITTED = range(4)
_Session = list[Any]


class SessionStage(WindowedStage):
    """`window(name, Session(gap_s), contents)` with event time."""

    def __init__(self, node: Node, scope: Scope) -> None:
        super().__init__(node, scope)
        self._gap_ns: int = node.options["assigner"].gap_ns
        self._table = KeyedTable(f"{node.name}:sessions", node.name, scope.config.key_groups)
        self._sessions: dict[Any, list[_Session]] = self._table.values

    def _take(self, rows: Sequence[Any], named: Sequence[Any], times: Sequence[int], out: list[Any]) -> None:
        self._table.touch(dict.fromkeys(named))
        if self._contents.refuses:
            self._run_each(rows, named, times, out)
            return
        late, changed = list[Any](), dict[Pair, _Session]()
        groups: dict[Pair, list[int]] = {}
        grown: dict[Any, tuple[_Session, list[int]]] = {}
        """Key → the session of its most recent record, and the places of its records in the batch."""
        failed = self._failed_in(range(len(rows)), rows)
        sessions_of, gap_ns, floors = self._sessions.get, self._gap_ns, self._floors.of_group
        closed_ns = self._closed_of(None) if not floors else None
        for place, (key, time_ns) in enumerate(zip(named, times, strict=True)):
            sessions = sessions_of(key, ())
            session = sessions[-1] if sessions else None
            if session is None or not session[_START] <= time_ns < session[_END]:
                first, last = self._reached(sessions, time_ns)
                closes_ns = time_ns + gap_ns
                over = closed_ns is not None and closes_ns <= closed_ns
                if first == last and (over or (floors and self._closed(key, closes_ns))):
                    late.append(rows[place])
                    continue
                if last - first > 1:  # sessions merge, so all earlier records of the batch must be added first
                    self._contents.extend(groups, rows, failed)
                    groups, grown = {}, {}
                session = self._joined(key, time_ns, first, last, changed)
            if session[_END] < time_ns + gap_ns:
                session[_END] = time_ns + gap_ns
            last_grown = grown.get(key)
            if last_grown is None or last_grown[0] is not session:
                pair = (key, session[_ID])
                changed[pair] = session
                last_grown = grown[key] = (session, groups.setdefault(pair, []))
            last_grown[1].append(place)
        self._contents.extend(groups, rows, failed)
        self._late(late)
        self._came(changed, out)

    def _run_each(self, rows: Sequence[Any], named: Sequence[Any], times: Sequence[int], out: list[Any]) -> None:
        """Process records one by one, because a session grows or merges only if the contents accept the record."""
        late, changed = list[Any](), dict[Pair, _Session]()
        failed = self._failed_in(range(len(rows)), rows)
        for place, (key, time_ns, record) in enumerate(zip(named, times, rows, strict=True)):
            sessions = self._sessions.get(key, [])
            first, last = self._reached(sessions, time_ns)
            if first == last and self._closed(key, time_ns + self._gap_ns):
                late.append(record)
                continue
            pairs = [(key, session[_ID]) for session in sessions[first:last]] or [(key, time_ns)]
            try:
                self._contents.put_merged(pairs, record)
            except CausalError:
                raise
            except Exception as problem:
                failed(place, pairs[0], problem)
                continue
            session = self._grown(key, time_ns, first, last)
            self._wakes.forget(pairs[1:])
            for pair in pairs[1:]:
                changed.pop(pair, None)
            changed[pairs[0]] = session
        self._late(late)
        self._came(changed, out)

    def _grown(self, key: Any, time_ns: int, first: int, last: int) -> _Session:
        """Return the session of a record: sessions `first` to `last - 1` merged, or a new one if there are none."""
        end_ns = time_ns + self._gap_ns
        if first == last:
            session = [time_ns, end_ns, time_ns, False]
            self._sessions.setdefault(key, []).insert(first, session)
            return session
        sessions = self._sessions[key]
        session = sessions[first]
        session[_START] = min(session[_START], time_ns)
        session[_END] = max(end_ns, *[each[_END] for each in sessions[first:last]])
        del sessions[first + 1 : last]
        return session

    def _reached(self, sessions: Sequence[_Session], time_ns: int) -> tuple[int, int]:
        """Return the range of sessions that a record at this time reaches; an empty range is at the record's place."""
        place = bisect_right(sessions, time_ns, key=itemgetter(_START))
        first = place - 1 if place and sessions[place - 1][_END] > time_ns else place
        last = place
        while last < len(sessions) and sessions[last][_START] < time_ns + self._gap_ns:
            last += 1
        return first, last

    def _joined(self, key: Any, time_ns: int, first: int, last: int, changed: dict[Pair, _Session]) -> _Session:
        """Return the session of a record that reaches the sessions `first` to `last - 1` and therefore merges them."""
        gone = [(key, other[_ID]) for other in self._sessions.get(key, [])[first + 1 : last]]
        session = self._grown(key, time_ns, first, last)
        self._wakes.forget(gone)
        for pair in gone:
            changed.pop(pair, None)
            self._merge((key, session[_ID]), pair, session)
        return session

    def _merge(self, into: Pair, gone: Pair, session: _Session) -> None:
        try:
            self._contents.merge(into, gone)
        except CausalError:
            raise
        except Exception as problem:
            self._contents.refused(into, window_of(session[_START], session[_END]), problem)

    def _came(self, changed: dict[Pair, _Session], out: list[Any]) -> None:
        """Schedule sessions that have grown, and emit those that have already ended once more."""
        mark_ns, floors = self.mark_ns, self._floors.of_group
        for pair, session in changed.items():
            ended = mark_ns is not None and session[_END] <= mark_ns
            session[_EMITTED] = ended or (bool(floors) and self._ended(pair[0], session[_END]))
            if session[_EMITTED] and pair in self._contents.values:
                self._contents.emit(pair, window_of(session[_START], session[_END]), out, keeps=True)
            self._wakes.set(pair, self._due_ns(session))

    def _due_ns(self, session: _Session) -> int:
        return int(session[_END] + self._lateness_ns if session[_EMITTED] else session[_END])

    def _close(self, due: Sequence[Pair], before_ns: int | None, mark_ns: int, out: list[Any]) -> None:
        self._table.touch(dict.fromkeys(map(itemgetter(0), due)))
        gone: list[Pair] = []
        for pair in due:
            sessions = self._sessions[pair[0]]
            session = next(session for session in sessions if session[_ID] == pair[1])
            over = session[_END] + self._lateness_ns <= mark_ns
            if not session[_EMITTED] and pair in self._contents.values:
                self._contents.emit(pair, window_of(session[_START], session[_END]), out, keeps=not over)
            if over:
                gone.append(pair)
                sessions.remove(session)
                if not sessions:
                    del self._sessions[pair[0]]
            else:
                session[_EMITTED] = True
                self._wakes.set(pair, self._due_ns(session))
        self._contents.drop(gone)

    def tables(self) -> list[KeyedTable]:
        return [*super().tables(), self._table]

    def inspect(self, key: Any) -> dict[str, Any]:
        """Return the contents of a key's open sessions and the bounds of each session in seconds."""
        shown = super().inspect(key)
        name = self._table.name
        if name in shown:
            shown[name] = [[seconds_of(session[_START]), seconds_of(session[_END])] for session in shown[name]]
        return shown

    def _bounds_of(self, key: Any, slot: Any) -> tuple[int, int]:
        start_ns, end_ns, _, _ = next(session for session in self._sessions[key] if session[_ID] == slot)
        return start_ns, end_ns

    def changed(self, epoch: int) -> None:
        """Drop sessions that a shorter lateness has closed."""
        gone = [
            (key, session)
            for key, sessions in self._sessions.items()
            for session in sessions
            if session[_EMITTED] and self._closed(key, session[_END])
        ]
        self._table.touch(dict.fromkeys(key for key, _ in gone))
        self._contents.drop([(key, session[_ID]) for key, session in gone])
        for key, session in gone:
            self._sessions[key].remove(session)
            if not self._sessions[key]:
                del self._sessions[key]

    def _rebuild(self) -> None:
        for key, sessions in self._sessions.items():
            for session in sessions:
                self._wakes.set((key, session[_ID]), self._due_ns(session))


class ClockSessionStage(ServedStage, SessionStage):
    """Wall-clock sessions: one clock reading per batch is the time of its records, and a timer closes sessions."""

    def _now_ns(self) -> int:
        now_ns = self._services.now_ns() // 1000 * 1000
        # Even if the clock steps back, a record is never earlier than a session that a timer has closed.
        return now_ns if self.mark_ns is None else max(now_ns, self.mark_ns)

    def next_ns(self) -> int | None:
        self._settle()
        return self._wakes.next_ns()

    def fire(self, entries: Sequence[Due]) -> Any:
        mark_ns: int = entries[-1][3]
        return super().advance(mark_ns if self.mark_ns is None else max(mark_ns, self.mark_ns))

    def merge_headers(self, headers: Sequence[dict[str, Any]]) -> dict[str, Any]:
        """Adopt the latest clock time of the tasks."""
        mark_ns = max([header["mark"] for header in headers if header["mark"] is not None], default=None)
        return {**headers[0], "mark": mark_ns}

    def advance(self, mark_ns: int) -> Any:
        """Ignore event time, except that the end of the input closes all sessions."""
        return super().advance(END_NS) if mark_ns == END_NS else []
