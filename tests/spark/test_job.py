"""The inverted index from Spark to SQLite while its driver, a Spark Python worker and its tasks are killed.

A campaign; by default `test_cluster_source.py` kills the same of a smaller job.
"""

from __future__ import annotations

import subprocess
import sys
import time
from collections.abc import Callable
from importlib.util import find_spec
from pathlib import Path

import pytest

from benchmarks.harness.processes import kill
from examples.corpus import documents_of
from examples.survive import compare, expected
from operators.spark import daemon as spark_daemon
from tests.faults.conftest import POOL
from tests.faults.test_modes import readable_by_others

pytestmark = pytest.mark.spark
ROOT = Path(__file__).resolve().parents[2]
WITHIN_S = 240
PYTHON_WORKER = (spark_daemon.__name__, "pyspark.worker")
"""Words of the command line of Spark's Python workers and of their parent; the JVM's has the first."""


def corpus_in(directory: Path) -> Path:
    """160 small documents with words of their own and words that all share; some names begin with _."""
    for number in range(160):
        place = (
            directory / ("_private" if number % 5 == 0 else "public") / f"{'_' if number % 3 == 0 else ''}d{number}.py"
        )
        place.parent.mkdir(parents=True, exist_ok=True)
        place.write_text(f"import shared_{number % 7}\n" + f"word_{number} = common + word_{number % 11}\n" * 5)
    return directory


def processes_of(job: Path, *words: str) -> list[int]:
    """Return pids of this job whose command line has all of `words`."""
    pids = []
    for entry in Path("/proc").iterdir():
        if not entry.name.isdigit():
            continue
        try:
            line = (entry / "cmdline").read_bytes().replace(b"\0", b" ").decode(errors="replace")
            mine = f"CAUSAL_JOB={job}".encode() in (entry / "environ").read_bytes().split(b"\0")
        except OSError:
            continue
        if mine and all(part in line for part in words):
            pids.append(int(entry.name))
    return pids


def eventually(ask: Callable[[], object], what: str, run: subprocess.Popen[str]) -> None:
    deadline = time.monotonic() + WITHIN_S
    while not ask():
        assert time.monotonic() < deadline and run.poll() is None, f"never: {what}"
        time.sleep(0.05)


@pytest.mark.campaign
@pytest.mark.skipif(find_spec("pyspark") is None, reason="pyspark is not installed")
def test_rows_reach_the_sink_once_while_driver_python_worker_and_source_are_killed(tmp_path: Path) -> None:
    """The tasks of Spark write the first batch, its driver those after it, of whose rows the size is known."""
    corpus, job, database = corpus_in(tmp_path / "corpus"), tmp_path / "job", tmp_path / "index.db"
    argv = [sys.executable, "-m", "deploy", "run", str(ROOT / "examples" / "inverted_index.py")]
    argv += ["--set", f"out={database}", "--set", f"corpus={corpus}", "--set", "files_per_batch=70"]
    argv += ["--state-dir", str(job), "--kill", "words/0@0.1", *POOL]
    with subprocess.Popen(argv, cwd=ROOT, stderr=subprocess.PIPE, text=True) as run:
        try:
            manifests = job / "ingest" / "documents"
            eventually(lambda: manifests.exists() and processes_of(job, *PYTHON_WORKER), "a Python worker", run)
            assert list(manifests.glob("spark-work/local/*")), "the JVM has files there"
            assert readable_by_others(job) == {}
            for pid in (*processes_of(job, *PYTHON_WORKER), *processes_of(job, "spark_driver")):
                kill(pid)  # one of Python's may have ended on its own meanwhile
            said = run.communicate(timeout=WITHIN_S)[1]
        finally:
            run.kill()
    assert run.returncode == 0, said
    assert list(manifests.glob("spark-checkpoint/commits/.*.crc")), "Spark has written its own files"
    assert readable_by_others(job) == {}
    result = compare(database, expected(corpus))
    assert (result["lost"], result["doubled"], result["contradicted"]) == (0, 0, 0)
    assert result["documents"] == len(documents_of(corpus))
    assert processes_of(job) == []
