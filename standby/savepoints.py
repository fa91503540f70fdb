"""Savepoints: a checkpoint that somebody asked for, and one at which the job ends, to go on as another.

A final one is journaled before any source hears of it, so it is carried out whoever dies.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from standby import events
from standby.checkpoints import Coordinator
from standby.effects import Outbox
from standby.staging import Staging

if TYPE_CHECKING:
    from standby.supervision import Supervision

STOPPED = "stopped at savepoint "
"""How the reason begins for which such a job has ended."""


def asked(supervision: Supervision, event: events.Admin, outbox: Outbox) -> dict[str, Any] | None:
    """Begin a savepoint and say its epoch; None for another request."""
    if event.verb != "savepoint":
        return None
    if supervision.stopping is not None or all(s.finished for s in supervision.roster.seats.values() if s.sink):
        return {"ok": False, "error": "the job is ending already"}
    if not supervision.coordinator.enabled:
        return {"ok": False, "error": "guarantee none has no checkpoints; a savepoint is one"}
    return {"ok": True, "epoch": supervision.coordinator.want(bool(event.arguments.get("final")), outbox)}


def reached(coordinator: Coordinator, staging: Staging) -> tuple[int, str] | None:
    """(status, reason) if the job is to end now: its final checkpoint is complete, and what that covers is visible."""
    if coordinator.ends and staging.shown(coordinator.final):
        return 0, f"{STOPPED}{coordinator.final}"
    return None
