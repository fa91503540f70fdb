"""A change of a job of several hosts ends at any of its steps: what the store then has is one version, whole."""

from __future__ import annotations

import os
import re
import shutil
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from causal.config import JobConfig
from causal.cut import Cut
from causal.ids import OUTSIDE
from causal.sealed import unseal
from causal.storage.files import parts_of, write_parts
from causal.storage.shared import Depot
from deploy import cli
from deploy.hosts.succession import fetch_decisions
from deploy.savepoints import savepoint_store
from operators.builder.loading import load_archived
from operators.code_archive.archive import Archive
from operators.engine.plan import plan
from operators.runtime.rescaling import whole
from standby.blueprint import Blueprint
from standby.leadership import candidacy
from standby.leadership.campaign import campaign
from standby.leadership.ledger import Ledger
from standby.leadership.term_journal import Inherited, decided
from standby.leadership.terms import ENDED, TERMS, Term, term_name
from standby.storage.journal import Journal
from standby.storage.store_journal import perform
from standby.supervision.effects import Record
from standby.supervision.file_lists import as_files
from tests.members import sample
from tests.unit.deploy import tiny
from tests.unit.deploy.several_hosts import Job

pytest.importorskip("obstore", reason="obstore is not installed (extra hosts)")

TEXTS = {
    width: tiny.text(f'.key_by(lambda r: r["v"]).count("count", parallelism={width})', tiny.ANYWHERE)
    for width in (1, 2)
}
ON_A_HOST = TEXTS[2].replace(tiny.ANYWHERE, 'JsonLinesSink(pipeline.settings["out"][6:]), host="a"')
EPOCH = 3
STOPPED = {"status": 0, "reason": f"stopped at savepoint {EPOCH}"}
STEPS = 120
"""More than an upgrade has."""


class Dead(BaseException):
    """The process has ended here."""


@dataclass(slots=True)
class Life:
    """Lets the process die before one of its next steps; from then on it does nothing any more."""

    left: int = -1
    taken: int = 0

    def before(self, act: Callable[..., Any]) -> Callable[..., Any]:
        """Return the act as one step of this life."""

        def step(*arguments: Any, **options: Any) -> Any:
            self.taken += 1
            if self.left == 0:
                raise Dead
            self.left -= self.left > 0
            return act(*arguments, **options)

        return step


