"""No option is accepted and ignored: each has a witness, beside every other option and every other choice."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterator, Mapping
from functools import cache
from itertools import combinations
from typing import Any
from unittest import mock

import pytest

import operators
from causal.errors import OperatorFailed, PipelineError
from operators import Pipeline
from operators.builder.pipeline import Grouped, KeyedStream, Table
from operators.state.cold_values import Disk
from operators.testing import run
from tests.unit.operators.option_cases import STREAM_CASES, TABLE_CASES, Case
from tests.unit.operators.option_cases_held import STATE_CASES, WINDOW_CASES

CASES = [*STREAM_CASES, *TABLE_CASES, *WINDOW_CASES, *STATE_CASES]

BUILDERS: list[Any] = [Pipeline, KeyedStream, Table, Grouped]
OTHERS: list[Callable[..., Any]] = [
    getattr(operators, name)
    for name in operators.__all__
    if name.endswith(("State", "Window")) and name != "Window"
    or name in ("Tumbling", "Sliding", "Session", "Global", "Aggregate", "Reduce", "Count", "Sum", "Min", "Max", "Mean",
                "every", "every_s", "after_each")
]  # fmt: skip
NO_OPERATOR = {"check", "connect", "stream", "by_key", "versions", "place"}
UNNAMED = {"self", "name", "_", "__", "args", "kwargs"}


def methods() -> Iterator[Callable[..., Any]]:
    """Everything that takes options."""
    for owner in BUILDERS:
        for name, method in inspect.getmembers(owner, inspect.isfunction):
            if not name.startswith("_") and name not in NO_OPERATOR:
                yield method
    yield from OTHERS


@pytest.mark.parametrize("method", list(methods()), ids=lambda method: method.__qualname__)
def test_every_option_has_a_witness(method: Callable[..., Any]) -> None:
    cases = [case for case in CASES if case.of is method]
    assert cases, f"{method.__qualname__} has no case in option_cases.py"
    of = method.__init__ if inspect.isclass(method) else method
    needed = inspect.signature(of).parameters.keys() - UNNAMED
    if method in (operators.every, operators.every_s, operators.after_each):
        needed = set(inspect.signature(of).parameters)
    known = {name for case in cases for name in (*case.options, *case.without)}
    assert needed <= known, f"{method.__qualname__}: no witness for {sorted(needed - known)}"


@cache
def seen(number: int, changed: frozenset[str]) -> Any:
    """Return what a user sees of a run of a case in which the second value of each of `changed` is taken.

    Rows, counts, tasks, kinds of determinants, whether state is on disk; or how the pipeline was refused.  Most runs
    are one side of several comparisons.
    """
    case = CASES[number]
    try:
        return shown(
            case, {name: values[name in changed] for name, values in (*case.options.items(), *case.beside.items())}
        )
    except PipelineError as refused:
        return refused


def shown(case: Case, options: Mapping[str, Any]) -> Any:
    """Run a case."""
    disks: list[Any] = []
    real = Disk.values

    def values(disk: Disk, *arguments: Any, **more: Any) -> Any:
        disks.append(disk)
        return real(disk, *arguments, **more)

    try:
        with mock.patch.object(Disk, "values", values):
            pipeline, inputs = case.built(options)
            result = run(pipeline, inputs, batch=2, clock_s=100.0, checkpoint_every=3)
    except OperatorFailed as problem:
        return type(problem.__cause__), str(problem)
    return repr(result.rows), result.counts, sorted(result.elements), sorted(result.determinant_bytes), bool(disks)


def compared() -> Iterator[Any]:
    """Yield each option with each choice of the others, one or two of which are not the first."""
    for number, case in enumerate(CASES):
        for option in case.options:
            if option in case.without:
                continue
            others = [name for name in (*case.options, *case.beside) if name != option]
            for changed in [(), *((name,) for name in others), *combinations(case.beside, 2)]:
                if not any((option, name) in case.hidden for name in changed):
                    label = "-".join((case.of.__name__, str(number), option, *changed))
                    yield pytest.param(number, option, changed, id=label)


@pytest.mark.parametrize(("number", "option", "changed"), list(compared()))
def test_no_option_is_ignored(number: int, option: str, changed: tuple[str, ...]) -> None:
    first, second = (seen(number, frozenset(names)) for names in (changed, (*changed, option)))
    if not isinstance(first, PipelineError) and not isinstance(second, PipelineError):  # refused is not ignored
        assert first != second, f"{option} makes no difference"
