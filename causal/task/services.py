"""The causal services: in a replay, the log answers each call, and otherwise the environment answers it.

An answer is recorded before the operator receives it. Whether an event is being replayed depends on the event itself
(D22), not on the rest of the log. This module implements `causal.ports.Services`.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from causal import determinants
from causal.determinants import Call, Clock, Random, User, Window
from causal.errors import OperatorFailed, ReplayDivergence
from causal.ports import Environment
from causal.task.determinant_cursor import DeterminantCursor
from causal.task.recovery import Recovery, State


class CausalServices:
    """The services that a chain may call during an event.

    Clock readings never decrease, regardless of the machine's clock, not even after a failover.
    """

    __slots__ = ("_cursor", "_live", "_recovery", "_seed", "_seed_epoch", "_last_ns")

    def __init__(self, cursor: DeterminantCursor, live: Environment, recovery: Recovery) -> None:
        self._cursor = cursor
        self._live = live
        self._recovery = recovery
        self._seed = b""
        self._seed_epoch = -1
        self._last_ns = 0

    def now_ns(self) -> int:
        if self._cursor.replaying:
            return self._cursor.take_clock()
        reading = self.reading_ns()
        self._cursor.record(Clock(reading))
        return reading

    def reading_ns(self) -> int:
        """Read the wall clock without recording the reading; readings never decrease."""
        self._last_ns = max(self._live.wall_ns(), self._cursor.last_ns, self._last_ns)
        return self._last_ns

    def seed(self) -> bytes:
        if self._seed_epoch != self._cursor.epoch:
            if self._cursor.replaying:
                self._seed = self._cursor.take(Random).seed
            else:
                self._seed = self._live.entropy()
                self._cursor.record(Random(self._seed))
            self._seed_epoch = self._cursor.epoch
        return self._seed

    def epoch(self) -> int:
        return self._cursor.epoch

    def replaying(self) -> bool:
        """Return whether the event being performed was performed before.

        An event that an ordered task's rule selects has no log entry. If such an event calls this method, it has
        effects that must not be repeated, so it is logged in the same way as if it had requested an answer.
        """
        replays = self._recovery.replays
        if not replays:
            self._cursor.log_run()
        return replays

    def call(self, ask: Callable[[], bytes]) -> bytes:
        if self._cursor.replaying:
            return self._cursor.take(Call).answer
        answer = self._asked(ask)
        self._cursor.record(Call(answer))
        return answer

    def _asked(self, ask: Callable[[], bytes]) -> bytes:
        if self._recovery.state is State.SHADOWING:
            raise ReplayDivergence(
                self._cursor.task_name, "its hot standby asks for an answer that the task has not asked for"
            )
        self._cursor.check_incomplete()
        answer = ask()
        if len(answer) > determinants.ANSWER_BYTES_MAX:
            raise OperatorFailed(
                f"{self._cursor.task_name}: an answer of {len(answer)} bytes exceeds {determinants.ANSWER_BYTES_MAX};"
                " store it outside and return a reference"
            )
        return answer

    def user(self, kind: str, ask: Callable[[], bytes]) -> bytes:
        if not determinants.registered(kind):
            raise OperatorFailed(
                f"{self._cursor.task_name}: determinant kind {kind!r} is not registered; "
                "call causal.determinants.register_kind in the pipeline file"
            )
        if self._cursor.replaying:
            logged = self._cursor.take(User)
            if logged.name != kind:
                raise ReplayDivergence(
                    self._cursor.task_name, f"the replay asks for {kind!r}, but the log has {logged.name!r}"
                )
            return logged.value
        value = self._asked(ask)
        self._cursor.record(User(kind, value))
        return value

    def window(self, operator: int, end_ns: int, intervals: Sequence[tuple[int, int]]) -> None:
        stated = Window(operator, end_ns, tuple(intervals))
        if not self._cursor.replaying:
            self._cursor.record(stated)
            return
        logged = self._cursor.take(Window)
        if logged != stated:
            raise ReplayDivergence(
                self._cursor.task_name,
                f"operator {operator} fires a window with {stated.intervals} that ends at {end_ns}, but the log "
                f"has operator {logged.operator}, {logged.intervals}, {logged.end_ns}",
            )
