"""Between two events as much of a frozen state is encoded as fits into a time, on a clock of the test's."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any, cast

import pytest

from causal.cut import Cut
from causal.effects import WriteSnapshot
from causal.task.checkpointing import (
    FREE_NS,
    GROWTH,
    KEYS_PER_STEP,
    KEYS_PER_STEP_FREE,
    LATE_MAX,
    LATE_NS_MIN,
    LATE_SHARE,
    STEP_NS_MAX,
    STEP_NS_MIN,
    Checkpointing,
)

MS = 1_000_000


@dataclass
class Frozen:
    """A state of this many keys, each of which takes so long."""

    left: int
    ns_per_key: int
    full: bool = True
    steps: list[int] = field(default_factory=list)

    def step(self, keys_max: int) -> bool:
        self.steps.append(min(keys_max, self.left))
        self.left -= self.steps[-1]
        return not self.left

    def parts(self, *before: bytes) -> list[bytes]:
        return [*before, b"part"]


@dataclass
class Chain:
    frozen: Frozen

    def snapshot(self, full: bool, behind: str = "") -> Frozen:
        return self.frozen


def encoded(frozen: Frozen, event_ns: int, busy: bool = True, turns_max: int = 100_000) -> list[int]:
    """Return the duration of each step, with an event of that length between two of them."""
    checkpointing = Checkpointing(cast(Any, Chain(frozen)), Cut(), [])
    checkpointing.took(event_ns)
    checkpointing.freeze(Cut(1))
    took: list[int] = []
    for _ in range(turns_max):
        effects = checkpointing.step(busy)
        took.append(frozen.steps[-1] * frozen.ns_per_key)
        if effects:
            assert [type(effect) for effect in effects] == [WriteSnapshot]
            return took
        checkpointing.took(took[-1])
        checkpointing.took(event_ns)
    raise AssertionError("it never ends")


@pytest.mark.parametrize("event_ms", [1, 5, 40, 200])
def test_a_busy_task_gives_its_checkpoint_a_share_of_its_time_however_long_its_events_are(event_ms: int) -> None:
    frozen = Frozen(300_000, 2_000)
    took = encoded(frozen, event_ms * MS)
    assert sum(took) == 300_000 * 2_000
    share = STEP_NS_MAX / (STEP_NS_MAX + event_ms * MS) if event_ms * MS > STEP_NS_MAX else 0.5
    lasted_ns = sum(took) + len(took) * event_ms * MS
    assert lasted_ns <= 1.1 * sum(took) / share + 10 * event_ms * MS, "but for the first, small steps"


@pytest.mark.parametrize("ns_per_key", [100, 2_000, 100_000, 5 * MS])
@pytest.mark.parametrize("busy", [True, False])
def test_no_step_takes_longer_than_its_time_by_more_than_a_key(ns_per_key: int, busy: bool) -> None:
    frozen = Frozen(5_000, ns_per_key)
    took = encoded(frozen, 3 * MS, busy)
    limit_ns = 3 * MS if busy else FREE_NS
    assert max(took[1:]) <= limit_ns + ns_per_key
    assert frozen.steps[0] <= 64, "nothing is known of the first keys"


def test_keys_that_become_expensive_are_noticed_within_a_few_steps() -> None:
    class Growing(Frozen):
        def step(self, keys_max: int) -> bool:
            ended = super().step(keys_max)
            self.ns_per_key = 1_000 if self.left > 10_000 else 1_000_000
            return ended

    took = encoded(Growing(20_000, 1_000), 10 * MS)
    over = [ns for ns in took if ns > STEP_NS_MAX + MS]
    assert len(over) <= 1, "the step that met them first"


def test_a_step_grows_by_a_factor_that_is_bounded() -> None:
    frozen = Frozen(1 << 20, 1)
    encoded(frozen, STEP_NS_MIN)
    assert all(later <= GROWTH * before for before, later in zip(frozen.steps, frozen.steps[1:], strict=False))


def performed_at(frozen: Frozen, event_ns: int, late_ns: int) -> list[tuple[int, int]]:
    """Return, for each event while the state is encoded, when it begins and how much is encoded before the next one."""
    checkpointing = Checkpointing(cast(Any, Chain(frozen)), Cut(), [], late_ns)
    checkpointing.took(event_ns)
    checkpointing.freeze(Cut(1))
    now_ns, events = 0, list[tuple[int, int]]()
    while checkpointing.encoding:
        began_ns, now_ns = now_ns, now_ns + event_ns
        checkpointing.took(event_ns)
        checkpointing.encodes_next = True
        while checkpointing.encodes_next:
            checkpointing.step()
            took_ns = frozen.steps[-1] * frozen.ns_per_key
            now_ns += took_ns
            checkpointing.took(took_ns)
        events.append((began_ns, now_ns - began_ns - event_ns))
    return events


@pytest.mark.parametrize("event_ms", [1, 20, 300])
@pytest.mark.parametrize("late_s", [2, 5])
def test_a_late_snapshot_gets_a_larger_share_for_two_intervals(event_ms: int, late_s: int) -> None:
    event_ns, late_ns = event_ms * MS, late_s * 1000 * MS
    frozen = Frozen(10_000_000, 2_000)
    events = performed_at(frozen, event_ns, late_ns)
    usual_ns, slack_ns = min(event_ns, STEP_NS_MAX), (1 + LATE_SHARE) * event_ns + STEP_NS_MAX
    early = [ns for at, ns in events if at < late_ns - slack_ns]
    late = [ns for at, ns in events if late_ns < at < LATE_MAX * late_ns - slack_ns]
    over = [ns for at, ns in events[:-1] if at > LATE_MAX * late_ns]
    assert max(early) <= usual_ns and over == pytest.approx([usual_ns] * len(over), abs=frozen.ns_per_key)
    assert late and all(LATE_SHARE * event_ns <= ns <= LATE_SHARE * event_ns + usual_ns for ns in late)


def test_an_interval_below_a_second_makes_no_snapshot_late_before_a_second() -> None:
    events = performed_at(Frozen(200_000, 2_000), 20 * MS, 50 * MS)
    assert max(ns for _, ns in events) <= 20 * MS


def test_events_continue_when_the_snapshot_to_encode_next_is_dropped() -> None:
    checkpointing = Checkpointing(cast(Any, Chain(Frozen(1_000, 1))), Cut(), [])
    checkpointing.freeze(Cut(1))
    checkpointing.encodes_next = True
    checkpointing.resume(1, [], None)
    assert not checkpointing.encodes_next


def test_events_continue_when_a_late_snapshot_is_dropped() -> None:
    checkpointing = Checkpointing(cast(Any, Chain(Frozen(1_000, 1))), Cut(), [])
    checkpointing.freeze(Cut(1))
    checkpointing.took(LATE_NS_MIN + 1)
    checkpointing.step()
    checkpointing.resume(1, [], None)
    checkpointing.took(1)
    assert not checkpointing.encodes_next


@pytest.mark.parametrize(("busy", "keys"), [(True, KEYS_PER_STEP), (False, KEYS_PER_STEP_FREE)])
def test_without_a_clock_steps_are_of_a_fixed_size(busy: bool, keys: int) -> None:
    frozen = Frozen(3 * keys, 1)
    checkpointing = Checkpointing(cast(Any, Chain(frozen)), Cut(), [])
    checkpointing.freeze(Cut(1))
    while not checkpointing.step(busy):
        checkpointing.took(0)
    assert frozen.steps == [keys] * 3
