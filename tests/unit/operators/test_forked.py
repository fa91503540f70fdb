"""A function in a fork: its answer comes back, what it changes does not, and whatever becomes of it, it ends."""

from __future__ import annotations

import os
import time

import pytest

from causal.errors import Unavailable
from operators.runtime.forked import in_fork
from tests.offspring import children

KEPT: list[int] = []


def test_its_answer_comes_back_and_what_it_changes_does_not() -> None:
    def act() -> bytes:
        KEPT.append(1)
        return b"x" * 1_000_000 + str(len(KEPT)).encode()

    assert in_fork(act, 60.0) == in_fork(act, 60.0) == b"x" * 1_000_000 + b"1"
    assert KEPT == []


def test_an_empty_answer_is_an_answer() -> None:
    assert in_fork(lambda: b"", 60.0) == b""


def test_one_that_dies_has_no_answer() -> None:
    def die() -> bytes:
        os._exit(3)

    def fail() -> bytes:
        raise KeyError("x")

    for act, line in ((die, "died"), (fail, "KeyError: 'x'")):
        with pytest.raises(Unavailable, match=line):
            in_fork(act, 60.0)


def test_one_that_does_not_end_is_ended() -> None:
    def hang() -> bytes:
        time.sleep(600)
        return b""

    before = children()
    with pytest.raises(Unavailable, match="more than 0.05 s"):
        in_fork(hang, 0.05)
    assert children() <= before
