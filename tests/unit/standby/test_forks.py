"""A forked worker does not differ from a started one, also for its agent, and a server may die."""

from __future__ import annotations

import ctypes
import json
import os
import select
import signal
import socket
import sys
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from causal.process.interpreter import module_command
from standby.host import forks, forkserver
from standby.host.children import Child, Children, End, environment
from standby.host.forks import ForkServer
from standby.host.forkserver import SERVER_SLOT
from standby.host.parentage import adopt_orphans
from standby.host.processes import has_ended, kill_marked, marked
from standby.host.room import SLOT_BYTES_MAX
from tests.offspring import children as children_of_process
from tests.offspring import reaped_but
from tests.unit.standby.stage import WAIT_S, wait_for

PROBE = "tests.unit.standby.probe"
PR_SET_CHILD_SUBREAPER = 36
SLEEPER = "tests.unit.standby.sleeper"
LEAVER = "tests.unit.standby.leaver"
ORPHAN = """
import os, sys
between = os.fork()
if not between:
    sys.exit(0 if os.fork() else 5)
os.waitpid(between, 0)
sys.exit(3)
"""


@pytest.fixture
def job(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    # An agent starts an interpreter where a server is slow; here is looked at what servers do, however slow they are.
    monkeypatch.setattr(forks, "READY_S", WAIT_S)
    monkeypatch.setattr(forks, "ANSWER_S", WAIT_S)
    before = children_of_process()
    adopt_orphans()
    (tmp_path / "logs").mkdir()
    yield tmp_path
    kill_marked(tmp_path, 5.0)
    wait_for("all are reaped", lambda: reaped_but(before))
    assert ctypes.CDLL(None).prctl(PR_SET_CHILD_SUBREAPER, 0, 0, 0, 0) == 0


@pytest.fixture
def children(job: Path) -> Iterator[Children]:
    table = Children(job)
    yield table
    table.close()


def started(table: Children, slot: str, *arguments: str, module: str = PROBE) -> Child:
    child = Child(slot, "worker", tuple(module_command(module, *arguments)), {})
    table.start(child)
    assert child.pid > 1, "signals to process 0 or 1 would reach others"
    return child


def ended(table: Children, child: Child) -> End:
    return wait_for(f"{child.slot} has ended", lambda: table.reap(child))


def test_a_forked_worker_is_like_one_in_an_interpreter_of_its_own(job: Path, children: Children) -> None:
    reports: list[dict[str, Any]] = []
    for slot, forking in (("w101", False), ("w102", True), ("w103", True)):
        if forking and children.forks is None:
            children.serve_forks(PROBE)
        child = started(children, slot, str(job / slot), "7")
        assert (child.process is None) is forking
        assert ended(children, child).status == 7
        text = (job / slot).read_text().replace(f'/{slot}"', '/slot"').replace(f"/{slot}.log", "/slot.log")
        reports.append(json.loads(text.replace(f'"{slot}"', '"slot"').replace(f"{slot}\\u00007", "slot\\u00007")))
        assert (job / "logs" / f"{slot}.log").read_text() == "said on stdout\n"
    varying = [one.pop("varying") for one in reports]
    assert reports[1] == reports[0] and reports[2] == reports[0]
    assert len({str(value) for drawn in varying for value in drawn}) == 9, "no two draw the same"


def test_a_forked_worker_leaves_nothing_undone_and_takes_nothing_apart(job: Path, children: Children) -> None:
    children.serve_forks(LEAVER)
    child = started(children, "w1", str(job), module=LEAVER)
    assert child.process is None and ended(children, child).status == 7
    assert (job / "at_exit").exists() and (job / "thread").exists()
    assert (job / "file").read_text() == "whole"
    assert (job / "logs" / "w1.log").read_text() == "no end of a line"
    assert not (job / "taken_apart").exists()


def test_a_forked_worker_is_known_by_its_marks_and_its_parent(job: Path, children: Children) -> None:
    children.serve_forks(SLEEPER)
    child = started(children, "w12", module=SLEEPER)
    assert child.process is None and child.pid in [m.pid for m in marked(job) if m.slot == "w12"]
    assert [m.slot for m in marked(job)].count("w12") == 1
    assert f"\nPPid:\t{os.getpid()}\n" in Path(f"/proc/{child.pid}/status").read_text()
    os.kill(child.pid, signal.SIGKILL)
    assert ended(children, child).status == -signal.SIGKILL


def test_the_next_agent_finds_one_whose_pid_was_never_written_down(job: Path, children: Children) -> None:
    children.serve_forks(SLEEPER)
    child = started(children, "w1", module=SLEEPER)
    pid, child.pid, child.started = child.pid, 0, 0
    children.save()
    os.close(child.pidfd)
    later = Children(job)
    assert later.adopt() == [] and later.living["w1"].pid == pid
    os.kill(pid, signal.SIGKILL)
    ended(later, later.living["w1"])


def test_workers_outlive_their_server_and_the_next_start_has_a_server_again(job: Path, children: Children) -> None:
    children.serve_forks(SLEEPER)
    first = started(children, "w1", module=SLEEPER)
    assert children.forks is not None
    server = children.forks.pid
    os.kill(server, signal.SIGKILL)
    second = started(children, "w2", module=SLEEPER)
    assert second.process is not None, "an interpreter takes its place"
    children.reap_orphans()
    wait_for("another server", lambda: children.forks is not None and children.forks.pid not in (0, server))
    assert not has_ended(first.pidfd)
    for child in (first, second):
        os.kill(child.pid, signal.SIGKILL)
        ended(children, child)
    third = started(children, "w3", module=SLEEPER)
    assert third.process is None
    os.kill(third.pid, signal.SIGKILL)
    ended(children, third)


def test_a_server_that_is_idle_for_long_enough_ends_for_good(job: Path, children: Children) -> None:
    children.serve_forks(SLEEPER, idle_s_max=0.2)
    first = started(children, "w1", module=SLEEPER)
    assert children.forks is not None and first.process is None

    def over() -> bool:
        children.reap_orphans()
        return children.forks is not None and children.forks.pid == 0

    wait_for("the server has ended", over)
    assert not has_ended(first.pidfd), "workers outlive their server"
    second = started(children, "w2", module=SLEEPER)
    assert second.process is not None and children.forks.pid == 0, "an interpreter takes its place"
    for child in (first, second):
        os.kill(child.pid, signal.SIGKILL)
        ended(children, child)


def test_a_server_that_does_not_answer_is_killed_with_what_it_began(
    job: Path, children: Children, monkeypatch: pytest.MonkeyPatch
) -> None:
    children.serve_forks(SLEEPER)
    assert children.forks is not None
    first = started(children, "w1", module=SLEEPER)
    server = children.forks.pid
    os.kill(server, signal.SIGSTOP)
    monkeypatch.setattr(forks, "ANSWER_S", 0.2)
    second = started(children, "w2", module=SLEEPER)
    assert second.process is not None and not Path(f"/proc/{server}").exists()
    assert [m.pid for m in marked(job) if m.slot == "w2"] == [second.pid]
    for child in (first, second):
        os.kill(child.pid, signal.SIGKILL)
        ended(children, child)


@pytest.mark.parametrize(
    ("module", "said"),
    [
        ("standby.supervision.events", "no main()"),
        ("tests.unit.standby.threaded", "starts threads"),
        ("no.such", "no.such"),
    ],
)
def test_a_module_that_cannot_be_shared_is_refused(job: Path, module: str, said: str) -> None:
    server = ForkServer(job, module, environment(job, {}, ""))
    for _ in range(forks.LOST_MAX + 1):
        assert server.start(tuple(module_command(module)), "w1", job / "logs" / "w1.log", patient=True) is None
    assert server.pid == 0, "and not tried forever"
    assert said in (job / "logs" / "forkserver.log").read_text()
    server.close()


def test_what_cannot_be_forked_is_said(job: Path) -> None:
    server = ForkServer(job, SLEEPER, environment(job, {}, ""))
    argv, log = tuple(module_command(SLEEPER)), job / "logs" / "w1.log"
    assert server.start((*argv, "x" * 9999), "w1", log, patient=True) is None
    assert server.start(argv, "w" * (SLOT_BYTES_MAX + 1), log, patient=True) is None
    (job / "file").touch()
    assert server.start(argv, "w1", job / "file" / "w1.log", patient=True) is None
    assert server.start(("/bin/true",), "w1", log, patient=True) is None
    assert [m.slot for m in marked(job)] == [SERVER_SLOT], "nothing was begun, and the server lives"
    server.close()


def test_a_refused_fork_leaves_no_pipe_open(monkeypatch: pytest.MonkeyPatch) -> None:
    def refused() -> int:
        raise BlockingIOError("no more processes")

    monkeypatch.setattr(os, "fork", refused)
    before = os.listdir("/proc/self/fd")
    for _ in range(3):
        with pytest.raises(BlockingIOError):
            forkserver._fork({}, None)  # type: ignore[arg-type]
    assert os.listdir("/proc/self/fd") == before


def test_orphans_are_reaped_and_children_are_left_to_be_reaped_where_they_are_expected(
    job: Path, children: Children
) -> None:
    before = children_of_process()
    child = Child("w1", "worker", (sys.executable, "-c", ORPHAN), {})
    children.start(child)
    wait_for("it has ended", lambda: has_ended(child.pidfd))
    wait_for("its orphan has", lambda: not marked(job))
    children.reap_orphans()
    assert ended(children, child).status == 3

    def reaped() -> bool:
        children.reap_orphans()
        return children_of_process() <= before

    wait_for("its orphan is reaped", reaped)
    assert not marked(job)


@pytest.mark.parametrize("answers_unread", [0, 1])
def test_a_server_ends_with_its_agent_whatever_that_had_not_read(
    monkeypatch: pytest.MonkeyPatch, answers_unread: int
) -> None:
    monkeypatch.setattr(forkserver, "_fork", lambda order, strings: 7)
    agent, server = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    agent.send(json.dumps({}).encode())
    ended: list[object] = []
    serving = threading.Thread(target=lambda: ended.append(forkserver.serve(server, None)))  # type: ignore[arg-type]
    serving.start()
    assert agent.recv(100) == forkserver.READY
    if not answers_unread:
        assert json.loads(agent.recv(100)) == {"pid": 7}
    else:
        assert select.select([agent], [], [], WAIT_S)[0]
    agent.close()
    serving.join(WAIT_S)
    assert ended == [None]
    server.close()
