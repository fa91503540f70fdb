"""The clock of a host that is corrected while its processes run: it never goes back, and arrives."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from causal.process.clock import SLEW, Correction

DAY_NS = 86_400_000_000_000
STEPS = st.lists(st.tuples(st.integers(0, DAY_NS), st.integers(-DAY_NS, DAY_NS)), max_size=20)


@given(st.integers(-DAY_NS, DAY_NS), STEPS, st.lists(st.integers(0, 10_000), max_size=10))
def test_a_clock_that_is_measured_again_and_again_never_goes_back(
    first_ns: int, steps: list[tuple[int, int]], readings: list[int]
) -> None:
    correction, local_ns, last_ns = Correction(0, first_ns, first_ns), 0, first_ns
    for span_ns, measured_ns in steps:
        for after_ns in sorted([*readings, span_ns]):
            now_ns = local_ns + min(after_ns, span_ns)
            assert now_ns + correction.at(now_ns) >= last_ns
            last_ns = now_ns + correction.at(now_ns)
        local_ns += span_ns
        correction = correction.toward(measured_ns, local_ns)


@given(st.integers(-DAY_NS, DAY_NS), st.integers(-DAY_NS, DAY_NS))
def test_a_corrected_clock_is_right_once_it_has_had_the_time(before_ns: int, measured_ns: int) -> None:
    correction = Correction(0, before_ns, before_ns).toward(measured_ns, 1000)
    assert correction.at(1000) == before_ns
    assert correction.at(1000 + SLEW * abs(measured_ns - before_ns)) == measured_ns
