"""The effects of operators outside of a job: `ctx.replaying` and `ctx.log` say of each event whether it is new."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Callable
from pathlib import Path

import pytest

from benchmarks.harness.runs import sets
from benchmarks.harness.written import lines_in
from tests.faults.conftest import Start
from tests.faults.job import PIPELINES, Job
from tests.faults.test_hot_standbys import shadow_of
from tests.members import members

COUNT, RATE = 300, 150
NAMES = ("left", "right")
EVERYTHING = {f"{name}-{i}" for name in NAMES for i in range(COUNT)}
WAITING = 8
"""The records that may wait until the sources end: their last ones, and in order what comes after these."""


class Watched:
    """A run of the pipeline, and what it did outside."""

    def __init__(self, start: Start, directory: Path, *arguments: str, **settings: object) -> None:
        self._noted: list[tuple[set[str], int]] = []
        self._effects, self.gate, self._out = directory / "effects", directory / "gate", directory / "rows"
        settings_of_job = sets(effects=self._effects, gate=self.gate, out=self._out, count=COUNT, rate=RATE, **settings)
        interval_s = "0.5" if "hot" in arguments else "600"  # a hot standby begins at a checkpoint
        arguments = (*settings_of_job, "--checkpoint-interval", interval_s, *arguments)
        small = {"batch_elements_max": 4}
        self.job: Job = start(PIPELINES / "effects.py", *arguments, config=small, own_standbys=True)

    def until(self, records: int) -> None:
        """Wait until this many records have had their effect; the last one of each source waits for the gate."""
        self.job.until(f"{records} effects", lambda view: len(self.effects()) >= records or None)

    def note(self) -> None:
        """Record whose rows are visible now: whatever dies from here on, none of these has its effect again."""
        visible = {f"{row['from']}-{row['i']}" for row in lines_in(self._out)}
        self._noted.append((visible, len(self._lines())))

    def check(self) -> None:
        """Each record has had its effect, and again only if no process that outlived its task can have known of it."""
        effects = self._lines()
        assert set(effects) == EVERYTHING
        for visible, count in self._noted:
            assert not visible.intersection(effects[count:]), (len(visible), count)
        assert any(visible for visible, _ in self._noted)

    def _lines(self) -> list[str]:
        return self._effects.read_text().split()

    def effects(self) -> Counter[str]:
        return Counter(self._effects.read_text().split()) if self._effects.exists() else Counter()

    def said(self, pattern: str) -> Counter[str]:
        """Record → how often a line of the logs says it that way."""
        logs = (path.read_text(errors="replace") for path in (self.job.state / "logs").glob("w*.log*"))
        return Counter(name for text in logs for name in re.findall(pattern, text))

    def finish(self) -> None:
        self.gate.touch()
        self.job.finish_well()


@pytest.mark.parametrize("delivery", ["arrival", *members(["ordered"])])
def test_a_hot_standby_that_takes_over_nothing_has_no_effect(start: Start, tmp_path: Path, delivery: str) -> None:
    watched = Watched(start, tmp_path, "--standbys", "hot", delivery=delivery, every=7)
    job = watched.job
    shadow: Callable[..., object] = lambda view: shadow_of(view, "effects/0")  # noqa: E731
    job.until("a hot standby", shadow)
    watched.until(len(EVERYTHING) - WAITING)
    job.until(
        "it has performed what its task has", lambda view: (shadow_of(view, "effects/0") or {})["behind"] <= WAITING
    )
    watched.finish()
    once = Counter(EVERYTHING)
    assert watched.effects() == once
    assert watched.said(r"INFO operators\.effects: once (\S+)") == once
    assert watched.said(r"Z effects/0 print: each (\S+)") == once
    assert watched.said(r"Z effects/0 \(replay\) print: each (\S+)"), "it has performed something"
    assert not watched.said(r"Z w\d+ print: each (\S+)")


KILLED = {"the task": ("effects/0",), "with its neighbour": ("effects/0", "out/0")}
CASES = [(d, s, k) for d in ("arrival", "ordered") for s in ("hot", "per-task") for k in KILLED]


@pytest.mark.parametrize(("delivery", "standbys", "killed"), members(CASES, ("ordered", "per-task", [*KILLED][1])))
def test_kills_and_a_resume_repeat_the_effects_of_the_last_events_alone(
    start: Start, tmp_path: Path, delivery: str, standbys: str, killed: str
) -> None:
    watched = Watched(start, tmp_path, "--standbys", standbys, delivery=delivery)
    for part in (1, 2):
        watched.until(len(EVERYTHING) * part // 4)
        watched.note()
        watched.job.replace(*KILLED[killed])
    watched.until(len(EVERYTHING) * 3 // 4)
    watched.note()
    watched.job.kill_everything()
    watched.job.start("--resume")
    watched.until(len(EVERYTHING) - WAITING)
    watched.finish()
    watched.check()
    assert set(watched.said(r"INFO operators\.effects: once (\S+)")) == EVERYTHING
    assert set(watched.said(r"print: each (\S+)")) == EVERYTHING
