"""The function that runs in an executor, without Spark: it refuses what cannot work, and its agent dies with it."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from causal.network.curve import new_key
from causal.network.roster import SUPERVISOR, Roster, save_members
from deploy.spark import executor
from deploy.spark.driver import reason_of
from operators.code_archive.archive import runtime_version
from tests.faults.job import wait_for

ROOT = Path(__file__).resolve().parents[4]


def assignment(folder: Path) -> dict[str, object]:
    key, roster = new_key("spark-1"), folder / "roster.toml"
    save_members(roster, [new_key(SUPERVISOR), key])
    return {
        "name": key.name, "public": key.public, "secret": key.secret, "join": "tcp://127.0.0.1:9",
        "roster": roster.read_text(), "slots": 3, "version": runtime_version(),
    }  # fmt: skip


def agents(folder: Path) -> list[int]:
    """Return the `causal agent` commands whose directory is below that folder."""
    pids = []
    for entry in os.listdir("/proc"):
        try:
            command = Path(f"/proc/{entry}/cmdline").read_bytes() if entry.isdecimal() else b""
        except OSError:
            continue
        if b"spark-1.key" in command and str(folder).encode() in command:
            pids.append(int(entry))
    return pids


def test_an_agent_ends_with_the_process_that_runs_it_however_that_ends(tmp_path: Path) -> None:
    code = "import json, sys\nfrom deploy.spark.executor import serve\nserve(json.loads(sys.stdin.read()))"
    environment = {**os.environ, "SPARK_LOCAL_DIRS": str(tmp_path), "PYTHONPATH": str(ROOT)}
    parent = subprocess.Popen([sys.executable, "-c", code], stdin=subprocess.PIPE, env=environment)
    try:
        assert parent.stdin is not None
        parent.stdin.write(json.dumps(assignment(tmp_path)).encode())
        parent.stdin.close()
        wait_for("the agent is there", lambda: bool(agents(tmp_path)))
        folder = next(tmp_path.glob("causal-agent-*"))
        assert (folder / "spark-1.key").stat().st_mode & 0o077 == 0
        assert set(Roster.load(folder / "hosts.toml").members) == {SUPERVISOR, "spark-1"}
    finally:
        parent.send_signal(signal.SIGKILL)
        parent.wait(10)
    wait_for("the agent has ended", lambda: not agents(tmp_path))


def test_an_agent_that_is_refused_returns_its_status_and_its_line(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("SPARK_LOCAL_DIRS", str(tmp_path))
    outcome = executor.serve({**assignment(tmp_path), "join": "nowhere"})
    assert outcome["status"] == executor.REFUSED and "nowhere is not an address" in outcome["line"]
    assert not list(tmp_path.glob("causal-agent-*")), "nothing is left in the executor's directory"


def test_an_executor_with_another_version_or_without_the_package_is_named_with_what_to_do() -> None:
    assert executor.lacking(runtime_version()) == ""
    assert "the job needs 9.9" in executor.lacking("9.9") and "install causal-streams 9.9 there" in executor.lacking(
        "9.9"
    )
    source = Path(executor.__file__).read_text()
    code = f"{source}\nprint(lacking('9.9'))"
    bare = subprocess.run([sys.executable, "-I", "-S", "-c", code], capture_output=True, text=True, cwd="/", check=True)
    assert "lacks causal-streams (No module named 'deploy')" in bare.stdout


def test_the_function_is_sent_by_value_so_an_executor_without_the_package_can_say_so(tmp_path: Path) -> None:
    cloudpickle = pytest.importorskip("pyspark.cloudpickle")
    cloudpickle.register_pickle_by_value(executor)
    try:
        (tmp_path / "function").write_bytes(cloudpickle.dumps(executor.lacking))
    finally:
        cloudpickle.unregister_pickle_by_value(executor)
    # The part of PySpark that every executor has, and nothing of this package.
    code = "import pickle, sys, types\nsys.modules['pyspark'] = types.ModuleType('pyspark')\n"
    code += f"sys.modules['pyspark'].__path__ = [{str(Path(cloudpickle.__file__).parents[1])!r}]\n"
    code += f"print(pickle.load(open({str(tmp_path / 'function')!r}, 'rb'))('9.9'))"
    bare = subprocess.run([sys.executable, "-I", "-S", "-c", code], capture_output=True, text=True, cwd="/")
    assert "lacks causal-streams (No module named 'deploy')" in bare.stdout, bare.stderr


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("An error occurred\n: org.apache.spark.SparkException: Job aborted: Task 0 in stage 0.0 failed 1 times, most "
         "recent failure: Lost task 0.0 (TID 0): ExecutorLostFailure (executor 1 exited) Reason: Command exited with "
         "code 137\nDriver stacktrace:", "Command exited with code 137"),
        ("x\npyspark.errors: [PYTHON_VERSION_MISMATCH] Python in worker has different version: 3.9",
         "[PYTHON_VERSION_MISMATCH] Python in worker has different version: 3.9"),
        ('IOException: Cannot run program "./env/python": error=2', 'Cannot run program "./env/python": error=2'),
        ("\n\nsomething else\nmore", "something else"),
        ("", "RuntimeError"),
    ],
)  # fmt: skip
def test_the_part_of_an_error_that_says_what_happened_is_kept(text: str, reason: str) -> None:
    assert reason_of(RuntimeError(text)) == reason