class Upgraded(Job):
    """The job, which stops at a savepoint and is resumed with other code."""

    def lead(self, *deployed: object) -> int:
        """Take the place of the supervisor and of everything below it."""
        self.led()
        return 0

    def stop_at_a_savepoint(self) -> None:
        """Put into the store what a leader leaves there whose job has stopped."""
        seen = perform(decided(), self.depot)
        config, topology = JobConfig.load(self.state), Blueprint.load(self.state).topology
        planned = plan(load_archived(Archive.load(self.state, config.code), config.settings), config)
        files: dict[str, list[list[object]]] = {}
        for task in topology.tasks:
            inputs: dict[int, tuple[int, int, bool]] = {
                channel.id: (0, 0, False) for channel in topology.inputs(task.index)
            }
            outputs: dict[int, tuple[int, int]] = {
                channel.id: (0, 0) for channel in topology.outputs(task.index) if channel.target == OUTSIDE
            }
            cut = Cut(EPOCH, inputs, outputs)
            path = f"checkpoints/{task.name}/e{EPOCH:08d}-i1.snap"
            size, digest = write_parts(self.state / path, [cut.pack(), *whole(planned.chain(task.index))], False)
            self.depot.create_own(path, (self.state / path).read_bytes())
            (self.state / path).unlink()
            files[task.name] = [[path, size, digest]]
        ledger = Ledger(seen.term, seen)
        ledger.place = seen.place + 1
        joined = {"session": "s", "slots": 8, "zone": "", "machine": "", "labels": {}}
        records: Sequence[Record] = (
            {"kind": "host_joined", "host": "a", "incarnation": 4, **joined},
            {"kind": "savepoint", "epoch": EPOCH, "final": True},
            {"kind": "checkpoint", "count": 1, "epoch": EPOCH, "files": files, "took_ms": 1.0},
            {"kind": "stopping", **STOPPED},
            {"kind": "ended", **STOPPED},
        )
        perform(ledger.append(records, 2, ENDED), self.depot)

    def version(self, hosts: Sequence[int] = (4,)) -> int:
        """Return the version that any supervisor would lead; everything that it needs is in the store."""
        depot, seen = self.depot, perform(decided(), self.depot)
        config, topology = self._described(seen)
        archived = depot.read(f"code/{config.code}.zip")
        last = [record for record in seen.records if record["kind"] == "checkpoint"][-1]
        files = as_files(last["files"])
        assert set(files) == {task.name for task in topology.tasks}
        for [(path, _, digest)] in files.values():
            assert Cut.unpack(next(parts_of(depot.read(path), path, digest))).epoch == EPOCH
        first = seen.records[0]
        changed = first["incarnation"] if first["kind"] == "changed" else 0
        assert config.first_incarnation == changed
        joined = [record["incarnation"] for record in seen.records if record["kind"] == "host_joined"]
        assert joined == list(hosts), "hosts are remembered"
        version = sum(1 for task in topology.tasks if task.name.startswith("count/"))
        assert (version == 1) is (changed == 0)
        (self.directory / "code").mkdir(exist_ok=True)
        (self.directory / "code" / f"{config.code}.zip").write_bytes(archived)
        planned = plan(load_archived(Archive.load(self.directory, config.code), config.settings), config)
        assert planned.topology == topology, "code and graph are of one version"
        return version

    def _described(self, seen: Inherited) -> tuple[JobConfig, Any]:
        graph = self.directory / "graph"
        graph.mkdir(exist_ok=True)
        (graph / "topology.json").write_text(seen.graph)
        return JobConfig.from_mapping(unseal(seen.job), "the store"), Blueprint.load(graph).topology


