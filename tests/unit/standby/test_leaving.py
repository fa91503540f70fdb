"""A host that is asked to end waits for its tasks to move, as long as the supervisor lives and there is time."""

from __future__ import annotations

from standby.host.leaving import UNHEARD_S, Leaving


def test_an_empty_host_has_left_once_the_supervisor_has_answered_a_beat_that_said_so() -> None:
    leaving = Leaving(100.0, within_s=20.0)
    leaving.heard(sent_s=99.9, now_s=100.1)
    assert not leaving.left(0), "the supervisor does not know it yet, and may send a process"
    leaving.heard(sent_s=100.1, now_s=100.2)
    assert leaving.left(0) and not leaving.left(1)


def test_it_waits_no_longer_than_it_may_and_not_for_a_supervisor_that_is_silent() -> None:
    leaving = Leaving(100.0, within_s=20.0)
    assert not leaving.in_vain(100.0 + UNHEARD_S - 0.1)
    assert leaving.in_vain(100.0 + UNHEARD_S)
    leaving.heard(sent_s=118.0, now_s=118.1)
    assert not leaving.in_vain(119.9)
    assert leaving.in_vain(120.0)
