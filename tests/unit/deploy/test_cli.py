"""The command line: what is wrong is said in one line, with the promised exit status."""

from __future__ import annotations

import json
import socket
from pathlib import Path

import pytest

from causal.config import JobConfig
from causal.ports import Bundle
from deploy.cli import main
from deploy.jobs.hints import not_running
from deploy.jobs.jobdirectory import check_room_for_sockets
from deploy.jobs.lookup import ROOT
from deploy.jobs.versions import job_of
from deploy.monitoring.querying import _show
from deploy.settings import read_file
from operators.sinks import JsonLinesSink
from tests.unit.deploy import tiny

DOUBLE = '.map("double", lambda r: {"v": r["v"] * 2})'
PIPELINE = tiny.text(DOUBLE, count='pipeline.settings.get("count", "100")')


@pytest.fixture(autouse=True)
def _in_an_empty_directory(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "p.py").write_text(PIPELINE)


def test_plan_names_tasks_and_their_operators(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["plan", "p.py", "--json"]) == 0
    tasks = json.loads(capsys.readouterr().out)["tasks"]
    assert [(task["task"], task["operators"]) for task in tasks] == [
        ("double/0", ["numbers", "double"]),
        ("out/0", ["out"]),
    ]


WRONG = {
    "the file does not exist": "run absent.py",
    "--kill absent/0": "run p.py --kill absent/0@1",
    "--kill numbers/0: the task does not exist; 'numbers' runs in double/0": "run p.py --kill numbers/0@1",
    "--kill double/7: the task does not exist; the tasks are double/0, out/0": "run p.py --kill double/7@1",
    "TASK@SECONDS": "run p.py --kill double/0",
    "NAME=VALUE": "run p.py --set count",
    "--sharing-depth deep": "run p.py --sharing-depth deep",
    "checkpoint_interval_s": "run p.py --checkpoint-interval 0",
    "standbys": "run p.py --standbys many",
    "no setting 'cuont' while it is built; did you mean 'count'?": "run p.py --set cuont=4",
    "--set shape: the pipeline reads no setting 'shape' while it is built; it reads count": "plan p.py --set shape=4",
    "set.toml: settings: cuont: the pipeline reads no setting 'cuont'": "plan p.py --config set.toml",
    "--set cuont: the pipeline reads no setting 'cuont' while it": "plan p.py --config set.toml --set cuont=3",
    "close.toml: unknown setting heartbeat_m; did you mean heartbeat_ms?": "run p.py --config close.toml",
    "unknown setting colour": "run p.py --config wrong.toml",
    "setting key_groups is 'many'; use 1 to 32768": "run p.py --config mistyped.toml",
    "setting sharing_depth is 'all'; use a whole number from 1 to 1000000, or full": "run p.py --config shallow.toml",
    "hosts_expected is 3, but without --listen the job has only one host; add": "run p.py --config expecting.toml",
    "setting guarantee is 5; use causal or epoch or": "run p.py --config unchosen.toml",
    "setting inflight_memory_bytes_max is 'x'; use a whole number": "run p.py --config unsized.toml",
    "standbys is '100000'": "run p.py --standbys 100000",
    "checkpoint_interval_s is inf": "run p.py --checkpoint-interval inf",
    "metrics_port is 70000": "run p.py --metrics-port 70000",
    "setting dead_letters": "run p.py --config letters.toml",
    "state_directory": "run p.py --config spilled.toml",
    "heartbeat_ms is 0": "run p.py --config breathless.toml",
    "sharing_depth is 10000000000000": "run p.py --config deep.toml",
    f"--sharing-depth {'9' * 80}:": f"run p.py --sharing-depth {'9' * 5000}",
    f"standbys is '{'9' * 79};": f"run p.py --standbys {'9' * 5000}",
    "Exceeds the limit": "run p.py --config endless.toml",
    "nested.toml is not TOML": "run p.py --config nested.toml",
    "channel_window_bytes is 10000000000000000000; it must be at most": "run p.py --config credit.toml",
    "dead_letters is '\\x00'; it must be a path": "run p.py --config nul.toml",
    "nothing can be written in /proc": "run p.py --report /proc/outcome.json",
    "File name too long; use another path": f"run p.py --report {'x' * 300}",
    f"{'x' * 300} cannot be used: File name too long": f"status --state-dir {'x' * 300}",
    f"{'y' * 300} cannot be used: File name too long": f"state {'y' * 300} count 1",
    f"{'z' * 300} cannot be used": f"run p.py --resume --state-dir {'z' * 300}",
    "nothing can be written in /nowhere": "run p.py --report /nowhere/outcome.json",
    "is a directory; use a file": "run p.py --report .",
    "choice.toml: setting guarantee is 'perhaps'; it must be causal or": "run p.py --config choice.toml",
    "plan.toml: setting key_groups is 0": "plan p.py --config plan.toml",
    "causal: setting standbys is 'few'": "run p.py --config fine.toml --standbys few",
    "is not TOML": "run p.py --config p.py",
    "does not contain a job to resume": "run p.py --resume",
    "has no jobs": "status",
    "absent does not contain a job to resume": "run p.py --resume --state-dir absent",
    "does not contain a savepoint": "run p.py --from absent",
    "does not contain a job": "kill double/0 --job absent",
}

