"""The promises of each guarantee, and the proof that the weak ones really break what they do not promise.

`epoch`: whatever is killed and whenever, every row is seen once, never before its checkpoint, and none that was seen is
ever contradicted.
"""

from __future__ import annotations

import json
import signal
import sqlite3
from collections import Counter
from collections.abc import Callable
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

from benchmarks.harness.processes import kill
from benchmarks.harness.runs import sets
from deploy.cli import main
from tests.faults.conftest import POOL, HeldChain, Start
from tests.faults.job import PIPELINES, Job, causal, wait_for
from tests.faults.pipelines.guarantees import GROUP, KEYS
from tests.faults.readers import of_sqlite, reading
from tests.members import campaign, members

StartChain = Callable[..., HeldChain]

FIRST, COUNT = 25 * KEYS, 50 * KEYS
REMAINDER = FIRST % (GROUP * KEYS)
"""The number of the first records that the operator holds."""
LONG = ("--checkpoint-interval", "600")
MANY = 100 * COUNT


def rows(database: Path) -> list[tuple[str, int, str]]:
    """Return what a user sees: (task, position, record)."""
    if not database.exists():
        return []
    with closing(sqlite3.connect(f"file:{database}?mode=ro", uri=True)) as store:
        try:
            return store.execute("SELECT task, position, record FROM output ORDER BY task, position").fetchall()
        except sqlite3.OperationalError:  # the table is not there yet
            return []


def ended(database: Path) -> set[bool]:
    """Return what the store knows of the end of its tasks."""
    with closing(sqlite3.connect(f"file:{database}?mode=ro", uri=True)) as store:
        return {bool(flag) for (flag,) in store.execute("SELECT ended FROM causal_task")}


class Gathering:
    """A run of `pipelines/guarantees.py`, held at its gate."""

    def __init__(self, start: Start, directory: Path, *arguments: str, **settings: object) -> None:
        self.database, self.gate = directory / "out.db", directory / "gate"
        values = {"out": self.database, "gate": self.gate, "first": FIRST, "count": COUNT, **settings}
        self.job: Job = start(PIPELINES / "guarantees.py", *sets(**values), *arguments, own_standbys=True)

    def until_held(self) -> dict[str, Any]:
        """Wait until every key holds records, and all standbys are ready."""

        def all_hold(view: dict[str, Any]) -> dict[str, Any] | None:
            ready = all(task["state"] == "running" and task["standbys"] for task in view["tasks"])
            seen = [t["figures"].get("delivered_elements", 0) for t in view["tasks"] if t["task"].startswith("gather")]
            return view if ready and sum(seen) >= FIRST else None

        return self.job.until("every key holds records", all_hold)

    def until_staged(self, count: int) -> None:
        """Wait until the view shows that so many rows wait for their checkpoint, and that they take room."""

        def waits(view: dict[str, Any]) -> bool:
            figures = [task["figures"] for task in view["tasks"] if task["sink"]]
            staged = sum(each.get("staged_rows", 0) for each in figures)
            return bool(staged == count and sum(each["staged_bytes"] for each in figures) > count)

        self.job.until(f"{count} rows wait for their checkpoint", waits)

    def let_end(self) -> None:
        self.gate.touch()

    def order(self, moment: str, *pids: int) -> None:
        """Make the sink kill them, or itself, when it writes next."""
        fresh = self.database.with_name("order")
        fresh.write_text(" ".join(str(pid) for pid in pids))
        fresh.rename(self.database.with_name(moment))

    def counted(self, count: int = COUNT) -> tuple[int, int, int]:
        """Return (lost, doubled, contradicted): missing records, rows that are too many, numbers out of turn."""
        records = [json.loads(record) for _, _, record in rows(self.database)]
        often = Counter(row["i"] for row in records)
        wrong = 0
        for key in range(KEYS):
            numbers = [row["n"] for row in records if row["k"] == key]
            wrong += numbers != list(range(1, len(numbers) + 1))
        return count - len(often), sum(often.values()) - len(often), wrong


@pytest.mark.campaign
def test_epoch_whatever_is_killed(start_chain: StartChain, tmp_path: Path) -> None:
    chain = start_chain("--guarantee", "epoch", "--checkpoint-interval", "0.4", *POOL)
    job = chain.job
    with reading({"rows": of_sqlite(tmp_path / "held.db")}) as [watch]:
        for group in (("score/0",), ("shop/0", "ledger/0", "out/0")):
            chain.until_checkpoint(job.until_warm()["checkpoint"]["count"])
            watch.look()
            job.replace(*group)
        kill(job.server("standby.daemon"))
        kill(job.server("standby.agent"))
        chain.until_checkpoint(job.until_warm()["checkpoint"]["count"])
        report = chain.finish_exactly()
    assert watch.wrong == []
    assert 2 <= watch.changes <= report["checkpoints"]
    assert {recovery["mode"] for recovery in report["recoveries"]} == {"rollback"}


