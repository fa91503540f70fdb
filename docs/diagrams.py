"""Draws the state machines from their tables, as Mermaid, into every page that has a place for one.

python docs/diagrams.py          # rewrite the pages; a test fails while they are not up to date
"""

from __future__ import annotations

import re
import sys
from collections.abc import Callable, Mapping
from enum import Enum
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[1]
sys.path.insert(0, str(ROOT))

from causal.channels.frames import FRAMES, Refusal  # noqa: E402
from causal.channels.states import (  # noqa: E402
    RECEIVER,
    SENDER,
    ReceiverState,
    ReceiverStep,
    SenderState,
    SenderStep,
)
from causal.task.echo_states import (  # noqa: E402
    ARRIVALS,
    ECHO,
    SHADOW,
    Arrival,
    EchoState,
    EchoStep,
    ShadowState,
    ShadowStep,
)
from causal.task.recovery import TRANSITIONS, RecoveryStep, State  # noqa: E402

PAGES = ("docs/recovery.md", "docs/wire.md")
_PLACE = re.compile(r"(<!-- (\w+): drawn by docs/diagrams.py -->\n).*?(<!-- end -->)", re.DOTALL)
_MEANING: dict[Enum, str] = {
    RecoveryStep.SHADOWED: "hot: all that the task takes is echoed",
    RecoveryStep.STARTED: "promoted: sockets open",
    RecoveryStep.COLLECTED: "every neighbour downstream, or the store, has answered",
    RecoveryStep.REPLAYED: "the log is performed to its end",
    RecoveryStep.FAILED: "cannot continue",
    SenderStep.ANNOUNCED: "receiver announced",
    SenderStep.LOST: "receiver died",
    SenderStep.WELCOMED: "WELCOME",
    SenderStep.OVERTAKEN: "WELCOME, ahead of the replay",
    SenderStep.REGENERATED: "replay is there",
    ReceiverStep.ANNOUNCED: "sender announced",
    ReceiverStep.COLLECTED: "this task has collected",
    EchoStep.ANNOUNCED: "hot standby announced",
    EchoStep.GONE: "no hot standby any more",
    EchoStep.GIVEN_UP: "standby lags, echo lost, rollback",
    EchoStep.DUE: "wait is over",
    ShadowStep.ANNOUNCED: "another incarnation announced",
    ShadowStep.BEGUN: "first frame of a later echo",
    ShadowStep.LOADED: "checkpoint since which all was echoed",
    ShadowStep.LOST: "frame missing, or does not fit",
}
_REFUSED = {Refusal.FENCE: "dropped, FENCED is sent back", Refusal.KEEP: "waits for its announcement"}


def recovery() -> str:
    """Return the table as a state diagram; every state can fail, which is drawn once."""
    lines = ["```mermaid", "stateDiagram-v2", f"    [*] --> {State.RESTORED.value}"]
    for (before, step), after in TRANSITIONS.items():
        if step is not RecoveryStep.FAILED:
            lines.append(f"    {before.value} --> {after.value}: {_MEANING[step]}")
    lines += [f"    {State.RUNNING.value} --> [*]: killed; its standby begins at the top", "```", ""]
    return "\n".join(lines)


def _session(table: Mapping[Any, Mapping[Any, Any]], first: Enum) -> str:
    """Return the table of one end as a state diagram; steps that lead nowhere else are left out."""
    lines = ["```mermaid", "stateDiagram-v2", f"    [*] --> {first.value}"]
    for before, steps in table.items():
        for after in dict.fromkeys(steps.values()):
            labels = [_MEANING[step] for step, state in steps.items() if state is after]
            if after is not before:
                lines.append(f"    {before.value} --> {after.value}: {' or '.join(labels)}")
    return "\n".join([*lines, "```", ""])


def sender() -> str:
    """Return the session of a sending end."""
    return _session(SENDER, SenderState.ABSENT)


def receiver() -> str:
    """Return the session of a receiving end."""
    return _session(RECEIVER, ReceiverState.UNKNOWN)


def echo() -> str:
    """Return the end of a task in the conversation with its hot standby."""
    return _session(ECHO, EchoState.ABSENT)


def shadow() -> str:
    """Return the end of the hot standby."""
    return _session(SHADOW, ShadowState.UNKNOWN)


def arrivals() -> str:
    """Return the actions of a hot standby on each ECHO in each state, as a table."""
    rows = [["a frame", *(state.value for state in ARRIVALS)]]
    rows.append(["---"] * len(rows[0]))
    rows += [[arrival.value, *(actions[arrival].value for actions in ARRIVALS.values())] for arrival in Arrival]
    return "".join(f"| {' | '.join(row)} |\n" for row in rows)


def frames() -> str:
    """Return the rules of all kinds of frames as a table."""
    rows = [["frame", "taken by", "in state", "in another state", "of an older incarnation", "of a younger one"]]
    rows.append(["---"] * len(rows[0]))
    for rule in FRAMES.values():
        end, states = ("receiver", ReceiverState) if rule.from_upstream else ("sender", SenderState)
        legal, illegal = ", ".join(state.value for state in rule.legal), _refused(rule.illegal)
        if len(rule.legal) == len(states):
            legal, illegal = "all", ""
        others = [_refused(rule.older), _refused(rule.younger)] if rule.of_peer else ["", "this task ends"]
        rows.append([rule.name, end, legal, illegal, *others])
    return "".join(f"| {' | '.join(row)} |\n" for row in rows)


def _refused(refusal: Refusal | str) -> str:
    return _REFUSED[refusal] if isinstance(refusal, Refusal) else f"dropped: *{refusal}*"


_DRAWINGS: Mapping[str, Callable[[], str]] = {
    "recovery": recovery,
    "sender": sender,
    "receiver": receiver,
    "frames": frames,
    "echo": echo,
    "shadow": shadow,
    "arrivals": arrivals,
}


def drawn(page: str) -> str:
    """Return the page with the present drawings in their places."""
    return _PLACE.sub(lambda place: place[1] + _DRAWINGS[place[2]]() + place[3], page)


def main() -> None:
    for name in PAGES:
        path = ROOT / name
        path.write_text(drawn(path.read_text()))


if __name__ == "__main__":
    main()
