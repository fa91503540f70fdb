"""A killed job whose files are damaged: `--resume` continues exactly, or names the damaged file in one line."""

from __future__ import annotations

import json
import shutil
import sqlite3
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from benchmarks.harness.written import rows_in
from deploy.cli import main
from tests.faults.job import Job, causal
from tests.members import campaign

PIPELINE = """
from operators import Pipeline
from operators.sinks import SqliteSink
from operators.sources import GeneratedSource

pipeline = Pipeline("counts")
rate = float(pipeline.settings["rate"])
numbers = pipeline.source("numbers", GeneratedSource(lambda p, i: {"k": i % 10}, count=2000, rate=rate))
numbers.key_by(lambda r: r["k"]).count("count").sink("out", SqliteSink("out.db"))
"""


SNAPSHOT, MANIFEST = "a snapshot", "a manifest"


@pytest.fixture(scope="module")
def killed(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """The directory of a job whose processes have all been killed between two checkpoints."""
    home = tmp_path_factory.mktemp("killed")
    (home / "counts.py").write_text(PIPELINE)
    job = Job(home, home / "counts.py", "--checkpoint-interval", "0.3", "--set", "rate=500")
    try:
        job.start()
        job.until_warm(records=100, checkpoints=2)
        job.kill_everything()
    finally:
        job.close()
    yield home


def rows(home: Path) -> dict[tuple[str, int], str]:
    stored = rows_in(home / "out.db", "SELECT task, position, record FROM output")
    return {(task, place): row for task, place, row in stored}


def emptied(path: Path) -> None:
    path.write_bytes(b"")


def flipped(path: Path) -> None:
    data = bytearray(path.read_bytes())
    data[data.index(b'"guarantee"' if path.name == "job.json" else b"numbers/0") + 3] ^= 1
    path.write_bytes(data)


def renumbered(path: Path) -> None:
    """Flip one bit of one decision."""
    store = sqlite3.connect(path)
    place, body = store.execute("SELECT id, body FROM decisions WHERE length(body) > 20 LIMIT 1").fetchone()
    store.execute("UPDATE decisions SET body = ? WHERE id = ?", (body[:-1] + bytes([body[-1] ^ 1]), place))
    store.commit()
    store.close()


def forgotten(path: Path) -> None:
    """The last checkpoints were never journaled, as if a log next to it were lost."""
    store = sqlite3.connect(path)
    store.execute("DELETE FROM decisions WHERE id > 3")
    store.commit()
    store.close()


def garbled(path: Path) -> None:
    path.write_bytes(b"\xb9" * 20)


def halved(path: Path) -> None:
    path.write_bytes(path.read_bytes()[:-20])


def turned(path: Path) -> None:
    data = bytearray(path.read_bytes())
    data[len(data) // 2] ^= 1
    path.write_bytes(data)


DAMAGES: dict[str, tuple[str, Callable[[Path], None], int, str]] = {
    "settings, a bit": ("job.json", flipped, 2, "job.json is damaged"),
    "settings, none": ("job.json", emptied, 2, "job.json is damaged"),
    "graph, a bit": ("topology.json", flipped, 2, "its digest does not match"),
    "journal, none": ("journal.sqlite", emptied, 1, "journal.sqlite lacks decisions"),
    "journal, a bit": ("journal.sqlite", renumbered, 1, "journal.sqlite is damaged"),
    "journal, no end": ("journal.sqlite", forgotten, 1, "journal.sqlite lacks decisions"),
    "journal, garbage": ("journal.sqlite", garbled, 1, "journal.sqlite"),
    "snapshot, a bit": (SNAPSHOT, turned, 1, ""),
    "snapshot, none": (SNAPSHOT, Path.unlink, 1, ""),
    "manifest, no end": (MANIFEST, halved, 1, ""),
    "clock of rates": ("began", garbled, 1, "began is damaged; remove it"),
}


@pytest.mark.parametrize("damage", DAMAGES)
def test_what_is_damaged_is_named_in_one_line(
    damage: str, killed: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    home = tmp_path / "damaged"
    shutil.copytree(killed, home)
    monkeypatch.chdir(home)
    file, harm, status, said = DAMAGES[damage]
    if file == "journal.sqlite":
        whole(home / "job" / file)
    hurt = newest(home / "job", file)
    harm(hurt)
    before = rows(home)
    assert main(["run", "counts.py", "--state-dir", "job", "--resume"]) == status
    [line] = capsys.readouterr().err.splitlines()
    assert line.startswith("causal: ") and (said or hurt.name) in line
    assert rows(home) == before


def newest(job: Path, file: str) -> Path:
    """Return the file of that name; of checkpoints the last complete one, and in it a snapshot with state."""
    if file not in (SNAPSHOT, MANIFEST):
        return job / file
    manifest = max((job / "checkpoints").glob("manifest-*.json"), key=lambda path: int(path.stem[9:]))
    snapshot: str = json.loads(manifest.read_text())["files"]["count/0"][0][0]
    return manifest if file == MANIFEST else job / snapshot


def whole(journal: Path) -> None:
    """Move the content of the log next to the journal into it."""
    store = sqlite3.connect(journal)
    store.execute("PRAGMA wal_checkpoint(TRUNCATE)")
    store.close()


ONE_LIFE = ["status.json", "processes.json", "runtime", "supervisor.lock"]


@pytest.mark.parametrize("files", [ONE_LIFE, *(campaign([file], id=file) for file in ONE_LIFE)])
def test_what_only_one_life_needs_may_be_damaged(files: list[str], killed: Path, tmp_path: Path) -> None:
    home = tmp_path / "damaged"
    shutil.copytree(killed, home)
    for file in files:
        garbled(home / "job" / file)
    before = rows(home)
    assert causal(home, "run", "counts.py", "--state-dir", "job", "--resume", "--code", "new", "--set", "rate=1e6") == (
        0,
        "",
    )
    after = rows(home)
    assert {at: row for at, row in after.items() if at in before} == before
    assert sorted(json.loads(row)[1] for row in after.values()) == sorted(list(range(1, 201)) * 10)
