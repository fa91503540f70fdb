"""The result of `causal diff` as one document of JSON values, of which the text and the page are views."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from typing import Any

from operators.recordings.recording import shown_time
from operators.replay.comparison import SinkComparison
from operators.replay.observed_chain import Divergence
from operators.replay.pairing import ROW_CHARACTERS_MAX, Pair, RowKey, Side
from operators.replay.performance import Step
from operators.replay.side_by_side import NEW, RECORDED, Outcome

FORMAT = 1
KEYS_SHOWN = 50
FIELDS_SHOWN = 50
Document = Mapping[str, Any]

SAME, DIFFERENT = "no difference", "different"


def document_of(outcome: Outcome, facts: Mapping[str, Any]) -> Document:
    """Return the result as JSON values.

    Args:
        facts: the job, the code and the interval.
    """
    comparison = outcome.comparison
    return {
        "format": FORMAT,
        "verdict": DIFFERENT if outcome.differs else SAME,
        **facts,
        "performed": outcome.performed,
        "took_s": round(outcome.took_s, 3),
        "ended_early": outcome.ended or None,
        "failures": dict(outcome.failures),
        "paired_early": comparison.paired_early,
        "operators": {"added": list(outcome.added), "removed": list(outcome.removed)},
        "first_divergence": None if outcome.divergence is None else _divergence(outcome.divergence),
        "sinks": {name: _sink(sink, outcome.places.get(name, "")) for name, sink in sorted(comparison.sinks.items())},
    }


def _sink(sink: SinkComparison, place: str) -> dict[str, Any]:
    pairs = sink.pairs
    ranked = sorted(pairs.keys.items(), key=lambda item: -sum(item[1]))
    return {
        "rows": {"recorded": sink.rows[0], "new": sink.rows[1]},
        "same": sink.same,
        "changed": pairs.changed,
        "only_recorded": sink.only_before,
        "only_new": sink.only_after,
        "place": place,
        "key": str(sink.key or RowKey()),
        "fields": [{"field": name, "rows": rows} for name, rows in pairs.fields.most_common(FIELDS_SHOWN)],
        "keys": [
            {"key": key, "changed": counts[0], "only_recorded": counts[1], "only_new": counts[2]}
            for key, counts in ranked[:KEYS_SHOWN]
        ],
        "keys_differing": len(pairs.keys),
        "keys_incomplete": pairs.keys_left_out,
        "examples": [_pair(pair) for pair in pairs.shown()],
    }


def _pair(pair: Pair) -> dict[str, Any]:
    side = pair.after or pair.before
    return {
        "key": pair.key,
        "fields": list(pair.fields),
        "recorded": None if pair.before is None else _row(pair.before),
        "new": None if pair.after is None else _row(pair.after),
        "input": None if side is None else _step(side.step),
    }


def _row(side: Side) -> dict[str, Any]:
    return {"task": side.task, "row": side.row[:ROW_CHARACTERS_MAX]}


def _step(step: Step) -> dict[str, Any]:
    return {
        "source": step.source,
        "partition": step.partition,
        "positions": [step.start, max(step.start, step.stop - 1)],
        "at": shown_time(step.at_ns),
        "at_ns": step.at_ns,
    }


def _divergence(divergence: Divergence) -> dict[str, Any]:
    return {
        "operator": divergence.operator,
        "place": divergence.place,
        "added": divergence.added,
        "key": divergence.key,
        "record": divergence.record,
        "recorded": list(divergence.before),
        "new": list(divergence.after),
        "input": _step(divergence.step),
    }


def counted(keys: int, more: str) -> str:
    """Return how many keys differ, in words."""
    return "1 key differs" if keys == 1 and not more else f"{keys:,}{more} keys differ"


def input_shown(step: Mapping[str, Any]) -> str:
    """Return the input of a step in words."""
    if not step["source"]:
        return f"when only time had passed, at {step['at']}"
    first, last = step["positions"]
    positions = f"position {first:,}" if first == last else f"positions {first:,} to {last:,}"
    return f"{step['source']}[{step['partition']}] {positions}, {step['at']}"


def lines_of(document: Document) -> Iterator[str]:
    """Yield the result as text."""
    interval = document["interval"]
    rate = f"{document['performed'] / max(document['took_s'], 0.001):,.0f}/s"
    yield (
        f"{document['job']}: epochs {interval['first']:,} to {interval['last']:,} ({interval['from']} to "
        f"{interval['to']}), {document['performed']:,} records in {document['took_s']:.1f} s ({rate})"
    )
    yield from notes_of(document)
    for name, sink in document["sinks"].items():
        yield (
            f"{name}: {sink['same']:,} rows are the same, {sink['changed']:,} changed, {sink['only_recorded']:,} only "
            f"of {RECORDED}, {sink['only_new']:,} only of {NEW}"
        )
        if sink["fields"]:
            fields = ", ".join(f"{each['field']} ({each['rows']:,})" for each in sink["fields"][:8])
            yield f"  changed fields: {fields}"
        if sink["keys"]:
            keys = ", ".join(each["key"][:60] for each in sink["keys"][:8])
            more = " or more" if sink["keys_incomplete"] else ""
            yield f"  {counted(sink['keys_differing'], more)} ({sink['key']}), most: {keys}"
        for pair in sink["examples"][:3]:
            for sign, side in (("-", "recorded"), ("+", "new")):
                if pair[side] is not None:
                    yield f"  {sign} {pair[side]['row'][:300]}"
            yield f"    ({input_shown(pair['input'])})"
    if (first := document["first_divergence"]) is not None:
        yield from _first(first)
    for version, problem in document["failures"].items():
        yield f"{version} failed: {problem}"
    yield document["verdict"]


def notes_of(document: Document) -> Iterator[str]:
    """Yield what a reader must know about the comparison itself."""
    interval = document["interval"]
    if interval["wanted"] != interval["first"]:
        yield (
            f"the comparison begins at the kept checkpoint {interval['first']:,}, before epoch {interval['wanted']:,}"
        )
    for source in document["sources_new"]:
        yield f"source {source!r} is new, so its input is not part of the comparison"
    for source in document["sources_gone"]:
        yield f"source {source!r} is not read by {NEW}"
    if document["calls"]["recorded"]:
        yield f"{document['calls']['recorded']:,} recorded answers of the outside world were used"
    if document["ended_early"]:
        yield f"the comparison ended before its interval: {document['ended_early']}"
    if document["paired_early"]:
        yield "so many rows differ that the oldest were paired before all had been compared; counts may be too high"


def _first(first: Mapping[str, Any]) -> Iterator[str]:
    what = f"operator {first['operator']}" if first["operator"] else "a sink, which writes the same records otherwise"
    added = ", which is new" if first["added"] else ""
    place = f" ({first['place']})" if first["place"] else ""
    yield f"first divergence: {what}{place}{added}; {input_shown(first['input'])}"
    if first["record"]:
        key = f"key {first['key']}, " if first["key"] else ""
        yield f"  {key}record {first['record'][:300]}"
    elif first["operator"]:
        yield "  when a timer or a window fired, or several records had an effect together"
    for sign, side in (("-", "recorded"), ("+", "new")):
        yield from (f"  {sign} {text[:300]}" for text in first[side])


def json_of(document: Document) -> str:
    """Return the document as text."""
    return json.dumps(document, indent=1, ensure_ascii=False)
