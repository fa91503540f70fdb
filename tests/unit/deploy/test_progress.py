"""The line about a running job: repeated without a terminal, with rates and with what it waits for."""

from __future__ import annotations

from io import StringIO
from typing import Any

from deploy.progress.display import LINE_WIDTH, Progress
from standby.supervision.job_view import JobView
from tests.unit.deploy.test_report import line_of, task, view


class Terminal(StringIO):
    def isatty(self) -> bool:
        return True


def at(entered: int, written: int, **facts: Any) -> dict[str, Any]:
    shown = {**view(), "ended": None, **facts}
    shown["tasks"] = [
        task("read/0", "source", records_in=entered, inflight_bytes=3 << 20),
        task("out/0", "sink", records_out=written),
    ]
    return shown


def test_without_a_terminal_a_line_comes_every_five_seconds() -> None:
    out = StringIO()
    progress = Progress(out)
    for step in range(1, 49):
        progress.show(JobView.of(at(step * 500, step * 250)), step * 0.25)
    rest = "in flight 3.0 MB, checkpoint 3, recoveries 1"
    assert out.getvalue().splitlines() == [
        f"causal: 5.0 s  running: in 10,000 (2,000/s), out 5,000 (1,000/s), {rest}",
        f"causal: 10.0 s  running: in 20,000 (2,000/s), out 10,000 (1,000/s), {rest}",
    ]


def test_on_a_terminal_with_rows_one_line_is_renewed_and_removed() -> None:
    out = Terminal()
    progress = Progress(out, rows_shown=lambda: True)
    for step in (1, 2, 3):
        progress.show(JobView.of(at(step, step)), step)
    progress.close()
    renewed = out.getvalue().split("\r")
    assert len(renewed) == 6 and all(len(line) in (0, LINE_WIDTH) for line in renewed)
    assert renewed[3].rstrip().startswith("3.0 s  running: in 3 (1/s), out 3 (1/s)")


def test_a_line_that_stays_is_above_the_one_that_is_renewed() -> None:
    plain, terminal = StringIO(), Terminal()
    Progress(plain).say("warning: x")
    assert plain.getvalue() == "causal: warning: x\n"
    progress = Progress(terminal, rows_shown=lambda: True)
    progress.show(JobView.of(at(1, 1)), 1.0)
    progress.say("warning: x")
    assert terminal.getvalue().split("\r")[-1] == f"{'causal: warning: x':<{LINE_WIDTH}}\n"


def test_an_agent_that_hangs_is_what_the_job_waits_for() -> None:
    progress = Progress(StringIO())
    progress.show(JobView.of(at(1, 1, agent_silent_s=4.9)), 1.0)
    assert "agent" not in progress.line(1.0)
    progress.show(JobView.of(at(1, 1, agent_silent_s=7.1)), 2.0)
    assert ", the agent has been silent for 7 s: the death of a process would go unnoticed" in progress.line(2.0)


def test_a_rate_never_falls_below_zero_when_positions_go_back() -> None:
    progress = Progress(StringIO())
    progress.show(JobView.of(at(1000, 500)), 1.0)
    progress.show(JobView.of(at(400, 500)), 2.0)
    assert "in 400 (0/s)" in progress.line(2.0)


def test_what_the_job_waits_for_is_named() -> None:
    shown = at(0, 0)
    shown["life"] = {**shown["life"], "first_record_ns": None}
    line = line_of(shown, 12.0, ["words"])
    assert line.endswith("waiting for the first record of words, 12 s")
    assert "waiting" not in line_of(shown, 12.0)
    shown = at(1, 1)
    since_ns = shown["at_ns"] - 7_000_000_000
    shown["tasks"][1]["waiting"] = {"since_ns": since_ns, "reason": "the server\nis down"}
    assert line_of(shown, 1.0).endswith("waiting for its store: out/0, 7 s: the server is down")
    shown["tasks"].append({**task("b/0", "sink"), "waiting": {"since_ns": since_ns - 1, "reason": "x" * 5000}})
    assert line_of(shown, 1.0).endswith(f"waiting for its store: out/0, b/0, 7 s: {'x' * 119}…")
    shown["tasks"] += [{**task(f"n/{i}", "operator"), "state": "replaying"} for i in range(6)]
    assert "not yet running: n/0, n/1, n/2, n/3 and 2 more" in line_of(shown, 1.0)


def test_what_takes_long_is_named() -> None:
    shown = view()
    shown["at_ns"] = 20_000_000_000
    shown["tasks"][1]["doing"] = {"kind": "event", "since_ns": 12_800_000_000, "operator": "slow", "key": "5"}
    assert line_of(shown, 1.0).endswith(", read/1 is in 'slow' for 7.2 s, key 5")
    shown["tasks"][0]["doing"] = {"kind": "load", "since_ns": 12_000_000_000, "done": 1, "total": 2}
    line = line_of(shown, 1.0)
    assert line.endswith("is loading its state for 8.0 s (1 of 2 bytes) and 1 more")
    shown["at_ns"] = 13_000_000_000
    assert "slow" not in line_of(shown, 1.0)


def test_the_hosts_that_are_missing_are_counted_until_the_first_record() -> None:
    shown = {**at(0, 0), "hosts": [{"host": "a", "state": "joined"}, {"host": "b", "state": "lost"}]}
    shown["life"] = {**shown["life"], "first_record_ns": None}
    assert "1 of 3 hosts have joined" in line_of(shown, 1.0, hosts=3)
    assert "joined" not in line_of(shown, 1.0, hosts=1)
    shown["life"] = {**shown["life"], "first_record_ns": 1}
    assert "joined" not in line_of(shown, 1.0, hosts=3)
