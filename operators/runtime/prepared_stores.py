"""The stores of a task, which a standby connects in advance so that its promotion need not wait for connections."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

from causal.errors import CausalError
from causal.ids import OUTSIDE, TaskIndex
from causal.ports import PreparedStore, SinkStore
from operators.engine.plan import Plan


class PreparedStores:
    """Stores by channel: prepared for the task that a standby follows, and passed on when it becomes that task.

    Args:
        say: reports a store that cannot be prepared, which is then connected when it is opened.
    """

    def __init__(self, plan: Plan, directory: Path, say: Callable[[str], None]) -> None:
        self._plan = plan
        self._directory = directory
        self._say = say
        self._task: TaskIndex | None = None
        self._stores: dict[int, SinkStore] = {}

    def follow(self, task: TaskIndex) -> None:
        """Prepare the stores of the task that this standby follows from now on."""
        if task == self._task:
            return
        self.close()
        self._task, self._stores = task, self._stores_of(task)
        for store in self._stores.values():
            if isinstance(store, PreparedStore):
                try:
                    store.prepare()
                except CausalError as problem:
                    self._say(f"a store is not connected in advance: {problem}")

    def of(self, task: TaskIndex) -> dict[int, SinkStore]:
        """Return the stores of the task that this process has become; they are no longer kept here."""
        stores = self._stores if task == self._task else self._stores_of(task)
        if task != self._task:
            self.close()
        self._task, self._stores = None, {}
        return stores

    def close(self) -> None:
        """Close the stores that are kept here."""
        for store in self._stores.values():
            store.close()
        self._task, self._stores = None, {}

    def _stores_of(self, task: TaskIndex) -> dict[int, SinkStore]:
        channels = [channel for channel in self._plan.topology.outputs(task) if channel.target == OUTSIDE]
        return {channel.id: self._plan.store(channel, self._directory) for channel in channels}
