"""Reads the newest rows of a job's sinks, so that the page can show where one came from.

    python -m deploy.ui.newest_rows      a separate process, because it loads the pipeline's code

It is the process of a `deploy.ui.child.Child`; each question is a JSON object with the name of a sink, the first one if
it is empty, and a text that the rows contain.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from causal.errors import CausalError, PipelineError
from deploy.ui.child import answer_questions
from deploy.ui.seen_rows import Place, places
from operators.outputs import Output, open_output

ROWS_MAX = 50
"""The number of rows in an answer."""
SEARCHED_MAX = 200_000
"""The number of rows of a sink that are searched for a text, newest first."""
PIECE = 5_000
ROW_MAX = 2_000
"""The number of characters of a row that are shown."""


def newest(sinks: Mapping[str, Place | None], sink: str, text: str) -> dict[str, Any]:
    """Return the newest rows of a sink that contain a text, by account and position, and the names of all sinks."""
    sink = sink or next((name for name, place in sinks.items() if place is not None), next(iter(sinks), ""))
    answer: dict[str, Any] = {"sinks": list(sinks), "sink": sink, "rows": [], "searched": 0, "complete": True}
    try:
        place = sinks.get(sink)
        if place is None:
            raise PipelineError(
                f"the rows of {sink} cannot be read from here" if sink in sinks else f"no sink {sink!r}"
            )
        output = open_output(place)
        output.look()
        return {**answer, **_matching(output, text)}
    except (CausalError, OSError) as problem:
        return {**answer, "problem": " ".join(str(problem).split())[:300]}


def _matching(output: Output, text: str) -> dict[str, Any]:
    ends = output.ends(uncovered=True)
    rows: list[dict[str, Any]] = []
    searched, complete = 0, True
    for account, end in ends.items():
        left, wanted = SEARCHED_MAX // len(ends), max(1, ROWS_MAX // len(ends))
        matching: list[dict[str, Any]] = []
        while end > 0 and len(matching) < wanted and left > 0:
            start = max(0, end - min(left, PIECE if text else wanted))
            piece = [row for row in _rows(output, account, start, end) if text in row["row"]]
            matching = [*piece[-(wanted - len(matching)) :], *matching]
            searched, left, end = searched + end - start, left - (end - start), start
        complete = complete and end == 0
        rows += matching[::-1]
    return {"rows": [{**row, "row": _cut(row["row"])} for row in rows], "searched": searched, "complete": complete}


def _rows(output: Output, account: str, start: int, end: int) -> list[dict[str, Any]]:
    rows = []
    for positions, piece in output.rows(account, start, end):
        at = positions.to_pylist() if hasattr(positions, "to_pylist") else positions
        texts = piece.to_pylist() if hasattr(piece, "to_pylist") else piece
        rows += [
            {"account": account, "position": position, "row": _text(text)}
            for position, text in zip(at, texts, strict=True)
        ]
    return rows


def _text(row: Any) -> str:
    if isinstance(row, bytes):
        return row.decode(errors="replace")
    return row if isinstance(row, str) else json.dumps(row, default=str, ensure_ascii=False)


def _cut(text: str) -> str:
    return text if len(text) <= ROW_MAX else text[: ROW_MAX - 1] + "…"


def main() -> int:
    """Answer questions until standard input ends, or for a while there is none."""
    known: dict[Path, dict[str, Place | None]] = {}

    def answer(job: Path, question: str) -> dict[str, Any]:
        asked = json.loads(question)
        if job not in known:
            known[job] = places(job)
        return newest(known[job], asked["sink"], asked["text"])

    return answer_questions(answer)


if __name__ == "__main__":
    sys.exit(main())
