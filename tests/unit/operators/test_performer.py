"""A process that performs a version: its code is that of its archive, and its failures are answers."""

from __future__ import annotations

import os
import signal
import sys
from collections.abc import Mapping
from contextlib import nullcontext
from pathlib import Path

import pytest

from causal.config import JobConfig
from causal.errors import OperatorFailed, PipelineError
from operators.builder.loading import freeze
from operators.code_archive.archive import Archive
from operators.code_archive.importing import modules_kept
from operators.engine.plan import plan
from operators.replay.performance import Checkpoint, Step
from operators.replay.performer import Performer
from operators.runtime.regrouping import Saved
from tests.unit.operators.test_rescaling import saved as first_states

TEXT = """
from operators import Pipeline
from operators.sinks import JsonLinesSink
from operators.sources import GeneratedSource

def named(number):
    import naming  # when it is called, so that it must be found then
    return naming.of(number)

pipeline = Pipeline("test")
numbers = pipeline.source("in", GeneratedSource(lambda p, i: i, count=100, rate=0.01))
numbers.map("name", named).sink("out", JsonLinesSink("out"))
"""


def archived(directory: Path, modules: Mapping[str, str], text: str = TEXT) -> tuple[Archive, Checkpoint]:
    """Return the code in a directory, and the first checkpoint of its job."""
    directory.mkdir()
    for name, content in {**modules, "pipeline": text}.items():
        (directory / f"{name}.py").write_text(content)
    with modules_kept():
        pipeline, archive = freeze(directory / "pipeline.py")
    planned = plan(pipeline, CONFIG)
    saved: list[Saved] = first_states(planned, {})
    return archive, Checkpoint(1, planned.topology, saved, lambda: nullcontext(planned))


CONFIG = JobConfig("run", "test", "/pipeline.py")
STEP = Step(10**18, "in", 0, 7, 9)


def performer(archive: Archive, checkpoint: Checkpoint, directory: Path) -> Performer:
    return Performer(CONFIG, archive, checkpoint, False, directory)


def test_two_versions_have_their_own_modules(tmp_path: Path) -> None:
    """Each reads from its own archive, although the files have other content now."""
    before, checkpoint = archived(tmp_path / "a", {"naming": "def of(number): return f'a{number}'"})
    after, _ = archived(tmp_path / "b", {"naming": "def of(number): return f'b{number}'"})
    for version in "ab":
        (tmp_path / version / "naming.py").write_text("def of(number): return 'file'")
    with performer(before, checkpoint, tmp_path) as first, performer(after, checkpoint, tmp_path) as second:
        for each in (first, second):
            assert list(each.await_begun(60)) == ["in", "name", "out"]
            each.perform([STEP])
        assert first.performed().rows() == [{"out/0": [b'"a7"', b'"a8"']}]
        assert second.performed().rows() == [{"out/0": [b'"b7"', b'"b8"']}]
    assert "naming" not in sys.modules


def test_failures_are_answers(tmp_path: Path) -> None:
    archive, checkpoint = archived(tmp_path / "a", {"naming": "def of(number): return 1 / (number - 8)"})
    with performer(archive, checkpoint, tmp_path) as each:
        each.await_begun(60)
        each.perform([STEP])
        with pytest.raises(OperatorFailed, match="ZeroDivisionError"):
            each.performed()


def test_a_process_that_dies_is_a_failure(tmp_path: Path) -> None:
    ends = "import os, signal\ndef of(number): os.kill(os.getpid(), signal.SIGKILL)"
    archive, checkpoint = archived(tmp_path / "a", {"naming": ends})
    with performer(archive, checkpoint, tmp_path) as each:
        each.await_begun(60)
        each.perform([STEP])
        with pytest.raises(OperatorFailed, match="its process died"):
            each.performed()


def test_the_end_of_the_context_ends_the_process(tmp_path: Path) -> None:
    archive, checkpoint = archived(tmp_path / "a", {"naming": "def of(number):\n    while True: pass"})
    with performer(archive, checkpoint, tmp_path) as each:
        each.await_begun(60)
        each.perform([STEP])
        process, scratch = each._process, Path(each._scratch.name)
        os.kill(process, signal.SIGINT)  # Ctrl-C reaches all processes of the terminal; the command ends this one
        os.kill(process, 0)
    assert not scratch.exists()
    with pytest.raises(ProcessLookupError):
        os.kill(process, 0)


def test_a_pipeline_with_calls_is_refused(tmp_path: Path) -> None:
    asking = TEXT.replace('numbers.map("name", named)', 'numbers.call("ask", lambda record, key: 1)')
    archive, checkpoint = archived(tmp_path / "a", {"naming": ""}, asking)
    with performer(archive, checkpoint, tmp_path) as each, pytest.raises(PipelineError, match="'ask' asks the outside"):
        each.await_begun(60)
