"""Savepoints: checkpoints that a user requested, including those at which the job ends to be resumed as a new version.

A final savepoint is journaled before it is sent to any source, so it is carried out no matter which process dies.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from causal.commands import Files
from standby.exit_status import STOPPED
from standby.supervision import events
from standby.supervision.checkpoints import Coordinator
from standby.supervision.effects import Outbox, Record
from standby.supervision.file_lists import as_files
from standby.supervision.job_state import JobState
from standby.supervision.staging import Staging


def asked(job: JobState, event: events.Admin, outbox: Outbox) -> dict[str, Any] | None:
    """Begin a savepoint and return an answer that contains its epoch; None for any other request."""
    if event.verb != "savepoint":
        return None
    if job.stopping is not None or all(s.finished for s in job.assignments.tasks.values() if s.sink):
        return {"ok": False, "error": "the job is ending already"}
    if not job.coordinator.enabled:
        return {"ok": False, "error": "guarantee none has no checkpoints, so it has no savepoints"}
    return {"ok": True, "epoch": job.coordinator.request(bool(event.arguments.get("final")), outbox)}


def reached(coordinator: Coordinator, staging: Staging) -> tuple[int, str] | None:
    """Return (status, reason) if the job should end now, because its final checkpoint is complete and its rows are
    visible.
    """
    if coordinator.ends and staging.shown(coordinator.final):
        return 0, f"{STOPPED}{coordinator.final}"
    return None


def stopped_at(records: Iterable[Record]) -> tuple[int, dict[str, Files]] | None:
    """Return the savepoint at which the job of this journal ended, as (epoch, files by task).

    Returns: None if the job did not end at a savepoint, or was resumed afterwards.
    """
    epoch, final, stopped, files = 0, 0, False, dict[str, Files]()
    changing = False  # a version that ends for a change resumes at its final savepoint if the change is not committed
    for record in records:
        if record["kind"] == "change":
            changing = record["step"] != "over"
        elif record["kind"] == "savepoint" and record["final"]:
            final = record["epoch"]
        elif record["kind"] == "checkpoint":
            epoch, files = record["epoch"], as_files(record["files"])
            stopped = epoch == final and not changing
        elif record["kind"] in ("promoted", "rolled_back"):
            stopped = False  # `stopping` sets this again if the run only made the savepoint's rows visible
        elif record["kind"] == "stopping":
            stopped = stopped or (epoch == final and record["reason"].startswith(STOPPED))
    return (epoch, files) if stopped else None


def withdraws(records: Iterable[Record]) -> str:
    """Return the savepoint of a rollback of the running job that has begun to withdraw rows, and has not been
    completed; empty if there is none.
    """
    savepoint, withdrawing = "", ""
    for record in records:
        if record["kind"] == "resumed":
            withdrawing = ""
        elif record["kind"] == "change" and record["step"] == "prepare":
            savepoint = record["rollback"]
        elif record["kind"] == "change" and record["step"] == "withdraw":
            withdrawing = savepoint
    return withdrawing


def finished(records: Iterable[Record]) -> bool:
    """Return whether the job of this journal finished instead of stopping at a savepoint."""
    ends = [record for record in records if record["kind"] in ("stopping", "ended", "resumed")]
    return bool(ends) and ends[-1]["kind"] != "resumed" and ends[-1]["status"] == 0 and not ends[-1]["reason"]
