"""One scenario run to its verdict, and what to count of it."""

from __future__ import annotations

from collections import Counter
from contextlib import nullcontext
from dataclasses import dataclass, field

from causal.records.values import decode
from tests.simulation.sabotage import sabotaged
from tests.simulation.scenario import Scenario
from tests.simulation.world import Simulation


@dataclass(slots=True)
class Outcome:
    """The verdict on a scenario, and what was counted.

    Attributes:
        problem: the broken promise; empty if all were kept.
        digest: over everything that happened, so two runs can be compared.
        faults: how often each kind was applied.
        figures: what else was counted.
    """

    scenario: Scenario
    problem: str
    digest: str
    faults: Counter[str] = field(default_factory=Counter)
    figures: Counter[str] = field(default_factory=Counter)

    @property
    def sort(self) -> str:
        """The broken promise, without the facts."""
        return ":".join(self.problem.split(":")[:2])


def run(scenario: Scenario, sabotage: str = "") -> Outcome:
    """Run it; with a sabotage, part of the protocol is broken on purpose meanwhile.

    Never raises for what the run does: an error that the code under test should not have raised is a problem too.
    """
    with sabotaged(sabotage) if sabotage else nullcontext():
        world = Simulation(scenario)
        problem = ""
        try:
            world.run()
        except Exception as failure:  # whatever it is, it is the verdict
            problem = f"{type(failure).__name__}: {failure}"
    outcome = Outcome(scenario, problem, world.digest)
    outcome.faults.update(world.applied)
    outcome.figures.update(_counted(world))
    return outcome


def _counted(world: Simulation) -> Counter[str]:
    records = [decode(body) for body in world.journal]
    kinds = Counter(record["kind"] for record in records)
    modes = Counter(f"recovered: {r['mode']}" for r in records if r["kind"] == "promoted" and r["incarnation"] > 1)
    return (
        Counter(
            {
                "checks": world.observer.steps,
                "performances": world.observer.performances.counted,
                "checkpoints": world.observer.durable,
                "rollbacks": kinds["rolled_back"],
                "withdrawn rows": sum(store.withdrawn for store in world.sinks),
                "rows": sum(store.account.next for store in world.sinks),
                "requests": len(world.service.performed),
                "withdrawn requests": sum(store.withdrawn for store in world.stores.values() if store.requests),
                "processes": len(world.processes),
                "terms": len(world.terms.begun),
                "changes": world.changes.committed,
                "changes that ended": world.changes.ended,
            }
        )
        + modes
    )
