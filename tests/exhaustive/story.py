"""A path of actions, described line by line so that a person can follow it."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

from causal.channels import wire
from causal.errors import PeerViolation
from causal.logs.deltas import unpack_deltas
from tests.exhaustive.explore import Breach, Outcome
from tests.exhaustive.state import State
from tests.exhaustive.world import Action, World

_KINDS = {wire.DATA: "DATA", wire.HELLO: "HELLO", wire.WELCOME: "WELCOME", wire.CREDIT: "CREDIT",
          wire.FENCED: "FENCED", wire.LOGS: "LOGS"}  # fmt: skip


class Story:
    """Describes paths of one world, also of a fresh one: what an action names does not depend on earlier paths."""

    def __init__(self, world: World) -> None:
        self._world = world

    def lines(self, path: Sequence[Action]) -> Iterator[str]:
        """Yield one line per action: what happened, and what became of the processes that it touched."""
        state = self._world.first()
        for number, action in enumerate(path, 1):
            after, _ = self._world.after(state, action)
            yield f"{number:3}. {self._described(state, action)}{self._moved(state, after)}"
            state = after

    def _name(self, life: tuple[int, int]) -> str:
        return f"{self._world.topology.tasks[life[0]].name}#{life[1]}"

    def _described(self, state: State, action: Action) -> str:
        kind = action[0]
        if kind in ("deliver", "lose"):
            end = action[1]
            frame = self._frame(dict(state.links)[end][0])
            way = f"{self._name(end[:2])} → {self._name(end[2:])}"
            return f"{way}: {frame} {'arrives' if kind == 'deliver' else 'is lost'}"
        if kind == "turn":
            dies = f", and dies before its effect {action[2] + 1}" if len(action) > 2 else ""
            return f"{self._name(action[1])} takes a turn{dies}"
        if kind == "read":
            return f"{self._name(action[1])} reads from the supervisor: {dict(state.orders)[action[1]][0]}"
        if kind == "disk":
            return f"the snapshot of {self._name(action[1][:2])} at barrier {action[1][2]} is on disk"
        if kind == "flush":
            return f"what {self._name(action[1])} has flushed is on disk"
        if kind == "crash":
            return f"{self._name(action[1])} dies"
        if kind in ("host", "cut-off"):
            tasks = ", ".join(self._world.topology.tasks[task].name for task in action[1])
            return f"the host of {tasks} {'dies' if kind == 'host' else 'is cut off, and works on'}"
        names: dict[str, Any] = {
            "complete": f"checkpoint {state.asked} is complete",
            "ask": f"checkpoint {state.complete + 1} is asked for",
            "wait": "nothing happens for a while",
            "hurry": "the clock runs ahead",
            "inquire": "the supervisor asks all tasks what depends on what is lost",
            "decide": "the supervisor decides which tasks are rolled back",
        }
        if kind in names:
            return str(names[kind])
        name = self._world.topology.tasks[action[1]].name
        return f"{name} is promoted{', although its process lives' if kind == 'usurp' else ''}"

    def _frame(self, number: int) -> str:
        parts = self._world.cores.values[number]
        header = wire.read_header(parts, int.from_bytes(parts[0][4:12], "little"))
        text = f"{_KINDS[header.kind]} of channel {header.channel}"
        if header.kind == wire.DATA:
            text += f", elements {header.position} to {header.position + header.count - 1}"
            text += f", log {_logs(parts[1])}" if parts[1] else ", no log"
        elif header.kind == wire.WELCOME:
            welcome = wire.read_welcome(parts[1])
            text += f", wants {welcome.next}, holds {welcome.extents}"
        elif header.kind == wire.HELLO:
            hello = wire.read_hello(parts[1])
            text += f", keeps {hello.low} to {hello.high}"
        return text

    def _moved(self, before: State, after: State) -> str:
        old, changes = dict(before.processes), []
        for life, number in after.processes:
            facts = self._world.cores.facts[number]
            was = self._world.cores.facts[old[life]] if life in old else None
            if was is None:
                changes.append(f"{self._name(life)} begins")
            elif was.phase is not facts.phase:
                changes.append(f"{self._name(life)} is {facts.phase.value}")
        rows = {channel: self._world.stores.shelves[number].rows for channel, number in before.stores}
        for channel, number in after.stores:
            fresh = self._world.stores.shelves[number].rows[len(rows[channel]) :]
            changes += [f"row {name} is visible" for name, _ in fresh]
        return f"  [{'; '.join(changes)}]" if changes else ""


def _logs(data: bytes) -> str:
    """Return the logs that a frame carries; those that its session has named before are not known here."""
    try:
        deltas, _ = unpack_deltas(data)
    except PeerViolation:
        return f"{len(data)} bytes of those named before"
    return ", ".join(f"{d.task}/{d.epoch} from {d.offset} to {d.offset + len(d.bytes)}" for d in deltas)


def summary(outcome: Outcome) -> str:
    """Return one line about one exploration."""
    job = outcome.job
    one, more = ("host dies", "hosts die") if job.hosts else ("crash", "crashes")
    faults = [f"{job.crashes} {more if job.crashes != 1 else one}{' or zombies' if job.zombies else ''}"]
    faults += [f"{job.losses} lost"] if job.losses else []
    faults += [f"{job.asks} {'checkpoints' if job.asks != 1 else 'checkpoint'}"] if job.asks else []
    verdict = "every invariant holds in each" if outcome.breach is None else "BROKEN"
    if not outcome.whole:
        verdict = "stopped at the bound, not all states were seen"
    rolled_back = f"{outcome.kinds['decide']} rollbacks, " if outcome.kinds["decide"] else ""
    return (
        f"{job.name:<20} {', '.join(faults)}: {outcome.states} states, {outcome.transitions} transitions, depth "
        f"{outcome.depth}, {outcome.ended} ends, {rolled_back}{outcome.core_states} states of one task; {verdict}"
    )


def breach_lines(outcome: Outcome, breach: Breach) -> list[str]:
    """Return what is broken, and the way there."""
    lines = [f"  {each}" for each in breach.what]
    lines.append(f"  the shortest path there, {len(breach.path)} actions:")
    return lines + [f"  {line}" for line in Story(World(outcome.job)).lines(breach.path)]
