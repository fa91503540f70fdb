"""The log of a task is its schedule: after any death it takes the same again, then resumes where the log ended."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from causal.determinants import Barrier, Call, Clock, Determinant, DeterminantCodec, Order, Random, Timer, Window
from causal.errors import InvariantViolation, ReplayDivergence
from causal.logs.log import DeterminantLog, LogDelta
from causal.task.determinant_cursor import DeterminantCursor

times = st.integers(-(2**62), 2**62) | st.integers(0, 1000)
small = st.integers(0, 300)
determinants: st.SearchStrategy[Determinant] = st.one_of(
    st.builds(Order, small, st.integers(1, 5000)),
    st.builds(Clock, times),
    st.builds(Timer, times),
    st.builds(Random, st.binary(min_size=16, max_size=16)),
    st.builds(Call, st.binary(max_size=20) | st.binary(max_size=3).map(lambda data: data * 300)),
    st.builds(Window, small, times, st.lists(st.tuples(small, small), max_size=3).map(tuple)),
)


class Scheduled(RuleBasedStateMachine):
    """One task: it records, passes barriers, dies, and is replayed from what holders have of its log."""

    def __init__(self) -> None:
        super().__init__()
        self.recorded: list[list[Any]] = [[]]
        """The determinants that were performed, by epoch."""
        self.bounds: list[list[int]] = [[0]]
        """The end of each determinant in the log of its epoch."""
        self.restored = 0
        """The epoch that a new incarnation begins with."""
        self.schedule = DeterminantCursor(DeterminantLog(0), 0, "count/0")
        self.at = 0
        """The number of determinants of the present epoch that have been performed."""

    @property
    def _behind(self) -> bool:
        return self.at < len(self.recorded[self.schedule.epoch])

    @property
    def _ended(self) -> bool:
        """Whether the barrier at the end of this epoch has been performed: the next step is into the next epoch."""
        performed = self.recorded[self.schedule.epoch][: self.at]
        return bool(performed) and type(performed[-1]) is Barrier

    @precondition(lambda self: not self._ended)
    @rule(determinant=determinants)
    def perform(self, determinant: Determinant) -> None:
        """One code path: what the log has is taken, otherwise what happens is recorded."""
        if self._behind:
            wanted = self.recorded[self.schedule.epoch][self.at]
            assert self.schedule.replaying and self.schedule.peek() == wanted == self.schedule.peek()
            assert self.schedule.take(type(wanted)) == wanted
        else:
            assert not self.schedule.replaying
            if type(determinant) is Order:
                self.schedule.record_order(determinant.input, determinant.count)
            else:
                self.schedule.record(determinant)
            self.recorded[-1].append(determinant)
            self.bounds[-1].append(self.schedule.log.extent(self.schedule.epoch))
        self.at += 1

    @precondition(lambda self: not self._behind)
    @rule()
    def pass_a_barrier(self) -> None:
        epoch = self.schedule.epoch + 1
        if not self._ended:
            self.perform(Barrier(epoch))
        if epoch == len(self.recorded):
            self.recorded.append([])
            self.bounds.append([0])
        self.schedule.advance(epoch)
        self.at = 0

    @precondition(lambda self: self._behind)
    @rule(determinant=determinants)
    def another_question_is_a_divergence(self, determinant: Determinant) -> None:
        wanted = self.recorded[self.schedule.epoch][self.at]
        if type(determinant) is not type(wanted):
            with pytest.raises(ReplayDivergence, match="the log has"):
                self.schedule.take(type(determinant))
        with pytest.raises(InvariantViolation):
            self.schedule.record(determinant)
        with pytest.raises(ReplayDivergence, match="before the log of epoch"):
            self.schedule.advance(self.schedule.epoch + 1)

    @precondition(lambda self: not self._behind)
    @rule()
    def a_question_behind_the_end_is_a_divergence(self) -> None:
        question = rf"^count/0 is .*: epoch {self.schedule.epoch}: the replay asks for barrier where the log ends"
        with pytest.raises(ReplayDivergence, match=question):
            self.schedule.take(Barrier)
        with pytest.raises(InvariantViolation, match="consecutive"):
            self.schedule.advance(self.schedule.epoch + 2)

    @rule(kept=st.integers(0, 8), cuts=st.lists(st.integers(0, 60), min_size=1))
    def die(self, kept: int, cuts: list[int]) -> None:
        """The last determinants may not have been shared: then they did not happen."""
        log = DeterminantLog(0, self.restored)
        last = len(self.recorded) - 1
        self.recorded[last] = self.recorded[last][:kept]
        self.bounds[last] = self.bounds[last][: kept + 1]
        for epoch in range(self.restored, last + 1):
            whole = self.schedule.log.bytes_of(epoch)[: self.bounds[epoch][-1]]
            log.merge(LogDelta(0, epoch, 0, whole[: cuts[epoch % len(cuts)]]))
            log.merge(LogDelta(0, epoch, 0, whole))
        while last > self.restored and not self.recorded[last]:
            del self.recorded[last], self.bounds[last]
            last -= 1
        self.schedule = DeterminantCursor(log, self.restored, "count/0")
        self.at = 0

    @rule()
    def complete_a_checkpoint(self) -> None:
        self.restored = self.schedule.epoch
        self.schedule.log.truncate(self.restored)

    @invariant()
    def the_log_says_what_was_performed(self) -> None:
        log = self.schedule.log
        assert self.schedule.exhausted() == (not self._behind and self.schedule.epoch == len(self.recorded) - 1)
        for epoch in range(self.restored, len(self.recorded)):
            codec, place, determinants = DeterminantCodec(), 0, []
            while place < log.extent(epoch):
                determinant, place = codec.decode(log.view(epoch), place)
                determinants.append(determinant)
            assert determinants == self.recorded[epoch]


TestScheduled = Scheduled.TestCase
