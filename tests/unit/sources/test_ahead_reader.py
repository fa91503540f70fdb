"""A reader that works ahead in a thread: positions as of the reader within, bounds, outages and returns."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator

import pytest

from causal.errors import DeterminantsLost, Unavailable
from causal.records.rows import listed
from operators.source import Read
from operators.sources.files import ahead_reader
from operators.sources.files.ahead_reader import AheadReader


class Numbers:
    """A reader of numbers, in reads of three, which waits or fails as the test wants."""

    def __init__(self, end: int = 10**6) -> None:
        self.asked: list[int] = []
        self.completions: list[int] = []
        self.problem: Exception | None = None
        self.gate = threading.Event()
        self.gate.set()
        self.end = end
        self.closed = False

    def read(self, position: int, count_max: int) -> Read | None:
        self.gate.wait(30)
        self.asked.append(position)
        if self.problem is not None:
            raise self.problem
        if position >= self.end:
            return Read([], 0, ended=True)
        numbers = list(range(position, min(self.end, position + 3)))
        return Read(numbers, 0, marks=[number + 1 for number in numbers])

    def ready_in_s(self, position: int) -> float:
        return 0.01

    def completed(self, position: int) -> None:
        self.completions.append(position)

    def close(self) -> None:
        self.closed = True


@pytest.fixture
def numbers() -> Numbers:
    return Numbers()


@pytest.fixture
def ahead(numbers: Numbers) -> Iterator[AheadReader]:
    reader = AheadReader(lambda: numbers, "source 'n', partition 0")
    yield reader
    numbers.gate.set()
    reader.close()


def eventually(condition: Callable[[], object]) -> None:
    due_s = time.monotonic() + 20
    while not condition():
        assert time.monotonic() < due_s
        time.sleep(0.001)


def take(reader: AheadReader, position: int, count: int, step: int = 2) -> list[int]:
    """Return that many records from a position on, and require the mark after each of them."""
    numbers: list[int] = []
    while len(numbers) < count:
        read = reader.read(position + len(numbers), min(step, count - len(numbers)))
        if read is None:
            time.sleep(0.001)
            continue
        assert 0 < len(read.records) <= step and not read.ended
        assert list(read.marks) == [number + 1 for number in listed(read.records)]
        numbers += listed(read.records)
    return numbers


def test_records_are_at_their_positions_wherever_the_task_returns(ahead: AheadReader) -> None:
    for position in (0, 5, 4, 1000, 1001, 0):
        for step in (1, 2, 7):
            assert take(ahead, position, 20, step) == list(range(position, position + 20))


def test_only_so_much_is_read_ahead(ahead: AheadReader, numbers: Numbers) -> None:
    eventually(lambda: ahead.read(0, 1))
    eventually(lambda: len(numbers.asked) == ahead_reader.READS_AHEAD)
    assert ahead.ready_in_s(1) == 0.0
    time.sleep(0.05)
    assert numbers.asked == [0, 3, 6, 9]
    take(ahead, 1, 2)
    eventually(lambda: numbers.asked[4:] == [12])


def test_the_task_never_waits(ahead: AheadReader, numbers: Numbers) -> None:
    numbers.gate.clear()
    assert ahead.read(0, 1) is None and ahead.ready_in_s(0) > 0
    numbers.gate.set()
    assert take(ahead, 0, 5) == [0, 1, 2, 3, 4]


def test_a_read_that_the_task_no_longer_wants_is_dropped(ahead: AheadReader, numbers: Numbers) -> None:
    numbers.gate.clear()
    assert ahead.read(0, 1) is None
    assert ahead.read(500, 1) is None
    numbers.gate.set()
    assert take(ahead, 500, 4) == [500, 501, 502, 503]


def test_an_outage_is_reported_once_and_loses_nothing(
    ahead: AheadReader, numbers: Numbers, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(ahead_reader, "RETRY_S_MIN", 0.01)
    assert take(ahead, 0, 4) == [0, 1, 2, 3]
    numbers.problem = Unavailable("the store does not answer")
    with pytest.raises(Unavailable, match="does not answer"):
        for position in range(4, 40):
            eventually(lambda at=position: ahead.read(at, 1))  # type: ignore[misc]
    failed = len(numbers.asked)
    eventually(lambda: len(numbers.asked) > failed + 2)
    eventually(lambda: ahead.counters()["ingest_store_waiting_s"] > 0)
    assert capsys.readouterr().err == "source 'n', partition 0 waits: the store does not answer\n"
    position, numbers.problem = ahead._position, None
    eventually(lambda: ahead.counters()["ingest_store_waiting_s"] == 0)
    assert take(ahead, position, 9) == list(range(position, position + 9))


def test_another_error_ends_the_reader_after_the_records_before_it(ahead: AheadReader, numbers: Numbers) -> None:
    take(ahead, 0, 1)
    eventually(lambda: len(numbers.asked) == 4)
    numbers.problem = DeterminantsLost("it has changed")
    assert take(ahead, 1, 11) == list(range(1, 12))
    with pytest.raises(DeterminantsLost, match="it has changed"):
        take(ahead, 12, 1)
    with pytest.raises(DeterminantsLost):
        ahead.read(0, 1)
    eventually(lambda: numbers.closed)


def test_the_end_is_repeated_and_a_return_from_it_is_possible() -> None:
    numbers = Numbers(end=5)
    reader = AheadReader(lambda: numbers, "n")
    assert take(reader, 0, 5) == [0, 1, 2, 3, 4]
    for _ in range(3):
        eventually(lambda: (read := reader.read(5, 9)) is not None and read.ended and not read.records)
    assert take(reader, 3, 2) == [3, 4]
    reader.close()
    assert numbers.closed


def test_completions_reach_the_reader(ahead: AheadReader, numbers: Numbers) -> None:
    take(ahead, 0, 3)
    ahead.completed(2)
    take(ahead, 3, 30)
    assert numbers.completions[-1] == 2


def test_a_reader_that_was_never_asked_has_no_thread(numbers: Numbers) -> None:
    reader = AheadReader(lambda: numbers, "n")
    reader.close()
    assert numbers.asked == [] and not numbers.closed
