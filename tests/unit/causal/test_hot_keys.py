"""The table of sampled keys: who leads, how much it keeps, and that it forgets."""

from __future__ import annotations

from random import Random

from hypothesis import given
from hypothesis import strategies as st

from causal.task.hot_keys import HALVED_EVERY_NS, KEPT_MAX, REPORTED_MAX, TEXT_MAX, HotKeys


def test_the_key_with_the_most_samples_leads_with_its_share() -> None:
    table = HotKeys()
    assert table.shares() == ()
    for key in ("3", "7", "7", None, "7", "7", None, "1"):
        table.add(key, 0)
    assert table.shares() == (("7", 0.5), ("1", 0.125), ("3", 0.125))


def test_a_hot_key_leads_among_more_keys_than_the_table_holds() -> None:
    table, chance = HotKeys(), Random(5)
    for _ in range(5000):
        table.add("7" if chance.random() < 0.3 else str(chance.randrange(100, 100_000)), 0)
    (first, share), *others = table.shares()
    assert first == "7" and 0.25 < share < 0.35
    assert all(share < 0.02 for _, share in others), "a key that took another's place has none of its samples"


@given(st.lists(st.tuples(st.none() | st.text(max_size=150), st.integers(0, HALVED_EVERY_NS)), max_size=200))
def test_the_table_is_bounded_and_shares_are_parts_of_one(samples: list[tuple[str | None, int]]) -> None:
    table, now_ns = HotKeys(), 0
    for place, (key, passed_ns) in enumerate(samples):
        now_ns += passed_ns
        table.add(key, now_ns)
        table.add(f"key {place}", now_ns)
        assert len(table) <= KEPT_MAX
    shares = table.shares()
    assert len(shares) <= REPORTED_MAX and all(len(key) <= TEXT_MAX and 0 <= share <= 1 for key, share in shares)
    assert sum(share for _, share in shares) <= 1.001
    assert [share for _, share in shares] == sorted((share for _, share in shares), reverse=True)


def test_counts_are_halved_once_a_minute_so_that_what_is_hot_now_leads_soon() -> None:
    table = HotKeys()
    for _ in range(8):
        table.add("before", 0)
    table.add("now", HALVED_EVERY_NS - 1)
    assert table.shares() == (("before", 0.8889), ("now", 0.1111))
    table.add("now", HALVED_EVERY_NS)  # 4 and 0.5 of 4.5, the latter forgotten; then one more
    assert table.shares() == (("before", 0.7273), ("now", 0.1818))
    for _ in range(4):
        table.add("now", 3 * HALVED_EVERY_NS)
    assert table.shares()[0][0] == "now"


def test_after_a_long_rest_nothing_is_left_of_what_was_hot() -> None:
    table = HotKeys()
    for _ in range(1000):
        table.add("before", 0)
    table.add("now", 10**6 * HALVED_EVERY_NS)
    assert table.shares() == (("now", 1.0),)
