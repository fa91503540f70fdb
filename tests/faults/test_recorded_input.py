"""Input that comes once, of jobs that return to a savepoint: the old code processes every line again, exactly once."""

from __future__ import annotations

import subprocess
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from operators.ingest.contract import SEGMENT_BYTES_MIN
from tests.faults.conftest import Start
from tests.faults.job import WAIT_S, Job, causal, causal_output, command, ended_of, environment, wait_for
from tests.faults.test_bad_input import one_line
from tests.faults.test_files import written
from tests.faults.test_lines import are_out, free_port, post, reading, replace_reading
from tests.faults.test_rollbacks import savepoints
from tests.faults.test_upgrades import stopped
from tests.members import campaign

LINES = """
from operators import Operator, Pipeline
from operators.sinks import SqliteSink
from operators.sources import HttpSource, StdinSource

class Number(Operator):
    def process(self, record, ctx):
        n = ctx.state["n"] = ctx.state.get("n", 0) + 1
        yield {"line": record, "n": n, "version": 1}

pipeline = Pipeline("lines")
listen = pipeline.settings.get("listen", "")
source = HttpSource(listen, format="text", token="secret") if listen else StdinSource()
lines = pipeline.source("lines", source)
lines.key_by(lambda line: "all").process("number", Number()).sink("out", SqliteSink("out.db"))
"""


def text_of(version: int) -> str:
    return LINES.replace('"version": 1', f'"version": {version}')


def check(directory: Path, lines: list[str], version: int = 1) -> None:
    """Assert that each line has one row, numbered in their order, of this version."""
    rows = sorted(written(directory / "out.db"), key=lambda row: int(row["n"]))
    assert [(row["line"], row["n"], row["version"]) for row in rows] == [
        (line, number, version) for number, line in enumerate(lines, 1)
    ]


class Posting:
    """A job that receives lines over HTTP, and the lines that it has acknowledged."""

    def __init__(self, start: Start, directory: Path, **config: Any) -> None:
        self.path, self.port, self.lines = directory / "lines.py", free_port(), list[str]()
        self.path.write_text(LINES)
        options = ["--checkpoint-interval", "0.1", "--set", f"listen=127.0.0.1:{self.port}"]
        self.job: Job = start(self.path, *options, config=config)
        self._directory = directory

    def post(self, count: int = 20) -> None:
        lines = [str(len(self.lines) + number) for number in range(count)]
        wait_for("they are the job's", lambda: post(self.port, lines) == 200)
        self.lines += lines
        self.job.until("they are out", lambda view: are_out(self._directory / "out.db", len(self.lines)))

    def until_checkpoint(self) -> None:
        view = self.job.view()
        assert view is not None
        complete = view["checkpoint"]["complete"]
        self.job.until("another checkpoint is complete", lambda view: view["checkpoint"]["complete"] > complete)

    def post_much(self, *disturbances: Callable[[], object]) -> None:
        """Post lines of which several checkpoints cover the batches, and disturb the job in between."""
        for disturb in disturbances:
            for _ in range(3):
                self.post()
                self.until_checkpoint()
            disturb()
        self.post()
        self.until_checkpoint()


def test_a_stopped_job_processes_posted_lines_again(start: Start, tmp_path: Path) -> None:
    posting = Posting(start, tmp_path)
    job = posting.job
    posting.post_much()
    stopped(job)
    [name] = [each["name"] for each in savepoints(job)]
    posting.path.write_text(text_of(2))
    job.start("--resume")
    posting.post_much(partial(job.replace, "lines/0"), partial(replace_reading, job.state))
    stopped(job)
    assert [each["input_problem"] for each in savepoints(job)] == ["", ""]
    job.start("--resume", "--rollback", name)
    job.until("the old code has processed all", lambda view: are_out(tmp_path / "out.db", len(posting.lines)))
    posting.post_much(partial(job.replace, "lines/0"))
    check(tmp_path, posting.lines)
    stopped(job)
    segments = len(list((job.state / "ingest/lines/segments").iterdir()))
    assert segments >= 5, "the savepoint still keeps what came since"
    for each in savepoints(job):
        status, said = causal(tmp_path, "savepoint", "--delete", each["name"], "--state-dir", str(job.state))
        assert status == 0 or "the one to which --rollback returns" in said, said
    job.kill_everything()


