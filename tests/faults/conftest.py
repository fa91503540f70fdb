"""Whole jobs for the tests of this folder, ended and cleaned up whatever happens."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from types import SimpleNamespace
from typing import IO, Any

import pytest

from benchmarks.harness.runs import sets
from examples.fraud_chain import check
from operators.code_archive.importing import modules_kept
from tests.faults.job import PIPELINES, Job, command
from tests.faults.roots import ROOTS, Forked
from tests.soak import tortured

Start = Callable[..., Job]

CAUSAL = command()
"""The beginning of a command line."""

POOL = ("--standbys", "2")
"""The standbys of a job whose test asks for none: one for each task would be half of its processes."""


@pytest.fixture(autouse=True)
def own_modules() -> Iterator[None]:
    """A command that a test performs in this process leaves no archived code behind, which would refuse imports."""
    with modules_kept():
        yield


@pytest.fixture
def start(tmp_path: Path) -> Iterator[Start]:
    """`start(pipeline, *arguments, config=…)` begins a job; one per test, which may leave nothing behind.

    With `own_standbys` each task has a standby of its own, as tasks have by default.
    """
    jobs: list[Job] = []

    def begin(pipeline: Path, *arguments: str, config: dict[str, Any] | None = None, own_standbys: bool = False) -> Job:
        asked = own_standbys or "--verify-replay" in arguments or {"standbys", "verify_replay"} & {*(config or ())}
        if not asked and "--standbys" not in arguments:
            arguments = (*arguments, *POOL)
        jobs.append(Job(tmp_path, pipeline, *arguments, config=config))
        return jobs[-1].start()

    yield begin
    leaks = [leak for job in jobs for leak in job.leaks()]
    for job in jobs:
        job.close()
    assert not leaks, leaks


@pytest.fixture
def forked_runs(monkeypatch: pytest.MonkeyPatch) -> None:
    """The `causal run` of each `TortureRun` is forked, as those of `start` are, instead of a new interpreter."""

    def opened(line: Sequence[str], cwd: Path, env: Mapping[str, str], stdout: IO[Any], **_: Any) -> Forked:
        return ROOTS.start_on(None, line[len(CAUSAL) :], cwd, env, stdout, stdout)

    monkeypatch.setattr(tortured, "children", SimpleNamespace(opened=opened))


class HeldChain:
    """A run of the fraud chain that the test lets end, and the proof that it was exactly-once.

    Args:
        count: the elements of each source; from then on it is held.
    """

    COUNT, RATE = 800, 25

    def __init__(self, start: Start, directory: Path, *arguments: str, count: int = COUNT, **config: Any) -> None:
        self._count = count
        self._rows, self._gate = directory / "held.db", directory / "gate"
        settings = sets(out=self._rows, gate=self._gate, rate=self.RATE, count=count)
        self.job = start(PIPELINES / "held.py", *settings, *arguments, config=config, own_standbys=True)

    def until_checkpoint(self, count: int) -> int:
        """Wait until more than `count` checkpoints are complete, and return how many there are."""

        def more(view: dict[str, Any]) -> int | None:
            complete: int = view["checkpoint"]["count"]
            return complete if complete > count else None

        return self.job.until(f"more than {count} checkpoints are complete", more)

    def let_end(self) -> None:
        """Make the sources emit their remaining records, and end."""
        self._gate.touch()

    def finish_exactly(self) -> dict[str, Any]:
        """End the sources, and return the report, once the job has ended well and the chains in the sink hold."""
        self.let_end()
        report = self.job.finish_well()
        self.assert_exact()
        return report

    def assert_exact(self) -> None:
        result = check(str(self._rows), 2 * self._count)
        assert result["rows"] > 2 * self._count
        assert (result["lost"], result["doubled"], result["broken"]) == (0, 0, 0), result


@pytest.fixture
def start_chain(start: Start, tmp_path: Path) -> Callable[..., HeldChain]:
    """`start_chain(*arguments, **config)` begins a fraud chain that ends when the test says so."""

    def begin(*arguments: str, **config: Any) -> HeldChain:
        return HeldChain(start, tmp_path, *arguments, **config)

    return begin
