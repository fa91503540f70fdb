"""The index of PyFlink is judged by its files: each row once, in the order of its writer, from when it was visible."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from benchmarks.latency import beside_flink
from benchmarks.latency.beside_flink import judged, rows_in
from benchmarks.peers.checks import WrongOutput
from benchmarks.peers.launched import Usage
from benchmarks.peers.programs import index_documents

USAGE = Usage(0, 0.0, 0.0, 0.0, 0.0, [], "")
ASKED = {"records": 2, "rate": 10.0, "interval_s": 1.0}
DOCUMENTS = [{"a": [0, 2], "b": [1]}, {"a": [0]}]


def row(term: str, number: int, so_far: tuple[int, int]) -> dict[str, Any]:
    positions = DOCUMENTS[number][term]
    name = index_documents.name_of(number)
    return {"word": term, "document": name, "positions": positions, "documents": so_far[0], "occurrences": so_far[1]}


def written(place: Path, files: dict[str, tuple[float, list[dict[str, Any]]]]) -> None:
    """Write the files of a run of PyFlink, each with the time at which it was visible."""
    visible = {}
    (place / "out" / "bucket").mkdir(parents=True)
    for name, (at_s, rows) in files.items():
        path = place / "out" / "bucket" / name
        path.write_text("".join(json.dumps(each) + "\n" for each in rows))
        visible[str(path)] = at_s
    (place / "visible.json").write_text(json.dumps(visible))
    (place / "paced-since").write_text("100.0")


FILES = {
    "part-b1-0": (101.0, [row("a", 0, (1, 2))]),
    "part-b1-10": (103.0, []),
    "part-b1-2": (102.5, [row("a", 1, (2, 3))]),
    "part-c7-0": (102.0, [row("b", 0, (1, 1))]),
}


def test_a_document_counts_until_its_last_file_is_visible(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(index_documents, "expected", lambda count: DOCUMENTS[:count])
    written(tmp_path, FILES)
    rows, seen = rows_in(tmp_path)
    assert [each["documents"] for each in rows if each["word"] == "a"] == [1, 2], "files of a writer are in their order"
    assert [each.at_ns for each in seen] == sorted(each.at_ns for each in seen)
    figures = judged(tmp_path, ASKED, {}, USAGE, warm_s=0.0)
    assert figures["behind_s"] == pytest.approx(2.4) and figures["p99_ms"] == pytest.approx(2400)
    assert judged(tmp_path, ASKED, {}, USAGE, warm_s=0.1)["p50_ms"] == pytest.approx(2400)


def test_rows_that_are_wrong_have_no_figures(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(index_documents, "expected", lambda count: DOCUMENTS[:count])
    written(tmp_path, {**FILES, "part-c7-1": (102.1, [row("b", 0, (2, 2))])})
    with pytest.raises(WrongOutput, match="'doubled': 1"):
        judged(tmp_path, ASKED, {}, USAGE, warm_s=0.0)


def test_other_files_are_refused() -> None:
    with pytest.raises(WrongOutput, match="no file of a FileSink"):
        beside_flink._writer_and_turn(Path("_SUCCESS"))
