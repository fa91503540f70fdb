"""Runs `causal lineage`: shows what a row of a recorded job comes from; nothing of the job is changed.

Exit status: 0; 1 if the recording is damaged or differs from its replay; 2 for wrong usage or a row that is not there.
"""

from __future__ import annotations

import argparse
import json
import tempfile
from collections.abc import Iterable, Iterator, Mapping, Sequence
from datetime import datetime
from itertools import groupby
from operator import itemgetter
from pathlib import Path
from typing import Any

from causal.errors import PipelineError
from deploy.exit_status import DONE
from deploy.jobs.chosen import chosen_recording
from deploy.printable import printable
from deploy.savepoints.savepoint_list import CODE_DIGITS
from operators.recordings.bundle import open_recorded
from operators.replay.lineage import NODES_MAX, RowOf, lineage_of

SHOWN = 10
"""The number of input records, and of events of an operator, that are listed for people."""
DETERMINANTS = 3
"""The number of events of which the determinants are listed for people."""
WIDTH = 160

Node = Mapping[str, Any]


def lineage(arguments: argparse.Namespace) -> int:
    """Run the command and return its exit status.

    Raises:
        PipelineError: wrong usage, a row that is not recorded, or a source that cannot be read again.
        CorruptData: the recording is damaged.
        Unavailable: the replay differs from the recording, or the store of the recording does not answer.
    """
    job, row = chosen_recording(arguments), _row(arguments.sink, arguments.row)
    limit = arguments.limit
    if arguments.back < 0 or (limit is not None and limit < 1):
        raise PipelineError(
            "--back and --limit are numbers of epochs and of records: use --back 0 and --limit 1 or more"
        )
    with tempfile.TemporaryDirectory(prefix="causal-lineage-") as directory:
        scratch = Path(directory) / "scratch"
        scratch.mkdir()
        recording = open_recorded(job, Path(directory) / "recording")
        shown = lineage_of(recording, job, scratch, row, arguments.back, limit or NODES_MAX)
    if arguments.json:
        print(json.dumps(shown, indent=1))
    else:
        print(*map(printable, lines_of(shown, limit or SHOWN)), sep="\n")
    return DONE


def _row(sink: str, text: str) -> RowOf:
    if not text.isdecimal():
        raise PipelineError(f"{text}: ROW is a position such as 17; the first row of a task of a sink has position 0")
    return RowOf(sink, int(text))


def lines_of(lineage: Mapping[str, Any], shown: int) -> Iterator[str]:
    """Yield the lines for people.

    Args:
        shown: the number of input records, and of events of each operator, that are listed.
    """
    row, nodes = lineage["row"], lineage["nodes"]
    yield f"row {row['position']:,} of {row['account']}, epoch {row['epoch']:,}"
    yield f"  {_text(row['record'])}"
    inputs = [node for node in nodes if node["kind"] == "input"]
    number, older = lineage["inputs"], any(each["older_keys"] for each in lineage["operators"])
    yield f"it comes from {_number(number, 'input record', lineage['exact'], older)}:"
    yield from _listed(
        (f"  {_name_of(node)}  {_text(node['record'])}" for node in inputs[-shown:]), number - len(inputs[-shown:])
    )
    for operator in lineage["operators"]:
        yield from _operator_lines(
            operator, [n for n in nodes if n["kind"] != "input" and _is_of(n, operator)], lineage, shown
        )
    determinants = lineage["determinants"][-min(shown, DETERMINANTS) :]
    if determinants:
        yield "with these determinants:"
        yield from map(_determinants_line, determinants)
        more = len(lineage["determinants"]) + lineage["left_out"]["events"] - len(determinants)
        if more:
            yield f"  and those of {more:,} earlier events; --json lists them"
    code = lineage["code"][:CODE_DIGITS]
    yield f"performed by version {lineage['version']}, code {code}; replayed from epoch {lineage['from_epoch']:,}"
    yield from (f"note: {note}" for note in lineage["notes"])


def _operator_lines(
    operator: Mapping[str, Any], nodes: Sequence[Node], lineage: Mapping[str, Any], shown: int
) -> Iterator[str]:
    number = operator["events"]
    if not number:
        return
    records = _number(number, "record", operator["exact"], bool(operator["older_keys"]))
    yield f"through {records} at {operator['operator']} ({operator['subtask']}):"
    sources = _sources(lineage["edges"])
    lines = (f"  {_event(node)}{_because(node, sources)}" for node in nodes[-shown:])
    yield from _listed(lines, max(0, number - len(nodes[-shown:])))


def _number(number: int, what: str, exact: bool, older: bool) -> str:
    """Return how many there are, as far as it is known."""
    known = "" if older else "exactly " if exact else "at most "
    return f"{known}{number:,} {what}{'s' * (number != 1)}{' since the replay began, and earlier ones' * older}"


def _is_of(node: Node, operator: Mapping[str, Any]) -> bool:
    return all(node[each] == operator[each] for each in ("operator", "subtask"))


def _sources(edges: Iterable[Mapping[str, Any]]) -> Mapping[str, str]:
    """Return the cause of each event's record, if it has one."""
    return {edge["to"]: edge["from"] for edge in edges if edge["role"] == "record"}


def _event(node: Node) -> str:
    key = "" if node["key"] is None else f", key {_text(node['key'])}"
    window = node.get("window")
    bounds = f" from {window[0]} to {window[1]}" if window else ""
    record = "" if node.get("record") is None else f"  {_text(node['record'])}"
    return f"epoch {node['epoch']:,}, event {node['event']:,}: {node['kind']}{bounds}{key}{record}"


def _because(node: Node, sources: Mapping[str, str]) -> str:
    source = sources.get(node["id"])
    return "" if source is None or source.startswith(("v", "d")) else f"  from {source}"


def _name_of(node: Node) -> str:
    return f"{node['operator']}, partition {node['partition']}, position {node['position']:,}"


def _determinants_line(event: Mapping[str, Any]) -> str:
    texts = list[str]()
    for kind, same in groupby(event["values"], key=itemgetter("kind")):
        values = [each["value"] for each in same]
        texts.append(_clocks(values) if kind == "clock" else "; ".join(_determinant(kind, value) for value in values))
    return f"  {event['task']}, epoch {event['epoch']:,}, event {event['event']:,}: {'; '.join(texts)}"


def _clocks(values: Sequence[int]) -> str:
    if len(values) == 1:
        return f"clock {_time(values[0])}"
    return f"{len(values):,} clock readings, {_time(values[0])} to {_time(values[-1])}"


def _determinant(kind: str, value: Any) -> str:
    if kind == "order":
        return f"the next {value['elements']:,} of input {value['input']}"
    if kind == "timer":
        return f"timers due at {_time(value)}"
    if kind == "random":
        return f"seed {value}"
    return f"{kind} {_text(value)}"


def _time(at_ns: int) -> str:
    return datetime.fromtimestamp(at_ns / 1e9).isoformat(sep=" ", timespec="milliseconds")


def _listed(lines: Iterable[str], more: int) -> Iterator[str]:
    if more > 0:
        yield f"  … {more:,} earlier ones; --limit lists more"
    yield from lines


def _text(value: Any) -> str:
    """Return a value on one line."""
    text = json.dumps(value, ensure_ascii=False)
    return text if len(text) <= WIDTH else f"{text[: WIDTH - 1]}…"
