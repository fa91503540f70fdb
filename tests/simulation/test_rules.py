"""Rules that no checker of whole runs decides: the log of ordered tasks, retention, and the end of a job."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from causal.channels import exchange, flow
from causal.effects import WriteBundle
from causal.events import JobEnded, Started
from causal.task.task import TaskProtocol
from standby.exit_status import STOPPED
from tests.members import members, sample
from tests.simulation.clockwork import MS, SECOND
from tests.simulation.process import Process
from tests.simulation.scenario import Fault, Scenario, draw, plain
from tests.simulation.test_simulation import failing
from tests.simulation.trial import run
from tests.simulation.world import Simulation
from tests.tasks import task_of

SERVICES = ("clock", "random", "call", "timer")


def kills(count: int) -> tuple[Fault, ...]:
    return tuple(Fault("kill", (300 + 100 * place) * MS, place, 1) for place in range(count))


@pytest.mark.parametrize(
    "where, bound, value", [(exchange, "DELTA_BYTES_TARGET", 20), (flow, "ALLOWANCE_BYTES_MIN", 150)]
)
@pytest.mark.parametrize("first", sample(range(0, 60, 3), 1))
def test_every_promise_is_kept_where_frames_have_few_determinants_or_senders_little_credit(
    where: Any, bound: str, value: int, first: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(where, bound, value)
    outcomes = [run(draw(seed)) for seed in range(first, first + 3)]
    assert not failing(outcomes), failing(outcomes)


# -- ordered tasks ---------------------------------------------------------------------------------------


def ran(scenario: Scenario) -> Simulation:
    world = Simulation(scenario)
    world.run()
    return world


def tasks_of(world: Simulation) -> list[TaskProtocol]:
    """Return every task that ran, in any incarnation."""
    return [process.task for process in world.processes.values() if process.task is not None]


def logged(world: Simulation) -> dict[str, set[str]]:
    """Return kind → layers of tasks that log determinants of that kind."""
    kinds: dict[str, set[str]] = {"order": set(), "run": set()}
    for task in tasks_of(world):
        for kind, layers in kinds.items():
            if task.cursor.bytes_by_kind[kind]:
                layers.add(task.name.partition("/")[0])
    return kinds


@pytest.mark.parametrize(
    "ordered, kinds, orders, runs",
    [
        (False, (), {"l0", "l1", "l2"}, set()),
        (True, (), {"l0"}, set()),
        (True, SERVICES, {"l0"}, {"l1", "l2"}),
    ],
    ids=["order of arrival", "order of content", "order of content, with choices"],
)
def test_an_ordered_task_logs_no_order_and_where_nothing_could_be_otherwise_nothing(
    ordered: bool, kinds: tuple[str, ...], orders: set[str], runs: set[str]
) -> None:
    world = ran(plain(3, (2, 2, 1), kinds=("marks", *kinds), ordered=ordered))
    assert logged(world) == {"order": orders, "run": runs}


@pytest.mark.parametrize("runs", members([3, 4], 3))
def test_the_order_of_an_ordered_task_does_not_depend_on_arrival(runs: int) -> None:
    """Other seeds, other arrivals, other deaths: the same rows in the same order; sources put no barriers."""
    outputs = set()
    for seed in range(runs):
        world = ran(plain(seed, (3, 1, 1), ordered=True, kinds=("marks",), batch_elements=1, faults=kills(seed)))
        assert world.observer.durable == 0
        outputs.add(b"".join(world.sinks[0].rows))
    assert len(outputs) == 1


# -- what a task keeps until the next checkpoint ---------------------------------------------------------


class Watched(Simulation):
    """A run in which the most that any task keeps is known, of in-flight entries and of determinants."""

    most = {"inflight_disk_bytes_max": 0, "log_bytes_max": 0}

    def trace(self, process: Process, event: object, effects: list[Any]) -> None:
        super().trace(process, event, effects)
        if process.task is not None:
            kept = sum(process.task.channels.inflight_bytes()), process.task.holdings.size
            self.most = {bound: max(self.most[bound], size) for bound, size in zip(self.most, kept, strict=True)}


def most_kept(world: Watched, bound: str, **bounds: int) -> int:
    world.config = replace(world.config, **bounds)  # type: ignore[arg-type]
    world.run()
    return world.most[bound]


def unhurried() -> Watched:
    """Return a run in which no checkpoint begins of its own."""
    return Watched(plain(1, (2, 2, 1), records=300, kinds=SERVICES, batch_every_ms=2, checkpoint_ms=60_000))


@pytest.fixture(scope="module")
def unbounded() -> dict[str, int]:
    """The most that a task keeps, by bound, where neither is set."""
    world = unhurried()
    world.run()
    return world.most


@pytest.mark.parametrize("bound", Watched.most)
def test_what_a_task_keeps_stays_near_its_bound(bound: str, unbounded: dict[str, int]) -> None:
    """Tasks request checkpoints, and sources hold back records meanwhile."""
    bounded = unhurried()
    assert unbounded[bound] > 8 * 2000, "the job is long enough for the bound to matter"
    assert most_kept(bounded, bound, **{bound: 2000}) <= 2 * 2000
    assert bounded.observer.durable > 4


class Hanging(Watched):
    """A record of the first source takes three seconds: a barrier stands behind it."""

    hangs_ns = 0
    meanwhile = 0
    """The most determinants that a task keeps until then."""

    def trace(self, process: Process, event: object, effects: list[Any]) -> None:
        super().trace(process, event, effects)
        task = process.task
        if not self.hangs_ns and task is not None and task.name == "l0/0" and task.inputs[0].delivered > 20:
            task.execution.chain.spent_ns = 3 * SECOND  # type: ignore[attr-defined]
            self.hangs_ns = self.clock.now_ns
        if self.clock.now_ns < self.hangs_ns + 3 * SECOND:
            self.meanwhile = self.most["log_bytes_max"]


@pytest.mark.parametrize("bounded", [False, True])
def test_while_a_record_hangs_before_a_barrier_other_tasks_keep_no_more_than_their_bounds(bounded: bool) -> None:
    world = Hanging(plain(2, (1, 1), separate=True, records=400, kinds=SERVICES, batch_every_ms=2, checkpoint_ms=100))
    most_kept(world, "log_bytes_max", **{"log_bytes_max": 1000} if bounded else {})
    assert world.meanwhile <= 2000 if bounded else world.meanwhile > 4000


# -- the end of a job --------------------------------------------------------------------------------------


@pytest.mark.parametrize("depth", members([3, 2, 1], 2, 1))
def test_every_store_is_told_once_that_its_rows_stay(depth: int) -> None:
    world = ran(plain(1, (2, 2, 2), kinds=SERVICES, depth=depth, checkpoint_ms=100))
    effects = [effect for task in tasks_of(world) for effect in task.handle(JobEnded(), world.clock.now_ns)]
    bundles = {effect.channel: effect.bundle for effect in effects if isinstance(effect, WriteBundle)}
    assert len(effects) == len(bundles) and bundles.keys() == world.stores.keys()
    for channel, bundle in bundles.items():
        account = world.stores[channel].account
        assert (bundle.first, bundle.count, bundle.rows, bundle.digest) == (account.next, 0, b"", account.digest)
        assert bundle.ended and bundle.logs == () and (bundle.depends is None) == (depth > 1)


def test_a_task_that_has_not_finished_tells_its_store_nothing() -> None:
    world = Simulation(plain(1, (1, 1)))
    for task in (0, 1):
        unfinished = task_of(world.topology, task, 1, world.config, world.code(task), world.live)
        unfinished.handle(Started(), 0)
        assert unfinished.handle(JobEnded(), 0) == []


class Saved(Simulation):
    """A run that a user stops at a savepoint; the request is repeated, as a supervisor may die with it."""

    def run(self) -> None:
        self.observer.end = lambda status, reason: None  # type: ignore[method-assign]
        self._ask()
        super().run()

    def _ask(self) -> None:
        self.clock.after(500 * MS, self._ask)
        if self.supervisor is not None and self.clock.now_ns > 1500 * MS:
            self.supervisor.asked("savepoint", {"final": True})


@pytest.mark.parametrize("seed", sample(range(40), 2))
def test_what_is_visible_at_a_final_savepoint_is_what_it_holds_whoever_fails(seed: int) -> None:
    faults = tuple(fault for fault in draw(seed).faults if fault.kind in ("kill", "kill_mid", "several", "supervisor"))
    world = Saved(replace(draw(seed), guarantee="causal", records=60, batch_every_ms=30, faults=(*faults, *kills(2))))
    world.run()
    assert world.ended == (0, f"{STOPPED}{world.observer.durable}")
    for channel, store in world.stores.items():
        cut = world.observer._cuts[world.topology.channels[channel].source]
        assert store.account.next == cut.outputs[channel][0]
