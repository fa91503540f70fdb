"""Whatever happens to the processes of a job, its sink shows no trace of it: a table of attacks on one chain.

The job is `examples/fraud_chain.py`, in which every output is hashed onto the one before it.  All attacks on a setting
are made on one job, one after the other; in campaigns each has a job of its own, too.
"""

from __future__ import annotations

import signal
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from benchmarks.harness.processes import AGENT, SUPERVISOR, argv, kill, server
from standby.host.forkserver import SERVER_SLOT
from standby.host.processes import marked
from tests.faults.conftest import HeldChain
from tests.faults.job import WAIT_S, Job, environment, wait_for
from tests.members import campaign
from tests.soak.cut import Link, cut, links

StartChain = Callable[..., HeldChain]
Attack = Callable[[HeldChain], Sequence[str]]
"""Does something to a chain; returns the tasks that recover because of it, each as often as it does."""

TASKS = ("shop/0", "web/0", "score/0", "score/1", "totals/0", "totals/1", "ledger/0", "out/0")
COUNT = 1500
"""The elements of each source: enough for all attacks on a setting."""
FREQUENT = {"checkpoint_interval_s": 0.3, "crash_loop_max": 100}


def modes(job: Job) -> list[str]:
    """Return how each recovery so far was made."""
    view = job.view()
    assert view is not None
    return [recovery["mode"] for recovery in view["recoveries"]]


def in_turn(chain: HeldChain, tasks: Sequence[str], mode: str = "") -> Sequence[str]:
    """Kill one task after the other; a task that has not collected yet cannot stand in for another."""
    for task in tasks:
        chain.job.until_warm()
        before = len(modes(chain.job))
        chain.job.replace(task)
        if mode:
            wait_for("the recovery is shown", lambda before=before: len(modes(chain.job)) > before)  # type: ignore[misc]
            assert modes(chain.job)[before:] == [mode]
    return tasks


def together(chain: HeldChain, *groups: Sequence[str]) -> Sequence[str]:
    for group in groups:
        chain.job.until_warm()
        chain.job.replace(*group)
    return [task for group in groups for task in group]


def hang(chain: HeldChain) -> Sequence[str]:
    """Stop two tasks until they are replaced; what they do when they wake changes nothing."""
    stopped = {task: chain.job.pid_of(task) for task in ("score/1", "out/0")}
    for pid in stopped.values():
        kill(pid, signal.SIGSTOP)
    chain.job.until_replaced(*stopped.values())
    for pid in stopped.values():
        kill(pid, signal.SIGCONT)
    return list(stopped)


# -- standbys --------------------------------------------------------------------------------------------------

ORDERS: Sequence[tuple[str, Sequence[tuple[str, float]]]] = (
    ("totals/0", (("standby", 0.005), ("primary", 0.0))),  # a moment before
    ("totals/0", (("primary", 0.0), ("standby", 0.0))),  # together
    ("out/0", (("primary", 0.012), ("standby", 0.0))),  # while the standby takes over
    ("out/0", (("primary", 0.06), ("standby", 0.0))),  # while it replays
)


def with_its_standby(chain: HeldChain) -> Sequence[str]:
    """Kill a standby with its primary, right before it, and right after the order to take over."""
    for task, order in ORDERS:
        view = chain.job.until_warm()
        standby, *_ = [process["pid"] for process in view["processes"] if process["standby_of"] == task]
        dying = {"standby": standby, "primary": chain.job.pid_of(task)}
        for which, wait_s in order:
            kill(dying[which])
            time.sleep(wait_s)
        chain.job.until_replaced(*dying.values())
        chain.job.pid_of(task)
    return [task for task, _ in ORDERS]


def a_whole_pool(chain: HeldChain) -> Sequence[str]:
    """Kill every idle standby and two tasks: the pool is filled again."""
    idle = [process["pid"] for process in chain.job.until_warm()["processes"] if not process["task"]]
    assert idle
    tasks = [chain.job.pid_of(task) for task in ("score/0", "ledger/0")]
    for pid in (*idle, *tasks):
        kill(pid)
    chain.job.until_replaced(*tasks)
    return ["score/0", "ledger/0"]


