"""Changes of a running job during which something dies: the job is the old version or the next one, and its rows exact.

A case waits until the change has come to one of its steps, and kills a drawn time later.  Afterwards, the status of the
command names the version that the job is, another change is accepted, and every process is killed once more.
"""

from __future__ import annotations

import random
import time
from collections.abc import Callable
from itertools import product
from pathlib import Path

import pytest

from benchmarks.harness.processes import AGENT, SUPERVISOR, kill, workers
from standby.storage.change_files import CHANGE, NEXT, ROLLBACK
from tests.faults.changing import LEDGER, Changing
from tests.faults.conftest import Start
from tests.faults.job import WAIT_S, environment, wait_for
from tests.faults.roots import ROOTS, Root
from tests.members import sample

CHANGES = ("rescale", "upgrade", "rollback")
VICTIMS = ("command", "supervisor", "agent", "current", "next", "supervisor and command", "everything")
SEEDS = 6


class Struck:
    """A change that is under way, and what dies during it."""

    def __init__(self, changing: Changing, change: str, chance: random.Random) -> None:
        self.changing, self.change, self._chance = changing, change, chance
        self._state = changing.job.state
        self._known = set(workers(self._state))
        self.said = ""
        self._saved = len(list((self._state / "savepoints").glob("*")))
        if change == "upgrade":
            changing.path.write_text(LEDGER.replace("VERSION = 1", "VERSION = 2"))
        words = {"rescale": ("count=3",), "upgrade": (str(changing.path),), "rollback": ()}[change]
        self.command: Root = ROOTS.start(
            (change, *words, "--state-dir", str(self._state)), changing.directory, environment()
        )

    def next_workers(self) -> list[int]:
        """Return the processes of the next version."""
        return [pid for slot, pid in workers(self._state).items() if slot not in self._known]

    def until_a_step(self) -> None:
        """Wait until one of the steps has been made, or the command has ended, and then a drawn time."""
        steps: dict[str, Callable[[], object]] = {
            "has begun": lambda: True,
            "is prepared": lambda: (self._state / NEXT / "job.json").exists(),
            "has its first process": self.next_workers,
            "has all processes": lambda: len(self.next_workers()) >= 5,
            "has ended the current version": lambda: (
                len(list((self._state / "savepoints").glob("*"))) > self._saved or (self._state / ROLLBACK).exists()
            ),
            "is to be committed": lambda: (self._state / CHANGE).exists(),
        }
        step = self._chance.choice(list(steps))
        wait_for(f"the change {step}", lambda: self.command.poll() is not None or steps[step]())
        time.sleep(self._chance.choice((0.0, self._chance.random() * 0.05, self._chance.random())))

    def strike(self, victim: str) -> None:
        job, pick = self.changing.job, self._chance.choice
        if victim == "everything":
            job.kill_everything()
        if "supervisor" in victim:
            kill(job.server(SUPERVISOR))
        if "command" in victim or victim == "everything":
            self.command.kill()
        if victim == "agent":
            kill(job.server(AGENT))
        if victim == "current" and (
            current := [pid for slot, pid in workers(self._state).items() if slot in self._known]
        ):
            kill(pick(current))
        if victim == "next" and (fresh := self.next_workers()):
            kill(pick(fresh))

    def changed(self) -> bool | None:
        """Return whether the command reports that the job has changed; None if it was killed."""
        self.said = "".join(self.command.communicate(WAIT_S))
        assert self.command.returncode in (0, 1, 2, -9), self.command.returncode
        return None if self.command.returncode == -9 else self.command.returncode == 0


def settled(changing: Changing) -> bool:
    """Wait until another change would be accepted; returns False if the job has ended instead.

    It ends only if it needs the rollback to be completed.
    """

    def over() -> bool:
        return changing.job.has_ended() or "9-nothing" in changing.command("rollback", "9-nothing")[2]

    wait_for("the change has ended", over)
    if not changing.job.has_ended():
        return True
    status, said = changing.job.finish()
    assert status == 1 and "complete the rollback with --resume --rollback" in said, said
    return False


def resumed(changing: Changing) -> None:
    """Resume a job that has ended, with the rollback that it may need to complete."""
    state = changing.job.state
    incomplete = (state / ROLLBACK).exists() and not (state / CHANGE / "ready").exists()
    changing.job.start("--resume", *(["--rollback"] if incomplete else ["--code", "kept"]))
    assert settled(changing)


def is_changed(changing: Changing, change: str) -> bool:
    """Return whether the job is the next version, as its last rows show."""
    row = changing.last(1)[0]
    if change == "rescale":
        return len([task for task in changing.last(200) if task["task"] == "count/2"]) > 0
    return bool(row["version"] == (2 if change == "upgrade" else 1))


@pytest.mark.parametrize(("change", "victim", "seed"), sample(list(product(CHANGES, VICTIMS, range(SEEDS))), 7))
def test_a_death_during_a_change(start: Start, tmp_path: Path, change: str, victim: str, seed: int) -> None:
    changing = Changing(start, tmp_path, "--set", "rate=200")
    job = changing.job
    job.until_warm(records=150)
    if change == "rollback":
        changing.upgraded(2)
        changing.until_more()
    struck = Struck(changing, change, random.Random(f"{change} {victim} {seed}"))
    struck.until_a_step()
    struck.strike(victim)
    reported = struck.changed()
    if victim == "everything" or not settled(changing):
        reported = None
        resumed(changing)
    job.until_warm()
    changing.until_more(250)
    is_next = is_changed(changing, change)
    assert reported in (None, is_next), f"{struck.said}\n{job.log_tails()}"
    changing.changed("rescale", "count=4")
    assert not (job.state / CHANGE).exists() and not (job.state / NEXT).exists()
    changing.until_more(100)
    job.kill_everything()
    job.start("--resume", "--code", "kept")
    changing.until_more(50)
    job.replace("count/3")
    changing.finish()
    both = change != "rescale" and is_next == (change == "upgrade")
    assert changing.versions() == ([1, 2] if both else [1])
