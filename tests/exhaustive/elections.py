"""Every interleaving of a leader and of candidates that stand for its place, request by request to the shared store.

The procedures are those that ship (`standby.leadership`).  Time is left out: a candidate may stand whenever it likes,
so also while the leader lives.  A supervisor that is not scheduled any more is a dead one.  A few requests may lose
their answer: they are carried out, or later, or never.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Generator, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any, NamedTuple

from causal.errors import Fenced, Unavailable
from standby.leadership import term_journal
from standby.leadership.ledger import Ledger
from standby.leadership.term_journal import Create, Names, Read, Remove, Request, elected, looked
from standby.leadership.terms import DEAF, Term

LOST = "lost"
"""The answer that does not arrive."""


@dataclass(frozen=True, slots=True)
class Began:
    """A supervisor leads, with the decisions that it has inherited."""

    term: int
    decisions: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Acted:
    """A leader has acted upon a decision."""

    term: int
    decision: str


@dataclass(frozen=True, slots=True)
class Over:
    """A supervisor has come to its end: it has lost an election, or it was fenced, or it has decided all it had to."""

    how: str


Note = Began | Acted | Over
Program = Generator[Request | Note, Any, None]


def candidate(holder: str, decisions: int, hasty: bool = False, leaves: bool = False) -> Program:
    """One supervisor from its first look on: it stands immediately, and decides if it is elected.

    Args:
        hasty: it acts upon a decision before that is in its journal.
        leaves: it hears no host, and leaves the job to a candidate when it has decided.
    """
    seen = yield from _insisted(lambda: looked(None))
    number = 1 if seen is None else seen.term.number + 1
    term = Term(number, holder, holder, "tcp://h:1", "{}", "{}")
    if not (yield from _insisted(lambda: elected(term))):
        yield Over("another one was elected")
        return
    try:
        ledger = Ledger(number, (yield from _insisted(lambda: term_journal.inherited(number))))
        yield from _insisted(lambda: ledger.append([], 0))
        yield from _insisted(ledger.sweep)
        yield Began(number, tuple(record["what"] for record in ledger.inherited.records))
        for place in range(decisions):
            decision = {"kind": "decided", "what": f"{holder}{place}"}
            if hasty:
                yield Acted(number, decision["what"])
            yield from _insisted(lambda record=decision: ledger.append([record], 0))  # type: ignore[misc]
            yield Acted(number, decision["what"])
        if leaves:
            yield from _insisted(lambda: ledger.append([], 0, DEAF))
        yield Over("it leaves" if leaves else "it leads")
    except Fenced:
        yield Over("it is fenced")


def _insisted(procedure: Callable[[], Generator[Request, Any, Any]]) -> Generator[Request, Any, Any]:
    """Repeat a procedure from its beginning until it is carried out."""
    while True:
        try:
            return (yield from procedure())
        except Unavailable:
            continue


class State(NamedTuple):
    """One state of the whole world.

    Attributes:
        objects: (name, content) in the store; late: creations that may still be carried out.
        answers: of each supervisor, from its beginning: they are all that it knows.
        losses: answers that may still be lost.
    """

    objects: tuple[tuple[str, bytes], ...]
    late: tuple[tuple[str, bytes], ...]
    answers: tuple[tuple[Any, ...], ...]
    losses: int


@dataclass(slots=True)
class Verdict:
    """The result of an exploration: the states, the ends, and the first breach."""

    states: int = 0
    ends: int = 0
    terms: set[int] = field(default_factory=set)
    """The terms that began in some state."""
    fenced: int = 0
    """The ends in which a supervisor was fenced."""
    breach: str = ""


class Election:
    """The rules of one world.

    Args:
        programs: of the supervisors.
        losses: answers that may be lost.
    """

    def __init__(self, programs: Mapping[str, Callable[[], Program]], losses: int) -> None:
        self._programs = programs
        self._losses = losses
        self._known: dict[tuple[str, tuple[Any, ...]], tuple[Request | None, tuple[Note, ...]]] = {}

    def explore(self) -> Verdict:
        """Visit every state."""
        first = State((), (), ((),) * len(self._programs), self._losses)
        seen, waiting, verdict = {first}, deque([first]), Verdict()
        while waiting and not verdict.breach:
            state = waiting.popleft()
            verdict.states += 1
            following = list(self._following(state))
            self._judge(state, not following, verdict)
            fresh = [each for each in following if each not in seen]
            seen.update(fresh)
            waiting.extend(fresh)
        return verdict

    def _run(self, name: str, answers: tuple[Any, ...]) -> tuple[Request | None, tuple[Note, ...]]:
        """Return what a supervisor with these answers asks next (None at its end), and the state it has done."""
        known = self._known.get((name, answers))
        if known is not None:
            return known
        program, notes = self._programs[name](), list[Note]()
        left = list(reversed(answers))
        item = next(program, None)
        while item is not None:
            if isinstance(item, Began | Acted | Over):
                notes.append(item)
                item = next(program, None)
            elif not left:
                break
            else:
                answer = left.pop()
                try:
                    item = program.throw(Unavailable("no answer")) if answer == LOST else program.send(answer)
                except StopIteration:
                    item = None
        outcome = self._known[name, answers] = (item, tuple(notes))
        return outcome

    def _following(self, state: State) -> Iterator[State]:
        for place, name in enumerate(self._programs):
            request, _ = self._run(name, state.answers[place])
            if request is None:
                continue
            objects, answer = _answered(state.objects, request)
            yield self._with(state, place, answer, objects=objects)
            if state.losses and isinstance(request, Create):
                lost = self._with(state, place, LOST, losses=state.losses - 1)
                yield lost._replace(objects=objects)
                yield lost._replace(late=tuple(sorted((*state.late, (request.name, request.data)))))
        for each in state.late:
            objects, _ = _answered(state.objects, Create(*each))
            yield state._replace(objects=objects, late=tuple(other for other in state.late if other != each))

    def _with(self, state: State, place: int, answer: Any, **changes: Any) -> State:
        answers = (*state.answers[:place], (*state.answers[place], answer), *state.answers[place + 1 :])
        return state._replace(answers=answers, **changes)

    def _judge(self, state: State, ended: bool, verdict: Verdict) -> None:
        notes = [note for place, name in enumerate(self._programs) for note in self._run(name, state.answers[place])[1]]
        begun = {note.term: note for note in notes if isinstance(note, Began)}
        verdict.terms |= set(begun)
        if len(begun) < sum(isinstance(note, Began) for note in notes):
            verdict.breach = f"one term has two leaders: {notes}"
        for acted in [note for note in notes if isinstance(note, Acted)]:
            for later in begun.values():
                if later.term > acted.term and acted.decision not in later.decisions:
                    verdict.breach = f"term {later.term} lacks {acted.decision}, which term {acted.term} acted upon"
        if ended:
            verdict.ends += 1
            verdict.fenced += Over("it is fenced") in notes
            if not any(isinstance(note, Over) and note.how in ("it leads", "it leaves") for note in notes):
                verdict.breach = f"no supervisor leads at the end: {notes}"


def _answered(objects: tuple[tuple[str, bytes], ...], request: Request) -> tuple[tuple[tuple[str, bytes], ...], Any]:
    """Return the objects after a request, and its answer."""
    contents = dict(objects)
    if isinstance(request, Names):
        return objects, tuple(name for name in contents if name.startswith(f"{request.folder}/"))
    if isinstance(request, Read):
        return objects, contents.get(request.name)
    if isinstance(request, Create):
        new = request.name not in contents
        contents.setdefault(request.name, request.data)
        return tuple(sorted(contents.items())), new
    left = {name: data for name, data in objects if isinstance(request, Remove) and name not in request.names}
    return tuple(sorted(left.items())), None
