"""The answers of the outside world in a performance: the recorded ones, and a rule of the user's for the others (0056).

The recorded version is answered from the recording; where it asks otherwise than it did, because a performance is not
the original run, the next answer to the same operator and key serves. Whatever it was answered is the answer to the
same request of the new code. What only the new code asks is answered by the rule.
"""

from __future__ import annotations

import sqlite3
from collections import OrderedDict
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from functools import partial
from hashlib import blake2b
from pathlib import Path
from types import FunctionType
from typing import Any

from causal.errors import OperatorFailed
from causal.records.values import NotCarried, encode
from operators.stage.calls import Asking, outcome

NAMES_MAX = 1 << 20
"""The requests whose number of repetitions is known; an older one counts from 0 again."""
PASSED_BYTES_MAX = 64 << 20
"""The size of answers to the recorded version for which the new code has not asked yet."""
REFUSE, LIVE = "refuse", "live"

Answer = bytes | None
"""The encoded outcome of a request; None if the recording ends before it."""
Passed = tuple[bytes, Answer]
"""The name of a request of the recorded version, with its repetition, and its answer."""


class Unanswered(OperatorFailed):
    """Raised where code makes a request that has no answer; the performance cannot continue.

    Attributes:
        operator: the operator that makes it.
    """

    def __init__(self, problem: str, operator: str = "") -> None:
        super().__init__(problem)
        self.operator = operator


@dataclass(frozen=True, slots=True)
class Question:
    """A request as it is looked up.

    Attributes:
        name: the digest of the operator, the key, the function and its arguments.
        loose: the digest of the same without the arguments.
        shown: the request for messages.
    """

    operator: str
    name: bytes
    loose: bytes
    shown: str


def question(asking: Asking) -> Question:
    """Return a request of `ctx.call` or `ctx.determinant`."""
    what = asking.what
    parts = [*asking.arguments]
    while isinstance(what, partial):
        parts += [*what.args, *what.keywords.items()]
        what = what.func
    if isinstance(what, FunctionType) and what.__closure__:
        parts += [cell.cell_contents for cell in what.__closure__ if _filled(cell)]
    name = what if isinstance(what, str) else getattr(what, "__name__", type(what).__name__)
    own = getattr(what, "__self__", None)
    about = [part for part in parts if part is not own]
    shown = ", ".join(f"{part!r:.80}" for part in about)
    return _question(asking.operator, asking.key, name, about, f"{name}({shown})")


def question_of_record(operator: str, key: Any, record: Any) -> Question:
    """Return the request that a `call` operator makes for a record."""
    return _question(operator, key, "", [record], f"{record!r:.120}")


def _question(operator: str, key: Any, name: str, parts: Sequence[Any], shown: str) -> Question:
    beginning = _packed([operator, key, name])
    whole = beginning + b"".join(map(_packed, parts))
    about_key = "" if key is None else f"key {key!r:.80}: "
    return Question(operator, _digest(b"=" + whole), _digest(b"~" + beginning), f"{about_key}{shown}")


def _filled(cell: Any) -> bool:
    try:
        return cell.cell_contents is not None
    except ValueError:
        return False


def _packed(value: Any) -> bytes:
    try:
        return encode(value)
    except (NotCarried, TypeError, ValueError):
        return type(value).__qualname__.encode()  # objects have no content that could be compared


def _digest(content: bytes) -> bytes:
    return blake2b(content, digest_size=16).digest()


def create(path: Path, answered: Iterable[tuple[Question, bytes]]) -> int:
    """Write the recorded answers, in the order of the requests, to a file; return their number."""
    counted, number = _Repetitions(), 0
    database = sqlite3.connect(path, isolation_level=None)
    try:
        database.executescript(
            "PRAGMA journal_mode = OFF; PRAGMA synchronous = OFF; CREATE TABLE answer (name BLOB PRIMARY KEY, "
            "body BLOB) WITHOUT ROWID; CREATE TABLE loose (name BLOB PRIMARY KEY, answer BLOB) WITHOUT ROWID; BEGIN"
        )
        for asked, body in answered:
            name, loose = counted.next(asked.name), counted.next(asked.loose)
            database.execute("INSERT OR REPLACE INTO answer VALUES (?, ?)", (name, body))
            database.execute("INSERT OR REPLACE INTO loose VALUES (?, ?)", (loose, name))
            number += 1
        database.execute("COMMIT")
    finally:
        database.close()
    return number


class _Repetitions:
    """The number of times that each name has occurred; the oldest names are forgotten."""

    def __init__(self) -> None:
        self._counts: OrderedDict[bytes, int] = OrderedDict()

    def next(self, name: bytes) -> bytes:
        """Return the name with the number of its occurrences before."""
        number = self._counts.pop(name, 0)
        self._counts[name] = number + 1
        if len(self._counts) > NAMES_MAX:
            self._counts.popitem(last=False)
        return name + number.to_bytes(4, "big")


