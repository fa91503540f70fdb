"""Whether what came out of a run is what had to come out; the same for every system.

A run whose output is wrong has no figures: `WrongOutput` says in one line what was found.
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from functools import cache
from pathlib import Path
from typing import Any

from benchmarks.peers.programs import inputs

Event = tuple[float, int, int]
"""(when a reader could see the row, number, count of its key)"""

LATE_S = 0.25
"""Time after the kill in which output that had left the killed stage may still come, unless a program says."""


class WrongOutput(ValueError):
    """The output is not what the input demands."""


@cache
def expected_counts(records: int) -> Counter[int]:
    """Return how many rows each key has in the input of *count*."""
    half = records // inputs.PARTITIONS
    return Counter(key for partition in range(inputs.PARTITIONS) for key, _ in inputs.rows(partition, 0, half))


@cache
def expected_index(corpus: Path, documents: int) -> tuple[int, dict[str, tuple[int, int]]]:
    """Return how many (word, document) there are, and per word its documents and occurrences."""
    in_documents: Counter[str] = Counter()
    occurrences: Counter[str] = Counter()
    for number, text in enumerate(inputs.documents(corpus, documents)):
        for term, _, places in inputs.words(number, text):
            in_documents[term] += 1
            occurrences[term] += len(places)
    return in_documents.total(), {term: (n, occurrences[term]) for term, n in in_documents.items()}


def merged(place: Path, key: Callable[[Any], Any]) -> dict[str, Any]:
    """Return the tallies of all sinks of a run together: rows, total, last value of each key, when the last row
    came.
    """
    tallies = [json.loads(path.read_text()) for path in sorted(place.glob("tally-*.json"))]
    if not tallies:
        raise WrongOutput("no sink reported a row")
    last: dict[Any, Any] = {}
    for tally in tallies:
        for name, value in tally["last"]:
            if key(name) in last:
                raise WrongOutput(f"key {name} was counted in two places")
            last[key(name)] = tuple(value) if isinstance(value, list) else value
    rows, total = (sum(tally[name] for tally in tallies) for name in ("rows", "total"))
    return {"rows": rows, "total": total, "last": last, "last_s": max(tally["last_s"] for tally in tallies)}


def check_count(output: Mapping[str, Any], records: int, per_record: bool) -> None:
    """Every key has its count; with one row per record, there are as many rows, and all their values add up.

    Raises:
        WrongOutput: they do not.
    """
    expected = expected_counts(records)
    _same_keys(output["last"], expected)
    if not per_record:
        return
    if output["rows"] != expected.total():
        raise WrongOutput(f"{output['rows']:,} rows came out for {expected.total():,} records")
    total = sum(n * (n + 1) // 2 for n in expected.values())
    if output["total"] != total:
        raise WrongOutput(f"the counts of all rows add up to {output['total']:,}, not to {total:,}")


def check_index(output: Mapping[str, Any], corpus: Path, documents: int, per_record: bool) -> int:
    """Every word has its documents and occurrences; returns how many (word, document) there were.

    Raises:
        WrongOutput: they have not, or (with one row each) there are more or fewer rows than that.
    """
    updates, expected = expected_index(corpus, documents)
    _same_keys(output["last"], expected)
    if per_record and output["rows"] != updates:
        raise WrongOutput(f"{output['rows']:,} rows came out for {updates:,} postings")
    return updates


def check_rows(output: Mapping[str, Any], expected: Mapping[str, Any]) -> None:
    """The rows are those of a model: as many, the same sum of their hashes or values, and the same last ones.

    Raises:
        WrongOutput: they are not.
    """
    if output["rows"] != expected["rows"]:
        raise WrongOutput(f"{output['rows']:,} rows came out, not {expected['rows']:,}")
    _same_keys(output["last"], expected["last"])
    if output["total"] != expected["total"]:
        raise WrongOutput(f"there are {output['rows']:,} rows, as there should be, but not the right ones")


def _same_keys(output: Mapping[Any, Any], expected: Mapping[Any, Any]) -> None:
    wrong = [key for key in {**expected, **output} if output.get(key) != expected.get(key)]
    if wrong:
        key = wrong[0]
        raise WrongOutput(
            f"{len(wrong):,} of {len(expected):,} keys are wrong, the first {key!r}: it has {output.get(key)} where the"
            f" input has {expected.get(key)}"
        )


def read_events(place: Path) -> list[Event]:
    """Return the rows that could be seen, in the order in which they could be."""
    events = []
    for path in place.glob("seen-*.log"):
        for line in path.read_text().splitlines():
            when_s, number, count = line.split()
            events.append((float(when_s), int(number), int(count)))
    if not events:
        raise WrongOutput("no row was seen")
    return sorted(events)


def account(events: Iterable[Event], records: int, per_record: bool) -> dict[str, int]:
    """Return rows lost, doubled and contradicted (a count that is not the one of its number), over the whole run.

    A system that gives one row per key and commit is held to the counts alone: what a key lacks at the end is lost,
    an excess was counted twice, and a count that is above its number's is a contradiction.
    """
    seen: Counter[int] = Counter()
    reached: dict[int, int] = {}
    rows = contradicted = 0
    for _, number, count in events:
        rows += 1
        seen[number] += 1
        key, expected = number % inputs.KEYS, number // inputs.KEYS + 1
        contradicted += count > expected if not per_record else count != expected
        reached[key] = max(reached.get(key, 0), count)
    beyond = sum(number >= records for number in seen)
    if beyond:
        raise WrongOutput(f"{beyond:,} rows are of numbers that were never given")
    if per_record:
        return {
            "rows": rows,
            "lost": records - len(seen),
            "doubled": rows - len(seen),
            "contradicted": contradicted,
        }
    full, rest = divmod(records, inputs.KEYS)
    differences = [full + (key < rest) - reached.get(key, 0) for key in range(min(inputs.KEYS, records))]
    return {
        "rows": rows,
        "lost": sum(each for each in differences if each > 0),
        "doubled": -sum(each for each in differences if each < 0),
        "contradicted": contradicted,
    }


def gap_ms(
    events: Sequence[Event], killed_s: float, killed_keys: Collection[int] | None, late_s: float = LATE_S
) -> float:
    """Return milliseconds from the kill to the first new row of the killed stage.

    Only keys of that stage count (None: all).  What had left it before may still become visible for `late_s`; the
    stage is back at the end of the longest silence that begins until then, with the first number that is new.

    Raises:
        WrongOutput: nothing new came after the kill, or nothing was there before it.
    """
    keys = None if killed_keys is None else frozenset(killed_keys)
    own = [event for event in events if keys is None or event[1] % inputs.KEYS in keys]
    if not own or own[0][0] > killed_s:
        raise WrongOutput("the killed stage had put nothing out before it was killed")
    silences = [
        (after[0] - before[0], after[0])
        for before, after in zip(own, own[1:])
        if after[0] > killed_s and before[0] < killed_s + late_s
    ]
    if not silences:
        raise WrongOutput("the killed stage put nothing out after it was killed")
    _, back_s = max(silences)
    highest = max(number for when_s, number, _ in own if when_s < back_s)
    fresh = [when_s for when_s, number, _ in own if when_s >= back_s and number > highest]
    if not fresh:
        raise WrongOutput("the killed stage put nothing new out after it was killed")
    return (fresh[0] - killed_s) * 1000