# -- the processes around the tasks ------------------------------------------------------------------------------


def servers_before_a_task(chain: HeldChain) -> Sequence[str]:
    """Kill the process that decides, the one that starts others, and both, right before a task."""
    for modules in ([SUPERVISOR], [AGENT], [SUPERVISOR, AGENT]):
        chain.job.until_warm()
        task = chain.job.pid_of("score/0")
        for pid in (*map(chain.job.server, modules), task):
            kill(pid)
        chain.job.until_replaced(task)
    return ["score/0"] * 3


MOMENTS_S = (0.0, 0.004, 0.01, 0.02, 0.04, 0.08, 0.2)
"""Times after the kill of a task: before it is known, while it is decided, ordered, collected, replayed, and after."""


def supervisor_in_a_recovery(chain: HeldChain, task: str, moments_s: Sequence[float]) -> Sequence[str]:
    """Kill the supervisor at many moments of a recovery; no other task stops."""
    job = chain.job
    view = job.until_warm()
    done = view["checkpoint"]["count"]
    others = {entry["task"]: entry["pid"] for entry in view["tasks"] if entry["task"] != task}
    for moment_s in moments_s:
        supervisor, dying = job.server(SUPERVISOR), job.pid_of(task)
        kill(dying)
        time.sleep(moment_s)
        kill(supervisor)
        wait_for("there is another", lambda dead=supervisor: server(job.root, SUPERVISOR) not in (None, dead))  # type: ignore[misc]
        job.until_replaced(dying)
        job.pid_of(task)
        done = chain.until_checkpoint(done)
    assert {name: job.pid_of(name) for name in others} == others, "no other may have stopped"
    return [task] * len(moments_s)


def a_second_of_each(chain: HeldChain) -> Sequence[str]:
    """Start a second supervisor and a second agent, which are refused."""
    for module in (SUPERVISOR, AGENT):
        first = chain.job.server(module)
        command = [sys.executable, "-m", module, str(chain.job.state)]
        where: dict[str, Any] = {"cwd": chain.job.directory, "env": environment(), "timeout": WAIT_S}
        second = subprocess.run(command, **where, capture_output=True, text=True, check=False)
        assert second.returncode == 2 and len(second.stderr.splitlines()) == 1, second.stderr
        assert "another" in second.stderr and str(chain.job.state) in second.stderr
        assert chain.job.server(module) == first
    return []


def fork_server(job: Job) -> int | None:
    """Return the process that the job's workers are forked from; None if there is none."""
    return next((one.pid for one in marked(job.state.resolve()) if one.slot == SERVER_SLOT), None)


def parent(pid: int) -> int:
    lines = Path(f"/proc/{pid}/status").read_text().splitlines()
    return next(int(line.split()[1]) for line in lines if line.startswith("PPid:"))


def until_another_fork_server(job: Job, before: int | None) -> None:
    wait_for("there is another fork server", lambda: fork_server(job) not in (None, before))


def fork_server_before_a_task(chain: HeldChain, number: signal.Signals) -> Sequence[str]:
    """Kill or stop the fork server right before a task; workers are the first agent's children."""
    job = chain.job
    job.until_warm()
    before, agent = fork_server(job), job.server(AGENT)
    assert before is not None and parent(before) == agent
    for task in ("score/0", "out/0"):
        pid = job.pid_of(task)
        assert parent(pid) == agent and "operators.runtime.worker" in argv(pid)
        assert pid in [one.pid for one in marked(job.state.resolve()) if one.slot in argv(pid)]
    dying = job.pid_of("score/0")
    assert kill(before, number) and kill(dying)
    job.until_replaced(dying)
    job.until_warm()
    until_another_fork_server(job, before)
    return ["score/0"]


