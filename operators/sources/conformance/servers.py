"""Checks of the system outside: it is unavailable, restarts, forgets, gets partitions, and hears of what is done."""

from __future__ import annotations

import time
from collections.abc import Callable
from contextlib import suppress
from functools import partial
from unittest import SkipTest

from causal.errors import CorruptData, DeterminantsLost, PipelineError, Unavailable
from operators.sources.conformance.source_subject import QUIET_READS, QUIET_S, Reading, Subject, expect, refused, same

AWAY_S_MAX = 5.0
"""The longest time that one read may take while the server is unavailable: a task sends its heartbeats in between."""


def waits_for_an_unavailable_server(subject: Subject) -> None:
    """Check that readers wait for a server, without an end or another element, and then continue."""
    if subject.away is None:
        raise SkipTest("use Subject(away=…) to have a server that cannot be reached checked")
    for partition in subject.partitions():
        count = len(subject.holds(partition))
        reading = subject.opened(partition)
        reading.until(count // 2)
        at = reading.checkpoint(count // 2)
        with subject.away():
            successor = subject.opened(partition, at)
            for each in (reading, successor):
                _read_while_away(each)
        for each in (reading, successor):
            each.until(count, promise="reading continues when the server is back")
            subject.expect(partition, each.first, each.elements, "an unavailable server changes no element")
            each.close()


def _read_while_away(reading: Reading) -> None:
    for _ in range(QUIET_READS):
        began_s = time.monotonic()
        with suppress(Unavailable):
            reading.once(7)
        took_s = time.monotonic() - began_s
        expect(took_s < AWAY_S_MAX, "a read does not wait for a server", f"it took {took_s:.1f} s")
        expect(not reading.ended, "an unavailable server is no end", f"position {reading.position} ended")
        time.sleep(QUIET_S)


def continues_after_a_restart(subject: Subject) -> None:
    """Check that a reader continues with the same elements after its server was restarted between two reads."""
    if subject.restart is None:
        raise SkipTest("use Subject(restart=…) to have a server that is restarted checked")
    for partition in subject.partitions():
        count = len(subject.holds(partition))
        reading = subject.opened(partition)
        reading.until(count // 2)
        subject.restart()
        reading.until(count, promise="reading continues after a restart of the server")
        subject.expect(partition, 0, reading.elements, "a restart of the server changes no element")
        successor = subject.opened(partition, reading.checkpoint(count // 3))
        successor.until(count)
        subject.expect(partition, count // 3, successor.elements, "a successor reads the same after a restart")
        successor.close()
        reading.close()


def says_what_was_forgotten(subject: Subject) -> None:
    """Check that a position which the system has forgotten is an error, and never another element."""
    if subject.expire is None:
        raise SkipTest("use Subject(expire=…) if the system forgets elements before they are read")
    elements = list(subject.holds(0))
    kept = len(elements) // 2
    reading = subject.opened()
    reading.until(len(elements))
    old, new = reading.checkpoint(2), reading.checkpoint(kept)
    reading.close()
    subject.expire(0, kept)
    source = subject.source()
    refused(
        lambda: source.check_readable(0, old.position, subject.context(old)),
        "a savepoint before what is forgotten is refused",
        PipelineError,
    )
    source.check_readable(0, new.position, subject.context(new))
    late = subject.opened(at=old)
    refused(
        lambda: late.until(len(elements), promise="reading of what is forgotten ends with an error"),
        "a position that is forgotten is an error",
        DeterminantsLost,
        CorruptData,
        PipelineError,
    )
    expect(not late.elements, "no other element takes the place of one that is forgotten", repr(late.elements)[:200])
    late.close()
    successor = subject.opened(at=new)
    successor.until(len(elements))
    expect(same(successor.elements, elements[kept:]), "elements that are kept are read", repr(successor.elements)[:200])
    successor.close()


def reads_new_partitions(subject: Subject) -> None:
    """Check that a new partition changes none of the others, and is read from its first element."""
    if subject.grow is None:
        raise SkipTest("use Subject(grow=…) if the number of partitions may grow")
    before = subject.source()
    expect(before.asks_partitions, "a source whose partitions may grow asks for them", "asks_partitions is false")
    count = before.partitions
    at = []
    for partition in range(count):
        reading = subject.opened(partition)
        reading.until(5)
        at.append(reading.checkpoint(5))
        reading.close()
    subject.grow()
    now = subject.fixed = subject.make().partitions
    expect(now > count, "a new partition is counted by the next version of a job", f"{now} partitions")
    expect(before.partitions == count, "a running job keeps its number of partitions", f"{before.partitions}")
    for partition in range(now):
        reading = subject.opened(partition, at[partition]) if partition < count else subject.opened(partition)
        reading.until(len(subject.holds(partition)))
        what = "an old partition stays as it was" if partition < count else "a new partition is read from its beginning"
        subject.expect(partition, reading.first, reading.elements, what)
        reading.close()


def releases_only_what_is_complete(subject: Subject) -> None:
    """Check that nothing is released or acknowledged to the system before a complete checkpoint covers it."""
    for partition in subject.partitions():
        elements = list(subject.holds(partition))
        count = len(elements)
        reading = subject.opened(partition)
        reading.until(count)
        acknowledged = subject.acknowledged
        done = 0 if acknowledged is None else acknowledged(partition)
        expect(done == 0, "nothing is acknowledged before a checkpoint", f"{done} elements are")
        covered = count // 2
        reading.reader.completed(covered)
        at = reading.checkpoint(covered)
        if acknowledged is not None:
            done = _settled(partial(acknowledged, partition))
            expect(
                0 < done <= covered, "a complete checkpoint is acknowledged", f"{done} elements instead of {covered}"
            )
        reading.close()
        successor = subject.opened(partition, at)
        successor.until(count)
        what = repr(successor.elements)[:200]
        expect(same(successor.elements, elements[covered:]), "what follows a complete checkpoint is kept", what)
        successor.close()


def _settled(asked: Callable[[], int]) -> int:
    """Return the number of acknowledged elements, which may take a moment to rise above 0."""
    due_s = time.monotonic() + AWAY_S_MAX
    while not (answer := asked()) and time.monotonic() < due_s:
        time.sleep(QUIET_S)
    return answer


CHECKS: tuple[Callable[[Subject], None], ...] = (
    waits_for_an_unavailable_server,
    continues_after_a_restart,
    says_what_was_forgotten,
    reads_new_partitions,
    releases_only_what_is_complete,
)
"""The checks of this module; each takes a fresh subject."""
