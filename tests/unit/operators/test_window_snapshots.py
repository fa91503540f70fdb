"""A snapshot of any kind of window holds what was there at the barrier, however late it is encoded."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from causal.ports import Chain
from operators import Count, CountWindow, Global, Session, Sliding, Tumbling, after_each, every, every_s
from operators.state.snapshot_parts import increment_of, read_part
from tests.members import examples
from tests.unit.operators.scene import parts_of
from tests.unit.operators.window_scene import (
    BOUND_MS,
    MS,
    Driven,
    Row,
    batches,
    collected,
    merged,
    values_of_window,
    window_chain,
)


def emptied(key: Any, records: list[Any], window: Any) -> Any:
    """Return a function that spoils its argument."""
    rows = list(values_of_window(key, records, window))
    records.clear()
    return rows


KINDS: dict[str, Callable[[], Chain]] = {
    "tumbling": lambda: window_chain(Tumbling(1), collected(), lateness_s=0.5),
    "function": lambda: window_chain(Tumbling(1), values_of_window, lateness_s=0.5),
    "spoiling function": lambda: window_chain(Tumbling(1), emptied),
    "sliding": lambda: window_chain(Sliding(1, 0.3), collected()),
    "slices": lambda: window_chain(Sliding(1, 0.1), merged(), lateness_s=0.5),
    "sliced function": lambda: window_chain(Sliding(1, 0.3), values_of_window),
    "session": lambda: window_chain(Session(0.5), merged(), lateness_s=0.5),
    "session function": lambda: window_chain(Session(0.5), values_of_window),
    "count": lambda: window_chain(CountWindow(3), collected()),
    "sliding count": lambda: window_chain(CountWindow(4, every=3), values_of_window),
    "trigger": lambda: window_chain(Tumbling(1), values_of_window, trigger=every(2, purge=True), lateness_s=0.5),
    "periodic": lambda: window_chain(Global(), collected(), trigger=every_s(0.7)),
    "each": lambda: window_chain(Global(), values_of_window, trigger=after_each()),
    "clock": lambda: window_chain(Sliding(0.004, 0.002, clock="processing"), Count()),
    "clock function": lambda: window_chain(Tumbling(0.004, clock="processing"), values_of_window),
    "clock session": lambda: window_chain(Session(0.003, clock="processing"), merged()),
}
KEEP_THEIR_TAIL = ("count", "sliding count")


def feed(driven: Driven, batch: list[Row], largest_ms: int) -> int:
    """Pass in a batch and its mark, and fire the windows due by the wall clock; returns the largest time so far."""
    largest_ms = max([largest_ms, *(round(row[1] * 1000) for row in batch)])
    driven.give(batch, (largest_ms - BOUND_MS // 2) * MS)
    due_ns = driven.chain.next_timer_ns()
    if due_ns is not None and due_ns <= driven.services.clock_ns:
        driven.fire(driven.services.clock_ns)
    return largest_ms


@pytest.mark.parametrize("kind", KINDS)
@examples(divided_by=2)
@given(batches=batches(), at=st.integers(0, 6), step=st.integers(1, 3), full=st.booleans(), linked=st.booleans())
def test_what_comes_behind_the_barrier_is_not_in_the_snapshot(
    kind: str, batches: list[list[Row]], at: int, step: int, full: bool, linked: bool
) -> None:
    make = KINDS[kind]
    driven, largest_ms = Driven(make), 0
    for batch in batches[: at // 2]:
        largest_ms = feed(driven, batch, largest_ms)
    driven.snapshot()  # an increment continues from here
    for batch in batches[at // 2 : at]:
        largest_ms = feed(driven, batch, largest_ms)
    job = driven.chain.snapshot(full, "digest" if full else "")
    clock_ns, begun = driven.services.clock_ns, len(driven.out)
    done, later_ms = False, largest_ms
    for batch in batches[at:]:
        done = done or job.step(step)
        later_ms = feed(driven, batch, later_ms)
    while not done:
        done = job.step(step)
    driven.finish()

    again, parts = Driven(make), job.parts()
    changed = increment_of(parts[0], "digest") if full else None
    if changed is not None:
        headers = [read_part(part)[0] or {} for part in (parts[1], changed[0])]
        assert headers[0] == {**headers[1], "full": True}, "frozen once or twice, it is the same"
    if not full or linked:
        again.chain = driven.standby
    again.chain.restore(increment_of(parts[0], "digest") or [] if full and linked else parts)
    again.services.clock_ns = clock_ns
    for batch in batches[at:]:
        largest_ms = feed(again, batch, largest_ms)
    again.finish()
    assert again.out == driven.out[begun:]
    assert again.chain.counts() == driven.chain.counts()
    assert kind in KEEP_THEIR_TAIL or parts_of(again.chain, full=True)[1:] == [], "nothing is left"