def test_a_running_job_processes_lines_of_standard_input_again(tmp_path: Path) -> None:
    state, path, out = tmp_path / "job", tmp_path / "lines.py", tmp_path / "out.db"
    path.write_text(LINES)
    run = subprocess.Popen(
        command("run", str(path), "--state-dir", str(state), "--checkpoint-interval", "0.2"),
        cwd=tmp_path, env=environment(), stdin=subprocess.PIPE, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE,
    )  # fmt: skip
    assert run.stdin is not None
    lines: list[str] = []

    def write(count: int) -> None:
        assert run.stdin is not None
        more = [str(len(lines) + number) for number in range(count)]
        lines.extend(more)
        run.stdin.write("".join(line + "\n" for line in more).encode())
        run.stdin.flush()
        wait_for("they are out", partial(are_out, out, len(lines)))

    def changed(*words: str) -> None:
        ended = ended_of(tmp_path, *words, "--state-dir", str(state))
        assert ended.returncode == 0, ended.stderr

    try:
        write(300)
        path.write_text(text_of(2))
        before = reading(state)
        changed("upgrade", str(path))
        for number in range(8):
            write(50)
            if number == 4:
                assert causal(tmp_path, "kill", "lines/0", "--state-dir", str(state))[0] == 0
        assert {row["version"] for row in written(out)} == {1, 2}
        changed("rollback")
        wait_for("the old code has processed all", partial(are_out, out, len(lines)))
        check(tmp_path, lines)
        assert reading(state) == before, "the process that reads continues"
        assert causal(tmp_path, "kill", "lines/0", "--state-dir", str(state))[0] == 0
        write(50)
        wait_for("nothing is being taken", lambda: not (state / "ingest" / "lines" / "taking").exists())
        replace_reading(state)
        write(50)
        changed("rescale", "number=2")
        write(50)
        run.stdin.close()
        assert run.wait(WAIT_S) == 0, run.stderr.read() if run.stderr else ""
    finally:
        run.kill()
        run.wait()
        if run.stderr is not None:
            run.stderr.close()
    check(tmp_path, lines)


def test_a_savepoint_loses_its_input_beyond_the_bound(start: Start, tmp_path: Path) -> None:
    posting = Posting(start, tmp_path, kept_input_bytes_max=3 * SEGMENT_BYTES_MIN)
    job = posting.job
    posting.post()
    stopped(job)
    [name] = [each["name"] for each in savepoints(job)]
    posting.path.write_text(text_of(2))
    job.start("--resume")
    posting.post_much(lambda: None, lambda: None, lambda: None)
    stopped(job)
    lost, recent = savepoints(job)
    assert "are no longer kept (kept_input_bytes_max)" in lost["input_problem"] and not recent["input_problem"]
    listed = causal_output(tmp_path, "savepoint", "--list", "--state-dir", str(job.state))
    assert f"cannot be rolled back to: {lost['input_problem']}" in listed
    warned = [line for line in (job.state / "logs/companion-lines-lines.log").read_text().splitlines() if name in line]
    assert len(warned) == 1 and "can no longer be rolled back to savepoint" in warned[0]
    status, said = job.start("--resume", "--rollback", name).finish()
    assert status == 2 and "no longer kept" in one_line(said)
    job.start("--resume")
    posting.post()
    rows = written(tmp_path / "out.db")
    assert sorted(int(row["line"]) for row in rows) == list(range(len(posting.lines)))
    job.kill_everything()


def begin_again(job: Job) -> None:
    job.kill_everything()
    job.start("--resume")


@pytest.mark.parametrize("turns", [campaign(8)])
def test_kills_of_everything_between_and_during_rollbacks(start: Start, tmp_path: Path, turns: int) -> None:
    posting = Posting(start, tmp_path)
    job = posting.job
    posting.post_much()
    stopped(job)
    [name] = [each["name"] for each in savepoints(job)]
    for turn in range(turns):
        posting.path.write_text(text_of(2))
        job.start("--resume")
        posting.post_much(partial(begin_again, job))
        rolling = partial(ended_of, tmp_path, "rollback", name, "--state-dir", str(job.state))
        if turn % 2:
            ended = rolling()
            assert ended.returncode == 0, ended.stderr
        else:
            job.kill_everything()
            job.start("--resume", "--rollback", name)
        posting.post()
        posting.until_checkpoint()
        job.replace("lines/0")
        job.until("all is out", lambda view: are_out(tmp_path / "out.db", len(posting.lines)))
        check(tmp_path, posting.lines)
        stopped(job)
    job.kill_everything()


def test_another_source_needs_a_stop(start: Start, tmp_path: Path) -> None:
    posting = Posting(start, tmp_path)
    posting.post()
    posting.path.write_text(text_of(2).replace('token="secret"', 'token="other"'))
    ended = ended_of(tmp_path, "upgrade", str(posting.path), "--state-dir", str(posting.job.state))
    assert ended.returncode == 2 and "changes with a stop" in one_line(ended.stderr)
    posting.post()
    posting.job.kill_everything()
