"""Windows: docs/guide/windows.md.

Records of one partition come in order, so which are late follows from their times alone: the watermark stands at the
largest time so far less the bound, and a record decides by the watermark of the records before it.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Literal

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
    BATCHES,
    Draw,
    Mismatch,
    Scenario,
    bag,
    counted,
    every,
    exact,
    oracle,
    sink,
    source,
)

Row = dict[str, Any]


def timed_rows(draw: Draw, length_max: int = 30) -> list[Row]:
    """Draw records with a key, a time in seconds that mostly rises, and a value."""
    at, rows, begin = draw.randint(-20, 20), [], draw.choice((0, 0, 1_700_000_000))
    for _ in range(draw.randint(0, length_max)):
        at += draw.choice((0, 1, 1, 2, 3, -3, -8, 6))
        rows.append({"k": draw.choice("ab"), "at": begin + at / draw.choice((1, 2, 10)), "v": draw.randint(0, 9)})
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


def contents(draw: Draw, merging: bool = True) -> tuple[Any, Judge]:
    """Draw (the function of a window, its value of a list of records); `merging`: an aggregate has a `merge`."""

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

    merge = joined if merging or draw.flip() else None
    return draw.choice(
        [
            (Count(), len),
            (Sum(of), lambda records: sum(values(records))),
            (Min(of), lambda records: min(values(records))),
            (Max(of), lambda records: max(values(records))),
            (Mean(of), lambda records: sum(values(records)) / len(records)),
            (Aggregate(list, mutates, result=sorted, merge=merge), lambda records: sorted(values(records))),
            (Reduce(greatest), lambda records: max(records, key=_rank)),
            (_listed, lambda records: sorted(values(records))),
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

    def built(self, assigner: Any, function: Any, **options: Any) -> None:
        """Add the window to the pipeline."""
        stream = source(self.pipeline).watermarks("time", lambda r: r["at"], out_of_order_s=self.bound_s)
        if self.keyed:
            stream = stream.key_by(lambda r: r["k"])
        if self.lateness_s:
            options["lateness_s"] = self.lateness_s
        window = stream.window("w", assigner, function, parallelism=1, **options)
        sink(window)
        sink(window.side("late"), "late")

    def key(self, record: Row) -> Any:
        """Return the key of a record."""
        return record["k"] if self.keyed else None


@oracle("windows")
def _assigned(draw: Draw) -> Scenario:
    """Tumbling and sliding windows of event time: emitted at the end, again for each record within the lateness."""
    scene = Windowed.drawn(draw)
    assigner, windows_of = panes(draw)
    function, judge = contents(draw, merging=False)
    ordered = draw.flip(0.2)
    if ordered:  # what is behind the watermark is late, whatever its window
        scene.lateness_s = 0
    scene.built(assigner, function, **({"delivery": "ordered"} if ordered else {}))
    lateness, emitted = us(scene.lateness_s), list[Any]()
    windows: dict[Any, list[Any]] = {}
    """(end, key, start) -> [records, whether some of them were not emitted]"""
    late = []

    def emit(window: Any) -> None:
        end, key, start = window
        emitted.append(window_row(key, judge, windows[window][0], start, end))
        windows[window][1] = False

    def close(mark: int) -> None:
        for window in sorted(window for window in windows if window[0] <= mark):
            if windows[window][1]:
                emit(window)
            if window[0] + lateness <= mark:
                del windows[window]

    for record, mark in zip(scene.rows, marks(scene.rows, scene.bound_s), strict=False):
        before = -(1 << 62) if mark is None else mark
        close(before)
        opened = [window for window in windows_of(record["at"]) if window[1] + lateness > before]
        if not opened or ordered and us(record["at"]) < before:
            late.append(record)
            continue
        for start, end in opened:
            window = (end, scene.key(record), start)
            windows[window] = [[*windows.get(window, [[]])[0], record], True]
            if end <= before:
                emit(window)
    close(1 << 62)
    checks = [exact("out", emitted), exact("late", late), counted("w", {"late": len(late)})]
    return Scenario(scene.pipeline, {"in": scene.rows}, every(*checks), shown=f"{vars(assigner)} {scene} {ordered}")


@oracle("sessions")
def _sessions(draw: Draw) -> Scenario:
    """Sessions of event time: stretches of records less than the gap apart, whatever the order of records."""
    scene = Windowed.drawn(draw)
    gap_s = draw.choice((1, 2.5, 4, 10))
    gap, lateness = us(gap_s), us(scene.lateness_s)
    function, judge = contents(draw)
    scene.built(Session(gap_s), function)
    open_: dict[Any, list[list[Any]]] = {}
    emitted, late = [], []

    def emit(key: Any, session: list[Any]) -> None:
        emitted.append(window_row(key, judge, session[2], session[0], session[1]))
        session[3] = False

    def close(mark: int) -> None:
        every_one = [(session[1], key or "", key, session) for key, sessions in open_.items() for session in sessions]
        for end, _, key, session in sorted(every_one, key=lambda each: each[:2]):
            if end <= mark and session[3]:
                emit(key, session)
            if end + lateness <= mark:
                open_[key].remove(session)

    for record, mark in zip(scene.rows, marks(scene.rows, scene.bound_s), strict=False):
        before = -(1 << 62) if mark is None else mark
        close(before)
        at, key = us(record["at"]), scene.key(record)
        sessions = open_.setdefault(key, [])
        reached = sorted(each for each in sessions if each[0] < at + gap and at < each[1])
        if not reached and at + gap + lateness <= before:
            late.append(record)
            continue
        for each in reached:
            sessions.remove(each)
        start, end = min([at, *(each[0] for each in reached)]), max([at + gap, *(each[1] for each in reached)])
        sessions.append([start, end, [*(earlier for each in reached for earlier in each[2]), record], True])
        if end <= before:
            emit(key, sessions[-1])
    close(1 << 62)
    checks = [exact("out", emitted), exact("late", late), counted("w", {"late": len(late)})]
    return Scenario(scene.pipeline, {"in": scene.rows}, every(*checks), shown=f"gap {gap_s} {scene}")


@oracle("count-windows")
def _counted(draw: Draw) -> Scenario:
    """`CountWindow`: the last n records of a key, each time that so many more have come."""
    pipeline, rows = Pipeline("p"), timed_rows(draw)
    n = draw.randint(1, 4)
    every_n = draw.randint(1, n) if draw.flip() else None
    function, judge = contents(draw, merging=False)
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
    """`every(n)`, `after_each()`: emitted when so many have come, and from the end on whatever is new."""
    pipeline, bound = Pipeline("p"), draw.choice((0, 2, 100))
    rows = timed_rows(draw)
    n, purge, is_global = draw.choice((1, 2, 3)), draw.flip(), draw.flip()
    lateness_s = 0 if is_global else draw.choice((0, 2, 7))
    function, judge = contents(draw, merging=False)
    trigger = after_each(purge=purge) if n == 1 and draw.flip() else every_n(n, purge=purge)
    stream = source(pipeline).watermarks("time", lambda r: r["at"], out_of_order_s=bound).key_by(lambda r: r["k"])
    assigner, windows_of = panes(draw)
    if is_global:
        assigner = Global()
    options: dict[str, Any] = {"lateness_s": lateness_s} if lateness_s else {}
    sink(stream.window("w", assigner, function, trigger=trigger, parallelism=1, **options))
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
            if window[1] <= mark and entries[key, window][1]:
                emit(key, window, entries[key, window], False)
            if window[1] + us(lateness_s) <= mark:
                del entries[key, window]

    for row, mark in zip(rows, marks(rows, bound), strict=False):
        if mark is not None:
            close(mark)
        for window in [(0, 1 << 62)] if is_global else windows_of(row["at"]):
            if mark is not None and window[1] + us(lateness_s) <= mark:
                continue
            entry = entries.setdefault((row["k"], window), [[], False, 0, 0])
            entry[0], entry[1], entry[3] = [*entry[0], row], True, entry[3] + 1
            if entry[3] % n == 0:
                emit(row["k"], window, entry, True)
            if entry[1] and mark is not None and window[1] <= mark:
                emit(row["k"], window, entry, False)
    close(1 << 62)
    # Keys of one batch are emitted together.
    batches, check = draw.choice((((1,), exact("out", expected)), (BATCHES, bag("out", expected))))
    return Scenario(pipeline, {"in": rows}, check, batches=batches, shown=f"{vars(assigner)} {n} {purge}")


@oracle("clock-windows")
def _by_clock(draw: Draw) -> Scenario:
    """Windows of the wall clock: a record belongs to what is open when it is delivered."""
    pipeline, rows, at = Pipeline("p"), list[Row](), 1000.25
    for _ in range(draw.randint(0, 15)):
        at += draw.choice((0, 0.5, 1, 3, 20))
        rows.append({"k": draw.choice("ab"), "at": at, "v": draw.randint(0, 9)})
    in_sessions = draw.flip(0.3)
    function, judge = contents(draw, merging=in_sessions)  # a session with an aggregate needs its `merge`
    stream = source(pipeline).key_by(lambda r: r["k"])
    contents_of: dict[Any, list[Row]] = {}
    if in_sessions:
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
    """Whichever task dies, each record is in one window of the wall clock, or in all of its sliding ones."""
    pipeline, rows, at = Pipeline("p"), list[Row](), 1000.25
    for _ in range(draw.randint(0, 15)):
        at += draw.choice((0, 0.5, 1, 3, 20))
        rows.append({"k": draw.choice("ab"), "at": at, "v": 1})
    times, offset = draw.choice((1, 1, 2, 5)), draw.choice((0, 0.5))
    assigner: Any = Tumbling(2, offset_s=offset, clock="processing")
    if times > 1:
        assigner = Sliding(2 * times, 2, offset_s=offset, clock="processing")
    elif draw.flip():
        assigner = Session(draw.choice((1, 4, 10)), clock="processing")
    listed: Aggregate[Any, int] = Aggregate(int, lambda n, row: n + 1, merge=lambda first, later: first + later)
    function = listed if draw.flip() else _sized
    sink(source(pipeline).key_by(lambda r: r["k"]).window("w", assigner, function, parallelism=1))

    def check(result: TrialResult) -> None:
        counts = Counter(row["k"] for row in rows)
        sums: Counter[str] = Counter()
        for row in result["out"]:
            sums[row[0]] += row[1]
        windows = {(key, start, end) for key, _, start, end in result["out"]}
        if sums != {key: count * times for key, count in counts.items()} or len(windows) < len(result["out"]):
            raise Mismatch(f"{result['out']} of {counts}, {times} times each")

    inputs = [At(row["at"], row) for row in rows]
    return Scenario(pipeline, {"in": inputs}, check, {"clock_s": 1000.0}, shown=str(vars(assigner)))


def _sized(key: Any, records: list[Row], window: Any) -> Any:
    yield key, len(records), window.start, window.end
