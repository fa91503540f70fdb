"""Logs of hosts: agents send lines at a limited rate, the supervisor keeps them within bounds, users read them."""

from __future__ import annotations

from pathlib import Path

import pytest

from benchmarks.harness.graphs import chain_of
from causal.config import JobConfig
from deploy.cli import main
from standby.blueprint import Blueprint
from standby.host.log_sender import LOOK_S, TEXT_BYTES_MAX, LogSender
from standby.network.control import Inbox, pack
from standby.storage import host_logs
from standby.storage.host_logs import HostLogs
from standby.supervision import events
from tests.unit.causal.test_log_tails import append, line


@pytest.fixture
def job(tmp_path: Path) -> Path:
    (tmp_path / "logs").mkdir()
    return tmp_path


def test_an_agent_sends_each_line_once_also_after_it_was_started_again(job: Path) -> None:
    sender = LogSender(job)
    assert sender.take(0.0) == ""
    append(job / "logs" / "w1.log", line(1, "a/0", "one"))
    assert sender.take(LOOK_S / 2) == "", "it looks twice a second"
    assert sender.take(LOOK_S) == line(1, "a/0", "one")
    append(job / "logs" / "w1.log", line(2, "a/0", "two"))
    assert LogSender(job).take(0.0) == line(2, "a/0", "two")


def test_a_process_that_prints_too_fast_is_cut_and_the_line_before_says_how_much(job: Path) -> None:
    sender = LogSender(job)
    everything = "".join(line(number % 60, "a/0", f"{number:09d}") for number in range(5000))
    append(job / "logs" / "w1.log", everything)
    first, _, rest = sender.take(0.0).partition("\n")
    skipped = len(everything) - TEXT_BYTES_MAX
    assert first.endswith(f"{skipped:,} bytes of w1.log are only on this host, because they were written too fast")
    assert len(rest) <= TEXT_BYTES_MAX + 100 and rest.endswith("000004999\n")


def test_the_supervisor_keeps_two_files_per_host_at_most(job: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(host_logs, "LOG_BYTES_MAX", 1000)
    logs = HostLogs(job / "logs")
    for number in range(100):
        logs.take("b", line(number % 60, "a/0", f"{number:03d}"))
    sizes = {path.name: path.stat().st_size for path in (job / "logs").iterdir()}
    assert sorted(sizes) == ["host-b.log", "host-b.log.1"] and max(sizes.values()) <= 1000
    assert (job / "logs" / "host-b.log").read_text().endswith("099\n")


@pytest.mark.parametrize("name", ["../x", "B", "", "a/b", "x" * 100])
def test_a_host_without_a_proper_name_gets_no_file(name: str, job: Path) -> None:
    logs = HostLogs(job / "logs")
    logs.take(name, "line\n")
    assert logs.dropped == 1 and not list((job / "logs").iterdir())


def test_a_text_that_is_too_long_is_dropped_and_one_from_a_worker_is_none() -> None:
    inbox = Inbox()
    text = "x" * events.LOG_CHARACTERS_MAX
    assert inbox.receive_from("b", "", pack("host_log", text=text), None) == events.HostLog("b", text)
    assert inbox.receive_from("b", "", pack("host_log", text=text + "x"), None) is None
    assert inbox.receive_from("b", "w1", pack("host_log", text="x"), None) is None
    assert inbox.receive(b"agent", pack("host_log", text="x")) is None
    assert inbox.dropped == 1


def test_users_read_the_lines_of_all_hosts_or_of_one(job: Path, capsys: pytest.CaptureFixture[str]) -> None:
    JobConfig(run="r", name="job", pipeline="/p.py").save(job)
    Blueprint(chain_of("a/0")).save(job)
    (job / "lock").touch()
    append(job / "logs" / "supervisor.log", line(1, "supervisor", "first"))
    logs = HostLogs(job / "logs")
    logs.take("b", line(2, "a/0", "second") + line(4, "agent", "fourth"))
    logs.take("c", line(3, "a/0", "third"))

    def read(*arguments: str) -> list[str]:
        assert main(["logs", *arguments, "--state-dir", str(job)]) == 0
        return [shown.partition(" ")[2] for shown in capsys.readouterr().out.splitlines()]

    everything = ["supervisor print: first", "a/0@b print: second", "a/0@c print: third", "agent@b print: fourth"]
    assert read() == everything
    assert read("--host", "b") == [everything[1], everything[3]]
    assert read("a/0", "--host", "c") == [everything[2]]
    assert read("a/0") == everything[1:3]
    assert main(["logs", "--host", "z", "--state-dir", str(job)]) == 2
    assert "logs --host z: no lines were received from that host; there are b, c" in capsys.readouterr().err