@dataclass(frozen=True, slots=True)
class Rule:
    """The rule by which a request is answered that the recording does not.

    Attributes:
        kind: REFUSE, LIVE, or the path of a file with functions.
    """

    kind: str = REFUSE
    functions: dict[str, Callable[..., Any]] = field(default_factory=dict)

    @classmethod
    def load(cls, kind: str) -> Rule:
        """Load the functions of a file; call this in the process that performs.

        Raises:
            OperatorFailed: the file cannot be loaded.
        """
        if kind in (REFUSE, LIVE):
            return cls(kind)
        content: dict[str, Any] = {"__name__": "calls", "__file__": kind}
        try:
            exec(compile(Path(kind).read_bytes(), kind, "exec"), content)
        except Exception as problem:
            raise OperatorFailed(f"--calls {kind}: {type(problem).__name__}: {problem}") from None
        return cls(kind, {name: each for name, each in content.items() if callable(each)})

    def answer(self, asked: Question, ask: Callable[[], bytes], arguments: Sequence[Any], raw: bool = False) -> bytes:
        """Return the answer of the rule.

        Args:
            raw: whether the answer is the bytes of a determinant instead of an encoded outcome.

        Raises:
            Unanswered: the rule has no answer.
        """
        if self.kind == LIVE:
            return ask()
        function = self.functions.get(function_name(asked.operator))
        if function is not None and raw:
            return bytes(function(*arguments))
        if function is not None:
            return outcome(partial(function, *arguments), f"--calls {self.kind}")[1]
        if self.kind == REFUSE:
            fix = "answer it with --calls FILE.py or --calls live"
        else:
            fix = f"{self.kind} has no function {function_name(asked.operator)} for it"
        raise Unanswered(
            f"operator {asked.operator!r} makes a request that has no recorded answer ({asked.shown}); {fix}",
            asked.operator,
        )


def function_name(operator: str) -> str:
    """Return the name of the function that answers for an operator."""
    return "".join(letter if letter.isalnum() else "_" for letter in operator)


class Answers:
    """The answers to one performance.

    Args:
        path: the file of recorded answers; None if there are none.
        leads: whether this is the recorded version, whose answers are passed to the other performance.

    Attributes:
        passed: the answers since the last call of `take`, for the other performance.
    """

    def __init__(self, path: Path | None, rule: Rule, leads: bool) -> None:
        self._database = None if path is None else sqlite3.connect(f"file:{path}?mode=ro", uri=True)
        self._rule = rule
        self._leads = leads
        self._repetitions = _Repetitions()
        self._received: OrderedDict[bytes, Answer] = OrderedDict()
        self._received_bytes = 0
        self._passed: list[Passed] = []

    def take(self) -> list[Passed]:
        """Return the answers of the recorded version that the recording does not have under these names."""
        passed, self._passed = self._passed, []
        return passed

    def receive(self, passed: Iterable[Passed]) -> None:
        """Add answers that the recorded version was given."""
        for name, answer in passed:
            self._received[name] = answer
            self._received_bytes += len(answer or b"")
        while self._received_bytes > PASSED_BYTES_MAX:
            _, answer = self._received.popitem(last=False)
            self._received_bytes -= len(answer or b"")

    def answer(
        self,
        asked: Question,
        ask: Callable[[], bytes],
        arguments: Sequence[Any],
        raw: bool = False,
        may_wait: bool = False,
    ) -> Answer:
        """Return the answer to a request.

        Args:
            may_wait: whether the recorded version may be left without an answer, which is then None.

        Raises:
            Unanswered: there is no answer.
        """
        name = self._repetitions.next(asked.name)
        loose = self._repetitions.next(asked.loose)
        if name in self._received:
            received = self._received.pop(name)
            self._received_bytes -= len(received or b"")
            return received
        known = self._look("answer", name)
        if known is not None:
            return known
        answer: Answer = None
        if self._leads and (instead := self._look("loose", loose)) is not None:
            answer = self._look("answer", instead)
        if answer is None and not (self._leads and may_wait):
            answer = self._rule.answer(asked, ask, arguments, raw)
        if self._leads:
            self._passed.append((name, answer))
        return answer

    def _look(self, table: str, name: bytes) -> bytes | None:
        if self._database is None:
            return None
        column = "body" if table == "answer" else "answer"
        row = self._database.execute(f"SELECT {column} FROM {table} WHERE name = ?", (name,)).fetchone()
        return None if row is None else row[0]
