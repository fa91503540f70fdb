"""`causal replay --debugpy`: an IDE attaches, and is in the user's function before the event that was asked for."""

from __future__ import annotations

import os
import re
import socket
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from benchmarks.harness.processes import wait_for
from benchmarks.harness.written import records_in
from tests.faults.dap import DebugClient
from tests.faults.test_replay_debugger import CAUSAL, JOB, LINE, replay
from tests.faults.test_replay_debugger import recorded as recorded

pytest.importorskip("debugpy", reason="the extra `debug` is not installed")
PORT = re.compile(r"^attach an IDE to 127\.0\.0\.1:(\d+);")


@contextmanager
def waiting(place: Path, *options: str) -> Iterator[tuple[subprocess.Popen[str], int]]:
    """A replay that waits for an IDE, and the port to which it connects."""
    command = [*CAUSAL, "replay", "shop", *options, "--debugpy", "0"]
    with subprocess.Popen(command, cwd=place, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, text=True) as process:
        try:
            assert process.stdout is not None
            port = next(match[1] for line in process.stdout if (match := PORT.match(line)))
            yield process, int(port)
        finally:
            process.kill()


def listening(port: int) -> bool:
    """Whether a process of this machine listens at the port."""
    lines = Path("/proc/net/tcp").read_text().splitlines()[1:]
    return any(line.split()[1].endswith(f":{port:04X}") and line.split()[3] == "0A" for line in lines)


def test_an_ide_stops_in_the_function_before_the_event_and_steps(recorded: Path) -> None:
    row = list(records_in(recorded / "out.db"))[1000]
    shop = str(recorded / "shop.py")
    with waiting(recorded, "--row", "out/0:1000") as (process, port), DebugClient(port) as ide:
        lines = Path("/proc/net/tcp").read_text().splitlines()
        assert [line.split()[1] for line in lines if f":{port:04X}" in line.split()[1]][0].startswith("0100007F:")
        ide.attach()
        thread, path, line, function = ide.stopped()
        assert (path, line, function.rpartition(".")[2]) == (shop, LINE, "process")
        assert f"'order': {row['order']}" in ide.variables(thread)["record"]
        before = row["total"] - row["cents"]
        assert ide.evaluate(thread, "ctx.state['sum']") == str(before)
        assert ide.evaluate(thread, "replay.state['state']['sum']") == str(before)
        assert ide.evaluate(thread, "replay.after") == repr(f"{{'state': {{'sum': {row['total']}}}}}")
        ide.ask("next", threadId=thread)
        thread, path, line, _ = ide.stopped()
        assert (path, line) == (shop, LINE + 1)
        assert ide.evaluate(thread, "ctx.state['sum']") == str(row["total"])
        ide.evaluate(thread, "replay.next_event()")
        ide.ask("continue", threadId=thread)
        thread, path, line, _ = ide.stopped()
        assert (path, line) == (shop, LINE) and f"'order': {row['order'] + 40}" in ide.variables(thread)["record"]
        ide.ask("continue", threadId=thread)
        assert process.wait(60) == 0
    wait_for("the adapter has ended", lambda: not listening(port))


def test_breakpoints_of_the_ide_hold_after_the_stop(recorded: Path) -> None:
    shop = str(recorded / "shop.py")
    yields = JOB.splitlines().index(
        '        yield {**record, "total": ctx.state["sum"], "luck": ctx.random.random(), "at": ctx.now()}'
    )
    with waiting(recorded, "--key", "c7") as (_, port), DebugClient(port) as ide:
        ide.attach(**{shop: [yields + 1]})
        thread, path, line, _ = ide.stopped()
        assert (path, line) == (shop, LINE)
        ide.ask("continue", threadId=thread)
        thread, path, line, _ = ide.stopped()
        assert (path, line) == (shop, yields + 1) and "'c7'" in ide.variables(thread)["record"]


def test_without_debugpy_one_line_says_what_to_install(recorded: Path, tmp_path: Path) -> None:
    (tmp_path / "debugpy.py").write_text("raise ImportError('no debugpy')\n")
    environment = {**os.environ, "PYTHONPATH": str(tmp_path)}
    command = [sys.executable, "-m", "deploy", "replay", "shop", "--key", "c7", "--debugpy", "0"]
    done = subprocess.run(
        command, cwd=recorded, env=environment, stdin=subprocess.DEVNULL, capture_output=True, text=True, timeout=60
    )
    assert done.returncode == 2 and done.stderr.count("\n") == 1, done.stderr
    assert "pip install 'causal-streams[debug]'" in done.stderr


def test_a_port_that_is_taken_or_none_is_one_line(recorded: Path) -> None:
    assert "a port is a number up to 65535" in replay(recorded, "--debugpy", "70000", status=2)
    with socket.create_server(("127.0.0.1", 0)) as taken:
        error = replay(recorded, "--key", "c7", "--debugpy", str(taken.getsockname()[1]), status=2)
    assert "the port cannot be opened" in error and error.count("\n") == 1
