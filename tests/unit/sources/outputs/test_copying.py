"""Copies of another job's output under deaths, withdrawals and small memories: folded, they are its rows."""

from __future__ import annotations

import json
import random
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from causal.errors import PipelineError
from operators.sources.outputs.output_source import OutputSource, _Copying
from operators.sources.outputs.taken_rows import Taken, TakenRows


class Store:
    """An output in memory that can withdraw its last rows (`operators.outputs.output.Output`)."""

    def __init__(self) -> None:
        self.run = "r1"
        self.ended = False
        self.texts: dict[str, list[str]] = {"out/0": [], "out/1": []}
        self.counts = dict.fromkeys(self.texts, 0)
        self.between_looks: Any = None

    def look(self) -> None:
        if self.between_looks is not None:
            happens, self.between_looks = self.between_looks, None
            happens()

    def ends(self, uncovered: bool) -> dict[str, int]:
        return {task: len(texts) for task, texts in self.texts.items()}

    def withdrawn(self) -> dict[str, int]:
        return dict(self.counts)

    def hint(self, task: str, position: int) -> None:
        return None

    def rows(self, task: str, start: int, stop: int, hint: Any = None) -> Iterator[tuple[Any, Any]]:
        for first in range(start, stop, 7):
            places = range(first, min(first + 7, stop))
            yield places, [self.texts[task][place] for place in places]

    def withdraw(self, task: str, next_: int) -> None:
        self.counts[task] += len(self.texts[task]) - next_
        del self.texts[task][next_:]


class Died(Exception):
    """The process died."""


class Log:
    """A writer of the ingest log that can die before or after it publishes a batch."""

    def __init__(self) -> None:
        self.batch, self.note, self.lines = 0, "", list[bytes]()
        self.dies = ""

    def publish(self, lines: list[bytes], note: str) -> None:
        dies, self.dies = self.dies, ""
        if dies == "before":
            raise Died
        self.lines += lines
        self.batch, self.note = self.batch + 1, note
        if dies == "after":
            raise Died


def folded(lines: list[bytes]) -> Counter[str]:
    """Return the rows that remain; a row is retracted only while it is there."""
    rows: Counter[str] = Counter()
    for line in lines:
        record = json.loads(line)
        text = json.dumps(record["row"])
        rows[text] += -1 if record["withdrawn"] else 1
        assert rows[text] >= 0, f"{text} is retracted but was not there"
    return +rows


def begun(source: OutputSource, log: Log, path: Path) -> _Copying:
    return _Copying(source, log, TakenRows(path, source.remembered_bytes, log.batch), "in")  # type: ignore[arg-type]


@pytest.mark.parametrize("seed", range(40))
def test_what_is_copied_is_what_the_output_has(tmp_path: Path, seed: int) -> None:
    chance = random.Random(seed)
    source = OutputSource(tmp_path / "out.db", located=True)
    store, log, number = Store(), Log(), 0

    def change() -> None:
        nonlocal number
        task = chance.choice(sorted(store.texts))
        if chance.random() < 0.35:
            store.withdraw(task, chance.randint(0, len(store.texts[task])))
        for _ in range(chance.choice((0, 1, 5, 30))):
            number += chance.random() < 0.8  # some rows come again as they were
            store.texts[task].append(json.dumps({"n": number, "task": task}))

    copying = begun(source, log, tmp_path / "rows")
    for _ in range(60):
        change()
        log.dies = chance.choice(("", "", "before", "after"))
        if chance.random() < 0.3:
            store.between_looks = change
        try:
            copying._copy(store)
        except Died:
            copying = begun(source, log, tmp_path / "rows")
        folded(log.lines)
    log.dies, store.between_looks = "", None
    while copying._copy(store):
        continue
    assert folded(log.lines) == Counter(text for texts in store.texts.values() for text in texts)


def test_a_row_that_is_no_longer_remembered_cannot_be_retracted(tmp_path: Path) -> None:
    source = OutputSource(tmp_path / "out.db", remembered_bytes=1 << 16)
    store, log = Store(), Log()
    store.texts["out/0"] = [json.dumps({"n": n, "pad": "x" * 100}) for n in range(3000)]
    copying = begun(source, log, tmp_path / "rows")
    while copying._copy(store):
        continue
    store.withdraw("out/0", 2990)
    assert copying._copy(store) and json.loads(log.lines[-1]) == {"n": 2990, "pad": "x" * 100, "_withdrawn": True}
    store.withdraw("out/0", 100)
    with pytest.raises(PipelineError, match=r"from position 100 on may have been withdrawn.*remembered_bytes"):
        copying._copy(store)


@pytest.mark.parametrize(
    ("text", "retracted"),
    [
        ("{}", {"_withdrawn": True}),
        ('{"a": 1}', {"a": 1, "_withdrawn": True}),
        ("[1, 2]", {"row": [1, 2], "_withdrawn": True}),
        ("null", {"row": None, "_withdrawn": True}),
    ],
)
def test_a_withdrawn_row_is_marked(tmp_path: Path, text: str, retracted: Any) -> None:
    store, log = Store(), Log()
    copying = begun(OutputSource(tmp_path / "out.db"), log, tmp_path / "rows")
    store.texts["out/1"] = [text]
    assert copying._copy(store)
    store.withdraw("out/1", 0)
    assert copying._copy(store)
    assert [json.loads(line) for line in log.lines] == [json.loads(text), retracted]


def test_an_output_that_another_run_has_replaced_ends_the_job(tmp_path: Path) -> None:
    store, log = Store(), Log()
    store.texts["out/0"] = ["1"]
    copying = begun(OutputSource(tmp_path / "out.db"), log, tmp_path / "rows")
    assert copying._copy(store)
    store.run = "r2"
    with pytest.raises(PipelineError, match="replaced by another run"):
        copying._copy(store)


def test_an_output_that_has_lost_rows_ends_the_job(tmp_path: Path) -> None:
    store, log = Store(), Log()
    store.texts["out/0"] = ["1", "2"]
    copying = begun(OutputSource(tmp_path / "out.db"), log, tmp_path / "rows")
    assert copying._copy(store)
    del store.texts["out/0"][1:]
    with pytest.raises(PipelineError, match="restore the output"):
        copying._copy(store)


def test_a_note_says_how_much_was_taken() -> None:
    taken = Taken().after("r1", "out/0", 7, 2).after("r1", "out/1", 3, 0)
    assert Taken.of(taken.note()) == taken
    assert taken.may_be_withdrawn_from("out/0", 2) == 7
    assert taken.may_be_withdrawn_from("out/0", 5) == 4
    assert taken.may_be_withdrawn_from("out/0", 50) == 0