@pytest.fixture
def job(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Upgraded:
    described = Upgraded(tmp_path, monkeypatch)
    monkeypatch.setattr(cli, "_deploy", described.lead)
    assert described.run(text=TEXTS[1]) == 0
    described.stop_at_a_savepoint()
    assert described.version() == 1
    return described


def lived(job: Upgraded, life: Life, *arguments: str, text: str = TEXTS[2]) -> bool:
    """Run a version, by default the second, each of whose steps is one of this life; returns whether it lived on."""
    with pytest.MonkeyPatch.context() as patch:
        for place, name in (
            (Depot, "create"), (Depot, "remove"), (os, "replace"), (os, "unlink"), (shutil, "rmtree"),
            (Path, "write_text"), (Path, "touch"), (Path, "mkdir"), (Journal, "append"),
        ):  # fmt: skip
            patch.setattr(place, name, life.before(getattr(place, name)))
        try:
            return job.run(*arguments, text=text) == 0
        except Dead:
            release(job.state)
            return False


def release(state: Path) -> None:
    """Close the files of the job's directory, as the kernel does when a process has died."""
    for handle in Path("/proc/self/fd").iterdir():
        with suppress(FileNotFoundError):  # the one of the listing itself
            if os.readlink(handle).startswith(f"{state}/"):
                os.close(int(handle.name))


@pytest.mark.parametrize("step", sample(range(STEPS), 7))
@pytest.mark.parametrize("then", [1, 2])
def test_the_job_can_be_resumed_with_the_old_code_or_the_new(
    job: Upgraded, step: int, then: int, capsys: pytest.CaptureFixture[str]
) -> None:
    whole_life = lived(job, Life(step), "--resume")
    version = job.version()
    assert version == 2 or not whole_life
    if version == 1 or then == 2:
        assert job.run("--resume", text=TEXTS[then]) == 0, capsys.readouterr().err
        assert job.version() == then
    else:  # the upgrade has happened, and is taken back
        assert job.run("--resume", "--rollback", text=TEXTS[2]) == 0, capsys.readouterr().err
        seen = perform(decided(), job.depot)
        assert len(re.findall("count/[0-9]+", seen.graph)) == 1


@pytest.mark.parametrize("step", sample(range(STEPS), 5))
def test_earlier_code_rolls_back_and_completes_a_rollback_that_was_interrupted(
    job: Upgraded, step: int, capsys: pytest.CaptureFixture[str]
) -> None:
    assert job.run("--resume", text=TEXTS[2]) == 0
    undo = "--resume", "--rollback-on-earlier-code"
    lived(job, Life(step), *undo, text=TEXTS[1])
    assert job.run(*undo, text=TEXTS[1]) == 0
    assert "rolled back to savepoint" in capsys.readouterr().err
    seen = perform(decided(), job.depot)
    assert len(re.findall("count/[0-9]+", seen.graph)) == 1
    assert job.run(*undo, text=TEXTS[2]) == 0
    assert "this is an upgrade" in capsys.readouterr().err, "a version that was rolled back did not run before"


def test_the_steps_are_as_many_as_are_tried(job: Upgraded) -> None:
    life = Life()
    assert lived(job, life, "--resume")
    assert STEPS // 2 < life.taken < STEPS


def copy_of_the_savepoint(job: Upgraded) -> list[str]:
    """Keep the savepoint; returns the arguments with which another job begins with it."""
    fetch_decisions(job.state)
    saved = savepoint_store.keep(job.state)
    assert saved is not None
    job.state = job.directory / "other"
    return ["--from", str(saved.where), "--set", f"out=file://{job.directory}/store/out-2"]


@pytest.mark.parametrize("step", sample(range(STEPS), 5))
def test_a_job_begins_with_a_savepoint_or_does_not_begin(job: Upgraded, step: int) -> None:
    arguments = copy_of_the_savepoint(job)
    whole_life = lived(job, Life(step), *arguments)
    if whole_life or job.run("--resume", *arguments[2:], text=TEXTS[2]) == 0:
        assert job.state.name == "other" and job.version(hosts=[]) == 2
    else:  # it had not begun
        assert job.run(*arguments, text=TEXTS[2]) == 0
        assert job.version(hosts=[]) == 2


def test_a_successor_does_not_begin_a_job_without_the_savepoint(job: Upgraded, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(cli, "_deploy", lambda *arguments: 0)
    arguments = copy_of_the_savepoint(job)
    assert job.run(*arguments, text=TEXTS[2]) == 0
    depot, config = job.depot, JobConfig.load(job.state)
    graph = (job.state / "topology.json").read_text()
    depot.create_own(term_name(1), Term(1, "founder", "", "tcp://x:1", config.for_hosts(), graph).data())
    monkeypatch.setattr(candidacy, "SILENCE_NS", 0)
    successor = candidacy.Candidacy("successor")
    looks = 0

    def pause(span_ns: int) -> int:
        nonlocal looks
        looks += 1
        if looks == 20:
            raise Dead
        return looks * candidacy.LOOK_NS

    def describe(number: int, seen: object) -> Term:
        return Term(number, "successor", "", "tcp://y:1", config.for_hosts(), graph)

    with pytest.raises(Dead):
        perform(campaign(successor, describe, lambda problem: None), depot, pause)
    assert depot.names(TERMS) == [term_name(1), term_name(2)], "it stands once, and then waits"
    monkeypatch.setattr(cli, "_deploy", job.lead)
    assert job.run("--resume", *arguments[2:], text=TEXTS[2]) == 0
    assert job.version(hosts=[]) == 2


def test_what_this_machine_cannot_open_is_refused_in_one_line(
    job: Upgraded, capsys: pytest.CaptureFixture[str]
) -> None:
    assert job.run("--resume", text=ON_A_HOST) == 2
    line = capsys.readouterr().err.splitlines()[-1]
    assert "out/0: JsonLinesSink keeps its rows on the machine of its task, but a multi-host job" in line
    assert job.version() == 1
    saved = copy_of_the_savepoint(job)
    job.run(*saved, "--keep-sinks", text=TEXTS[1])
    assert "in whose sinks --keep-sinks would continue; resume" in capsys.readouterr().err.splitlines()[-1]
