"""`causal bundle` of a real job of which a task was killed: the file replays alone, also redacted, and in a test."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path
from shutil import copy

import pytest

from benchmarks.harness.written import records_in
from causal.errors import OperatorFailed, PipelineError, ReplayDivergence
from deploy.cli import main
from operators.builder.loading import load
from operators.recordings.bundle import open_bundle
from operators.testing import replay

JOB = """
import time

from operators import Operator, Pipeline
from operators.sinks import SqliteSink
from operators.sources import FilesSource

pipeline = Pipeline("shop")
settings = pipeline.settings.get("api_token", ""), pipeline.settings.get("database", "")


class Total(Operator):
    def process(self, record, ctx):
        ctx.state["sum"] = ctx.state.get("sum", 0) + record["cents"]
        yield {**record, "total": ctx.state["sum"], "luck": ctx.random.random(), "rate": ctx.call(self.rate)}

    def rate(self):
        import rates
        time.sleep(0.0008)  # which a replay does not repeat
        return rates.RATE


(
    pipeline.source("orders", FilesSource("orders.jsonl"))
    .key_by(lambda order: order["customer"])
    .process("total", Total(), parallelism=2)
    .sink("out", SqliteSink("out.db"))
)
"""
HOOK = """
def mask(source, record):
    return {**record, "card": "-"}

def unkeyed(source, record):
    return {**record, "customer": "x"}

def nothing(source, record):
    pass
"""
PROGRAM = """
import os, sys, tempfile
own = tempfile.gettempdir() + "/causal-"

def audited(event, arguments):
    place = arguments[0] if arguments else ""
    if event in ("socket.connect", "socket.bind", "subprocess.Popen"):
        os.write(2, f"touched: {event} {arguments}".encode())
    elif event == "open" and type(place) is str and (arguments[2] & 0o3 or "shop" in place or "orders" in place):
        if not place.startswith((own, "/dev/null")):
            os.write(2, f"touched: {place}".encode())

from causal.errors import OperatorFailed, PipelineError, ReplayDivergence
from deploy.cli import main
from operators.builder.loading import load
sys.addaudithook(audited)
sys.exit(main(sys.argv[1:]))
"""
CAUSAL = (sys.executable, "-m", "deploy")


def orders() -> str:
    return "".join(
        f'{{"order": {n}, "customer": "c{n % 40}", "cents": {100 + n * 37 % 900}, "card": "4111 {n:04}"}}\n'
        for n in range(6_000)
    )


def causal(place: Path, *arguments: str, status: int = 0) -> tuple[str, str]:
    """Return the output and the errors of a command."""
    done = subprocess.run([*CAUSAL, *arguments], cwd=place, capture_output=True, text=True, timeout=100)
    assert done.returncode == status, done.stdout + done.stderr
    return done.stdout, done.stderr


@pytest.fixture(scope="module")
def recorded(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A directory with a recorded job of which a task was killed."""
    place = tmp_path_factory.mktemp("origin")
    (place / "shop.py").write_text(JOB)
    (place / "rates.py").write_text("RATE = 7\n")
    (place / "hook.py").write_text(HOOK)
    (place / "orders.jsonl").write_text(orders())
    (place / "job.toml").write_text("channel_window_bytes = 65536\nbatch_elements_max = 64\n")  # barriers soon arrive
    options = ("--record", "1h,1GB", "--checkpoint-interval", "0.1", "--kill", "total/0@0.3", "--config", "job.toml")
    settings = ("--set", "api_token=s3cret", "--set", "database=postgres://ann:s3cret@db/shop")
    causal(place, "run", "shop.py", *options, *settings)
    return place


