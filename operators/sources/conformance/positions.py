"""Checks that a position always means the same element, however it is read and whichever task reads it."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from random import Random
from tempfile import TemporaryDirectory
from unittest import SkipTest

from causal.records.unreadable import Unreadable
from operators.sources.conformance.source_subject import Subject, expect

STEPS = (1, 3, 1000)
"""The numbers of elements that a task asks for at a time."""


def reads_every_element_once(subject: Subject) -> None:
    """Check that each partition has the elements that the input holds, in order, and nothing after them."""
    for partition in subject.partitions():
        count = len(subject.holds(partition))
        for step in STEPS:
            reading = subject.opened(partition)
            reading.until(count, step)
            subject.expect(partition, 0, reading.elements, "a partition has every element once")
            reading.expect_no_more("nothing follows the last element")
            reading.close()


def returns_to_any_position(subject: Subject) -> None:
    """Check that one reader gives the same elements again from any position that no checkpoint covers."""
    chance = Random(1)
    for partition in subject.partitions():
        count = len(subject.holds(partition))
        reading = subject.opened(partition)
        reading.until(count)
        for _ in range(12):
            position = chance.randrange(count)
            del reading.elements[position:]
            reading.until(min(count, position + chance.randrange(1, 9)), chance.randrange(1, 5))
            subject.expect(partition, 0, reading.elements, "an element is read again at its position")
        reading.close()


def continues_from_every_checkpoint(subject: Subject) -> None:
    """Check that a task whose predecessor was abandoned at any position has the same elements from there on."""
    for partition in subject.partitions():
        count = len(subject.holds(partition))
        first = subject.opened(partition)
        for position in range(count + 1):
            first.until(position, 3)
        for position in [*range(0, count, 1 + count // 40), count]:
            at = first.checkpoint(position)
            successor = subject.opened(partition, at)
            successor.until(count, 5, f"a successor at position {position} reads on")
            subject.expect(
                partition, position, successor.elements, f"a successor at position {position} reads the same"
            )
            if position == count:
                successor.expect_no_more("nothing follows the last element for a successor")
            successor.close()
        first.close()


def begins_at_the_same_element(subject: Subject) -> None:
    """Check that successors of a task without a checkpoint begin where it began, also after the input has grown."""
    for partition in subject.partitions():
        first = subject.opened(partition)
        first.until(5)
        first.close()
    if subject.extend is not None:
        subject.extend()
    for partition in subject.partitions():
        count = len(subject.holds(partition))
        successor = subject.opened(partition)
        successor.until(count)
        subject.expect(partition, 0, successor.elements, "a job begins at the same element whenever its tasks die")
        successor.close()


def continues_in_another_directory(subject: Subject) -> None:
    """Check that a task on another host, or of another job, continues with no more than a checkpoint.

    A source whose `positions_travel` is false does not promise this.
    """
    if not subject.source().positions_travel:
        raise SkipTest("positions of this source do not travel")
    if subject.source().companions("source", subject.job_directory):
        raise SkipTest("this source's own process writes into the job directory, or into storage that hosts share")
    for partition in subject.partitions():
        count = len(subject.holds(partition))
        first = subject.opened(partition)
        first.until(count, 3)
        for position in (1, count // 2, count):
            with TemporaryDirectory() as elsewhere:
                successor = subject.opened(partition, first.checkpoint(position), Path(elsewhere))
                successor.until(count)
                promise = f"position {position} is the same element in another directory"
                subject.expect(partition, position, successor.elements, promise)
                successor.close()
        first.close()


def gives_damaged_elements_their_places(subject: Subject) -> None:
    """Check that an element that is not a record is `Unreadable`, with its place, and keeps its position."""
    damaged = 0
    for partition in subject.partitions():
        elements = subject.holds(partition)
        bad = [position for position, element in enumerate(elements) if type(element) is Unreadable]
        damaged += len(bad)
        reading = subject.opened(partition)
        reading.until(len(elements))
        for position in bad:
            read = reading.elements[position]
            expect(
                type(read) is Unreadable, "what is not a record is Unreadable", f"position {position} is {read!r:.200}"
            )
            expect(bool(read.where and read.why), "what is not a record has a place and a reason", repr(read)[:200])
            for at in (reading.checkpoint(position), reading.checkpoint(position + 1)):
                successor = subject.opened(partition, at)
                successor.until(len(elements))
                subject.expect(partition, at.position, successor.elements, "what is not a record keeps its position")
                successor.close()
        reading.close()
    if not damaged:
        raise SkipTest("let Subject(holds=…) contain an Unreadable to have damaged input checked")
    expect(
        subject.source().may_be_unreadable, "a source says that its input may be damaged", "may_be_unreadable is false"
    )
    expect(bool(subject.source().bad_input_remedy), "a source has a remedy for damage", "bad_input_remedy is empty")


CHECKS: tuple[Callable[[Subject], None], ...] = (
    reads_every_element_once,
    returns_to_any_position,
    continues_from_every_checkpoint,
    begins_at_the_same_element,
    continues_in_another_directory,
    gives_damaged_elements_their_places,
)
"""The checks of this module; each takes a fresh subject."""
