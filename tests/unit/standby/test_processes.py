"""Real processes: any of them may be killed, nothing that lives is disturbed, and nothing is left running."""

from __future__ import annotations

import shutil
import signal
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest

from causal.config import JobConfig
from deploy import cli
from deploy.launching import parts as parts_module
from deploy.launching.parts import RENEWED, Parts
from deploy.ui import breaking
from standby.storage.manifest_files import newest_manifest
from standby.storage.manifests import write_manifest
from tests.unit.standby.stage import TASKS, WAIT_S, Stage, wait_for

Start = Callable[..., Stage]


@pytest.fixture
def start(tmp_path: Path) -> Iterator[Start]:
    stages: list[Stage] = []

    def begin(**options: Any) -> Stage:
        stages.append(Stage(tmp_path / "job", **options))
        return stages[-1]

    yield begin
    for stage in reversed(stages):
        stage.close()


def pids(stage: Stage) -> dict[str, int]:
    return {task: stage.task(task)["pid"] for task in TASKS}


def test_a_job_runs_to_its_end_and_leaves_nothing_running(start: Start) -> None:
    stage = start()
    stage.up()
    wait_for("a checkpoint is complete", lambda: newest_manifest(stage.job))
    assert stage.finish() == (0, "")
    assert stage.nothing_left()
    view = stage.view()
    assert (
        view is not None and view["ended"] == {"status": 0, "reason": "", "lasting": False} and view["recoveries"] == []
    )
    assert stage.task("read/0")["figures"] == {"records_in": 10}
    assert stage.task("out/0")["figures"] == {"records_out": 10}
    assert not Path((stage.job / "runtime").read_text()).exists()


@pytest.mark.parametrize("hung", ["agent", "supervisor"])
def test_an_agent_or_a_supervisor_that_hangs_is_replaced(start: Start, hung: str) -> None:
    stage = start(silent_s=2.0)
    old = {task["task"]: task["pid"] for task in stage.up()["tasks"]}
    pid = stage.agent_pid() if hung == "agent" else stage.supervisor_pid()
    assert pid is not None
    stage.kill(pid, signal.SIGSTOP)
    stage.kill(old["count/0"])
    stage.recovered("count/0", 2)
    assert not Path(f"/proc/{pid}").exists() and pids(stage)["read/0"] == old["read/0"]
    (stage.job / "finish").touch()
    said, _ = stage.process.communicate(timeout=WAIT_S)
    assert stage.process.status == 0 and f"the {hung} has been silent for 2 s and is replaced" in said