@pytest.mark.parametrize(
    ("options", "line"),
    [
        (("--epoch", "0"), "name the task with --task; the tasks are orders/0, total/0, total/1, out/0"),
        (("--epoch", "1..b", "--task", "out/0"), "use an epoch of the recording, or two such as"),
        (("--epoch", "999", "--task", "out/0"), "contains no epoch 999"),
        (("--around", "noon", "--task", "out/0"), "use a time such as"),
        (("--at-crash", "--task", "total/1"), "total/1 did not die in the recorded epochs"),
        (("--at-crash", "--max-size", "big"), "use a size such as 64MB"),
        (("--at-crash", "--redact", "hook.py"), "use HOOK.py:FUNCTION"),
        (("--at-crash", "--redact", "hook.py:none"), "has no function none(source, record)"),
    ],
)
def test_wrong_usage_is_one_line(
    recorded: Path,
    options: tuple[str, ...],
    line: str,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.chdir(recorded)
    assert main(["bundle", "shop", *options, "-o", "wrong.causal"]) == 2
    error = capsys.readouterr().err
    assert line in error and error.count("\n") == 1
    assert not (recorded / "wrong.causal").exists()


@pytest.fixture(scope="module")
def alone(recorded: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A directory with bundle files of the job, which is gone with its code, its input and its rows."""
    place = tmp_path_factory.mktemp("elsewhere")
    causal(recorded, "bundle", "shop", "--at-crash", "-o", str(place / "bug.causal"))
    causal(recorded, "bundle", "shop", "--at-crash", "-o", str(place / "again.causal"))
    _, warned = causal(
        recorded, "bundle", "shop", "--at-crash", "-o", str(place / "masked.causal"), "--redact", "hook.py:mask"
    )
    assert "only records of sources are redacted; the file also contains" in warned
    assert "recorded answers of the outside world" in warned
    assert "settings that look like secrets are replaced: api_token, database" in warned
    for option, value, status, line in (
        ("--redact", "hook.py:unkeyed", 0, "replay to its end: total/0 (total)"),
        ("--redact", "hook.py:nothing", 2, "returned None for a record of 'orders'; return the record"),
        ("--max-size", "1KB", 2, "the bundle exceeds 1,000 bytes; choose"),
    ):
        output = str(place / f"{status}.causal")
        _, error = causal(recorded, "bundle", "shop", "--at-crash", "-o", output, option, value, status=status)
        assert line in error and (place / f"{status}.causal").exists() == (status == 0)
    last = open_bundle(place / "bug.causal").last
    causal(recorded, "bundle", "shop", "--task", "out/0", "--epoch", f"0..{last}", "-o", str(place / "all.causal"))
    copy(recorded / "out.db", place / "out.db")
    recorded.rename(recorded.with_name("hidden"))
    return place


def test_equal_recordings_make_equal_files(alone: Path) -> None:
    assert (alone / "bug.causal").read_bytes() == (alone / "again.causal").read_bytes()


def test_a_file_replays_without_the_job_and_touches_nothing(alone: Path) -> None:
    last = open_bundle(alone / "bug.causal").last
    done = subprocess.run(
        [sys.executable, "-c", PROGRAM, "replay", "bug.causal", "--epoch", str(last)],
        cwd=alone, capture_output=True, text=True, timeout=100,
    )  # fmt: skip
    assert done.returncode == 0, done.stdout + done.stderr
    assert f"to {last} of orders/0, total/0: " in done.stdout and "channels verified" in done.stdout
    assert " 0 channels verified" not in done.stdout
    assert "touched" not in done.stderr


def test_the_point_of_the_file_is_the_default(alone: Path) -> None:
    shown, _ = causal(alone, "replay", "bug.causal")
    assert shown.startswith("total/0, epoch ") and "'card': '4111 " in shown and "shop.py:" in shown
    assert "  after   {'state': {'sum': " in shown


def test_no_secret_is_in_the_file(alone: Path) -> None:
    bundle = open_bundle(alone / "bug.causal")
    (version,) = bundle.versions
    assert version.config.settings == {"api_token": "redacted", "database": "postgres://ann:redacted@db/shop"}
    for name in bundle._file.sizes:
        assert b"s3cret" not in bundle._file.read(name)


def test_a_redacted_file_replays_and_compares_nothing(alone: Path) -> None:
    shown, noted = causal(alone, "replay", "masked.causal")
    assert "'card': '-'" in shown and "4111" not in shown
    assert "note: the input is redacted, so nothing is compared" in noted
    bundle = open_bundle(alone / "masked.causal")
    for name in bundle._file.sizes:
        assert b"4111 " not in bundle._file.read(name) or name.startswith("checkpoints/")


@pytest.mark.parametrize(
    ("options", "line"),
    [
        (("--epoch", "9999"), "contains no epoch 9999; it has epochs"),
        (("--task", "out/0"), "there is no task 'out/0'; the tasks are orders/0, total/0"),
        (("--row", "in/0:1"), "no sink writes as 'in/0'"),
        (("--at", "2001-01-01T00:00:00"), "contains nothing of 2001-01-01"),
    ],
)
def test_what_a_file_lacks_is_one_line(
    alone: Path, options: tuple[str, ...], line: str, capfd: pytest.CaptureFixture[str]
) -> None:
    assert main(["replay", str(alone / "bug.causal"), *options]) == 2
    error = capfd.readouterr().err
    assert line in error and error.count("\n") == 1


def test_a_task_of_a_sink_has_the_rows_that_the_job_wrote(alone: Path) -> None:
    row = list(records_in(alone / "out.db"))[3]
    shown, _ = causal(alone, "replay", "all.causal", "--row", "out/0:3")
    assert f"'order': {row['order']}" in shown


# In a test.

TEST = """
from operators.testing import replay

def test_the_failure_of_last_night():
    result = replay("bug.causal")
    assert result.verified >= 3 and result.raised is None
    assert result.emitted[-1]["total"] == result.state(result.emitted[-1]["customer"])["sum"]
"""


@pytest.fixture(scope="module")
def project(alone: Path) -> Path:
    """A directory with the bundle files, and the code as it is now."""
    (alone / "shop.py").write_text(JOB)
    (alone / "test_bug.py").write_text(TEST)
    (alone / "rounded.py").write_text(JOB.replace('record["cents"]\n', 'record["cents"] // 10 * 10\n'))
    (alone / "failing.py").write_text(JOB.replace("        yield", '        record["price"]\n        yield'))
    (alone / "asking.py").write_text(JOB.replace("        yield", "        ctx.now()\n        yield"))
    (alone / "renamed.py").write_text(JOB.replace('"total", Total()', '"sum", Total()'))
    return alone


def test_pytest_replays_a_file_with_the_code_of_the_project(project: Path) -> None:
    run = (sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", "test_bug.py")
    done = subprocess.run(run, cwd=project, capture_output=True, text=True, timeout=100)
    assert done.returncode == 0, done.stdout
    (project / "shop.py").write_text((project / "rounded.py").read_text())
    done = subprocess.run(run, cwd=project, capture_output=True, text=True, timeout=100)
    (project / "shop.py").write_text(JOB)
    assert done.returncode == 1 and "total/0 emits another record " in done.stdout


def test_another_result_is_shown_with_the_first_record_that_differs(project: Path) -> None:
    with pytest.raises(
        ReplayDivergence, match=r"^total/0 emits another record [01] to out/0: it was \{.*\} and is \{.*\}; if"
    ):
        replay(project / "bug.causal", code=project / "rounded.py")


def test_a_meant_difference_can_be_asserted_on(project: Path) -> None:
    result = replay(project / "bug.causal", code=project / "rounded.py", verify=False)
    assert result.verified == 0 and {row["total"] % 10 for row in result.emitted} == {0}
    before = replay(project / "bug.causal", code="bundle")
    assert [row["luck"] for row in result.emitted] == [row["luck"] for row in before.emitted]
    assert before.verified >= 3 and "total/0, epochs 0 to" in repr(before)


def test_an_exception_of_the_code_is_that_of_the_test(project: Path) -> None:
    with pytest.raises(OperatorFailed, match="KeyError: 'price' at .*failing.py") as caught:
        replay(project / "bug.causal", code=project / "failing.py")
    assert isinstance(caught.value.__cause__, KeyError)
    result = replay(project / "bug.causal", code=project / "failing.py", verify=False)
    assert "KeyError: 'price'" in str(result.raised)


def test_code_that_asks_otherwise_is_named(project: Path) -> None:
    with pytest.raises(ReplayDivergence, match="compare such code with `causal diff`"):
        replay(project / "bug.causal", code=project / "asking.py", verify=False)


def test_code_with_other_tasks_is_refused(project: Path) -> None:
    with pytest.raises(
        PipelineError, match="other tasks than the recorded code: total/0 performs nothing, and performed"
    ):
        replay(project / "bug.causal", code=project / "renamed.py")


def test_code_that_is_not_found_is_refused(project: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    copy(project / "bug.causal", tmp_path)
    with pytest.raises(PipelineError, match=r"shop.py, the file of the recorded pipeline, is neither below"):
        replay("bug.causal")


def test_a_pipeline_and_the_rows_of_its_sink(project: Path) -> None:
    result = replay(project / "all.causal", code=load(project / "shop.py"))
    assert result.rows("out") == list(records_in(project / "out.db"))[: len(result.rows("out"))] != []
    with pytest.raises(KeyError, match="sink 'in' is not in the bundle of out/0, its sinks are out"):
        result.rows("in")


def test_a_redacted_file_is_performed_and_not_compared(project: Path) -> None:
    result = replay(project / "masked.causal")
    assert result.verified == 0 and {row["card"] for row in result.emitted} == {"-"}
