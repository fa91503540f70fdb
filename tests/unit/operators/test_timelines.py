"""`Timelines` against a plain list: entries, those that are over unmatched, and the same after any restore."""

from __future__ import annotations

from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from causal.records.values import encode
from operators.kinds.joins.timelines import Entry, Timelines
from operators.state.keyed_tables import TableJob
from operators.state.slots import SlotTable
from operators.state.spool import content_of

AFTER_NS, KEPT_NS = 5_000_000, 16_000_000
SPAN_NS = 1_000_000

keys = st.sampled_from(["b", "a", 1, (1, "x")])
actions = st.lists(
    st.one_of(
        st.tuples(st.just("put"), st.lists(st.tuples(keys, st.integers(-4, 8)), min_size=1, max_size=4)),
        st.tuples(st.just("match"), st.integers(0, 1000)),
        st.tuples(st.just("match"), st.integers(0, 1000)),
        st.tuples(st.just("mark"), st.integers(0, 9)),
        st.tuples(st.just("snapshot"), st.booleans()),
        st.tuples(st.just("restore"), st.booleans()),
    ),
    min_size=15,
    max_size=40,
)
"""Times are in ms, and relative to the watermark."""


def timelines() -> Timelines:
    return Timelines("j:left", "j", 16, AFTER_NS, KEPT_NS, True)


class Kept:
    """A list of [key, entry], and what `Timelines` must give for it."""

    def __init__(self) -> None:
        self.entries: list[tuple[Any, Entry]] = []
        self.mark_ns = -1

    def mark(self, mark_ns: int) -> list[Any]:
        """Return what is over by a higher watermark and unmatched, in its order."""
        before_ns, self.mark_ns = self.mark_ns, mark_ns
        over = [
            (key, entry) for key, entry in self.entries if before_ns < entry[0] + AFTER_NS <= mark_ns and not entry[3]
        ]
        over.sort(key=lambda each: (each[1][0], encode(each[0]), each[1][1]))
        return [(key, entry[2]) for key, entry in over]

    def check(self, table: Timelines) -> None:
        """All that is not over is there, and nothing that is over for longer than a span."""
        shown = {(key, entry) for key, entries in table.values.items() for entry in entries}
        assert len(shown) == sum(map(len, table.values.values()))
        assert all(entries == sorted(entries, key=lambda entry: entry[:2]) for entries in table.values.values())
        assert shown >= {pair for pair in self.entries if pair[1][0] + AFTER_NS > self.mark_ns}
        near = {(key, entry[:3]) for key, entry in self.entries if entry[0] + AFTER_NS + SPAN_NS > self.mark_ns}
        assert {(key, entry[:3]) for key, entry in shown} <= near, "of what is over, a restore marks what was taken"


def finished(job: TableJob, keys_max: int) -> list[bytes]:
    """Return all fragments of a job, encoded in steps of this many keys."""
    while job.step(keys_max) == keys_max:
        pass
    return [content_of(fragment) for fragments in job.fragments.values() for fragment in fragments]


@given(actions, st.integers(1, 5))
def test_they_are_a_list_that_knows_what_is_over(drawn: list[tuple[str, Any]], keys_max: int) -> None:
    live, kept, number = timelines(), Kept(), 0
    written: list[tuple[int, list[bytes]]] = []
    waiting: tuple[int, TableJob] | None = None
    for what, more in drawn:
        if what == "put":
            named, entries = [], []
            for key, time in more:
                named.append(key)
                entries.append((max(kept.mark_ns, 0) + time * 1_000_000, number, f"r{number}", False))
                number += 1
            live.extend(named, entries)
            kept.entries += zip(named, entries, strict=True)
        elif what == "match" and kept.entries:
            place = more % len(kept.entries)
            key, entry = kept.entries[place]
            if entry[0] + AFTER_NS > kept.mark_ns and not entry[3]:
                live.match(key, entry)
                kept.entries[place] = (key, (*entry[:3], True))
        elif what == "mark":
            mark_ns = max(kept.mark_ns, 0) + more * 1_000_000
            assert live.take_unmatched(mark_ns) == kept.mark(mark_ns)
            live.drop(mark_ns)
        elif what in ("snapshot", "restore"):
            if waiting is not None:  # it was frozen, and what came since is not in it
                written.append((waiting[0], finished(waiting[1], keys_max)))
            if more:
                written.clear()
            waiting = kept.mark_ns, live.snapshot(more or not written and waiting is None)
        if what == "restore" and waiting is not None:
            written.append((waiting[0], finished(waiting[1], keys_max)))
            waiting = None
            live = timelines()
            for mark_ns, fragments in written:
                for fragment in fragments:
                    live.load(fragment)
                live.settle(mark_ns)
        kept.check(live)


def test_an_increment_has_what_was_matched_since() -> None:
    live, entry = timelines(), (0, 7, "r", False)
    live.extend(["k"], [entry])
    fragments = finished(live.snapshot(True), 1)
    live.match("k", entry)
    fragments += finished(live.snapshot(False), 1)
    restored = timelines()
    for fragment in fragments:
        restored.load(fragment)
    assert restored.inspect("k") == [[(0, 7), ["r", True]]]
    assert restored.take_unmatched(AFTER_NS) == []


def test_snapshots_of_the_version_with_an_entry_per_pair_are_read() -> None:
    before = SlotTable("j:left", "j", 16)
    pairs = {("k", (time * 1_000_000, number)): [f"r{number}", number == 1] for number, time in enumerate((3, 1, 2))}
    before.touch(pairs)
    before.values.update(pairs)
    fragments = finished(before.snapshot(True), 2)
    before.touch([("k", (1_000_000, 1))])
    del before.values["k", (1_000_000, 1)]
    fragments += finished(before.snapshot(False), 2)
    now = timelines()
    for fragment in fragments:
        now.load(fragment)
    now.settle(6_000_000)
    assert now.inspect("k") == [[(2_000_000, 2), ["r2", False]], [(3_000_000, 0), ["r0", False]]]
    assert now.take_unmatched(7_000_000) == [("k", "r2")]


def test_what_no_snapshot_takes_is_not_collected() -> None:
    table = timelines()
    for number in range(20_000):
        table.extend(["k"], [(number * 1_000_000, number, "r", False)])
        table.drop(number * 1_000_000)
    assert len(table._fresh) < 3_000
