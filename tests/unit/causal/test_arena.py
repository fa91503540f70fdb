"""A region keeps the same bytes, which cannot be changed, and is freed with the last reference to it."""

from __future__ import annotations

import os
import weakref

import pytest

from causal.channels.arena import APART_BYTES_MAX, APART_BYTES_MIN, REGION_BYTES, Arena


@pytest.mark.parametrize("size", [0, 1, APART_BYTES_MIN - 1, APART_BYTES_MAX + 1])
def test_what_is_small_or_large_stays_where_it_is(size: int) -> None:
    payload = bytes(size)
    assert Arena().keep(payload) is payload


def test_what_is_kept_is_the_same_whatever_comes_behind_it() -> None:
    regions = Arena()
    payloads = [bytes([number % 251]) * (APART_BYTES_MIN + 997 * number) for number in range(250)]
    kept = [regions.keep(payload) for payload in payloads]
    assert all(type(view) is memoryview and view.readonly for view in kept)
    assert kept == payloads and sum(map(len, payloads)) > 10 * REGION_BYTES


def test_the_largest_fill_a_region_and_the_next_one_begins_another() -> None:
    regions = Arena()
    kept = [regions.keep(bytes([number]) * APART_BYTES_MAX) for number in range(5)]
    homes = {id(view.obj) for view in kept if type(view) is memoryview}
    assert len(homes) == 2
    assert kept == [bytes([number]) * APART_BYTES_MAX for number in range(5)]


def test_a_region_is_given_back_when_nothing_in_it_is_looked_at() -> None:
    regions = Arena()
    first, second = (regions.keep(b"x" * APART_BYTES_MAX) for _ in range(2))
    assert type(first) is memoryview and type(second) is memoryview
    home = weakref.ref(first.obj)
    filling = [regions.keep(b"y" * APART_BYTES_MAX) for _ in range(3)]
    del first
    assert home() is not None
    del second, filling[:2]
    assert home() is None


def test_a_forked_process_cannot_change_what_is_kept() -> None:
    payload = bytes([7]) * APART_BYTES_MIN
    kept = Arena().keep(payload)
    assert type(kept) is memoryview
    home = kept.obj
    child = os.fork()
    if not child:
        home[:4] = b"\0\0\0\0"  # type: ignore[index]
        os._exit(0)
    assert os.waitpid(child, 0)[1] == 0
    assert kept == payload
