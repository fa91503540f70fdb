"""The list of a job's savepoints, with the rows that a rollback to each would withdraw.

The list opens no store and changes nothing. It counts up to the last complete checkpoint, and asks the sinks of the
current version only for what they can withdraw in principle; `deploy.savepoints.rolling_back` decides.
"""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from causal.config import JobConfig
from causal.errors import CausalError
from deploy.savepoints import recorded_input, savepoint_store
from deploy.savepoints.rolling_back import reaches
from deploy.savepoints.savepoint_store import Savepoint, stood
from deploy.savepoints.stored_checkpoints import fetch
from deploy.savepoints.upgrading import present, requesting
from standby.blueprint import Blueprint
from standby.storage.manifest_files import newest_manifest

CODE_DIGITS = 12
"""The digits of a code archive's digest that a line shows."""


@dataclass(frozen=True, slots=True)
class Sinks:
    """The sinks of the current version.

    Attributes:
        epoch: the last complete checkpoint.
        rows: sink task → its rows at that checkpoint.
        limits: sink task → a function that returns why its store cannot withdraw so many rows; empty if it can.
        problem: the reason why the sinks are not known; empty if they are.
    """

    epoch: int
    rows: Mapping[str, int]
    limits: Mapping[str, Callable[[int], str]]
    problem: str = ""


def sinks_of(job: Path) -> Sinks:
    """Return the sinks of a job, which may be running, and whose code is loaded."""
    try:
        newest = newest_manifest(job)
        if newest is None:
            return Sinks(0, {}, {}, "no checkpoint is complete")
        epoch, files = newest
        fetch(job, files.values())
        topology = Blueprint.load(job).topology
        asking = requesting(topology)
        rows = {name: rows for name, (rows, _) in stood(job, topology, files).items() if name not in asking}
        return Sinks(epoch, rows, present(job).return_limits(job))
    except (CausalError, OSError) as problem:
        return Sinks(0, {}, {}, str(problem))


def entries(job: Path, needed: str | None) -> list[dict[str, Any]]:
    """Return the savepoints of a job as values of JSON, oldest first.

    Args:
        needed: the name of the savepoint to which `--rollback` returns by default.
    """
    savepoints, config = savepoint_store.kept(job), JobConfig.load(job)
    sinks = sinks_of(job) if savepoints else Sinks(0, {}, {})
    return [_entry(job, each, config, sinks, needed) for each in savepoints]


def _entry(job: Path, savepoint: Savepoint, config: JobConfig, sinks: Sinks, needed: str | None) -> dict[str, Any]:
    back = reaches(savepoint, config)
    rows = {name: rows - savepoint.stood(name)[0] for name, rows in sinks.rows.items()}
    limits = {name: said for name, limit in sinks.limits.items() if rows.get(name) and (said := limit(rows[name]))}
    return {
        "name": savepoint.name,
        "directory": str(savepoint.where),
        "epoch": savepoint.epoch,
        "made_s": savepoint.made_s,
        "bytes": savepoint.size(),
        "rows": sum(rows for rows, _ in savepoint.stores.values()),
        "code": JobConfig.load(savepoint.where).code,
        "rollback": savepoint.name == needed,
        "rows_withdrawn": savepoint.withdrawn,
        "as_of_epoch": sinks.epoch,
        "withdraws": rows if back else {},
        "limits": limits if back else {},
        "input_problem": recorded_input.problem(job, savepoint.where) if back else "",
        "problem": sinks.problem if back else "the job's rows do not continue from it",
    }


def shown(entry: Mapping[str, Any]) -> list[str]:
    """Return the lines that show a savepoint to a user."""
    at = time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime(entry["made_s"]))
    default = "; --rollback goes back to it" if entry["rollback"] else ""
    lines = [
        f"{entry['name']}  {at}  checkpoint {entry['epoch']}, code {entry['code'][:CODE_DIGITS]}, "
        f"{entry['rows']:,} rows put out, {entry['bytes']:,} bytes{default}"
    ]
    if entry["input_problem"]:
        lines.append(f"    cannot be rolled back to: {entry['input_problem']}")
    if entry["problem"]:
        return [*lines, f"    no rows to show: {entry['problem']}"]
    for name, rows in entry["withdraws"].items():
        limit = f", but it {entry['limits'][name]}" if name in entry["limits"] else ""
        lines.append(f"    would withdraw {rows:,} rows of {name} (up to checkpoint {entry['as_of_epoch']}){limit}")
    return lines


def as_json(listed: list[dict[str, Any]]) -> str:
    """Return a list of savepoints as JSON."""
    return json.dumps(listed, indent=1)
