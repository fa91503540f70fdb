"""Defines how a benchmark is declared: its options, what one measurement does, and how its figures are rounded."""

from __future__ import annotations

import argparse
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from benchmarks.harness import runs
from benchmarks.harness.measured import figure, result

Report = Callable[[str], None]
"""Shows a line on standard error as a run ends."""
CAUSAL = {"guarantee": "causal", "sharing_depth": "full", "standbys": "per-task"}
"""The settings of a job that has the defaults."""


@dataclass(frozen=True)
class Option:
    """An option of the command line; its type is that of its default unless `parse` is given.

    Args:
        setting: its name in the settings of a result, where that is another one; None: it is not among them.
    """

    name: str
    default: Any
    help: str = ""
    parse: Callable[[str], Any] | None = None
    choices: Sequence[str] | None = None
    setting: str | None = ""

    def add_to(self, parser: argparse.ArgumentParser) -> None:
        """Add it to a parser."""
        flag = f"--{self.name.replace('_', '-')}"
        if self.default is False:
            parser.add_argument(flag, action="store_true", help=self.help)
            return
        text = f"{self.help} (default: %(default)s)" if self.help else "default: %(default)s"
        kind: Callable[[str], Any] = self.parse or type(self.default)
        parser.add_argument(flag, type=kind, default=self.default, choices=self.choices, help=text)


def some_of(names: Iterable[str]) -> Callable[[str], list[str]]:
    """Return a parser of names with commas between them, which refuses any other name."""
    known = list(names)

    def chosen(text: str) -> list[str]:
        wanted = text.split(",")
        for name in wanted:
            if name not in known:
                raise argparse.ArgumentTypeError(f"{name!r} is none of {', '.join(known)}")
        return wanted

    return chosen


class Measurement:
    """The runs of one benchmark so far, by figure.

    Attributes:
        figures: those that are more than a list of runs.
        more: the fields of this benchmark alone, in addition to its figures.
    """

    def __init__(self, options: argparse.Namespace, command: str, report: Report) -> None:
        self.options = options
        self.command = command
        self.report = report
        self.figures: dict[str, Any] = {}
        self.more: dict[str, Any] = {}
        self._runs: dict[str, list[float]] = {}

    def rounds(self) -> Iterator[int]:
        """Yield numbers of the rounds, from 1."""
        yield from range(1, self.options.rounds + 1)

    def add(self, name: str, value: float) -> None:
        """Take in one run of a figure."""
        self._runs.setdefault(name, []).append(value)

    def add_all(self, prefix: str, values: Mapping[str, float]) -> None:
        """Take in one run of several figures."""
        for name, value in values.items():
            self.add(prefix + name, value)

    def last(self, name: str) -> float:
        """Return the latest run of a figure."""
        return self._runs[name][-1]

    def all_runs(self) -> dict[str, list[float]]:
        """Return the runs of each figure so far."""
        return self._runs


@dataclass(frozen=True)
class Benchmark:
    """One benchmark.

    Args:
        body: runs everything; settings that it returns are in the result beside `settings` and the options.
        digits: of figures, but those whose names end as in `digits_of`.
        settings: those of every run, unless an option has the same name.
    """

    name: str
    options: Sequence[Option]
    body: Callable[[Measurement], Mapping[str, Any] | None]
    digits: int = 3
    digits_of: Mapping[str, int] = field(default_factory=dict)
    settings: Mapping[str, Any] = field(default_factory=dict)

    def add_options(self, parser: argparse.ArgumentParser) -> None:
        """Add the options of this benchmark."""
        for option in self.options:
            option.add_to(parser)

    def measure(self, options: argparse.Namespace, command: str, report: Report) -> dict[str, Any]:
        """Run it; returns the object that `--json` writes.

        Raises:
            RunFailed: a run failed, or its output is wrong.
        """
        measurement = Measurement(options, command, report)
        own = self.body(measurement) or {}
        asked = {
            option.setting or option.name: getattr(options, option.name)
            for option in self.options
            if option.setting is not None
        }
        settings = {**self.settings, **asked, **own}
        return result(self.name, command, settings, self.summary(measurement), **measurement.more)

    def summary(self, measurement: Measurement) -> dict[str, Any]:
        """Return all figures with median, min and max."""
        figures = {}
        for name, values in measurement.all_runs().items():
            digits = next((count for end, count in self.digits_of.items() if name.endswith(end)), self.digits)
            figures[name] = figure(values, digits)
        return figures | measurement.figures


@dataclass(frozen=True)
class Case:
    """One pipeline under one load."""

    pipeline: Path
    settings: Mapping[str, Any]
    config: Mapping[str, Any] = field(default_factory=dict)
    options: Sequence[str] = ()

    def run(self, *switches: str) -> dict[str, Any]:
        """Return the report of one run."""
        return runs.job(self.pipeline, self.settings, (*self.options, *switches), self.config)

    def described(self) -> dict[str, Any]:
        """Return what the settings of a result say of it."""
        return {"pipeline": self.pipeline.name, "settings": self.settings, "options": self.options, **self.config}
