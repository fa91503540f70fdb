"""Windows whose options change at a savepoint, against a model: state is kept, the new options count from there on.

What was emitted is not emitted again without a record, what was closed stays closed, and no open window is lost:
whatever the lateness, the trigger and the number of tasks were, and however far each of these tasks was.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from causal.records.batch import watermark
from operators.engine.plan import Plan
from operators.kinds.windows.aggregates import Count
from operators.kinds.windows.assigners import Sliding, Tumbling
from operators.kinds.windows.triggers import Trigger, after_each, every, every_s
from tests.members import examples
from tests.unit.operators.scene import Services, listed, parts_of, records_in
from tests.unit.operators.test_rescaling import chains_of, key_of, owned, planned, rescaled, saved, timed

S = 1_000_000_000
Row = tuple[int, int, float, float]
Batch = Sequence[tuple[int, int]]
"""(key, time in s) of each record"""

ASSIGNERS: Mapping[str, Callable[[], Any]] = {
    "tumbling": lambda: Tumbling(10),
    "two panes": lambda: Sliding(10, 5),
    "slices": lambda: Sliding(12, 3),
}
SHAPES = {"tumbling": (10, 10), "two panes": (10, 5), "slices": (12, 3)}
"""(size, period) of the windows in s."""
TRIGGERS: Mapping[str, Callable[[], Trigger | None]] = {
    "none": lambda: None,
    "each": after_each,
    "two": lambda: every(2),
    "three": lambda: every(3),
    "three, purging": lambda: every(3, purge=True),
    "seconds": lambda: every_s(4),
    "more seconds": lambda: every_s(7),
}
COUNTS = {"each": 1, "two": 2, "three": 3, "three, purging": 3}
PERIODS = {"seconds": 4, "more seconds": 7}


@dataclass(frozen=True)
class Options:
    """A version of the pipeline: its options."""

    trigger: str
    lateness_s: int
    tasks: int

    @property
    def kind(self) -> Any:
        """The kind of trigger that its state belongs to."""
        return "every" if self.trigger in COUNTS else PERIODS.get(self.trigger)


@dataclass
class Open:
    """One window of one key: the records that it holds, and what its trigger knows."""

    count: int = 0
    unseen: bool = False
    counted: int = 0
    due_s: int | None = None
    waits: bool = False


@dataclass
class Model:
    """All windows of one key."""

    key: int
    size_s: int
    every_s: int
    options: Options
    mark_s: int = -1000
    """The event time of the key, and that of its task, which may be earlier."""
    task_mark_s: int = -1000
    closed_s: int = -1000
    windows: dict[int, Open] = field(default_factory=dict)
    out: list[Row] = field(default_factory=list)

    def _emit(self, start_s: int) -> None:
        window = self.windows[start_s]
        if window.count:
            self.out.append((self.key, window.count, float(start_s), float(start_s + self.size_s)))
        window.unseen = False

    def record(self, time_s: int) -> None:
        first_s = (time_s - self.size_s) // self.every_s * self.every_s + self.every_s
        for start_s in range(first_s, time_s + 1, self.every_s):
            if start_s + self.size_s > self.closed_s:
                self._put(start_s)

    def _put(self, start_s: int) -> None:
        window, trigger = self.windows.setdefault(start_s, Open()), self.options.trigger
        window.count += 1
        window.unseen = True
        ended = start_s + self.size_s <= self.mark_s
        if trigger in COUNTS:
            window.counted += 1
            if window.counted >= COUNTS[trigger]:
                window.counted = 0
                self._emit(start_s)
                if "purging" in trigger:
                    window.count = 0
        elif trigger in PERIODS and not window.waits:
            self._wait(window)
        if ended and window.unseen:
            self._emit(start_s)

    def _wait(self, window: Open) -> None:
        period_s = PERIODS[self.options.trigger]
        window.waits = True
        window.due_s = None if self.task_mark_s == -1000 else (self.task_mark_s // period_s + 1) * period_s

    def mark(self, mark_s: int) -> None:
        if mark_s <= self.task_mark_s:
            return
        self.task_mark_s, self.mark_s = mark_s, max(self.mark_s, mark_s)
        for start_s in sorted(self.windows):
            window = self.windows[start_s]
            if start_s + self.size_s <= mark_s:
                if window.unseen:
                    self._emit(start_s)
            elif window.waits and (window.due_s is None or window.due_s <= mark_s):
                window.waits = False
                if window.unseen:
                    self._emit(start_s)
        self._close()

    def _close(self) -> None:
        self.closed_s = max(self.closed_s, self.mark_s - self.options.lateness_s)
        for start_s in [each for each in self.windows if each + self.size_s <= self.closed_s]:
            del self.windows[start_s]

    def changed(self, options: Options, task_mark_s: int) -> None:
        was, self.options, self.task_mark_s = self.options, options, task_mark_s
        if self.mark_s > -1000:
            self._close()
        if was.kind != options.kind:
            for start_s, window in list(self.windows.items()):
                window.counted, window.waits = 0, False
                if not window.count:
                    del self.windows[start_s]
                elif options.trigger in PERIODS and window.unseen and start_s + self.size_s > self.mark_s:
                    self._wait(window)


class Job:
    """The tasks of one version, and the model of each key."""

    def __init__(self, windows: str, options: Options, models: dict[int, Model]) -> None:
        self.windows, self.options, self.models = windows, options, models
        self.plan: Plan = planned(
            options.tasks,
            timed(
                lambda stream, tasks: stream.key_by(key_of).window(
                    "op", ASSIGNERS[windows](), Count(), parallelism=tasks,
                    trigger=TRIGGERS[options.trigger](), lateness_s=options.lateness_s,
                )
            ),
            sources=1,
        )  # fmt: skip
        self.chains = chains_of(self.plan)

    def give(self, batch: Batch, mark_s: int | None, reached: Sequence[bool]) -> list[Row]:
        """Return what comes out for a batch, and a mark after it in the tasks that it reaches."""
        out: list[Row] = []
        for index, chain in enumerate(self.chains):
            own = owned([key for key, _ in batch], index, len(self.chains))
            chunks: list[Any] = listed([[key, at_s] for key, at_s in batch if key in own]) if own else []
            if mark_s is not None and reached[index]:
                chunks.append(watermark(mark_s * S))
            if chunks:
                out += records_in(chain.deliver(0, chunks, 0, Services()))
        for key, at_s in batch:
            self._model(key).record(at_s)
        for key, model in self.models.items():
            if mark_s is not None and reached[self._task_of(key)]:
                model.mark(mark_s)
        return out

    def _task_of(self, key: int) -> int:
        return next(index for index in range(len(self.chains)) if owned([key], index, len(self.chains)))

    def _model(self, key: int) -> Model:
        return self.models[key]

    def changed(self, options: Options) -> Job:
        """Return the next version, with the state of this one."""
        job = Job(self.windows, options, self.models)
        names = [str(task.name) for task in self.plan.topology.tasks if "op" in task.operators]
        files = {name: [parts_of(chain, True)] for name, chain in zip(names, self.chains, strict=True)}
        parts = rescaled(self.plan, saved(self.plan, files), job.plan).chains()
        for index, (task, chain) in enumerate(
            zip([task for task in job.plan.topology.tasks if "op" in task.operators], job.chains, strict=True)
        ):
            assert task.name == f"op/{index}"
            chain.restore(parts[task.name])
        marks = [self.models[min(key for key in self.models if self._task_of(key) == index)].task_mark_s
                 for index in range(len(self.chains))]  # fmt: skip
        same = len(self.chains) == len(job.chains)
        for key, model in self.models.items():
            model.changed(options, marks[self._task_of(key)] if same else min(marks))
        return job


def versions(windows: str) -> st.SearchStrategy[Options]:
    """Return versions of a pipeline with these windows: where there are slices there is no trigger."""
    triggers = st.just("none") if windows == "slices" else st.sampled_from(sorted(TRIGGERS))
    return st.builds(Options, triggers, st.sampled_from((0, 6, 25)), st.integers(1, 3))


KEYS = range(12)
batches = st.lists(st.tuples(st.sampled_from(KEYS[:4]), st.integers(-25, 4)), max_size=5)
events = st.lists(
    st.tuples(batches, st.one_of(st.none(), st.integers(0, 3)), st.lists(st.booleans(), min_size=3, max_size=3)),
    max_size=6,
)


@examples(divided_by=2)
@given(data=st.data(), windows=st.sampled_from(sorted(ASSIGNERS)))
def test_windows_continue_under_other_options(data: st.DataObject, windows: str) -> None:
    lives = data.draw(st.lists(st.tuples(versions(windows), events), min_size=2, max_size=4))
    models = {key: Model(key, *SHAPES[windows], lives[0][0]) for key in KEYS}
    job = Job(windows, lives[0][0], models)
    now_s = 40
    for number, (options, steps) in enumerate(lives):
        if number:
            job = job.changed(options)
        for batch, step_s, reached in steps:
            now_s += 3
            mark_s = None if step_s is None else now_s + step_s
            out = job.give([(key, now_s + back_s) for key, back_s in batch], mark_s, reached)
            expected = [row for model in models.values() for row in model.out]
            for model in models.values():
                model.out.clear()
            assert by_key(out) == by_key(expected)
    rows = [row for chain in job.chains for row in records_in(chain.finish(Services()))]
    for model in models.values():
        model.mark(10**9)
    assert by_key(rows) == by_key([row for model in models.values() for row in model.out])


def by_key(rows: Sequence[Row]) -> dict[int, list[Row]]:
    """Return the rows of each key, sorted."""
    listed_rows: defaultdict[int, list[Row]] = defaultdict(list)
    for row in rows:
        listed_rows[row[0]].append(tuple(row))  # type: ignore[arg-type]
    return {key: sorted(of_key) for key, of_key in listed_rows.items()}
