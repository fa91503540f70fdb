"""Whatever a file of the ingest log has become: one clear line or the right rows; nothing trusted, nothing lost."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from shutil import rmtree
from typing import Any

import pytest

pytest.importorskip("pyarrow", reason="pyarrow is not installed: nothing can decode segments")

from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from causal.errors import CausalError, CorruptData, DeterminantsLost, PipelineError, Unavailable
from operators.ingest import reader as ingest_reader
from operators.ingest.contract import Backlog
from operators.ingest.reader import IngestReader
from operators.spark.query_failures import Failures, user_error
from tests.unit.ingest.test_ingest_reader import Publisher, log_at

FILES = [
    "log.json", "tokens/0000000001", "backlog/0000000003-0",
    "low-water/00000-0000000000-0000000000", "low-water/00001-0000000000-0000000000",
    "manifests/0000000000", "manifests/0000000001", "manifests/0000000002", "manifests/0000000003",
    "segments/0000000000-00000-1-0-0.arrow", "segments/0000000001-00001-1-0-0.arrow",
]  # fmt: skip
SEALED = [name for name in FILES if name.startswith(("log", "backlog", "manifests"))]
DAMAGES: dict[str, Callable[[bytes, int], bytes | None]] = {
    "emptied": lambda data, at: b"",
    "cut off": lambda data, at: data[: at % max(1, len(data))],
    "a bit turned": lambda data, at: bytes(
        byte ^ (1 << at % 8) if place == at % len(data) else byte for place, byte in enumerate(data)
    ),
    "zeros": lambda data, at: bytes(len(data)),
    "lengthened": lambda data, at: data + b"x",
    "text that is no UTF-8": lambda data, at: b"\xff\xfe\n\xff",
    "removed": lambda data, at: None,
}


def written_log(directory: Path, ended: bool) -> Publisher:
    publisher = Publisher(directory, 2)
    for _ in range(3):
        publisher.publish([[3], [2]])
    publisher.log.release(0, 0, 0)
    publisher.log.release(1, 0, 0)
    publisher.log.note_backlog(Backlog(1, 2, 3, 0))
    if ended:
        publisher.log.end(publisher.token)
    return publisher


def rows_of(publisher: Publisher, channel: int) -> tuple[list[int], Exception | None]:
    """Return the rows that can be read, and the error that then stops it; None at the end of what is published."""
    reader = IngestReader(log_at(publisher.directory, 2), channel, "numbers")
    rows: list[int] = []
    try:
        while (read := reader.read(len(rows), 2)) is not None and not read.ended:
            assert isinstance(read.records, list)
            rows += [record["n"] for record in read.records]
            reader.counters()
        return rows, None
    except CausalError as problem:
        return rows, problem


def clear(problem: Exception | None) -> bool:
    said = str(problem)
    return (
        isinstance(problem, (CorruptData, DeterminantsLost, PipelineError, Unavailable))
        and "\n" not in said
        and len(said) < 600
    )


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(
    st.sampled_from(FILES), st.sampled_from(list(DAMAGES)), st.integers(0, 400), st.booleans(), st.integers(0, 1 << 30)
)
def test_a_damaged_file_is_one_line_or_no_loss(
    tmp_path_factory: Any, name: str, damage: str, at: int, ended: bool, nonce: int
) -> None:
    publisher = written_log(tmp_path_factory.mktemp("damage") / "ingest", ended)
    path = publisher.directory / name
    if not path.exists():
        return
    changed = DAMAGES[damage](path.read_bytes(), at)
    if changed is None:
        path.unlink()
    else:
        path.write_bytes(changed)

    problems = []
    for channel, expected in enumerate(publisher.expected):
        rows, problem = rows_of(publisher, channel)
        assert rows == expected[len(expected) - len(rows) :] or rows == expected[: len(rows)]
        assert problem is None or clear(problem), problem
        assert rows == expected or problem is not None or "manifests" in name or damage == "removed"
        problems.append(problem)

    log = log_at(publisher.directory, 2)
    for ask in (log.create, log.take_over, lambda: log.check_query("q"), lambda: log.room_taken(9), log.ended):
        try:
            ask()
        except CausalError as problem:
            assert clear(problem), problem
    if name in SEALED and damage not in ("removed", "emptied", "lengthened") and not name.startswith(("low", "back")):
        with pytest.raises((CorruptData, PipelineError)):
            log.create()
            log.take_over()
            log.check_query("q")
            log.ended()


@pytest.mark.parametrize("name", ["log.json", "manifests/0000000001", "segments/0000000001-00001-1-0-0.arrow"])
def test_what_is_damaged_is_never_overwritten_or_removed(tmp_path: Path, name: str) -> None:
    """Restoring the file restores everything."""
    publisher = written_log(tmp_path / "ingest", ended=False)
    path = publisher.directory / name
    intact = path.read_bytes()
    path.write_bytes(intact[:-3])
    for _ in range(2):
        with (
            pytest.raises((CorruptData, PipelineError, DeterminantsLost))
            if "segments" not in name
            else pytest.raises(CorruptData)
        ):
            publisher.log.create()
            token = publisher.log.take_over()
            publisher.publish([[1], [1]]) if token == 0 else None
            rows, problem = rows_of(publisher, 1)
            if problem is not None:
                raise problem
    path.write_bytes(intact)
    publisher.log.create()
    publisher.token = publisher.log.take_over()
    publisher.publish([[3], [2]])
    for channel, expected in enumerate(publisher.expected):
        assert rows_of(publisher, channel) == (expected, None)


def test_a_manifest_that_is_missing_between_others_is_told(tmp_path: Path) -> None:
    """A reader does not wait forever for it, and a driver does not remove its segments."""
    publisher = written_log(tmp_path / "ingest", ended=False)
    (publisher.directory / "manifests" / "0000000001").unlink()
    reader = publisher.reader()
    with pytest.raises(CorruptData, match="0000000001 is missing although a later batch is published"):
        for _ in range(ingest_reader.LOOKS_PER_CHECK + 3):
            reader.read(3, 10)
    segments = sorted(path.name for path in (publisher.directory / "segments").iterdir())
    with pytest.raises(CorruptData, match="0000000001 is missing"):
        publisher.log.take_over()
    assert sorted(path.name for path in (publisher.directory / "segments").iterdir()) == segments


def test_files_without_which_nothing_can_be_trusted_are_missed(tmp_path: Path) -> None:
    publisher = written_log(tmp_path / "ingest", ended=False)
    rmtree(publisher.directory / "tokens")
    with pytest.raises(CorruptData, match="tokens is missing although batches exist"):
        publisher.log.take_over()
    (publisher.directory / "log.json").unlink()
    with pytest.raises(CorruptData, match="log.json is missing although batches exist"):
        publisher.log.create()
    with pytest.raises(CorruptData, match="0000000003 is missing although Spark has committed"):
        publisher.log.check_committed(3)
    publisher.log.check_committed(2)


def test_failures_are_counted_until_another_batch(tmp_path: Path) -> None:
    failures = Failures(tmp_path)
    assert [failures.count(3), failures.count(3), failures.count(4), failures.count(4)] == [1, 2, 1, 2]
    failures.forget()
    assert failures.count(4) == 1
    (tmp_path / "failures.json").write_bytes(b"torn")
    assert failures.count(4) == 1


TEXT = """[STREAM_FAILED] Query [id = 1] terminated with exception: Task 0 failed 4 times
org.apache.spark.api.python.PythonException: Traceback (most recent call last):
  File "/x/lib/python3.11/site-packages/pyspark/worker.py", line 1247, in main
    process()
  File "/home/me/lines.py", line 12, in same
    return int(name)
           ^^^^^^^^^
  File "/x/lib/python3.11/json/decoder.py", line 337, in decode
    obj
%s

\tat org.apache.spark.api.python.BasePythonRunner$ReaderIterator.handlePythonException(PythonRunner.scala:581)
"""


@pytest.mark.parametrize(
    ("text", "error"),
    [
        (TEXT % "ValueError: no number: 'x'", "ValueError: no number: 'x' at /home/me/lines.py:12 in same"),
        (TEXT % "lines.Refused", "lines.Refused at /home/me/lines.py:12 in same"),
        (TEXT % "causal.errors.Fenced: driver 1 was replaced", None),
        ("the JVM is gone", None),
        ("", None),
    ],
)
def test_the_line_about_user_code_names_the_error_and_its_place(text: str, error: str | None) -> None:
    assert user_error(text) == error
