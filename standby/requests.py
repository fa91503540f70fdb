"""What somebody may ask a running supervisor, and what it answers: `causal status`, `causal kill`."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from standby import events
from standby.effects import Answer
from standby.roster import SlotState

if TYPE_CHECKING:
    from standby.supervision import Supervision


def answer(supervision: Supervision, event: events.Admin) -> Answer:
    """Do what is asked; what cannot be done is answered with one line."""
    if event.verb == "status":
        told: dict[str, Any] = {"ok": True, "view": supervision.view()}
    elif event.verb == "kill":
        told = _kill(supervision, event.arguments)
    else:
        told = {"ok": False, "error": f"there is no request {event.verb!r}; known are status and kill"}
    return Answer(event.sender, {"kind": "answer", **told})


def _kill(supervision: Supervision, arguments: Mapping[str, Any]) -> dict[str, Any]:
    seat = supervision.roster.seats.get(str(arguments.get("task")))
    if seat is None:
        known = ", ".join(supervision.roster.seats)
        return {"ok": False, "error": f"there is no task {arguments.get('task')}; tasks are {known}"}
    slot = supervision.roster.holder(seat)
    if slot is None or slot.state is SlotState.LEAVING or supervision.ended is not None:
        return {"ok": False, "error": f"{seat.name} has no process at the moment"}
    supervision.inject(slot)
    return {"ok": True, "task": seat.name, "slot": slot.name, "pid": slot.pid}
