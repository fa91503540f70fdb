"""`causal rescale count=2`, step by step, as a program whose state is the answers to it.

The steps are those of `deploy.changes.next_version`.
"""

from __future__ import annotations

from collections.abc import Generator, Mapping
from dataclasses import dataclass, field
from typing import Any

from causal.records.values import decode
from standby.supervision.next_version import CANCEL, COMMIT, FACTS, FOLLOW, PREPARE, STAND
from tests.exhaustive.rescale.state import NEW, TASKS

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


class Refused(Exception):
    """The change cannot be carried out, or has ended."""


def command() -> Generator[Ask | Do, Any, None]:
    """`causal rescale count=2`, step by step."""
    incarnation = 0
    try:
        facts = yield Ask(FACTS)
        incarnation = facts["incarnation"] + LATER
        yield Ask(PREPARE, {"tasks": TASKS[NEW], "rollback": "", "incarnation": incarnation})
        first = yield Do("convert", incarnation)
        yield Ask(FOLLOW, first)
        stands = yield Ask(STAND)
        if stands["incarnation"] >= incarnation:
            raise Refused("its tasks have failed too often")
        yield Do("open", incarnation)
        yield Do("prepare", incarnation)
        yield Ask(COMMIT)
    except Refused:
        if (yield Do("look", incarnation)):
            return  # it is committed: the supervisor has answered a request that was repeated
        try:
            yield Ask(CANCEL)
        except Refused:
            pass  # the change has ended already
        yield Do("remove", incarnation)


def next_item(answers: tuple[tuple[bool, bytes], ...] | None) -> Ask | Do | None:
    """Return what a command that has heard this does next; None if it has ended."""
    if answers is None:
        return None
    program = command()
    try:
        item = next(program)
        for ok, answer in answers:
            item = program.send(decode(answer)) if ok else program.throw(Refused())
    except StopIteration:
        return None
    return item
