"""The past of a job, as the page asks for it: the recording, rows, and what leads from them to an event.

Everything is read by other processes, because it takes time and memory that the server does not have.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from causal.errors import PipelineError
from deploy.jobs.hints import job_argument
from deploy.ui import replay_commands
from deploy.ui.child import Child
from deploy.ui.row_search import RowSearch

ANSWER_S = 30.0


class Past:
    """The past of the job in a directory.  Methods may be called from several threads."""

    def __init__(self, job: Path) -> None:
        self._job = job
        self._recording = Child("deploy.ui.recording_reader", job, "the recording")
        self._rows = Child("deploy.ui.newest_rows", job, "the rows")
        self._search = RowSearch(job)

    def axis(self, query: Mapping[str, str]) -> dict[str, Any]:
        """Return the axis of the interval from `since` to `until`, in seconds since 1970; by default, of everything.

        Raises:
            PipelineError: a bound is not a number, or the recording cannot be read.
            Unavailable: the recording is not read within the time.
        """
        bounds = {f"{name}_s": _number(query[name]) if query.get(name) else None for name in ("since", "until")}
        return self._recorded({"ask": "axis", **bounds})

    def epoch(self, query: Mapping[str, str]) -> dict[str, Any]:
        """Return what an epoch holds, and the commands about it; the errors are those of `axis`."""
        return self._recorded({"ask": "epoch", "epoch": _count(query.get("epoch", ""))})

    def failure(self, query: Mapping[str, str]) -> dict[str, Any]:
        """Return a failure and the commands about it; the errors are those of `axis`."""
        epoch = _count(query.get("epoch", ""))
        return self._recorded({"ask": "failure", "epoch": epoch, "task": query.get("task", "")})

    def _recorded(self, question: Mapping[str, Any]) -> dict[str, Any]:
        return _succeeded(self._recording.ask(json.dumps(question), ANSWER_S))

    def rows(self, query: Mapping[str, str]) -> dict[str, Any]:
        """Return the newest rows of a sink; the errors are those of `axis`."""
        question = {"sink": query.get("sink", ""), "text": query.get("text", "")}
        return self._rows.ask(json.dumps(question), ANSWER_S)

    def row(self, query: Mapping[str, str]) -> dict[str, Any]:
        """Return the commands about one row.

        Raises:
            PipelineError: the position is not a number.
        """
        account, position = query.get("account", ""), _count(query.get("position", ""))
        return {"commands": replay_commands.of_row(job_argument(self._job), account, position)}

    def origin(self, query: Mapping[str, str]) -> dict[str, Any]:
        """Return the origin of a row, as far as it is known; the errors are those of `row`."""
        return self._search.progress(query.get("account", ""), _count(query.get("position", "")))

    def search(self, kind: str, row: str) -> dict[str, Any]:
        """Begin or cancel the search for the origin of a row.

        Args:
            kind: `search` or `cancel`.
            row: the account and the position of the row, as `out/0:17`.

        Raises:
            PipelineError: the row or the kind is not valid.
            Unavailable: another search is in progress.
        """
        account, _, position = row.rpartition(":")
        number = _count(position)
        if kind == "cancel":
            self._search.cancel()
        elif kind == "search" and account and not account.startswith("-"):
            self._search.begin(account, number)
        else:
            raise PipelineError(f"{kind[:40]!r} of {row[:40]!r}: use search or cancel, and a row such as out/0:17")
        return self._search.progress(account, number)

    def close(self) -> None:
        """End the other processes; nothing is answered afterwards."""
        self._search.close()
        self._recording.close()
        self._rows.close()


def _succeeded(answer: dict[str, Any]) -> dict[str, Any]:
    if "problem" in answer:
        raise PipelineError(answer["problem"])
    return answer


def _number(text: str) -> float:
    try:
        number = float(text)
    except ValueError:
        number = float("nan")
    if not abs(number) < 1e11:
        raise PipelineError(f"{text[:40]!r} is not a time in seconds since 1970")
    return number


def _count(text: str) -> int:
    if not (text.isascii() and text.isdecimal() and len(text) < 19):
        raise PipelineError(f"{text[:40]!r} is not the number of an epoch or a position")
    return int(text)
