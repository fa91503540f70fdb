"""Settings of all tests: bounded, repeatable property tests, and no process or descriptor left behind."""

from __future__ import annotations

import ctypes
import gc
import os
import signal
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from hypothesis import HealthCheck, settings

# `derandomize` makes a run repeatable; `--hypothesis-profile=campaign` looks for new cases.
settings.register_profile("repeatable", derandomize=True, max_examples=16, deadline=None)
settings.register_profile(
    "campaign", max_examples=1000, deadline=None, suppress_health_check=[HealthCheck.too_slow], print_blob=True
)
settings.load_profile("repeatable")

WRITES_NO_BYTECODE = sys.dont_write_bytecode
sys.dont_write_bytecode = False
"""It is written until all tests are collected: compiling them takes most of that time, in each process of a run."""

# Processes that tests start find the checkout as this one does, from whatever directory they start.
os.environ["PYTHONPATH"] = str(Path(__file__).resolve().parents[1])
# A shell starts what runs in the background deaf to Ctrl-C, and so would be what is started from there.
signal.signal(signal.SIGINT, signal.default_int_handler)

_PR_SET_CHILD_SUBREAPER = 36
"""A test that has this process adopt orphans would otherwise make those of later tests its children."""

LONG_FIRST = (
    "tests/hosts/test_spark.py",
    "tests/hosts/test_succession.py",
    "tests/docs/test_cookbook.py",
    "tests/spark",
    "tests/faults/test_dashboard_browser.py",
    "tests/faults/test_forks.py",
    "tests/faults/test_guarantees.py",
    "tests/faults/test_kills.py",
    "tests/faults/test_operators.py",
    "tests/hosts",
    "tests/guarantees",
    "tests/docs",
    "tests/simulation",
    "tests/unit/benchmarks",
)
"""The files and folders that begin, so that no process waits for one of them at the end of a run."""


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Sort the tests; within a file, and among the other folders, they stay in their order.

    Raises:
        pytest.UsageError: the name of one has an address, so processes that share a run would disagree about it.
    """
    addressed = [item.nodeid for item in items if " at 0x" in item.nodeid]
    if addressed:
        raise pytest.UsageError(f"{addressed[0]}: give `ids`, without the address of an object")
    first = {folder: place for place, folder in enumerate(LONG_FIRST)}
    items.sort(key=lambda item: min((first[f] for f in first if item.nodeid.startswith(f)), default=len(first)))


def pytest_collection_finish() -> None:
    """Make the tests themselves write bytecode where this process was to write it.

    And no collection of garbage looks at all tests, nor copies their memory in each process that a test forks.
    """
    sys.dont_write_bytecode = WRITES_NO_BYTECODE
    gc.collect()
    gc.freeze()


def _children() -> set[int]:
    tasks = Path(f"/proc/{os.getpid()}/task")
    pids: set[int] = set()
    for task in tasks.iterdir():
        try:
            pids.update(map(int, (task / "children").read_text().split()))
        except FileNotFoundError:
            continue  # a thread that has just ended
    return pids


@pytest.fixture(autouse=True)
def _no_process_is_left_behind() -> Iterator[None]:
    before = _children()
    yield
    ctypes.CDLL(None).prctl(_PR_SET_CHILD_SUBREAPER, 0, 0, 0, 0)
    left = {pid: _command_line(pid) for pid in sorted(_children() - before)}
    # Python's own, and the one from which `causal run` is forked: they live as long as the test run does.
    lasting = ("resource_tracker", "tests.faults.roots")
    left = {pid: command for pid, command in left.items() if not any(name in command for name in lasting)}
    assert not left, f"processes of this test still exist: {left}"


def _command_line(pid: int) -> str:
    try:
        return Path(f"/proc/{pid}/cmdline").read_bytes().replace(b"\0", b" ").decode(errors="replace").strip()
    except FileNotFoundError:
        return "(ended)"
