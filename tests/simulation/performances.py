"""The performances of all events, over all performers: each is live in one, and a replay in all others (D22).

The account is kept from outside, of calls of the chain: an element of an input, a timer, an answer, an end.  What no
living process and no store knows of a performance when its task's successor has collected may be performed live again.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable
from typing import TYPE_CHECKING, Any

from causal.ports import Services
from causal.task.recovery import State
from causal.task.task import TaskProtocol
from tests.simulation.peers import Violated

if TYPE_CHECKING:
    from tests.simulation.world import Simulation

Place = tuple[int, int]
"""(epoch, bytes of the log of that epoch once the event was in it)."""


class Performances:
    """The account of one run."""

    def __init__(self, world: Simulation) -> None:
        self._world = world
        self._causal = world.scenario.guarantee == "causal"
        self._live: list[dict[Hashable, Place]] = [{} for _ in world.topology.tasks]
        """The events that were performed live and are not undone: event → where it is in the log."""
        self._ever: list[set[Hashable]] = [set() for _ in world.topology.tasks]
        """All that was ever performed live, by zombies as well."""
        self._collected: set[tuple[int, int]] = set()
        self.counted = 0
        """The performances that were checked."""

    def watch(self, task: TaskProtocol) -> None:
        """Record each call of the chain; an ordered task is asked with every other seed, as asking makes it log."""
        if not self._causal or (task.execution.schedule._by_content is not None and self._world.scenario.seed % 2):
            return
        chain: Any = task.execution.chain
        deliver, fire, answer, ended = chain.deliver, chain.fire, chain.answer, chain.ended

        def noted(events: Callable[..., list[Hashable]], call: Callable[..., Any]) -> Callable[..., Any]:
            def noting(*arguments: Any) -> Any:
                services = arguments[-1]
                self._note(task, events(*arguments[:-1]), services)
                return call(*arguments)

            return noting

        def elements(input: int, chunks: Any, first: int) -> list[Hashable]:
            return [(input, first + at) for at in range(sum(chunk.count for chunk in chunks))]

        chain.deliver = noted(elements, deliver)
        chain.fire = noted(lambda due_ns: [("timer", due_ns)], fire)
        chain.answer = noted(lambda operator, number, body: [("answer", operator, number)], answer)
        chain.ended = noted(lambda input: [("end", input)], ended)

    def _note(self, task: TaskProtocol, events: list[Hashable], services: Services) -> None:
        live, index = not services.replaying(), task.holdings.task
        place = (task.cursor.epoch, task.holdings.own.extent(task.cursor.epoch))
        self.counted += 1
        if self._world.observer.superseded(task) and task.recovery.state is not State.SHADOWING:
            self._ever[index].update(events if live else ())
            return
        for event in events:
            if live and event in self._live[index]:
                raise Violated(f"effects: {task.name} performs {event} live twice, at {self._live[index][event]} first")
            if not live and event not in self._ever[index]:
                raise Violated(f"effects: {task.name} performs {event} as a replay, and it never was live")
            if live:
                self._live[index][event] = place
                self._ever[index].add(event)

    def changed(self, epoch: int) -> None:
        """The job is its next version, which performs again what happened after the barrier of that epoch."""
        self._live = [{event: place for event, place in live.items() if place[0] < epoch} for live in self._live]

    def after(self, task: TaskProtocol) -> None:
        """A task has handled an event: once it has collected, what nothing knows may be performed live again."""
        index, life = task.holdings.task, (task.holdings.task, task.incarnation)
        if task.recovery.state is not State.REPLAYING or life in self._collected or not self._causal:
            return
        self._collected.add(life)
        if self._world.observer.superseded(task):
            return
        known = self._known(task)
        first, lost = task.holdings.own.first_epoch, task.inquiry.rollback.number > 0
        if lost:  # of what is undone, any part may be done again
            known = {epoch: task.holdings.own.extent(epoch) for epoch in task.holdings.own.extents()}
        live = self._live[index]
        self._live[index] = {
            event: (epoch, extent)
            for event, (epoch, extent) in live.items()
            if epoch < first or extent <= known.get(epoch, 0)
        }

    def _known(self, task: TaskProtocol) -> dict[int, int]:
        """Return how far each epoch of the task's log is known to any living process, or store."""
        index = task.holdings.task
        logs = [store.account.logs.get(index) for store in self._world.stores.values()]
        for process in self._world.processes.values():
            if process.living and process.task is not None and not self._world.observer.superseded(process.task):
                logs.append(process.task.holdings.logs.get(index))
        known: dict[int, int] = {}
        for log in logs:
            for epoch, extent in log.extents().items() if log is not None else ():
                known[epoch] = max(known.get(epoch, 0), extent)
        return known
