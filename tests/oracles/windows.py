"""Windows: docs/guide/windows.md.

Records of one partition come in order, so which are late follows from their times alone: the watermark stands at the
largest time so far less the bound, and a record decides by the watermark of the records before it.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Literal

from causal.records.values import encode
from operators import (
    Aggregate,
    Count,
    CountWindow,
    Global,
    Max,
    Mean,
    Min,
    Pipeline,
    Reduce,
    Session,
    Sliding,
    Sum,
    Tumbling,
    after_each,
)
from operators import every as every_n
from operators.testing import At, TrialResult
from tests.oracles.frame import (
    Check,
    Draw,
    Mismatch,
    Scenario,
    bag,
    counted,
    every,
    exact,
    oracle,
    same,
    sink,
    source,
)

Row = dict[str, Any]


def timed_rows(draw: Draw, length_max: int = 30) -> list[Row]:
    """Draw records with a key, a time in seconds that mostly rises, and a value."""
    at, rows = draw.randint(-20, 20), []
    for _ in range(draw.randint(0, length_max)):
        at += draw.choice((0, 1, 1, 2, 3, -3, -8, 6))
        rows.append({"k": draw.choice("ab"), "at": at / draw.choice((1, 2, 10)), "v": draw.randint(0, 9)})
    return rows


def us(seconds: float) -> int:
    """Microseconds: what times are inside."""
    return round(seconds * 1e6)


def marks(records: list[Row], bound_s: float) -> list[int | None]:
    """Return the watermark before each record, and the one after them all, in µs."""
    watermarks: list[int | None] = [None]
    largest = None
    for record in records:
        largest = us(record["at"]) if largest is None else max(largest, us(record["at"]))
        watermarks.append(largest - us(bound_s))
    return watermarks


Judge = Callable[[list[Row]], Any]


def contents(draw: Draw) -> tuple[Any, Judge, bool]:
    """Draw (the function of a window, its value of a list of records, whether it is an aggregate)."""

    def mutates(values: list[int], record: Row) -> list[int]:
        values.append(record["v"])
        return values

    def joined(first: list[int], second: list[int]) -> list[int]:
        first.extend(second)
        return first

    def of(record: Row) -> int:
        return int(record["v"])

    def values(records: list[Row]) -> list[int]:
        return [record["v"] for record in records]

    def greatest(first: Row, second: Row) -> Row:
        return max(first, second, key=_rank)

    return draw.choice(
        [
            (Count(), len, True),
            (Sum(of), lambda records: sum(values(records)), True),
            (Min(of), lambda records: min(values(records)), True),
            (Max(of), lambda records: max(values(records)), True),
            (Mean(of), lambda records: sum(values(records)) / len(records), True),
            (Aggregate(list, mutates, result=sorted, merge=joined), lambda records: sorted(values(records)), True),
            (Reduce(greatest), lambda records: max(records, key=_rank), True),
            (_listed, lambda records: sorted(values(records)), False),
        ]
    )


def _rank(record: Row) -> Any:
    return record["v"], record["at"], record["k"]


def _listed(key: Any, records: list[Row], window: Any) -> Any:
    """A function of a window, with the row that an aggregate would emit."""
    yield key, sorted(record["v"] for record in records), window.start, window.end
    records.clear()  # it may change its arguments


def window_row(key: str, judge: Judge, records: list[Row], start_us: int, end_us: int) -> Any:
    """Return the row of a window."""
    return (key, judge(records), start_us / 1e6, end_us / 1e6)


def panes(
    draw: Draw, clock: Literal["event", "processing"] = "event"
) -> tuple[Any, Callable[[float], list[tuple[int, int]]]]:
    """Draw (an assigner, a function of a time in s to its windows as (start, end) in µs, ascending)."""
    size = draw.choice((1, 2.5, 4, 10))
    offset = draw.choice((0, 0, 1, 0.5, -3, 12))
    if draw.flip():
        return Tumbling(size, offset_s=offset, clock=clock), lambda at: aligned(at, size, size, offset)
    every_s = draw.choice([each for each in (0.5, 1, 1.5, 2.5, 4, 10) if each <= size])
    if clock == "processing" and us(size) % us(every_s):
        every_s = size
    return Sliding(size, every_s, offset_s=offset, clock=clock), lambda at: aligned(at, size, every_s, offset)


def aligned(at: float, size: float, step: float, offset: float) -> list[tuple[int, int]]:
    """Return the windows of a time as (start, end) in µs, ascending."""
    at_us, size_us, step_us, offset_us = map(us, (at, size, step, offset))
    last = at_us - (at_us - offset_us) % step_us
    return [(start, start + size_us) for start in sorted(range(last, at_us - size_us, -step_us))]


@dataclass
class Windowed:
    """The common surroundings: a source, watermarks, a window and its side output."""

    pipeline: Pipeline
    rows: list[Row]
    bound_s: float
    lateness_s: float
    keyed: bool

    @classmethod
    def drawn(cls, draw: Draw) -> Windowed:
        """Draw records and options."""
        return cls(
            Pipeline("p"), timed_rows(draw), draw.choice((0, 1, 4, 100)), draw.choice((0, 0, 2, 7)), draw.flip(0.8)
        )

    def built(self, draw: Draw, assigner: Any, function: Any) -> None:
        """Add the window to the pipeline."""
        stream = source(self.pipeline).watermarks("time", lambda r: r["at"], out_of_order_s=self.bound_s)
        if self.keyed:
            stream = stream.key_by(lambda r: r["k"])
        options: dict[str, Any] = {"lateness_s": self.lateness_s} if self.lateness_s else {}
        window = stream.window("w", assigner, function, parallelism=1, **options)
        sink(window)
        sink(window.side("late"), "late")

    def key(self, record: Row) -> Any:
        """Return the key of a record."""
        return record["k"] if self.keyed else None


def _order(row: Any) -> Any:
    return row[3], row[0] or ""


@oracle("windows")
def _assigned(draw: Draw) -> Scenario:
    """Tumbling and sliding windows of event time: emitted at the end, again for late records within the lateness."""
    scene = Windowed.drawn(draw)
    assigner, windows_of = panes(draw)
    function, judge, _ = contents(draw)
    scene.built(draw, assigner, function)
    records_by_window: dict[Any, list[Row]] = {}
    late = []
    for record, mark in zip(scene.rows, marks(scene.rows, scene.bound_s), strict=False):
        opened = [w for w in windows_of(record["at"]) if mark is None or w[1] + us(scene.lateness_s) > mark]
        if not opened:
            late.append(record)
        for window in opened:
            records_by_window.setdefault((scene.key(record), *window), []).append(record)
    final = [window_row(key, judge, records, start, end) for (key, start, end), records in records_by_window.items()]
    checks = [exact("late", late), counted("w", {"late": len(late)})]
    if scene.lateness_s:
        checks.append(last_of_each("out", final))
    else:
        checks.append(exact("out", sorted(final, key=_order)))
    return Scenario(scene.pipeline, {"in": scene.rows}, every(*checks), shown=f"{vars(assigner)} {scene}")


def last_of_each(name: str, final: list[Any]) -> Check:
    """Return a check that the last row of each (key, start, end) is this one."""

    def check(result: TrialResult) -> None:
        rows = {(row[0], row[2], row[3]): row for row in result[name]}
        same(name, sorted(rows.values(), key=repr), sorted(final, key=repr))

    return check


@oracle("sessions")
def _sessions(draw: Draw) -> Scenario:
    """Sessions of event time: stretches of records less than the gap apart, whatever the order of records."""
    scene = Windowed.drawn(draw)
    gap_s = draw.choice((1, 2.5, 4, 10))
    gap, lateness = us(gap_s), us(scene.lateness_s)
    function, judge, _ = contents(draw)
    scene.built(draw, Session(gap_s), function)
    open_: dict[Any, list[list[Any]]] = {}
    done, late = [], []

    def close(mark: int) -> None:
        for key, sessions in open_.items():
            for session in [each for each in sessions if each[1] + lateness <= mark]:
                sessions.remove(session)
                done.append(window_row(key, judge, session[2], session[0], session[1]))

    for record, mark in zip(scene.rows, marks(scene.rows, scene.bound_s), strict=False):
        if mark is not None:
            close(mark)
        at, sessions = us(record["at"]), open_.setdefault(scene.key(record), [])
        reached = [each for each in sessions if each[0] < at + gap and at < each[1]]
        if not reached and mark is not None and at + gap + lateness <= mark:
            late.append(record)
            continue
        reached.sort(key=lambda each: each[0])
        records = [earlier for each in reached for earlier in each[2]]
        for each in reached:
            sessions.remove(each)
        start, end = min([at, *(each[0] for each in reached)]), max([at + gap, *(each[1] for each in reached)])
        sessions.append([start, end, [*records, record]])
    close(1 << 62)
    checks = [exact("late", late), counted("w", {"late": len(late)})]
    if scene.lateness_s:
        checks.append(holds("out", done))
    else:
        checks.append(exact("out", sorted(done, key=_order)))
    return Scenario(scene.pipeline, {"in": scene.rows}, every(*checks), shown=f"gap {gap_s} {scene}")


def holds(name: str, final: list[Any]) -> Check:
    """Return a check that these rows are among what was emitted."""

    def check(result: TrialResult) -> None:
        known = {encode(row) for row in result[name]}
        missing = [row for row in final if encode(row) not in known]
        if missing:
            raise Mismatch(f"{name}: {missing} are missing in {result[name]}")

    return check


@oracle("count-windows")
def _counted(draw: Draw) -> Scenario:
    """`CountWindow`: the last n records of a key, each time that so many more have come."""
    pipeline, rows = Pipeline("p"), timed_rows(draw)
    n = draw.randint(1, 4)
    every_n = draw.randint(1, n) if draw.flip() else None
    function, judge, _ = contents(draw)
    stream, keyed = source(pipeline), draw.flip(0.8)
    if keyed:
        stream = stream.key_by(lambda r: r["k"])
    sink(stream.window("w", CountWindow(n, every_n) if every_n else CountWindow(n), function, parallelism=1))
    seen: dict[Any, list[Row]] = {}
    expected = []
    for row in rows:
        of_key = seen.setdefault(row["k"] if keyed else None, [])
        of_key.append(row)
        if len(of_key) % (every_n or n) == 0:
            window = of_key[-n:]
            key = row["k"] if keyed else None
            expected.append((key, judge(window), len(of_key) - len(window), len(of_key)))
    return Scenario(pipeline, {"in": rows}, exact("out", expected), shown=f"n {n} every {every_n}")


@oracle("triggers")
def _triggered(draw: Draw) -> Scenario:
    """`every(n)`, `after_each()`: emitted when so many have come, and at the end if something has come since."""
    pipeline, bound = Pipeline("p"), draw.choice((0, 2, 100))
    rows = timed_rows(draw)
    n, purge, is_global = draw.choice((1, 2, 3)), draw.flip(), draw.flip()
    function, judge, _ = contents(draw)
    trigger = after_each(purge=purge) if n == 1 and draw.flip() else every_n(n, purge=purge)
    stream = source(pipeline).watermarks("time", lambda r: r["at"], out_of_order_s=bound).key_by(lambda r: r["k"])
    assigner, windows_of = panes(draw)
    if is_global:
        assigner = Global()
    sink(stream.window("w", assigner, function, trigger=trigger, parallelism=1))
    entries: dict[Any, list[Any]] = {}
    expected: list[Any] = []

    def emit(key: Any, window: Any, entry: list[Any], firing: bool) -> None:
        records, _, begun, seen = entry
        bounds = (begun, seen) if is_global else (window[0] / 1e6, window[1] / 1e6)
        expected.append((key, judge(records), *bounds))
        entry[1] = False
        if firing and purge:
            entry[0], entry[2] = [], seen

    def close(mark: int) -> None:
        for key, window in sorted(entries, key=lambda each: (each[1][1], each[0])):
            if window[1] <= mark:
                entry = entries.pop((key, window))
                if entry[1]:
                    emit(key, window, entry, False)

    for row, mark in zip(rows, marks(rows, bound), strict=False):
        if mark is not None:
            close(mark)
        for window in [(0, 1 << 62)] if is_global else windows_of(row["at"]):
            if mark is not None and window[1] <= mark:
                continue
            entry = entries.setdefault((row["k"], window), [[], False, 0, 0])
            entry[0], entry[1], entry[3] = [*entry[0], row], True, entry[3] + 1
            if entry[3] % n == 0:
                emit(row["k"], window, entry, True)
    close(1 << 62)
    return Scenario(pipeline, {"in": rows}, exact("out", expected), batches=(1,), shown=f"{vars(assigner)} {n} {purge}")


@oracle("clock-windows")
def _by_clock(draw: Draw) -> Scenario:
    """Windows of the wall clock: a record belongs to what is open when it is delivered."""
    pipeline, rows, at = Pipeline("p"), list[Row](), 1000.25
    for _ in range(draw.randint(0, 15)):
        at += draw.choice((0, 0.5, 1, 3, 20))
        rows.append({"k": draw.choice("ab"), "at": at, "v": draw.randint(0, 9)})
    function, judge, _ = contents(draw)
    stream = source(pipeline).key_by(lambda r: r["k"])
    contents_of: dict[Any, list[Row]] = {}
    if draw.flip(0.3):
        gap = draw.choice((1, 2.5, 6))
        assigner: Any = Session(gap, clock="processing")
        last: dict[str, Any] = {}
        sessions: list[tuple[str, Any]] = []
        for row in rows:
            if row["k"] not in last or us(row["at"]) >= last[row["k"]][1]:
                last[row["k"]] = [us(row["at"]), 0, []]
                sessions.append((row["k"], last[row["k"]]))
            last[row["k"]][1] = us(row["at"]) + us(gap)
            last[row["k"]][2].append(row)
        expected = [window_row(key, judge, records, start, end) for key, (start, end, records) in sessions]
    else:
        assigner, windows_of = panes(draw, "processing")
        for row in rows:
            for window in windows_of(row["at"]):
                contents_of.setdefault((row["k"], *window), []).append(row)
        expected = [window_row(key, judge, each, start, end) for (key, start, end), each in contents_of.items()]
    sink(stream.window("w", assigner, function, parallelism=1))
    inputs = [At(row["at"], row) for row in rows]
    if rows:
        inputs.append(At(at + 100))
    # What no other task has seen when a task dies is delivered at another time after it: see `_each_once`.
    return Scenario(pipeline, {"in": inputs}, bag("out", expected), {"clock_s": 1000.0}, (1,), 0, str(vars(assigner)))


@oracle("clock-windows-crashed")
def _each_once(draw: Draw) -> Scenario:
    """Whichever task dies, each record is in one tumbling window of the wall clock, and in all of its sliding ones."""
    pipeline, rows, at = Pipeline("p"), list[Row](), 1000.25
    for _ in range(draw.randint(0, 15)):
        at += draw.choice((0, 0.5, 1, 3, 20))
        rows.append({"k": draw.choice("ab"), "at": at, "v": 1})
    times, offset = draw.choice((1, 2, 5)), draw.choice((0, 0.5))
    tumbling = Tumbling(2, offset_s=offset, clock="processing")
    assigner: Any = tumbling if times == 1 else Sliding(2 * times, 2, offset_s=offset, clock="processing")
    function: Any = Count() if draw.flip() else lambda key, records, window: [(key, len(records))]
    sink(source(pipeline).key_by(lambda r: r["k"]).window("w", assigner, function, parallelism=1))

    def check(result: TrialResult) -> None:
        counts = Counter(row["k"] for row in rows)
        sums: Counter[str] = Counter()
        for row in result["out"]:
            sums[row[0]] += row[1]
        if sums != {key: count * times for key, count in counts.items()}:
            raise Mismatch(f"{result['out']} of {counts}, {times} times each")

    inputs = [At(row["at"], row) for row in rows]
    return Scenario(pipeline, {"in": inputs}, check, {"clock_s": 1000.0}, shown=str(vars(assigner)))
