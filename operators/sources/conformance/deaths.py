"""Checks with processes that are killed while they read, or while they take elements in (Linux)."""

from __future__ import annotations

import json
import os
import signal
import time
from collections.abc import Callable
from functools import partial
from random import Random
from typing import Any
from unittest import SkipTest

from operators.sinks.conformance.dying import forked
from operators.sources.conformance.source_subject import Checkpoint, Subject, expect, spelled

KILLS = 12
LIFE_S_MAX = 0.1
"""The longest time after which a process is killed once it has begun to read."""


def survives_kills(subject: Subject) -> None:
    """Check that tasks which are killed at random moments have read the same elements at the same positions.

    Each continues from a checkpoint of the one before. What it had read since then, its successor reads again.
    """
    chance = Random(1)
    for partition in subject.partitions():
        at, count = Checkpoint(), len(subject.holds(partition))
        for number in range(KILLS):
            read = _of_killed(partial(_read, subject, partition, at), chance)
            for position, element, _ in read:
                wanted = spelled(subject.holds(partition)[position]) if position < count else "nothing"
                promise = f"killed process {number + 1} had read the same element at position {position}"
                expect(element == wanted, promise, f"{element:.200}, not {wanted:.200}")
            places = [Checkpoint(position + 1, mark) for position, _, mark in read]
            at = chance.choice([at, *places])
        last = subject.opened(partition, at)
        last.until(count)
        subject.expect(partition, at.position, last.elements, "the last successor reads the same")
        last.close()


def _read(subject: Subject, partition: int, at: Checkpoint, say: Callable[[Any], None]) -> None:
    reading = subject.opened(partition, at)
    count = len(subject.holds(partition))
    while reading.position < count:
        first = reading.position
        reading.until(first + 1)
        say([first, spelled(reading.elements[-1]), reading.checkpoint(first + 1).mark])
    while True:
        time.sleep(1)


def has_what_it_acknowledged(subject: Subject) -> None:
    """Check that what the system may forget is in the input, in order, wherever the taking process was killed."""
    if subject.ingest is None:
        raise SkipTest("use Subject(ingest=…) if a system delivers elements once, and waits for acknowledgements")
    chance, ingest = Random(2), subject.ingest
    acknowledged: list[str] = []
    for _ in range(KILLS):
        acknowledged += _of_killed(partial(_taking, ingest), chance)
        reading = subject.opened()
        count = len(subject.holds(0))
        reading.until(count)
        elements = iter(map(spelled, reading.elements))
        lost = [each for each in acknowledged if each not in elements]
        expect(not lost, "what was acknowledged is read", f"{len(lost)} elements are not, such as {lost[:1]}")
        subject.expect(0, 0, reading.elements, "what was taken in stays at its position")
        reading.close()


def _taking(ingest: Callable[[Callable[[Any], None]], object], say: Callable[[Any], None]) -> None:
    ingest(lambda element: say(spelled(element)))


def _of_killed(act: Callable[[Callable[[Any], None]], object], chance: Random) -> list[Any]:
    """Run `act` in a process that is killed at a random moment, and return what it had said before."""
    receiving, sending = os.pipe()

    def perform() -> None:
        os.write(sending, b"!")
        act(say)

    def say(words: Any) -> None:
        os.write(sending, json.dumps(words).encode() + b"\n")

    pid = forked(perform)
    os.close(sending)
    with os.fdopen(receiving, "rb", 0) as pipe:
        pipe.read(1)  # it has begun
        time.sleep(chance.uniform(0, LIFE_S_MAX))
        os.kill(pid, signal.SIGKILL)
        lines = pipe.read()
    status = os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])
    expect(status == -signal.SIGKILL, "a process reads until it is killed", f"it ended with status {status}")
    return [json.loads(line) for line in lines.split(b"\n")[:-1]]


CHECKS: tuple[Callable[[Subject], None], ...] = (survives_kills, has_what_it_acknowledged)
"""The checks of this module; each takes a fresh subject."""
