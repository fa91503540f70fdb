"""A death is reported before the kernel has ended the process, a normal end is not, and nothing waits forever.

A main thread that ends while another thread lives on is a process that has died and that no pidfd reports: what
a process is whose memory is being freed, for as long as a test likes.
"""

from __future__ import annotations

import os
import select
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator

import pytest

from causal.process import lifeline
from causal.process.lifeline import Watch, hold, watch
from standby.host.children import Child
from standby.host.lifelines import Lifelines
from standby.host.processes import has_ended
from tests.unit.standby.stage import ROOT, WAIT_S

HOLD = """
import ctypes, os, sys, threading
from causal.process import lifeline
from causal.process.lifeline import hold
line = hold()
assert line is not None
print("held", flush=True)
sys.stdin.readline()
{end}
"""
HALF_DEAD = "threading.Thread(target=threading.Event().wait, daemon=True).start(); ctypes.CDLL(None).pthread_exit(None)"

Begin = Callable[[str], subprocess.Popen[str]]


@pytest.fixture
def begin() -> Iterator[Begin]:
    started: list[subprocess.Popen[str]] = []

    def start(end: str) -> subprocess.Popen[str]:
        process = subprocess.Popen(
            [sys.executable, "-c", HOLD.format(end=end)],
            cwd=ROOT, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True,
        )  # fmt: skip
        started.append(process)
        assert process.stdout is not None and process.stdout.readline() == "held\n"
        return process

    yield start
    for process in started:
        process.kill()
        process.communicate()


def let_end(process: subprocess.Popen[str]) -> None:
    assert process.stdin is not None
    process.stdin.write("\n")
    process.stdin.flush()


def watched(process: subprocess.Popen[str]) -> Watch:
    lifeline = watch(process.pid)
    assert lifeline is not None
    return lifeline


@pytest.mark.parametrize("end", [HALF_DEAD, "os._exit(0)", "os.abort()"])
def test_a_death_is_told(begin: Begin, end: str) -> None:
    process = begin(end)
    lifeline, other = watched(process), watched(process)
    let_end(process)
    assert lifeline.wait()
    assert other.wait(), "every waiting thread returns"


def test_a_death_is_told_before_the_process_has_ended(begin: Begin) -> None:
    process = begin(HALF_DEAD)
    pidfd, lifeline = os.pidfd_open(process.pid), watched(process)
    let_end(process)
    assert lifeline.wait() and not has_ended(pidfd)
    os.close(pidfd)


@pytest.mark.parametrize("end", ["line.let_go()", "line.let_go(); os._exit(3)", "line.let_go(); os.abort()"])
def test_an_end_in_good_order_is_not_told(begin: Begin, end: str) -> None:
    process = begin(end)
    lifeline = watched(process)
    let_end(process)
    assert not lifeline.wait()


def test_a_fork_lets_go_of_nothing(begin: Begin) -> None:
    process = begin("os.fork() or (line.let_go(), os._exit(0)); os.wait(); os.kill(os.getpid(), 9)")
    lifeline = watched(process)
    let_end(process)
    assert lifeline.wait()


def test_a_process_without_a_lifeline_is_not_watched() -> None:
    assert watch(os.getppid()) is None or hold() is None
    assert watch(1 << 22) is None


def child_of(process: subprocess.Popen[str], role: str = "worker") -> Child:
    child = Child("w1", role, (), {}, process.pid, pidfd=os.pidfd_open(process.pid))
    child.began_ns = int(1e18)
    return child


def test_the_loop_is_woken_and_told_which_one(begin: Begin) -> None:
    process, lines = begin("os.kill(os.getpid(), 9)"), Lifelines()
    child = child_of(process)
    lines.watch({"w1": child})
    assert lines.broken() == []
    let_end(process)
    assert select.select([lines.wake], [], [], WAIT_S)[0]
    assert [died is child for died in lines.broken()] == [True]
    assert lines.broken() == [] and not select.select([lines.wake], [], [], 0)[0]


def test_one_that_was_reaped_is_forgotten(begin: Begin, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("causal.process.lifeline._WAIT_S", 0.01)
    process, lines = begin(""), Lifelines()
    lifeline = watched(process)
    lifeline.over = True
    assert not lifeline.wait(), "the watch is over, so it returns although the holder lives"
    child = child_of(process)
    lines.watch({"w1": child})
    lines.watch({})
    process.send_signal(signal.SIGKILL)
    process.wait()
    assert lines.broken() == []


def test_a_companion_is_left_to_its_pidfd(begin: Begin) -> None:
    process, lines = begin("os.kill(os.getpid(), 9)"), Lifelines()
    lines.watch({"w1": child_of(process, "companion:spark")})
    let_end(process)
    process.wait()
    assert lines.broken() == []


def test_a_clock_that_is_set_back_does_not_lengthen_a_wait(begin: Begin, monkeypatch: pytest.MonkeyPatch) -> None:
    process = begin("")
    line = watch(process.pid)
    assert line is not None
    monkeypatch.setattr(lifeline, "_WAIT_S", 1)
    monkeypatch.setattr(lifeline, "time", ClockSetBack)
    waiter = threading.Thread(target=line.wait, daemon=True)
    waiter.start()
    line.over = True
    waiter.join(WAIT_S)
    assert not waiter.is_alive()


class ClockSetBack:
    """The clocks of a machine whose wall clock is set back by two hours right after it is read."""

    CLOCK_MONOTONIC = time.CLOCK_MONOTONIC
    monotonic = staticmethod(time.monotonic)

    @staticmethod
    def time() -> float:
        return time.time() + 7200