@pytest.mark.campaign
def test_epoch_everything_killed_again_and_again(start_chain: StartChain, tmp_path: Path) -> None:
    chain = start_chain("--guarantee", "epoch", "--checkpoint-interval", "0.3")
    with reading({"rows": of_sqlite(tmp_path / "held.db")}) as [watch]:
        for _ in range(2):
            chain.until_checkpoint(chain.job.until_warm(checkpoints=0)["checkpoint"]["count"])
            watch.look()
            chain.job.kill_everything()
            chain.job.start("--resume")
        chain.finish_exactly()
    assert watch.wrong == [] and watch.changes >= 2


@pytest.mark.parametrize(("moment", "others"), [campaign("kill-before", False), ("kill-after", True)])
def test_epoch_killed_between_the_last_record_and_the_end(
    start: Start, tmp_path: Path, moment: str, others: bool
) -> None:
    """All rows wait for the one checkpoint after the end; the sink, or every other task, dies as it commits them."""
    gathering = Gathering(start, tmp_path, "--guarantee", "epoch", *LONG)
    view = gathering.until_held()
    assert rows(gathering.database) == []
    pids = [task["pid"] for task in view["tasks"] if not task["sink"]] if others else []
    gathering.order(moment, *pids)
    gathering.let_end()
    gathering.job.finish_well()
    assert not gathering.database.with_name(moment).exists(), "no process was killed"
    assert gathering.counted() == (0, 0, 0)


@pytest.mark.campaign
def test_epoch_a_savepoint_shows_all_that_it_covers(
    start: Start, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    gathering = Gathering(start, tmp_path, "--guarantee", "epoch", *LONG)
    job = gathering.job
    gathering.until_held()
    gathering.until_staged(FIRST - REMAINDER)
    assert main(["status", "--state-dir", str(job.state)]) == 0
    assert " bytes) wait for their checkpoint" in capsys.readouterr().out
    gathering.order("kill-before")
    status, said = causal(tmp_path, "savepoint", "--stop", "--state-dir", str(job.state))
    assert status == 0, said
    job.finish_well()
    assert len(rows(gathering.database)) == FIRST - REMAINDER, (
        "rows that a savepoint covers are visible when it has ended"
    )
    assert ended(gathering.database) == {False}, "a savepoint is not the end"
    gathering.let_end()
    job.start("--resume", "--set", "parallelism=3")
    job.finish_well()
    assert gathering.counted() == (0, 0, 0)
    assert ended(gathering.database) == {True}, "every store learns that the job has ended"


@pytest.mark.parametrize("kills", members([False, True]))
def test_epoch_a_bound_on_what_waits_has_checkpoints_begin(start: Start, tmp_path: Path, kills: bool) -> None:
    """More rows than may wait, far fewer checkpoints by the clock than are needed: the bound takes them."""
    (tmp_path / "gate").touch()
    (tmp_path / "few.toml").write_text("staged_bytes_max = 65536\n")
    config = ("--config", str(tmp_path / "few.toml"))
    gathering = Gathering(start, tmp_path, "--guarantee", "epoch", *LONG, *config, count=MANY, rate=10_000)
    if kills:
        wait_for("the first rows are visible", lambda: rows(gathering.database))
        gathering.order("kill-before")
    report = gathering.job.finish_well()
    assert gathering.counted(MANY) == (0, 0, 0)
    assert report["checkpoints"] > 2, "the clock had none begin, and the end only the last"


@pytest.mark.campaign
def test_a_stop_signal_is_no_end_of_an_epoch(start: Start, tmp_path: Path) -> None:
    """Ctrl-C shows nothing early; the job resumes where it was."""
    gathering = Gathering(start, tmp_path, "--guarantee", "epoch", *LONG)
    gathering.until_held()
    gathering.job.interrupt()
    assert gathering.job.finish()[0] == 128 + signal.SIGINT
    assert rows(gathering.database) == []
    gathering.let_end()
    gathering.job.start("--resume")
    gathering.job.finish_well()
    assert gathering.counted() == (0, 0, 0)