SETTINGS = {
    "wrong": 'colour = "red"',
    "close": "heartbeat_m = 5",
    "set": "[settings]\ncuont = 4",
    "letters": 'on_error = "dead-letter"\ndead_letters = "/nowhere/letters"',
    "spilled": 'state = "disk"\nstate_directory = "/nowhere"',
    "breathless": "heartbeat_ms = 0",
    "deep": "sharing_depth = 10000000000000",
    "endless": f"key_groups = {'9' * 5000}",
    "nested": f"settings = {'[' * 5000}",
    "credit": "channel_window_bytes = 10000000000000000000",
    "nul": 'dead_letters = "\\u0000"',
    "choice": 'guarantee = "perhaps"',
    "fine": 'guarantee = "epoch"',
    "plan": "key_groups = 0",
    "shallow": 'sharing_depth = "all"',
    "expecting": "hosts_expected = 3",
    "unchosen": "guarantee = 5",
    "unsized": 'inflight_memory_bytes_max = "x"',
    "mistyped": 'key_groups = "many"',
}
"""The lines of files of settings by name."""


@pytest.mark.parametrize("said", WRONG)
def test_a_mistake_is_one_line_and_status_2(said: str, capsys: pytest.CaptureFixture[str]) -> None:
    for name, text in SETTINGS.items():
        Path(f"{name}.toml").write_text(f"{text}\n")
    assert main(WRONG[said].split()) == 2
    [line] = capsys.readouterr().err.splitlines()
    assert line.startswith("causal: ") and said in line


def test_a_file_of_settings_may_begin_with_a_byte_order_mark_and_is_utf_8(tmp_path: Path) -> None:
    file = tmp_path / "marked.toml"
    file.write_bytes('\ufeffdead_letters = "größe"\n'.encode())
    assert read_file(file) == {"dead_letters": "größe"}


def test_a_plan_warns_of_state_that_no_key_divides(capsys: pytest.CaptureFixture[str]) -> None:
    counting = """
from operators import Operator

class Count(Operator):
    def process(self, record, ctx):
        ctx.state["n"] = 1
"""
    Path("p.py").write_text(counting + tiny.text('.process("c", Count(), 2)'))
    assert main(["plan", "p.py"]) == 0
    [line] = capsys.readouterr().err.splitlines()
    assert line.startswith("causal: warning: ") and "operator 'c' keeps state but follows no key_by" in line


