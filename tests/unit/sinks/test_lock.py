"""Locks end with their holder, also where user code has forked children that outlive it."""

from __future__ import annotations

import os
import signal
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from causal.process.forks import close, keep_from_children
from causal.storage.lock import FileLock
from operators.sinks import JsonLinesSink
from operators.sinks.conformance import Subject, fill


@pytest.fixture
def left() -> Iterator[list[int]]:
    """Processes to be killed at the end."""
    pids: list[int] = []
    yield pids
    for pid in pids:
        os.kill(pid, signal.SIGKILL)


def parent_of_a_sleeper(before: Callable[[], object], after: Callable[[], object]) -> tuple[int, int]:
    """Process ids of a process, which has done `before`, forked a child that sleeps, done `after`, and of the child."""
    read_end, write_end = os.pipe()
    parent = os.fork()
    if parent == 0:
        try:
            before()
            child = os.fork()
            if child == 0:
                time.sleep(600)
                os._exit(0)
            after()
            os.write(write_end, str(child).encode())
            time.sleep(600)
        finally:
            os._exit(1)
    os.close(write_end)
    child = int(os.read(read_end, 100))
    os.close(read_end)
    return parent, child


def ended(pid: int) -> None:
    os.kill(pid, signal.SIGKILL)
    os.waitpid(pid, 0)


@pytest.mark.parametrize("acquired", ["before", "after"])
def test_a_child_of_user_code_does_not_keep_the_lock(acquired: str, tmp_path: Path, left: list[int]) -> None:
    lock = FileLock(tmp_path / "lock")

    def acquire() -> None:
        assert lock.acquire(0)
        if acquired == "after":
            lock.release()

    def again() -> None:
        assert lock.acquire(0)

    parent, child = parent_of_a_sleeper(acquire, again)
    left.append(child)
    other = FileLock(tmp_path / "lock")
    assert not other.acquire(20), "its parent holds it"
    ended(parent)
    os.kill(child, 0)
    assert other.acquire(1000)
    other.close()


def test_a_child_cannot_release_the_lock_of_its_parent(tmp_path: Path) -> None:
    lock = FileLock(tmp_path / "lock")
    assert lock.acquire(0)
    pid = os.fork()
    if pid == 0:
        lock.release()
        lock.close()
        os._exit(0 if not lock.acquire(0) else 1)
    assert os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) == 0
    assert not FileLock(tmp_path / "lock").acquire(0)
    lock.close()
    assert FileLock(tmp_path / "lock").acquire(0)


def test_a_store_can_be_opened_although_children_of_its_writer_live(tmp_path: Path, left: list[int]) -> None:
    subject = Subject(JsonLinesSink(tmp_path / "out", busy_ms=500), read=lambda task: [])
    store, state = subject.opened()

    def lock() -> None:
        assert store._journal._lock.acquire(0)  # type: ignore[attr-defined]

    parent, child = parent_of_a_sleeper(lambda: fill(subject, store, state, 10), lock)
    left.append(child)
    ended(parent)
    store.close()
    young, state_found = subject.opened(2)
    assert state_found.next == 10
    fill(subject, young, state_found, 20, 2)
    young.close()


def test_a_number_that_is_used_again_is_not_closed(tmp_path: Path) -> None:
    descriptor = keep_from_children(os.open(tmp_path / "one", os.O_CREAT | os.O_RDWR))
    close(descriptor)
    other = os.open(tmp_path / "two", os.O_CREAT | os.O_RDWR)
    pid = os.fork()
    if pid == 0:
        os.write(other, b"still open")
        os._exit(0)
    os.waitpid(pid, 0)
    os.close(other)
    assert other == descriptor and (tmp_path / "two").read_bytes() == b"still open"


def test_a_descriptor_that_another_part_has_closed_concerns_no_other_in_a_child(tmp_path: Path) -> None:
    stale = keep_from_children(os.open(tmp_path / "stale", os.O_CREAT | os.O_RDWR))
    lock = keep_from_children(os.open(tmp_path / "lock", os.O_CREAT | os.O_RDWR))
    os.close(stale)
    for again in (False, True):  # first nothing has the number, then a file that the child needs
        other = os.open(tmp_path / "other", os.O_CREAT | os.O_RDWR) if again else -1
        assert not again or other == stale
        pid = os.fork()
        if pid == 0:
            kept = [number for number in (stale, lock) if Path(f"/proc/self/fd/{number}").exists()]
            os._exit(0 if kept == ([stale] if again else []) else 1)
        assert os.waitpid(pid, 0)[1] == 0
        if again:
            os.close(other)
    close(lock)