def fork_server_with_its_agent(chain: HeldChain) -> Sequence[str]:
    """Kill the agent: the fork server goes with it, and workers stay."""
    job = chain.job
    job.until_warm()
    before, task = fork_server(job), job.pid_of("score/0")
    kill(job.server(AGENT))
    until_another_fork_server(job, before)
    job.until_warm()
    assert job.pid_of("score/0") == task
    kill(task)
    job.until_replaced(task)
    return ["score/0"]


# -- connections -------------------------------------------------------------------------------------------------


def links_of(job: Job, task: str) -> list[Link]:
    try:
        return links(job.pid_of(task), job.runtime)
    except PermissionError as problem:
        pytest.skip(str(problem))


def cut_connections(chain: HeldChain, tcp: bool = False) -> Sequence[str]:
    """Cut those to neighbours and to the supervisor: checkpoints show that both are used again; no task recovers."""
    done = chain.job.until_warm()["checkpoint"]["count"]
    pids = {task: chain.job.pid_of(task) for task in ("shop/0", "score/0", "ledger/0", "out/0")}
    for task in pids:
        connections = links_of(chain.job, task)
        data = [link for link in connections if not link.control]
        assert data and all(link.tcp == tcp for link in data)
        assert len(connections) == len(data) + 2, "two connections to the supervisor: of the loop, and of its pulse"
        cuts = [cut(link) for link in connections]
        assert any(cuts)  # an end may have gone with the other one
        done = chain.until_checkpoint(done)
    assert {task: chain.job.pid_of(task) for task in pids} == pids
    return []


def cut_off_neighbours(chain: HeldChain) -> Sequence[str]:
    """Kill a task while its neighbours are cut off from it, from each other and from the supervisor."""
    chain.job.until_warm()
    dying = chain.job.pid_of("totals/0")
    for task in ("score/0", "ledger/0"):
        for link in links_of(chain.job, task):
            cut(link)
    kill(dying)
    chain.job.until_replaced(dying)
    return ["totals/0"]


FEW = ("score/0", "shop/0", "ledger/0", "out/0")
ATTACKS: Mapping[str, tuple[Sequence[str], Mapping[str, Any], Mapping[str, Attack]]] = {
    "a standby for each task": ((), {}, {
        "fork server killed": partial(fork_server_before_a_task, number=signal.SIGKILL),
        "fork server stopped": partial(fork_server_before_a_task, number=signal.SIGSTOP),
        "each kind in turn": partial(in_turn, tasks=("shop/0", "score/1", "totals/0", "ledger/0", "out/0"),
                                     mode="standby"),
        "together": lambda chain: together(chain, ("ledger/0", "out/0"), TASKS),
        "with its standby": with_its_standby,
        "servers before a task": servers_before_a_task,
        "supervisor in a recovery": partial(supervisor_in_a_recovery, task="out/0", moments_s=MOMENTS_S[::3]),
        "fork server with its agent": fork_server_with_its_agent,
        "connections": cut_connections,
    }),
    "a pool of standbys, over tcp": (("--standbys", "2"), {"transport": "tcp"}, {
        "in turn": partial(in_turn, tasks=FEW),
        "a whole pool": a_whole_pool,
        "connections": partial(cut_connections, tcp=True),
        "neighbours cut off": cut_off_neighbours,
        "a second of each": a_second_of_each,
    }),
    "no standbys": (("--standbys", "0"), {}, {"in turn": partial(in_turn, tasks=FEW, mode="cold")}),
    "sharing depth 1": (("--sharing-depth", "1"), {}, {"in turn": partial(in_turn, tasks=FEW)}),
    "all of it": ((), {}, {
        "in turn": partial(in_turn, tasks=TASKS),
        "apart": lambda chain: together(chain, ("shop/0", "ledger/0"), ("score/0", "totals/1")),
        "supervisor in a recovery": partial(supervisor_in_a_recovery, task="score/0", moments_s=MOMENTS_S),
    }),
}  # fmt: skip
"""Setting → its options, its configuration, and the attacks on it."""
AGAIN = {
    "with its standby": Counter({"totals/0": 1, "out/0": 2}),
    "a whole pool": Counter({"score/0": 2, "ledger/0": 2}),
}
"""The recoveries that an attack may cost more: where a successor was chosen, its end is a failure of its own."""
ALWAYS = {
    "a standby for each task": ("fork server killed", "together", "with its standby", "fork server with its agent"),
    "a pool of standbys, over tcp": ("a whole pool", "neighbours cut off"),
}
"""Setting → the attacks of every run, one after the other on one job; each alone, and all others, are a campaign."""
CASES = [
    *(pytest.param(setting, names, id=setting) for setting, names in ALWAYS.items()),
    *(campaign(setting, (name,), id=f"{setting}: {name}") for setting in ATTACKS for name in ATTACKS[setting][2]),
]


