"""Answers clients' requests to a running supervisor: `causal status`, `kill`, `savepoint`, `state --live`.

Only the task itself can report the state that it stores for a key.  The request to the task contains the client's
address, to which the supervisor forwards the task's answer.  The supervisor stores nothing about the request; a client
that receives no answer repeats its request.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from causal import commands
from standby.supervision import events, orders, savepoints
from standby.supervision.assignments import WorkerEntry, WorkerState
from standby.supervision.draining import drain, left_on
from standby.supervision.effects import Answer, Note, Outbox, SendHost
from standby.supervision.job_state import JobState
from standby.supervision.job_view import JobView

ADMINS = "admin"
"""The prefix of each client's identity."""


def answer(
    job: JobState,
    event: events.Admin | events.Replied,
    view: Callable[[], JobView],
    kill: Callable[[WorkerEntry], None],
    outbox: Outbox,
) -> None:
    """Carry out a request and send the reply, which is one line if the request is refused, or forward a task's answer.

    Args:
        view: a function that returns the view of the job.
        kill: a function that orders a process to be killed.
    """
    if isinstance(event, events.Replied):
        _forward(job, event, outbox)
        return
    reply: dict[str, Any] | None
    if event.verb == "status":
        reply = {"ok": True, "view": view().content()}
    elif event.verb == "kill":
        reply = _kill(job, event.arguments, kill, outbox)
    elif event.verb == "drain":
        reply = _drain(job, event.arguments, outbox)
    elif event.verb == "inspect":
        reply = _inspect(job, event, outbox)
    else:
        reply = savepoints.asked(job, event, outbox) or _refused(
            f"request {event.verb!r} is unknown; the known requests are status, kill, drain, savepoint and inspect"
        )
    if reply is not None:
        outbox.add(Answer(event.sender, {"kind": "answer", **reply}))


def _forward(job: JobState, event: events.Replied, outbox: Outbox) -> None:
    """Forward a task's answer if the recipient is a client and the sender runs the task that the answer names."""
    slot = job.assignments.slots.get(event.slot)
    if slot is not None and event.to.startswith(ADMINS) and event.facts.get("task") == slot.task:
        outbox.add(Answer(event.to, {"kind": "answer", "ok": "error" not in event.facts, **event.facts}))


def _refused(error: str) -> dict[str, Any]:
    return {"ok": False, "error": error}


def _serving(job: JobState, task: object) -> WorkerEntry | str:
    """Return the process of that task, or a message that explains why there is none."""
    entry = job.assignments.tasks.get(str(task))
    if entry is None:
        return f"task {task} does not exist; the tasks are {', '.join(job.assignments.tasks)}"
    slot = job.assignments.holder(entry)
    if slot is None or slot.state is WorkerState.LEAVING or job.ended is not None:
        return f"{entry.name} has no process at the moment"
    return slot


def _waiting(job: JobState, name: object) -> WorkerEntry | str:
    """Return the standby with that name, or a message that explains why there is none."""
    slot = job.assignments.slots.get(str(name))
    if slot is None or slot.state is not WorkerState.IDLE or job.ended is not None:
        return f"{name} is not a standby at the moment"
    return slot


def _kill(
    job: JobState, arguments: Mapping[str, Any], kill: Callable[[WorkerEntry], None], outbox: Outbox
) -> dict[str, Any]:
    """Kill the process of a task, a standby, or the agent of a host."""
    if "agent" in arguments:
        return _kill_agent(job, str(arguments["agent"]), outbox)
    if "standby" in arguments:
        slot = _waiting(job, arguments["standby"])
    else:
        slot = _serving(job, arguments.get("task"))
    if isinstance(slot, str):
        return _refused(slot)
    kill(slot)
    return {"ok": True, "task": slot.task, "slot": slot.name, "pid": slot.pid}


def _kill_agent(job: JobState, name: str, outbox: Outbox) -> dict[str, Any]:
    """Order a host agent to die; afterwards, the beats show its unfinished work, which is ordered from the next
    agent.
    """
    host = job.hosts.get(name)
    if host is None or not host.name or job.ended is not None:
        return _refused(f"the job has no host {name} at the moment")
    if not host.living:
        return _refused(f"{name} is lost: its agent is not part of the job")
    if host.breakable is None:
        return _refused(f"the agent of {name} has an older version, which cannot be killed from here")
    if not host.breakable:
        return _refused(f"the agent of {name} was started with --no-break")
    outbox.add(Note(f"the agent of {name} is killed on request"))
    outbox.add(SendHost(name, orders.Crash(host.incarnation).message()))
    return {"ok": True, "host": name}


def _drain(job: JobState, arguments: Mapping[str, Any], outbox: Outbox) -> dict[str, Any]:
    """Drain a host, or cancel its draining; the answer lists the tasks that are still on it."""
    host = job.hosts.get(str(arguments.get("host")))
    if host is None or not host.name:
        names = ", ".join(each.name for each in job.hosts if each.name) or "none: the job is on one machine"
        return _refused(f"host {arguments.get('host')} does not exist; the hosts are {names}")
    if not host.living:
        return _refused(f"{host.name} is lost; it runs no process of the job")
    drain(host, arguments.get("draining") is not False, outbox)
    return {"ok": True, "host": host.name, "state": host.state.value, "tasks": left_on(host.name, job.assignments)}


def _inspect(job: JobState, event: events.Admin, outbox: Outbox) -> dict[str, Any] | None:
    slot = _serving(job, event.arguments.get("task"))
    if isinstance(slot, str):
        return _refused(slot)
    if slot.state is not WorkerState.SERVING:
        return _refused(f"{slot.task} is recovering")
    operator, key = event.arguments.get("operator"), event.arguments.get("key")
    outbox.send(slot.name, commands.Inspect(event.sender, str(operator), key))
    return None