@pytest.mark.campaign
def test_a_command_that_kills_says_whether_the_process_has_ended(
    start: Start, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    stage = start()
    before, agent = stage.up(), stage.agent_pid()
    assert agent is not None
    monkeypatch.setattr(cli, "ANSWER_S", 2.0)
    monkeypatch.setattr(breaking, "ANSWER_S", 2.0)
    stage.kill(agent, signal.SIGSTOP)
    assert cli.main(["kill", "count/0", "--state-dir", str(stage.job)]) == 1
    assert capsys.readouterr().err.startswith("causal: asked to kill count/0 (slot ")
    assert breaking.broken(stage.job, "task", "read/0").startswith("asked the silent agent to kill task read/0")
    stage.kill(agent, signal.SIGCONT)
    stage.recovered("count/0", 2, or_later=True)
    stage.recovered("read/0", 2, or_later=True)
    stage.up()
    monkeypatch.undo()
    pid = stage.task("out/0")["pid"]
    assert cli.main(["kill", "out/0", "--state-dir", str(stage.job)]) == 0
    assert not Path(f"/proc/{pid}").exists() and before["tasks"][2]["pid"] == pid
    assert capsys.readouterr().out.startswith("killed out/0 (slot ")


def test_a_job_whose_sockets_are_removed_ends_and_can_be_resumed(start: Start) -> None:
    stage = start()
    stage.up()
    runtime = Path((stage.job / "runtime").read_text())
    shutil.rmtree(runtime)
    status, said = stage.end()
    assert (status, said.splitlines()) == (1, [said])
    assert said.startswith(f"its socket directory {runtime} was removed; resume the job with: causal run ")
    stage = start(resume=True)
    stage.up()
    assert stage.finish()[0] == 0


@pytest.mark.parametrize("how", ["removed", "moved", "made again by what writes there", "interrupted"])
def test_a_job_whose_directory_is_gone_ends_and_says_so(start: Start, tmp_path: Path, how: str) -> None:
    stage = start()
    stage.up()
    runtime = Path((stage.job / "runtime").read_text())
    if how == "made again by what writes there":
        (tmp_path / "another" / "checkpoints").mkdir(parents=True)
        (tmp_path / "another" / "job.json").write_bytes((stage.job / "job.json").read_bytes())
    if how == "interrupted":
        stage.process.send_signal(signal.SIGSTOP)
    stage.job.rename(tmp_path / "elsewhere")
    if how == "made again by what writes there":
        (tmp_path / "another").rename(stage.job)
    if how == "removed":
        shutil.rmtree(tmp_path / "elsewhere", ignore_errors=True)
    if how == "interrupted":
        stage.process.send_signal(signal.SIGTERM)
        stage.process.send_signal(signal.SIGCONT)
    status, said = stage.end()
    assert (status, said.splitlines()) == (1, [said])
    assert said.startswith(
        f"its directory {stage.job} was removed or moved while the job was running; put it back, or if it is "
    )
    assert stage.nothing_left() and not runtime.exists()


def test_a_job_continues_without_its_logs_and_the_copy_of_its_code(start: Start) -> None:
    stage = start()
    stage.up()
    code = stage.job / "code" / "c0de.zip"
    code.parent.mkdir(exist_ok=True)
    code.write_bytes(b"archive")
    wait_for("a checkpoint is complete", lambda: newest_manifest(stage.job))
    stage.seen()
    for part in (code.parent, stage.job / "logs"):
        shutil.rmtree(part, ignore_errors=True)
    wait_for("the code is there again", code.exists)
    wait_for("the logs are there again", (stage.job / "logs").exists)
    stage.kill(stage.task("count/0")["pid"])
    stage.recovered("count/0", 2)
    assert code.read_bytes() == b"archive" and stage.finish()[0] == 0


def test_a_part_of_the_directory_that_is_gone_is_named_and_ends_the_job(start: Start) -> None:
    stage = start()
    stage.up()
    stage.seen()
    gone = stage.job / "checkpoints"
    gone.rename(stage.job.with_name("elsewhere"))
    status, said = stage.end()
    assert (status, said.splitlines()) == (1, [said]) and stage.nothing_left()
    assert (
        said.startswith(f"{gone} was removed ")
        and "while the job was running; put it back and resume the job with: " in said
    )


@pytest.mark.parametrize("shared", [False, True])
@pytest.mark.parametrize(
    ("part", "advice"),
    [
        ("job.json", "start the job again without --resume"),
        *((name, "resume the job with: causal run ") for name in RENEWED),
        ("journal.sqlite", "put it back and resume the job with: causal run "),
    ],
)
def test_every_part_that_recovery_needs_is_missed_unless_a_shared_store_has_it(
    tmp_path: Path, part: str, advice: str, shared: bool
) -> None:
    store = "file:///shared" if shared else ""
    JobConfig(run="r", name="job", pipeline="/p.py", store=store).save(tmp_path)
    (tmp_path / part).touch()
    parts = Parts(tmp_path, lambda line: None)
    assert parts.lost(None) == ""
    (tmp_path / part).unlink()
    lost = parts.lost(None)
    if shared and part == "journal.sqlite":
        assert lost == "", "a resumption has brought it, and the store has it"
    else:
        assert lost.startswith(f"{tmp_path / part} was removed ") and f"while the job was running; {advice}" in lost


def test_files_of_the_last_checkpoint_that_are_gone_are_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(parts_module, "LOOK_S", 0.0)
    parts = Parts(tmp_path, lambda line: None)
    snapshot = tmp_path / "checkpoints" / "count" / "0" / "e00000001-i1.snap"
    snapshot.parent.mkdir(parents=True)
    snapshot.touch()
    JobConfig(run="r", name="job", pipeline="/p.py").save(tmp_path)
    write_manifest(tmp_path, 1, {"count/0": ((str(snapshot.relative_to(tmp_path)), 0, ""),)}, sync=False)
    assert parts.lost(None) == ""
    snapshot.unlink()
    assert parts.lost(None).startswith(
        f"{snapshot} was removed or moved while the job was running; put it back and resume the job with"
    )
    snapshot.touch()
    (tmp_path / "checkpoints" / "manifest-1.json").unlink()
    assert parts.lost(None).startswith(f"{tmp_path / 'checkpoints' / 'manifest-*.json'} was removed or moved ")


@pytest.mark.campaign
def test_a_supervisor_that_works_and_cannot_show_its_view_does_not_hang(start: Start) -> None:
    stage = start(silent_s=2.0)
    supervisor, log = stage.up()["supervisor_pid"], stage.job / "logs" / "supervisor.log"
    aside = stage.job / "status.json.new"

    def blocked() -> bool:
        with suppress(FileExistsError):  # it writes there at this moment
            aside.mkdir()
        return aside.is_dir()

    wait_for("it can write no more", blocked)
    wait_for("this has lasted", lambda: log.read_text().count("status.json cannot be written") >= 10)
    assert stage.supervisor_pid() == supervisor
    aside.rmdir()
    assert stage.finish()[0] == 0


def test_a_killed_causal_run_takes_everything_with_it_and_can_be_resumed(start: Start) -> None:
    stage = start()
    stage.up()
    wait_for("a checkpoint is complete", lambda: newest_manifest(stage.job))
    stage.process.kill()
    wait_for("nothing is left", stage.nothing_left)
    newest = newest_manifest(stage.job)
    assert newest is not None
    again = start(resume=True)
    for task in TASKS:
        again.recovered(task, 2)  # and not the view that the first life left
    view = again.up()
    assert view["checkpoint"]["complete"] >= newest[0] and view["recoveries"] == []
    assert again.finish()[0] == 0


def test_a_companion_is_restarted_when_it_crashes_and_a_wrong_one_ends_the_job(start: Start, tmp_path: Path) -> None:
    crash_once = (
        "import os, sys, time\n"
        "seen = os.path.exists('{0}')\n"
        "open('{0}', 'w').close()\n"
        "if not seen: sys.exit(1)\n"
        "print('the directory /docs does not exist', file=sys.stderr)\n"
        "sys.exit(2)\n"
    )
    failing = start(companion=crash_once.format(tmp_path / "tried"))
    status, output = failing.end()
    assert status == 1 and output.startswith("spark: the directory /docs does not exist")
    assert (tmp_path / "tried").exists() and failing.nothing_left()


def lifelines(pid: int) -> set[str]:
    """Return the lifelines that a process has in its memory, its own or watched ones, by inode."""
    maps = Path(f"/proc/{pid}/maps").read_text().splitlines()
    return {line.split()[4] for line in maps if "memfd:causal-lifeline" in line}


def end_main_thread(stage: Stage, task: str) -> None:
    """Make the task's process die without its pidfd saying so, as soon as the agent watches its lifeline."""
    agent, own = stage.agent_pid(), lifelines(stage.task(task)["pid"])
    assert agent is not None and len(own) == 1
    wait_for("it is watched", lambda: own <= lifelines(agent))
    (stage.job / f"die-{stage.task(task)['slot']}").touch()


def test_a_worker_is_replaced_before_the_kernel_has_ended_it_and_does_not_stay(start: Start) -> None:
    stage = start(heartbeat_timeout_ms=600_000)
    stage.up()
    for incarnation in (2, 3):
        old = pids(stage)["count/0"]
        end_main_thread(stage, "count/0")
        stage.recovered("count/0", incarnation)
        wait_for("it is gone", lambda pid=old: not Path(f"/proc/{pid}").exists())  # type: ignore[misc]
        stage.up()
        replace_agent(stage)  # the next one watches what it adopts
    assert stage.finish()[0] == 0


def replace_agent(stage: Stage) -> None:
    """Kill the agent, and wait until the next one has adopted what lives."""
    agent, table = stage.agent_pid(), stage.job / "processes.json"
    assert agent is not None
    stage.kill(agent, signal.SIGSTOP)  # it writes no more
    left_ns = table.stat().st_mtime_ns
    stage.kill(agent)
    wait_for("it is gone", lambda: stage.agent_pid() != agent)
    wait_for("its table is taken over", lambda: table.stat().st_mtime_ns != left_ns)