@pytest.mark.parametrize("arguments", [[], ["dance"], ["run"], ["run", "p.py", "--guarantee", "perhaps"]])
def test_bad_usage_is_one_line_and_status_2(arguments: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as ended:
        main(arguments)
    assert ended.value.code == 2 and len(capsys.readouterr().err.splitlines()) == 1


def test_a_state_directory_that_holds_something_else_is_left_alone(capsys: pytest.CaptureFixture[str]) -> None:
    Path("mine/logs").mkdir(parents=True)
    Path("mine/logs/diary").write_text("dear diary")
    assert main(["run", "p.py", "--state-dir", "mine"]) == 2
    assert Path("mine/logs/diary").read_text() == "dear diary"
    assert "not a job directory" in capsys.readouterr().err


@pytest.mark.parametrize(
    "wrong",
    [
        ["--kill", "absent/0@1"],
        ["--config", "letters.toml"],
        ["--from", "absent"],
        ["--state-dir", "deep/down/job", "--from", "absent"],
        ["--metrics-port", "99999"],
    ],
)
def test_a_job_that_is_refused_leaves_nothing(wrong: list[str]) -> None:
    Path("letters.toml").write_text('on_error = "dead-letter"\ndead_letters = "/nowhere/letters"\n')
    before = set(Path().rglob("*"))
    assert main(["run", "p.py", *wrong]) == 2
    assert set(Path().rglob("*")) == before
    Path("kept").mkdir()
    assert main(["run", "p.py", "--state-dir", "kept", *wrong[-2:]]) == 2
    assert set(Path().rglob("*")) == {*before, Path("kept")}


def test_a_job_whose_sink_holds_rows_of_another_run_is_refused_before_it_starts(
    capsys: pytest.CaptureFixture[str],
) -> None:
    sink = JsonLinesSink("rows").open_store("out/0", Path())
    sink.open("out/0", "another run", 1)
    sink.write(Bundle(0, 1, b'{"v": 0}\n', 7, 0, 1, (), depends=()))
    sink.close()
    assert main(["run", "p.py"]) == 1
    [line] = capsys.readouterr().err.splitlines()
    assert line.startswith("causal: job tiny: ") and "rows of another run" in line
    assert not ROOT.exists()


def test_a_port_in_use_is_named(capsys: pytest.CaptureFixture[str]) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        assert main(["run", "p.py", "--metrics-port", str(port)]) == 2
    assert f"--metrics-port {port}" in capsys.readouterr().err


def test_the_version_is_told(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as ended:
        main(["--version"])
    assert ended.value.code == 0 and capsys.readouterr().out.startswith("causal-streams ")


def test_a_mistake_is_found_before_the_state_of_an_earlier_job_is_discarded(
    capsys: pytest.CaptureFixture[str],
) -> None:
    Path("job/checkpoints").mkdir(parents=True)
    Path("job/lock").touch()
    Path("job/checkpoints/dear").touch()
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = str(taken.getsockname()[1])
        for wrong in (["--metrics-port", port], ["--from", "absent"], ["--from", "job"], ["--report", "/nowhere/x"]):
            assert main(["run", "p.py", "--state-dir", "job", *wrong]) == 2
            assert Path("job/checkpoints/dear").exists(), wrong
    assert len(capsys.readouterr().err.splitlines()) == 4


def test_a_place_of_temporary_files_that_is_too_long_is_refused_before_anything_is_discarded(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("tempfile.tempdir", f"/{'x' * 79}")
    check_room_for_sockets()
    monkeypatch.setattr("tempfile.tempdir", f"/{'x' * 80}")
    assert main(["run", "p.py", "--state-dir", "job"]) == 2
    [line] = capsys.readouterr().err.splitlines()
    assert line.endswith("is too long for sockets in it; set TMPDIR=/tmp") and not Path("job").exists()


def test_what_the_system_refuses_is_one_line_and_status_1(capsys: pytest.CaptureFixture[str]) -> None:
    Path("job", "job.json").mkdir(parents=True)
    assert main(["kill", "double/0", "--state-dir", "job"]) == 2  # it has no graph
    Path("job", "topology.json").mkdir()
    capsys.readouterr()
    assert main(["kill", "double/0", "--state-dir", "job"]) == 1
    assert capsys.readouterr().err == f"causal: {Path('job', 'topology.json').absolute()}: Is a directory\n"


def job_on_disk(name: str, pipeline: str) -> Path:
    job = ROOT / name
    job.mkdir(parents=True)
    JobConfig(run="r", name=name, pipeline=str(Path(pipeline).absolute())).save(job)
    return job


def test_a_resume_finds_the_job_by_its_file_and_of_several_by_the_name_of_the_pipeline() -> None:
    path = Path("p.py").absolute()
    assert job_of(path, None, {}) == ROOT / "tiny"
    older = job_on_disk("older", "p.py")
    job_on_disk("other", "q.py")
    assert job_of(path, None, {}) == older  # renamed since: `--code kept` must find it
    assert job_of(path, "elsewhere", {}) == Path("elsewhere")
    tiny = job_on_disk("tiny", "p.py")
    assert job_of(path, None, {}) == tiny


@pytest.mark.parametrize("text", [PIPELINE.replace("tiny", "third"), "pipeline ="])
def test_a_resume_that_could_mean_several_jobs_is_refused(text: str, capsys: pytest.CaptureFixture[str]) -> None:
    job_on_disk("one", "p.py")
    job_on_disk("two", "p.py")
    Path("p.py").write_text(text)
    assert main(["run", "p.py", "--resume"]) == 2
    [line] = capsys.readouterr().err.splitlines()
    assert line.endswith("2 jobs run p.py; choose one with --state-dir .causal/one or --state-dir .causal/two")


@pytest.mark.parametrize(
    ("ended", "expected"),
    [
        (None, "is not running; resume it with: causal run p.py --resume"),
        ({"status": 1, "reason": "no"}, "is not running; resume it with: causal run p.py --resume"),
        ({"status": 0, "reason": "stopped at savepoint 2"}, "is not running; resume it with: causal run p.py --resume"),
        ({"status": 0, "reason": ""}, "is not running: it has finished"),
    ],
)
def test_only_a_job_that_can_be_resumed_is_said_to(ended: object, expected: str) -> None:
    job = job_on_disk("tiny", "p.py")
    assert not_running(job).endswith("is not running; resume it with: causal run p.py --resume")
    (job / "status.json").write_text(json.dumps({"job": "tiny", "ended": ended}))
    assert not_running(job) == f"the job in {job} {expected}"


def test_timers_of_the_wall_clock_are_shown_as_moments(capsys: pytest.CaptureFixture[str]) -> None:
    kept = {"timers": {"idle": 1_795_351_424.5}, "event-timers": {"late": 100.0}}
    _show([{"task": "a/0", "epoch": 3, "state": kept}], 7, below_full=False)
    assert capsys.readouterr().out.splitlines() == [
        "a/0, key 7, as of checkpoint 3",
        '  timers        {"idle": "2026-11-22T12:43:44.500000Z"}',
        '  event-timers  {"late": 100.0}',
    ]
