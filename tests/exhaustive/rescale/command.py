"""`causal rescale` and `causal rollback`, step by step, as programs whose state is the answers to them.

The steps are those of `deploy.changes.next_version`.
"""

from __future__ import annotations

from collections.abc import Generator, Mapping
from dataclasses import dataclass, field
from typing import Any

from causal.records.values import decode
from standby.supervision.next_version import CANCEL, COMMIT, FACTS, FOLLOW, PREPARE, STAND, WITHDRAW
from tests.exhaustive.rescale.state import NEW, TASKS, State

LATER = 1000


@dataclass(frozen=True, slots=True)
class Ask:
    """A request to the supervisor."""

    step: str
    facts: Mapping[str, Any] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Do:
    """Something that the command does to the files and to the store."""

    what: str
    incarnation: int = 0
    epoch: int = 0


class Refused(Exception):
    """The change cannot be carried out, or has ended."""


Program = Generator[Ask | Do, Any, None]


def rescaled(width: int) -> Program:
    """Change the job to a version in which so many tasks count."""
    incarnation = 0
    try:
        facts = yield Ask(FACTS)
        incarnation = facts["incarnation"] + LATER
        yield Ask(PREPARE, {"tasks": TASKS[width], "rollback": "", "incarnation": incarnation})
        first = yield Do("convert", incarnation)
        yield Ask(FOLLOW, first)
        stands = yield Ask(STAND)
        if stands["incarnation"] >= incarnation:
            raise Refused("its tasks have failed too often")
        yield Do("open", incarnation)
        yield Do("prepare", incarnation)
        yield Ask(COMMIT)
    except Refused:
        yield from _cancelled(incarnation)


def rolled_back(width: int) -> Program:
    """Return the job to the savepoint of its first checkpoint."""
    incarnation = 0
    try:
        facts = yield Ask(FACTS)
        incarnation, epoch = facts["incarnation"] + LATER, facts["epoch"] + LATER
        yield Ask(PREPARE, {"tasks": TASKS[width], "rollback": "1-r", "incarnation": incarnation})
        first = yield Do("convert", incarnation, epoch)
        yield Ask(FOLLOW, first)
        stands = yield Ask(STAND)
        if stands["epoch"] >= epoch:
            raise Refused("it has completed too many checkpoints")
        yield Do("open", incarnation)
        yield Ask(WITHDRAW)
        yield Do("intend", incarnation)
        yield Do("withdraw", incarnation)
        yield Do("prepare", incarnation, epoch)
        yield Ask(COMMIT)
    except Refused:
        yield from _cancelled(incarnation)


def _cancelled(incarnation: int) -> Program:
    if (yield Do("look", incarnation)):
        return  # it is committed: the supervisor has answered a request that was repeated
    try:
        yield Ask(CANCEL)
    except Refused:
        pass  # the change has ended already, or only the rollback can continue the job
    yield Do("remove", incarnation)


def next_item(state: State) -> Ask | Do | None:
    """Return what the command does next; None if it has ended."""
    if state.answers is None:
        return None
    program = (rolled_back if state.returns else rescaled)(state.widths[NEW])
    try:
        item = next(program)
        for ok, answer in state.answers:
            item = program.send(decode(answer)) if ok else program.throw(Refused())
    except StopIteration:
        return None
    return item
