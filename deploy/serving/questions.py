"""The questions that a URL can ask about the state of a job, and their answers as JSON.

Every answer is of one epoch, which it names. Every size is limited: a question's arguments, the keys of one request and
of one page, and the bytes of an answer.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any
from urllib.parse import parse_qsl, unquote

from causal.errors import PipelineError
from deploy.serving.followed_job import FollowedJob
from deploy.serving.live_tasks import LiveTasks
from deploy.serving.refused import BAD_REQUEST, NOT_FOUND, TOO_LARGE, Refused
from operators.queries.key_order import UNBOUNDED, KeyRange
from operators.queries.key_spelling import json_of, key_of, text_of_key
from operators.queries.state_at import StateAt, TaskAnswer
from operators.queries.stored_state import by_table
from operators.records.keys import Unroutable

STATE, WINDOWS = "state", "windows"
CHECKPOINT, LIVE = "checkpoint", "live"
URL_BYTES_MAX = 8192
ASKED_MAX = 100
"""The number of keys in one request."""
PAGE, PAGE_MAX = 100, 1000
"""The number of keys of a page by default, and at most."""
ANSWER_BYTES_MAX = 8 << 20
PAGE_BYTES_MAX = 1 << 20
"""The size after which a page of a scan ends."""
_SCAN = ("prefix", "from", "to", "after", "limit", "values")

encode = json.JSONEncoder(ensure_ascii=False, separators=(",", ":"), allow_nan=False).encode


@dataclass(frozen=True, slots=True)
class Question:
    """One request.

    Attributes:
        asked: (operator, key) of each key that is asked for; empty for a scan or the overview.
        scanned: the operator whose keys are scanned; empty for none.
        epoch: the epoch that is asked for; None for the last checkpoint, or live.
        windows: whether the windows of the key are asked for.
        several: whether the answer is a list, because the request may name several keys.
    """

    asked: Sequence[tuple[str, Any]] = ()
    scanned: str = ""
    epoch: int | None = None
    live: bool = False
    windows: bool = False
    several: bool = False
    keys: KeyRange = KeyRange()
    limit: int = PAGE
    values: bool = True


def parsed(path: str, query: str) -> Question:
    """Return the question that a URL asks.

    Args:
        path: the path as it was sent, with its escapes.

    Raises:
        Refused: the URL asks nothing, or one of its arguments cannot be used.
    """
    if len(path) + len(query) > URL_BYTES_MAX:
        raise Refused(BAD_REQUEST, f"the URL has more than {URL_BYTES_MAX} bytes; ask for fewer keys")
    room, *names = [_text(part) for part in path.strip("/").split("/")]
    if room not in (STATE, WINDOWS) or len(names) > 2 or (room == WINDOWS and len(names) != 2) or "" in names:
        raise Refused(NOT_FOUND, "this address does not exist; use /state/OPERATOR/KEY, /state/OPERATOR, /state or "
                      "/windows/OPERATOR/KEY")  # fmt: skip
    arguments = _Arguments(query)
    epoch, live = arguments.as_of()
    if room == WINDOWS or len(names) == 2:
        question = Question([(names[0], _key(names[1]))], epoch=epoch, live=live, windows=room == WINDOWS)
    elif not names:
        pairs = [each.partition("/") for each in arguments.all("get")]
        question = Question([(name, _key(key)) for name, _, key in pairs], epoch=epoch, live=live, several=True)
    elif asked := arguments.all("key"):
        question = Question([(names[0], _key(key)) for key in asked], epoch=epoch, live=live, several=True)
    else:
        question = Question((), names[0], epoch, live, keys=arguments.range(), limit=arguments.limit(),
                            values=arguments.values())  # fmt: skip
    arguments.check()
    if len(question.asked) > ASKED_MAX:
        raise Refused(BAD_REQUEST, f"a request may ask for {ASKED_MAX} keys, not {len(question.asked)}; send several")
    if live and (question.scanned or question.windows):
        raise Refused(BAD_REQUEST, "as_of=live answers the state of keys only; use as_of=checkpoint")
    return question


class Answers:
    """The answers about one job; its methods may be called from several threads."""

    def __init__(self, followed: FollowedJob, live: LiveTasks) -> None:
        self._followed = followed
        self._live = live

    def waits(self, question: Question) -> bool:
        """Return whether the answer may need to read files or to wait for a task."""
        return question.live or not (question.asked or question.scanned) or not self._followed.holds(question.epoch)

    def to(self, question: Question) -> bytes:
        """Return the answer as JSON.

        Raises:
            CausalError: there is none, for the reason in the message.
        """
        try:
            text = self._text(question)
        except (RecursionError, ValueError) as problem:  # ints with more digits than Python converts
            if isinstance(problem, Unroutable):
                raise Refused(BAD_REQUEST, str(problem)) from None
            raise Refused(TOO_LARGE, f"the state cannot be written as JSON ({problem}); use `causal state`") from None
        data = text.encode(errors="backslashreplace")
        if len(data) > ANSWER_BYTES_MAX:
            raise Refused(TOO_LARGE, f"the answer has {len(data):,} bytes, but the limit is {ANSWER_BYTES_MAX:,}; "
                          "ask for fewer keys, or use `causal state`")  # fmt: skip
        return data

    def _text(self, question: Question) -> str:
        if question.live:
            return encode(self._of_tasks(question))
        with self._followed.at(question.epoch) as state:
            if question.scanned:
                return _page(state, question)
            if not question.asked:
                return encode(self._overview(state))
            of_keys = _windows if question.windows else _state
            answers = [of_keys(state, operator, key) for operator, key in question.asked]
            if question.several:
                return encode({"as_of": CHECKPOINT, "epoch": state.epoch, "answers": answers})
            return encode({"as_of": CHECKPOINT, "epoch": state.epoch, **answers[0]})

    def _overview(self, state: StateAt) -> dict[str, Any]:
        operators = [
            {
                "operator": operator,
                "keyed": state.operators.keyed(operator),
                "tasks": [task.name for task in state.operators.tasks(operator)],
            }
            for operator in state.keeping
        ]
        kept = [{"epoch": epoch, "savepoint": name or None} for epoch, name in self._followed.kept_epochs().items()]
        return {"as_of": CHECKPOINT, "epoch": state.epoch, "operators": operators, "kept": kept}

    def _of_tasks(self, question: Question) -> dict[str, Any]:
        operators, answers = self._followed.operators, []
        for operator, key in question.asked:
            _check_key(operators.keyed(operator), operator, key)
            tasks = []
            for task in operators.owners(operator, key):
                reply = self._live.ask(task.name, operator, key)
                tasks.append({
                    "task": task.name,
                    "epoch": reply["epoch"],
                    "incarnation": reply["incarnation"],
                    "state": json_of(by_table(reply["tables"], operator)),
                })  # fmt: skip
            answers.append(_of_key(operator, key, tasks))
        if question.several:
            return {"as_of": LIVE, "answers": answers}
        return {"as_of": LIVE, **answers[0]}


def _state(state: StateAt, operator: str, key: Any) -> dict[str, Any]:
    _check(state, operator, key)
    return _of_key(operator, key, [_of_task(answer) for answer in state.get(operator, key)])


def _of_task(answer: TaskAnswer) -> dict[str, Any]:
    return {"task": answer.task, "state": json_of(answer.state)}


def _of_key(operator: str, key: Any, tasks: list[dict[str, Any]]) -> dict[str, Any]:
    return {
        "operator": operator,
        "key": text_of_key(key),
        "found": any(task["state"] for task in tasks),
        "tasks": tasks,
    }


def _windows(state: StateAt, operator: str, key: Any) -> dict[str, Any]:
    _check(state, operator, key)
    windows = [
        {"task": task, "start": start_s, "end": end_s, "content": json_of(content)}
        for task, start_s, end_s, content in state.windows(operator, key)
    ]
    return {"operator": operator, "key": text_of_key(key), "windows": windows}


def _page(state: StateAt, question: Question) -> str:
    """Return the keys in a range, up to the limit of keys or of bytes, and where the next page begins."""
    operator = question.scanned
    ordered, start, stop = state.scan(operator, question.keys)
    texts, size, place = list[str](), 0, start
    for place in range(start, min(stop, start + question.limit)):
        key = ordered[place]
        entry: dict[str, Any] = {"key": text_of_key(key)}
        if question.values:
            entry["tasks"] = [_of_task(answer) for answer in state.get(operator, key)]
        text = encode(entry)
        size += len(text)
        if texts and size > PAGE_BYTES_MAX:
            break
        texts.append(text)
    more = start + len(texts) < stop
    head = {
        "as_of": CHECKPOINT,
        "epoch": state.epoch,
        "operator": operator,
        "count": stop - start,
        "next": text_of_key(ordered[start + len(texts) - 1]) if more else None,
    }
    return f'{encode(head)[:-1]},"keys":[{",".join(texts)}]}}'


def _check(state: StateAt, operator: str, key: Any) -> None:
    state.check(operator)
    _check_key(state.operators.keyed(operator), operator, key)


def _check_key(keyed: bool, operator: str, key: Any) -> None:
    if not keyed and key is not None:
        raise Refused(BAD_REQUEST, f"operator {operator!r} does not follow key_by: its only key is null")


def _key(text: str) -> Any:
    try:
        return key_of(text)
    except PipelineError as problem:
        raise Refused(BAD_REQUEST, str(problem)) from None


def _text(escaped: str) -> str:
    try:
        return unquote(escaped, errors="strict")
    except UnicodeDecodeError:
        raise Refused(BAD_REQUEST, f"{escaped:.80} is not UTF-8 with escapes of URLs; escape the bytes of its UTF-8"
                      ) from None  # fmt: skip


class _Arguments:
    """The arguments of a URL, each of which must be used by its question."""

    def __init__(self, query: str) -> None:
        try:
            pairs = parse_qsl(query, keep_blank_values=True, errors="strict", max_num_fields=ASKED_MAX + len(_SCAN) + 1)
        except (ValueError, UnicodeDecodeError) as problem:
            raise Refused(BAD_REQUEST, f"the arguments of the URL cannot be used: {problem}") from None
        self._values: dict[str, list[str]] = {}
        for name, value in pairs:
            self._values.setdefault(name, []).append(value)
        self._used = {"as_of"}

    def all(self, name: str) -> list[str]:
        self._used.add(name)
        return self._values.get(name, [])

    def one(self, name: str, default: str = "") -> str:
        values = self.all(name)
        if len(values) > 1:
            raise Refused(BAD_REQUEST, f"the argument {name} is there {len(values)} times; use it once")
        return values[0] if values else default

    def as_of(self) -> tuple[int | None, bool]:
        text = self.one("as_of", CHECKPOINT)
        if text == LIVE:
            return None, True
        if text == CHECKPOINT:
            return None, False
        if not text.isascii() or not text.isdecimal() or len(text) > 18 or not int(text):
            raise Refused(BAD_REQUEST, f"as_of={text:.40} is not {CHECKPOINT}, {LIVE} or the number of an epoch")
        return int(text), False

    def range(self) -> KeyRange:
        bounds = {name: _key(self.one(name)) if name in self._values else UNBOUNDED for name in ("from", "to", "after")}
        return KeyRange(self.one("prefix"), bounds["from"], bounds["to"], bounds["after"])

    def limit(self) -> int:
        text = self.one("limit", str(PAGE))
        if not text.isascii() or not text.isdecimal() or len(text) > 9 or not 0 < int(text) <= PAGE_MAX:
            raise Refused(BAD_REQUEST, f"limit={text:.40} is not a number from 1 to {PAGE_MAX}")
        return int(text)

    def values(self) -> bool:
        text = self.one("values", "1")
        if text not in ("0", "1"):
            raise Refused(BAD_REQUEST, f"values={text:.40} is not 0 or 1")
        return text == "1"

    def check(self) -> None:
        unknown = next((name for name in self._values if name not in self._used), None)
        if unknown is not None:
            raise Refused(BAD_REQUEST, f"the argument {unknown:.40} is not used at this address")
