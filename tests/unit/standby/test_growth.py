"""Memory that each failure takes is found; memory that was taken once is not a leak."""

from __future__ import annotations

from tests.soak.growth import Growth

MB = 1_000_000


def grown(sizes: list[int]) -> list[str]:
    return Growth({(1, 1): [(size, 20) for size in sizes]}, {(1, 1): "w1"}).grown()


def test_a_leak_is_found_however_small_the_steps() -> None:
    assert grown([50 * MB + step * MB // 3 for step in range(50)])
    assert grown([50 * MB + step * 8 * MB for step in range(5)])


def test_one_step_after_which_it_rests_is_none() -> None:
    assert not grown([46 * MB] * 18 + [57 * MB] * 32)
    assert not grown([50 * MB] * 50)


def test_files_that_stay_open_are_found() -> None:
    assert Growth({(1, 1): [(MB, 20 + step) for step in range(20)]}, {(1, 1): "w1"}).grown()
