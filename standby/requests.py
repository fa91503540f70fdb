"""What somebody may ask a running supervisor, and what it answers: `causal status`, `kill`, `state --live`.

What a task keeps for a key only the task can say.  It is asked with the address of whoever wants to know, and its
answer is handed on to there: the supervisor remembers nothing, and whoever gets no answer asks again.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from standby import events, savepoints
from standby.effects import Answer, Outbox
from standby.roster import Slot, SlotState

if TYPE_CHECKING:
    from standby.supervision import Supervision


ADMINS = "admin"
"""How the identities of those begin who ask."""


def answer(supervision: Supervision, event: events.Admin | events.Replied, outbox: Outbox) -> None:
    """Do what is asked; what cannot be done is answered with one line.  What a task has answered is handed on."""
    if isinstance(event, events.Replied):
        _hand_on(supervision, event, outbox)
        return
    told: dict[str, Any] | None
    if event.verb == "status":
        told = {"ok": True, "view": supervision.view()}
    elif event.verb == "kill":
        told = _kill(supervision, event.arguments)
    elif event.verb == "inspect":
        told = _inspect(supervision, event, outbox)
    else:
        told = savepoints.asked(supervision, event, outbox) or _refused(
            f"there is no request {event.verb!r}; known are status, kill, savepoint and inspect"
        )
    if told is not None:
        outbox.add(Answer(event.sender, {"kind": "answer", **told}))


def _hand_on(supervision: Supervision, event: events.Replied, outbox: Outbox) -> None:
    """Only to somebody who asks, and only from the task that it says it is."""
    slot = supervision.roster.slots.get(event.slot)
    if slot is not None and event.to.startswith(ADMINS) and event.facts.get("task") == slot.task:
        outbox.add(Answer(event.to, {"kind": "answer", "ok": "error" not in event.facts, **event.facts}))


def _refused(error: str) -> dict[str, Any]:
    return {"ok": False, "error": error}


def _serving(supervision: Supervision, task: object) -> Slot | str:
    """The process that is that task, or why there is none."""
    seat = supervision.roster.seats.get(str(task))
    if seat is None:
        return f"there is no task {task}; tasks are {', '.join(supervision.roster.seats)}"
    slot = supervision.roster.holder(seat)
    if slot is None or slot.state is SlotState.LEAVING or supervision.ended is not None:
        return f"{seat.name} has no process at the moment"
    return slot


def _kill(supervision: Supervision, arguments: Mapping[str, Any]) -> dict[str, Any]:
    slot = _serving(supervision, arguments.get("task"))
    if isinstance(slot, str):
        return _refused(slot)
    supervision.inject(slot)
    return {"ok": True, "task": slot.task, "slot": slot.name, "pid": slot.pid}


def _inspect(supervision: Supervision, event: events.Admin, outbox: Outbox) -> dict[str, Any] | None:
    slot = _serving(supervision, event.arguments.get("task"))
    if isinstance(slot, str):
        return _refused(slot)
    if slot.state is not SlotState.SERVING:
        return _refused(f"{slot.task} is recovering")
    operator, key = event.arguments.get("operator"), event.arguments.get("key")
    outbox.send(slot.name, "inspect", to=event.sender, operator=str(operator), key=key)
    return None
