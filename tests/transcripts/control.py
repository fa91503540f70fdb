"""Control messages and decisions of the supervisor in words, in the style of `words`."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from tests.transcripts.words import Words, counted

QUIET_MESSAGES = frozenset(("alive",))
QUIET_PHASES = frozenset(("promoted", "collected", "replayed", "first_output", "running"))
"""What the states of the tasks tell already."""


def message(told: Mapping[str, Any], words: Words) -> list[str]:
    """What a control message says; empty if it is not worth a line."""
    kind = told["kind"]
    if kind in QUIET_MESSAGES or (kind == "phase" and told["phase"] in QUIET_PHASES):
        return []
    say = _MESSAGES.get(kind)
    return [part for part in say(told, words) if part] if say is not None else [str(dict(told))]


def _beat(told: Mapping[str, Any], words: Words) -> list[str]:
    if told["task"] is None:
        followed = told["followed"]
        return ["I live", "" if followed is None else f"and have the state of checkpoint {followed} loaded"]
    said = f"{told['task']}{told['incarnation']} {told['state']}"
    lost = f"of my log I have only {words.extents(_extents(told['lost']))}" if told["lost"] else ""
    acked = f"checkpoint {told['acked'][0]} is on disk" if told["acked"] else ""
    return [said, lost, f"knows decision {told['rollback']}" if told["rollback"] else "", acked]


def _promote(told: Mapping[str, Any], words: Words) -> list[str]:
    since = f"from checkpoint {told['epoch']}" if told["epoch"] else "from the beginning"
    peers = ", ".join(
        f"{name}{incarnation} at {_slot(endpoint)}" for name, (endpoint, incarnation) in told["peers"].items()
    )
    rollback = told["rollback"]
    stands = [extents for index, _, extents in rollback["retreats"] if words.names[index] == told["task"]]
    kept = [words.extents([(words.names.index(told["task"]), *each) for each in extents]) for extents in stands]
    decided = f"decision {rollback['number']}: {kept[0] or 'nothing'} of its log stands" if kept else ""
    return [f"be {told['task']}{told['incarnation']} {since}", decided, f"peers {peers}" if peers else ""]


def _finding(told: Mapping[str, Any], words: Words) -> list[str]:
    finding = told["finding"]
    if finding["orphan"]:
        said = f"orphan: depends on more than {words.extents([tuple(finding['orphan'])])}"
    else:
        said = "depends on nothing lost" if finding["settled"] else "still collecting, has no state to lose"
    stands = words.extents(_extents(finding["stands"]))
    return [
        f"{told['task']}{told['incarnation']}, inquiry {told['number']}: {said}",
        f"stands: {stands}" if stands else "",
    ]


def _extents(told: Any) -> list[tuple[int, int, int]]:
    return [(task, epoch, extent) for task, epoch, extent in told]


def _slot(endpoint: str) -> str:
    return endpoint.rpartition("/")[2]


_MESSAGES: dict[str, Any] = {
    "beat": _beat,
    "phase": lambda m, w: [
        f"{m['task']}{m['incarnation']} {m['phase']}",
        counted(m["detail"], "row") if m["detail"] else "",
    ],
    "snapshot": lambda m, w: [f"{m['task']}{m['incarnation']}: checkpoint {m['epoch']} is on disk"],
    "finding": _finding,
    "failed": lambda m, w: [f"{m['task']}{m['incarnation']} {m['error']}"],
    "follow": lambda m, w: [f"stand by for {m['task']}"],
    "promote": _promote,
    "peer": lambda m, w: [f"{m['task']}{m['incarnation']} is at {_slot(m['endpoint'])}"],
    "peer_down": lambda m, w: [f"{m['task']}{m['incarnation']} is dead"],
    "checkpoint": lambda m, w: [f"put barrier {m['epoch']} into the stream"],
    "completed": lambda m, w: [f"checkpoint {m['epoch']} is complete"],
    "inquire": lambda m, w: [f"inquiry {m['number']}: who depends on more than {w.extents(_extents(m['lost']))}?"],
    "keep": lambda m, w: [f"decision {m['rollback']['number']}: you stay, {_retreats(m['rollback'], w)}"],
    "stop": lambda m, w: ["end in good order"],
    "exited": lambda m, w: [f"{m['slot']}, at once"],
    "started": lambda m, w: [m["slot"]],
}


def _retreats(rollback: Mapping[str, Any], words: Words) -> str:
    return (
        ", ".join(f"{words.names[index]}{incarnation}" for index, incarnation, _ in rollback["retreats"]) + " go back"
    )


def decision(record: Mapping[str, Any], words: Words) -> list[str]:
    """A record of the journal; empty if it is not worth a line."""
    if record["kind"] == "phase" and record["phase"] in QUIET_PHASES:
        return []
    say = _RECORDS.get(record["kind"])
    return say(record, words) if say is not None else [""]


_RECORDS: dict[str, Any] = {
    "process": lambda r, w: [f"{r['slot']}" + (f", to stand by for {r['purpose']}" if r["purpose"] else "")],
    "promoted": lambda r, w: [f"{r['slot']} is {r['task']}{r['incarnation']} ({r['mode']})"],
    "gone": lambda r, w: [f"{r['slot']}" + (f", which was {r['task']}{r['incarnation']}" if r["task"] else "")],
    "killing": lambda r, w: [f"{r['slot']}: {r['why']}"],
    "checkpoint": lambda r, w: [f"{r['epoch']} is complete"],
    "phase": lambda r, w: [f"{r['task']}{r['incarnation']} {r['phase']}"],
    "inquired": lambda r, w: [f"inquiry {r['number']}: lost is what lies beyond {w.extents(_extents(r['lost']))}"],
    "rolled_back": lambda r, w: [
        f"decision {r['rollback']['number']}: {_retreats(r['rollback'], w)}",
        *(f"{task}: {why}" for task, why in r["why"].items()),
    ],
    "first_record": lambda r, w: [],
}
