"""The files that a job keeps are its user's alone; those that it makes for the user have the user's own umask."""

from __future__ import annotations

import os
import stat
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

import pytest

from tests.faults.conftest import Start
from tests.members import members

PIPELINE = """
from operators import Operator, Pipeline
from operators.sinks import CallbackSink, ConsoleSink, JsonLinesSink, ParquetSink, SqliteSink
from operators.sources import GeneratedSource


class Count(Operator):
    def process(self, record, ctx):
        n = ctx.state["n"] = ctx.state.get("n", 0) + 1
        if record["i"] % 100 == 99 and raises:
            raise ValueError("no")
        yield {"k": ctx.key, "n": n}


def noted(delivery):
    with open("noted.txt", "a") as file:
        file.write("\\n".join(delivery.lines))


pipeline = Pipeline("modes")
raises, count = pipeline.settings["raises"] == "yes", int(pipeline.settings.get("count", "900"))
rows = pipeline.source("rows", GeneratedSource(lambda p, i: {"i": i}, count=count, rate=300))
counted = rows.key_by(lambda r: r["i"] % 7).process("count", Count(), parallelism=2, state="disk")
counted.sink("database", SqliteSink("out.db"))
counted.sink("lines", JsonLinesSink("lines"))
counted.sink("files", ParquetSink("files", publish_s=0.2))
counted.sink("called", CallbackSink(noted))
counted.sink("shown", ConsoleSink())
"""


@pytest.fixture(params=members([0o022, 0o027], 0o027))
def umask(request: pytest.FixtureRequest) -> Iterator[int]:
    before = os.umask(request.param)
    yield request.param
    os.umask(before)


def mode(path: Path) -> int:
    return stat.S_IMODE(path.lstat().st_mode)


def readable_by_others(directory: Path) -> dict[str, str]:
    """Return the paths that others than the owner may use; one that is gone when it is looked at counts as closed."""
    opened = {}
    for place, directories, files in os.walk(directory):
        for path in (Path(place), *(Path(place, name) for name in (*directories, *files))):
            with suppress(FileNotFoundError):
                if not path.is_symlink() and mode(path) & 0o077:
                    opened[str(path)] = oct(mode(path))
    return opened


def test_a_job_keeps_to_itself_what_is_not_for_its_user(start: Start, tmp_path: Path, umask: int) -> None:
    (tmp_path / "modes.py").write_text(PIPELINE)
    guarantee = "causal" if umask == 0o022 else "epoch"
    flush = "background" if guarantee == "causal" else "off"
    config = {
        "guarantee": guarantee,
        "determinant_flush": flush,
        "on_error": "dead-letter",
    }
    (tmp_path / "job").mkdir(mode=0o755)
    job = start(
        tmp_path / "modes.py",
        "--set",
        "raises=yes",
        "--checkpoint-interval",
        "0.3",
        "--kill",
        "count/0@0.8",
        config=config,
    )
    job.until("a checkpoint is complete", lambda view: view["checkpoint"]["count"] >= 1)
    assert not readable_by_others(job.state)
    job.finish_well()
    assert not readable_by_others(job.state)
    assert any((job.state / "dead-letters").iterdir())
    files = [tmp_path / name for name in ("out.db", "report.json", "noted.txt")]
    files += [*(tmp_path / "lines").glob("*.jsonl"), *(tmp_path / "lines").glob(".*")]
    files += [path for path in (tmp_path / "files").rglob("*") if path.is_file()]
    assert len(files) > 10
    assert {path.name: oct(mode(path)) for path in files if mode(path) != 0o666 & ~umask} == {}
    for directory in (tmp_path / "lines", tmp_path / "files", tmp_path / "files" / "_causal"):
        assert mode(directory) == 0o777 & ~umask


@pytest.mark.campaign
def test_a_directory_of_an_earlier_version_is_closed(start: Start, tmp_path: Path) -> None:
    (tmp_path / "modes.py").write_text(PIPELINE)
    job = start(tmp_path / "modes.py", "--set", "raises=no", config={"checkpoint_interval_s": 0.2})
    job.until("a checkpoint is complete", lambda view: view["checkpoint"]["count"] >= 1)
    job.interrupt()
    job.finish()
    for path in (job.state, *job.state.rglob("*")):
        path.chmod(0o755 if path.is_dir() else 0o644)
    job.start("--resume").finish_well()
    assert not readable_by_others(job.state)


def test_a_directory_with_other_things_keeps_its_mode(start: Start, tmp_path: Path) -> None:
    (tmp_path / "modes.py").write_text(PIPELINE)
    (tmp_path / "job").mkdir()
    (tmp_path / "job" / "notes.txt").write_text("mine")
    (tmp_path / "job").chmod(0o755)  # whatever the umask of this test is
    (tmp_path / "job" / "notes.txt").chmod(0o644)
    job = start(tmp_path / "modes.py", "--set", "raises=no", "--set", "count=90")
    job.finish_well()
    left = {Path(path).name for path in readable_by_others(job.state)}
    assert left == {"job", "notes.txt"}
