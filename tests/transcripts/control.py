"""Control messages and decisions of the supervisor in words, in the style of `words`."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from tests.transcripts.words import Words, counted

QUIET_MESSAGES = frozenset(("alive",))
QUIET_PHASES = frozenset(("promoted", "collected", "replayed", "first_output", "running"))
"""The facts that the states of the tasks already show."""


def message(fields: Mapping[str, Any], words: Words) -> list[str]:
    """Return a control message in words; empty if it is not worth a line."""
    kind = fields["kind"]
    if kind in QUIET_MESSAGES or (kind == "phase" and fields["phase"] in QUIET_PHASES):
        return []
    say = _MESSAGES.get(kind)
    return [part for part in say(fields, words) if part] if say is not None else [str(dict(fields))]


def _beat(fields: Mapping[str, Any], words: Words) -> list[str]:
    if fields["task"] is None:
        followed = fields["followed"]
        return ["I live", "" if followed is None else f"and have the state of checkpoint {followed} loaded"]
    said = f"{fields['task']}{fields['incarnation']} {fields['state']}"
    lost = f"of my log I have only {words.extents(_extents(fields['lost']))}" if fields["lost"] else ""
    acked = f"checkpoint {fields['acked'][0]} is on disk" if fields["acked"] else ""
    return [said, lost, f"knows decision {fields['rollback']}" if fields["rollback"] else "", acked]


def _promote(fields: Mapping[str, Any], words: Words) -> list[str]:
    since = f"from checkpoint {fields['epoch']}" if fields["epoch"] else "from the beginning"
    peers = ", ".join(
        f"{name}{incarnation} at {_slot(endpoint)}" for name, (endpoint, incarnation) in fields["peers"].items()
    )
    rollback = fields["rollback"]
    stands = [extents for index, _, extents in rollback["retreats"] if words.names[index] == fields["task"]]
    kept = [words.extents([(words.names.index(fields["task"]), *each) for each in extents]) for extents in stands]
    decided = f"decision {rollback['number']}: {kept[0] or 'nothing'} of its log stands" if kept else ""
    return [f"be {fields['task']}{fields['incarnation']} {since}", decided, f"peers {peers}" if peers else ""]


def _finding(fields: Mapping[str, Any], words: Words) -> list[str]:
    finding = fields["finding"]
    if finding["orphan"]:
        said = f"orphan: depends on more than {words.extents([tuple(finding['orphan'])])}"
    else:
        said = "depends on nothing lost" if finding["settled"] else "still collecting, has no state to lose"
    stands = words.extents(_extents(finding["stands"]))
    return [
        f"{fields['task']}{fields['incarnation']}, inquiry {fields['number']}: {said}",
        f"stands: {stands}" if stands else "",
    ]


def _extents(extents: Any) -> list[tuple[int, int, int]]:
    return [(task, epoch, extent) for task, epoch, extent in extents]


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
    "admin": lambda m, w: [],
    "stop": lambda m, w: ["end normally"],
    "exited": lambda m, w: [f"{m['slot']}, immediately"],
    "started": lambda m, w: [m["slot"]],
}


def _retreats(rollback: Mapping[str, Any], words: Words) -> str:
    return (
        ", ".join(f"{words.names[index]}{incarnation}" for index, incarnation, _ in rollback["retreats"]) + " go back"
    )


def decision(record: Mapping[str, Any], words: Words) -> list[str]:
    """Return a record of the journal; empty if it is not worth a line."""
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
    "savepoint": lambda r, w: [f"{r['epoch']} is to be the {'final one' if r['final'] else 'next one'}"],
    "change": lambda r, w: [r["step"]],
    "next_process": lambda r, w: [f"{r['slot']}, to be {r['purpose']} of the next version"],
    "first_record": lambda r, w: [],
    "resumed_at": lambda r, w: [],
}
