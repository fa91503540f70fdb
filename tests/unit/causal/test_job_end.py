"""Stores are informed of the end of the job: no row is withdrawn and none follows, at every depth."""

from __future__ import annotations

from dataclasses import replace

import pytest

from benchmarks.harness.graphs import layered
from causal.effects import WriteBundle
from causal.events import JobEnded
from causal.ports import Bundle
from operators.sinks.contract.account import Account
from operators.sinks.journaled.ledger import covered
from tests.unit.causal.world import World

STEPS_MAX = 100_000


def ended(world: World) -> World:
    """A run with checkpoints, to its end."""
    for _ in range(STEPS_MAX):
        if world.done():
            return world
        world.step()
        if world.rng.random() < 0.01:
            world.checkpoint()
    raise AssertionError("it does not end")


def last_bundles(world: World) -> dict[int, list[Bundle]]:
    """Return sink channel → bundles that tasks write when they learn that the job has ended."""
    heard: dict[int, list[Bundle]] = {}
    for index, task in enumerate(world.topology.tasks):
        for effect in world.tasks[task.index].handle(JobEnded(), world.now_ns):
            assert isinstance(effect, WriteBundle), f"task {index} does something else at the end"
            heard.setdefault(effect.channel, []).append(effect.bundle)
    return heard


@pytest.mark.parametrize("depth", [1_000_000, 2, 1])
@pytest.mark.parametrize("seed", range(2))
def test_every_store_is_told_once_that_its_rows_stay(seed: int, depth: int) -> None:
    world = ended(World(layered((2, 2, 2)), seed=seed, records=300, depth=depth))
    bundles = last_bundles(world)
    assert bundles.keys() == world.stores.keys()
    for channel, [bundle] in bundles.items():
        account = world.stores[channel].account
        assert (bundle.first, bundle.count, bundle.rows, bundle.digest) == (account.next, 0, b"", account.digest)
        assert bundle.ended and bundle.logs == () and (bundle.depends is None) == (depth > 1)


@pytest.mark.parametrize("depth", [1_000_000, 1])
def test_who_has_not_finished_tells_nothing(depth: int) -> None:
    world = World(layered((2, 2, 1)), seed=1, records=300, depth=depth)
    for _ in range(600):
        world.step()
    assert not world.finished and last_bundles(world) == {}


def test_rows_that_no_checkpoint_covers_are_covered_by_the_end_and_a_withdrawal_takes_the_end_back() -> None:
    account = Account("out/0", "run", 1)
    account.take(Bundle(0, 3, b"abc", 5, 0, 1, (), depends=()))
    assert covered(account) == 0
    last = Bundle(3, 0, b"", 5, 0, 1, (), ended=True, depends=())
    account.take(last)
    assert covered(account) == 3
    assert account.take(replace(last)) is None, "a repeated end changes nothing"
    account.withdraw(account.marks[0])
    assert not account.ended and covered(account) == 0
