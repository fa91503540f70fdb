"""The task of the dead letters is added to a job at its last checkpoint: where it begins, and what else stays."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from causal.commands import Files
from causal.config import JobConfig
from causal.cut import Cut
from causal.errors import PipelineError
from causal.ports import Bundle
from causal.storage.files import read_parts, write_parts
from deploy.jobs.jobdirectory import JobDirectory
from deploy.savepoints import letters
from deploy.savepoints.upgrading import change
from operators import Pipeline
from operators.engine.plan import Plan, plan
from operators.runtime.rescaling import whole
from operators.sources import GeneratedSource
from standby.blueprint import Blueprint
from standby.storage.journal import Journal
from standby.storage.manifest_files import newest_manifest
from standby.storage.manifests import write_manifest
from standby.supervision.assignments import Assignments
from standby.supervision.checkpoints import Coordinator
from standby.supervision.savepoints import stopped_at
from tests.unit.operators.scene import NoSink

NAME = "dead-letters/0"
EPOCH = 4


def planned(on_error: str, keyed: bool = True, **settings: Any) -> tuple[JobConfig, Plan]:
    config = JobConfig(run="r", name="test", pipeline="/p.py", on_error=on_error, **settings)
    pipeline = Pipeline("test")
    numbers = pipeline.source("in", GeneratedSource(lambda p, i: i, count=9, partitions=2), parallelism=2)
    asked = numbers.call("ask", lambda record, key: record)
    (asked.key_by(str).count("n") if keyed else asked).sink("out", NoSink())
    return config, plan(pipeline, config)


def checkpointed(job: Path, of: Plan, finished: frozenset[str]) -> dict[str, Files]:
    """Snapshots of all tasks at barrier `EPOCH`, and their manifest; by task, its files."""
    files: dict[str, Files] = {}
    for task in of.topology.tasks:
        cut = Cut(EPOCH, {}, {}, 100 + task.index, task.name in finished)
        path = f"checkpoints/{task.name}/e{EPOCH:08d}-i1.snap"
        files[task.name] = ((path, *write_parts(job / path, [cut.pack(), *whole(of.chain(task.index))], False)),)
    write_manifest(job, EPOCH, files, sync=False)
    return files


def journaled(job: Path, *records: dict[str, Any]) -> None:
    journal = Journal(job)
    journal.append(records)
    journal.close()


def complete(files: dict[str, Files]) -> dict[str, Any]:
    lists = {task: [list(file) for file in each] for task, each in files.items()}
    return {"kind": "checkpoint", "count": 3, "epoch": EPOCH, "files": lists, "took_ms": 1.0}


def coordinated(job: Path, of: Plan) -> Coordinator:
    journal = Journal(job)
    coordinator = Coordinator(Assignments(of.topology), 0, True)
    for record in journal.records():
        coordinator.apply(record)
    journal.close()
    return coordinator


def test_all_that_there_was_keeps_its_number() -> None:
    _, stops = planned("stop")
    _, with_letters = planned("dead-letter")
    assert any(channel.carries_requests for channel in stops.topology.channels)
    assert with_letters.topology != stops.topology == with_letters.topology_without_letters
    assert stops.topology_without_letters == stops.topology and stops.letter_task is None


@pytest.mark.parametrize("finished", [frozenset(), frozenset({"ask/0"}), frozenset({"ask/0", "ask/1", "n/0"})])
def test_the_task_begins_at_the_last_checkpoint(tmp_path: Path, finished: frozenset[str]) -> None:
    _, before = planned("stop")
    config, now = planned("dead-letter")
    files = checkpointed(tmp_path, before, finished)
    journaled(tmp_path, complete(files))
    for _ in range(2):  # the second time after an interruption
        letters.add(tmp_path, config, now)
        coordinator = coordinated(tmp_path, now)
        assert (coordinator.complete, coordinator.count, len(coordinator.took_ms)) == (EPOCH, 3, 1)
        assert newest_manifest(tmp_path) == (EPOCH, coordinator.files)
        assert {name: each for name, each in coordinator.files.items() if name != NAME} == files
        [(path, _, digest)] = coordinator.files[NAME]
        cut = Cut.unpack(read_parts(tmp_path / path, digest)[0])
        assert now.letter_task is not None
        inputs, [store] = now.topology.inputs(now.letter_task.index), now.topology.outputs(now.letter_task.index)
        ended = [now.topology.tasks[channel.source].name in finished for channel in inputs]
        assert [cut.inputs[channel.id] for channel in inputs] == [(0, 0, each) for each in ended]
        assert cut.outputs == {store.id: (0, 0)} and cut.epoch == EPOCH and cut.finished == all(ended)
        assert cut.last_ns == 100 + inputs[-1].source


def test_a_job_without_a_checkpoint_needs_nothing(tmp_path: Path) -> None:
    config, now = planned("dead-letter")
    letters.add(tmp_path, config, now)
    assert newest_manifest(tmp_path) is None and not coordinated(tmp_path, now).files


def test_a_checkpoint_that_is_not_journaled_yet_counts(tmp_path: Path) -> None:
    _, before = planned("stop")
    config, now = planned("dead-letter")
    files = checkpointed(tmp_path, before, frozenset())
    journaled(tmp_path, {**complete(files), "epoch": EPOCH - 1})
    letters.add(tmp_path, config, now)
    manifest = newest_manifest(tmp_path)
    assert manifest is not None and set(manifest[1]) == {*files, NAME}
    assert coordinated(tmp_path, now).complete == EPOCH - 1


def test_letters_of_an_earlier_version_stay_below_the_new_ones(tmp_path: Path) -> None:
    """The job wrote dead letters, was upgraded to stop at the first failure, and resumed with them after one."""
    _, before = planned("stop")
    config, now = planned("dead-letter")
    assert now.letter_task is not None
    [channel] = now.topology.outputs(now.letter_task.index)
    store = now.store(channel, tmp_path)
    store.open(NAME, config.run, 2)
    stands = store.last_bundle()
    store.write(Bundle(stands.next, 1, b'{"record": 1}\n', 77, 1, 2, (), depends=()))
    store.close()
    journaled(tmp_path, {"kind": "changed", "incarnation": 5, "savepoint": "", "stores": {}})
    journaled(tmp_path, complete(checkpointed(tmp_path, before, frozenset())))
    letters.add(tmp_path, config, now)
    [(path, _, digest)] = coordinated(tmp_path, now).files[NAME]
    assert Cut.unpack(read_parts(tmp_path / path, digest)[0]).outputs == {channel.id: (1, 77)}
    assert path.endswith("-i5.snap")


def test_a_savepoint_that_the_job_has_left_is_not_where_it_stopped(tmp_path: Path) -> None:
    _, before = planned("stop")
    config, now = planned("dead-letter")
    files = checkpointed(tmp_path, before, frozenset())
    left = [
        {"kind": "savepoint", "epoch": EPOCH, "final": True},
        complete(files),
        {"kind": "promoted", "task": "n/0", "slot": "w1", "incarnation": 1},
    ]
    journal = Journal(tmp_path)
    journal.append([{"kind": "process", "slot": "w1", "number": 1, "purpose": ""}, *left])
    journal.close()
    letters.add(tmp_path, config, now)
    journal = Journal(tmp_path)
    assert stopped_at(journal.records()) is None
    journal.close()


def test_no_other_change_of_the_graph_comes_with_it(tmp_path: Path) -> None:
    config, before = planned("stop")
    directory = JobDirectory(tmp_path)
    try:
        config.save(tmp_path)
        Blueprint(before.topology).save(tmp_path)
        after, wider = planned("dead-letter", keyed=False)
        with pytest.raises(PipelineError, match="--on-error dead-letter may be added"):
            change(directory, after, wider, Blueprint(wider.topology), False)
        after, now = planned("dead-letter")
        assert not change(directory, after, now, Blueprint(now.topology), False)
        Blueprint(now.topology).save(tmp_path)
        with pytest.raises(PipelineError, match="savepoint --stop"):
            change(directory, config, before, Blueprint(before.topology), False)
    finally:
        directory.close()
