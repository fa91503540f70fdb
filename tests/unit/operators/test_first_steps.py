"""A new user's first commands, and misspellings, are answered by a line that says what to type."""

from __future__ import annotations

import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from causal.errors import PipelineError
from operators import Operator, Pipeline
from operators.builder.loading import load
from operators.suggestions import suggestion

PIPELINE = """
from operators import Pipeline
from operators.sinks import SqliteSink
from operators.sources import GeneratedSource

pipeline = Pipeline("counts")
numbers = pipeline.source("numbers", GeneratedSource(lambda p, i: i, count=10))
numbers.map("same", lambda n: n).sink("out", SqliteSink("out.db"))
"""


def said(directory: Path, text: str) -> tuple[int, str]:
    """Return the status and standard error of `python counts.py`."""
    (directory / "counts.py").write_text(text)
    done = subprocess.run([sys.executable, "counts.py"], cwd=directory, capture_output=True, text=True)
    return done.returncode, done.stderr


def test_a_file_that_is_run_by_python_says_what_to_type(tmp_path: Path) -> None:
    line = "counts.py defines a pipeline but does not run it; run it with: causal run counts.py\n"
    assert said(tmp_path, PIPELINE) == (0, line)


@pytest.mark.parametrize(
    "more",
    [
        "if __name__ == '__main__':\n    pass\n",
        "from operators.testing import run\nrun(pipeline, {'numbers': [1]})\n",
        "pipeline.check()\n",
    ],
)
def test_a_file_that_does_something_says_nothing(more: str, tmp_path: Path) -> None:
    assert said(tmp_path, PIPELINE + more) == (0, "")


def test_a_file_that_fails_shows_its_failure_alone(tmp_path: Path) -> None:
    status, text = said(tmp_path, PIPELINE + "1 / 0\n")
    assert status == 1 and text.rstrip().endswith("ZeroDivisionError: division by zero")


@pytest.mark.parametrize("method", ["run", "start", "execute"])
def test_a_pipeline_that_is_to_run_itself_says_what_to_type(method: str) -> None:
    with pytest.raises(
        AttributeError, match=rf"a pipeline has no {method}\(\); run it with `causal run test_first_steps.py`"
    ):
        getattr(Pipeline("p"), method)()


@pytest.mark.parametrize(
    ("wrong", "meant"),
    [
        (("count=10", "cuont=10"), "unexpected keyword argument 'cuont'; did you mean 'count'?"),
        (('SqliteSink("out.db")', 'SqliteSink("out.db", exists="replace")'), "did you mean 'existing'?"),
        (("lambda n: n)", "lambda n: n, parallelism=2)"), "it has fn, name"),
        (("import SqliteSink", "import SqlliteSink"), "; did you mean 'SqliteSink'?"),
        (("import SqliteSink", "import ParketSink"), "; did you mean 'ParquetSink'?"),
        (("numbers.map", "numbers.mapp"), "'Stream' object has no attribute 'mapp'; did you mean 'map'?"),
        (('Pipeline("counts")', 'Pipeline("counts"); pipeline.setings'), "did you mean 'settings'?"),
    ],
)  # fmt: skip
def test_a_misspelled_name_gets_the_name_that_was_meant(wrong: tuple[str, str], meant: str, tmp_path: Path) -> None:
    (tmp_path / "counts.py").write_text(PIPELINE.replace(*wrong))
    with pytest.raises(PipelineError) as caught:
        load(tmp_path / "counts.py")
    assert meant in str(caught.value)


def test_nothing_is_suggested_for_what_is_not_ours() -> None:
    class Mine(Operator):
        def keep(self, record: Any) -> None: ...

    mine: Any = Mine()
    records: Any = []
    wrongs: list[Callable[[], Any]] = [lambda: records.apend(1), lambda: mine.keep(recrod=1), lambda: records["x"]]
    for wrong in wrongs:
        with pytest.raises((AttributeError, TypeError)) as caught:
            wrong()
        assert suggestion(caught.value) == ""


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_a_signal_while_a_file_is_loaded_is_one_line(number: signal.Signals, tmp_path: Path) -> None:
    (tmp_path / "slow.py").write_text("import pathlib, time\npathlib.Path('here').touch()\ntime.sleep(600)\n")
    argv = [sys.executable, "-m", "deploy", "run", "slow.py"]
    with subprocess.Popen(argv, cwd=tmp_path, stderr=subprocess.PIPE, text=True) as process:
        while not (tmp_path / "here").exists() and process.poll() is None:
            time.sleep(0.01)
        process.send_signal(number)
        line = process.communicate()[1]
    place = tmp_path / "slow.py"
    assert (process.returncode, line) == (
        128 + number, f"causal: ended by {number.name} while it loaded {place}; nothing was started\n",
    )  # fmt: skip
