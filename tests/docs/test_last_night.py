"""The page about the bug of last night: its commands, in their order, do what it shows."""

from __future__ import annotations

import json
import os
import re
import shlex
import subprocess
import sys
from pathlib import Path

from tests.faults.job import WAIT_S

ROOT = Path(__file__).resolve().parents[2]
PAGE = (ROOT / "docs" / "last_night.md").read_text()
SHOWN = dict(re.findall(r"^\$ (.+)\n((?:(?!\$ |```).*\n)*)", PAGE, re.MULTILINE))
"""Command → what the page shows of its output."""
ROW = "out/0:38"
"""The row of the page; the dice of each run choose another one."""


def performed(place: Path, command: str, row: str, status: int = 0, typed: str = "") -> str:
    """Perform a command of the page in a shell, about the row of this run, and return what it prints."""
    assert command in SHOWN, f"the page shows no {command}"
    line = command.replace(ROW, row)
    if line.startswith("causal "):
        line = f"{shlex.quote(sys.executable)} -m deploy {line.removeprefix('causal ')}"
    environment = {**os.environ, "PYTHONPATH": str(ROOT)}
    done = subprocess.run(
        line, shell=True, cwd=place, env=environment, input=typed, capture_output=True, text=True, timeout=WAIT_S
    )
    assert done.returncode == status, done.stdout + done.stderr
    return done.stdout


def without_values(text: str) -> str:
    """Return a text without what differs from run to run: numbers, names of customers and directories."""
    text = text.replace("  state   empty\n", "  state   {'state': {'paid': 0}}\n")  # the first parcel of a customer
    return re.sub(r"'(Ada|Ben|Cleo|Dan|Eve)'", "NAME", re.sub(r"/\S+/|-?[\d,.]*\d", "", text))


def test_the_page_ends_in_the_debugger_at_the_record_that_caused_the_row(tmp_path: Path) -> None:
    (tmp_path / "parcels.py").write_text((ROOT / "examples" / "tutorial" / "parcels.py").read_text())
    performed(tmp_path, "causal run parcels.py --record --checkpoint-interval 0.5", "")
    assert "epochs 0 to" in performed(tmp_path, "causal recordings parcels", "")
    query = next(command for command in SHOWN if command.startswith("sqlite3 "))
    database, select = shlex.split(query)[1:]
    reading = "import sqlite3, sys; print(*sqlite3.connect(sys.argv[1]).execute(sys.argv[2]).fetchone(), sep='|')"
    row_read = subprocess.run(
        [sys.executable, "-c", reading, database, select], cwd=tmp_path, capture_output=True, text=True
    )
    account, position, text = row_read.stdout.strip().split("|", 2)
    row = json.loads(text)
    before, fell = row["paid"] + 5_000 - row["cents"], row["paid"]

    command = f"causal replay parcels --row {ROW}"
    shown = performed(tmp_path, command, f"{account}:{position}")
    assert without_values(shown) == without_values(SHOWN[command])
    state = f"  state   {{'state': {{'paid': {before}}}}}\n" if before else "  state   empty\n"
    assert state in shown and f"  after   {{'state': {{'paid': {fell}}}}}\n" in shown

    session = SHOWN[f"{command} --pdb"]
    typed = re.findall(r"^\(replay\) (.+)$", session, re.MULTILINE)
    output = performed(tmp_path, f"{command} --pdb", f"{account}:{position}", typed="\n".join([*typed, "q"]) + "\n")
    lines = [line.removeprefix("(replay) ") for line in output.splitlines()]
    for line in re.findall(r"^-> .+$", session, re.MULTILINE):
        assert line in lines
    assert [line for line in lines if line.isdecimal() or line == str(fell)] == [str(fell + 5_000), "50", str(fell)]

    performed(tmp_path, next(command for command in SHOWN if command.startswith("sed ")), "")
    compared = performed(tmp_path, "causal diff parcels --code fixed.py", "", status=3)
    assert (
        "  changed fields: paid (" in compared
        and ", 0 only of the recorded version, 0 only of the new code" in compared
    )
    assert re.search(r"^first divergence: operator account \(.*/fixed\.py:\d+\)", compared, re.MULTILINE)
    assert compared.endswith("different\n")