@pytest.mark.parametrize(("setting", "names"), CASES)
def test_no_attack_leaves_a_trace(start_chain: StartChain, setting: str, names: Sequence[str]) -> None:
    arguments, config, attacks = ATTACKS[setting]
    chain = start_chain(*arguments, count=COUNT, **FREQUENT, **config)
    expected, again = Counter[str](), Counter[str]()
    for name in names:
        print(f"attack: {name}")
        expected += Counter(attacks[name](chain))
        again += AGAIN.get(name, Counter())
    chain.job.until_warm()
    recovered = Counter(recovery["task"] for recovery in chain.finish_exactly()["recoveries"])
    assert expected <= recovered <= expected + again, (expected, recovered)


@pytest.mark.campaign
def test_tasks_that_hang_are_replaced_and_wake_to_nothing(start_chain: StartChain) -> None:
    chain = start_chain(heartbeat_timeout_ms=2000)
    chain.job.until_warm()
    stopped = hang(chain)
    assert {recovery["task"] for recovery in chain.finish_exactly()["recoveries"]} >= set(stopped)


@pytest.mark.campaign
def test_the_same_task_again_while_it_recovers(start_chain: StartChain) -> None:
    moments = ("score/0@2.5", "score/0@2.53", "score/0@2.8", "out/0@4.5", "out/0@4.6", "out/0@5.8")
    chain = start_chain(*(f"--kill={moment}" for moment in moments))
    chain.job.until_killed()
    report = chain.finish_exactly()
    assert Counter(r["task"] for r in report["recoveries"]) == {"score/0": 3, "out/0": 3}


@pytest.mark.campaign
def test_more_neighbours_at_once_than_the_sharing_depth_covers(start_chain: StartChain) -> None:
    """Both shops and both scorers die with each other's determinants: tasks that depend on them are rolled back."""
    chain = start_chain("--sharing-depth", "1", "--checkpoint-interval", "600")
    chain.job.until_warm(records=200, checkpoints=0)
    chain.job.replace("shop/0", "web/0", "score/0", "score/1")
    report = chain.finish_exactly()
    back = {recovery["task"]: recovery["why"] for recovery in report["recoveries"] if recovery["mode"] == "rollback"}
    assert "out/0" in back and "lost" in back["out/0"], report["recoveries"]
    assert report["withdrawn"] > 0


@pytest.mark.campaign
def test_every_process_dies_before_the_first_checkpoint(start_chain: StartChain) -> None:
    chain = start_chain("--checkpoint-interval", "60")
    chain.job.until_warm(records=300, checkpoints=0)
    chain.job.kill_everything()
    chain.job.start("--resume")
    chain.finish_exactly()


@pytest.mark.campaign
def test_what_is_left_when_the_root_dies_ends_by_itself(start_chain: StartChain) -> None:
    chain = start_chain()
    chain.job.until_warm()
    kill(chain.job.root)
    chain.let_end()
    assert chain.job.start("--resume").finish() == (0, "")
    chain.assert_exact()
