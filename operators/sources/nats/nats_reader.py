"""The reader of one partition of a stream: a position is a count of messages, and a mark is the sequence that follows.

Sequences are no positions, because other subjects and deleted messages take sequences, too. While nothing comes, the
mark follows the end of the stream, so that retention of other subjects does not pass it.
"""

from __future__ import annotations

import sys
import time
from bisect import bisect_right
from collections.abc import Mapping
from contextlib import closing
from dataclasses import dataclass
from operator import itemgetter
from typing import Any

from causal.errors import CausalError, DeterminantsLost, Unavailable
from causal.records.unreadable import Unreadable
from operators.nats.nats_errors import NO_MESSAGE, Declined, translated
from operators.nats.nats_link import Link
from operators.nats.nats_servers import Servers
from operators.records.seconds import seconds_of
from operators.source import Read, SourceContext
from operators.sources.beginnings import beginnings_of
from operators.sources.nats.nats_pull import Arrived, Pull, consumer
from operators.sources.payloads import Decode, decoded, unreadable

ANSWER_S = 1.0
"""The longest wait for a server's answer within a read."""
POLL_S, POLL_QUIET_S, QUIET_S, AWAY_S = 0.002, 0.01, 1.0, 0.25
"""The pauses between two reads: of a filter with messages, of one without any for `QUIET_S`, and after a failure."""
LOOK_S = 1.0
"""The time after which the server is asked again how many messages are left."""
PLACES_MAX = 4096
"""The most places to which a reader can return directly; of more, every second is let go."""


@dataclass(frozen=True, slots=True)
class Stream:
    """A stream, with the options that all readers of one source share.

    Attributes:
        filters: the subject filter of each partition; empty for all messages.
        start: the deliver policy of a new job, and its time, if it has one.
    """

    servers: Servers
    name: str
    filters: tuple[str, ...]
    start: tuple[str, str]
    decode: Decode
    with_metadata: bool
    value_bytes_max: int

    def link(self, timeout_s: float = 0) -> Link:
        """Return a new connection; by default, one for reads."""
        return Link(self.servers, timeout_s or ANSWER_S)

    def info(self, link: Link) -> Any:
        """Return the configuration and state of the stream.

        Raises:
            CausalError: there is no such stream, or no answer.
        """
        try:
            return link.call(lambda: link.api(f"STREAM.INFO.{self.name}"), f"stream {self.name}")
        except Declined as problem:
            raise translated(problem, self.servers, f"stream {self.name}") from None

    def begin(self, link: Link, subject: str) -> int:
        """Return the sequence at which a new job begins to read messages of a filter."""
        policy, at = self.start
        if policy == "earliest":
            return max(1, int(self.info(link)["state"]["first_seq"]))
        if policy == "latest":
            return int(self.info(link)["state"]["last_seq"]) + 1
        start = {"deliver_policy": "by_start_time", "opt_start_time": at}
        answer = link.call(lambda: consumer(link, self.name, subject, start), f"stream {self.name}")
        return int(answer["delivered"]["stream_seq"]) + 1

    def has(self, link: Link, subject: str, sequence: int) -> bool:
        """Return whether the stream has a message of a filter from a sequence on, as its leader knows."""
        try:
            link.call(lambda: link.api(f"STREAM.MSG.GET.{self.name}", next_by_subj=subject, seq=sequence))
        except Declined as problem:
            if problem.code != NO_MESSAGE:
                raise
            return False
        return True

    def record(self, arrived: Arrived) -> Any:
        """Return the record of a message, or an `Unreadable` if it is not one."""
        where = f"{self.name}@{arrived.sequence}"
        if len(arrived.payload) > self.value_bytes_max:
            why = f"a payload of {len(arrived.payload):,} bytes (value_bytes_max is {self.value_bytes_max:,})"
            return unreadable(where, why, arrived.payload)
        record = decoded(self.decode, arrived.payload, where)
        if not self.with_metadata or type(record) is Unreadable:
            return record
        return {
            "value": record,
            "subject": arrived.subject,
            "headers": dict(arrived.headers or {}),
            "timestamp": seconds_of(arrived.at_ns),
            "sequence": arrived.sequence,
        }


class NatsReader:
    """A `PartitionReader` of the messages of one filter."""

    def __init__(self, stream: Stream, partition: int, context: SourceContext) -> None:
        self._stream = stream
        self._filter = stream.filters[partition]
        self._partition = partition
        self._context = context
        self._name = f"source {context.name!r}, partition {partition}"
        self._where = f"{self._name}: stream {stream.name}"
        self._pull: Pull | None = None
        self._places: list[tuple[int, int]] = []
        """(position, sequence) of places to which reading can return, in ascending order."""
        if context.mark is not None:
            self._places.append((context.position, int(context.mark)))
        self._next = -1
        """The position of the next message; -1 if reading has not begun."""
        self._sequence = 0
        """The sequence from which on the next message is looked for."""
        self._skips = 0
        """The number of messages to leave out, because they precede the position that was asked for."""
        self._pending = 0
        """The number of messages that followed the last one when the server sent it."""
        self._lag = 0
        self._answers = True
        """Whether the servers have answered the last request."""
        self._came_s = self._looked_s = time.monotonic()

    def read(self, position: int, count_max: int) -> Read | None:
        """Return up to `count_max` messages, or None while none are there.

        Raises:
            DeterminantsLost: the stream does not have the messages at this position any more.
            PipelineError: the stream is gone, or may not be read.
            Unavailable: the servers do not answer.
        """
        try:
            read = self._read(position, count_max)
        except Declined as problem:
            raise translated(problem, self._stream.servers, f"stream {self._stream.name}") from None
        except Unavailable as problem:
            if self._answers:
                print(f"{self._name} waits: {problem}", file=sys.stderr, flush=True)
            self._answers = False
            raise
        self._answers = True
        return read

    def ready_in_s(self, position: int) -> float:
        """Return the pause until the next read is worthwhile."""
        if not self._answers:
            return AWAY_S
        return POLL_S if time.monotonic() - self._came_s < QUIET_S else POLL_QUIET_S

    def completed(self, position: int) -> None:
        """Forget places before `position`; nothing is acknowledged."""
        del self._places[: max(0, bisect_right(self._places, position, key=itemgetter(0)) - 1)]

    def counters(self) -> dict[str, int | float]:
        """Return how many messages are still to be read."""
        return {"input_lag": self._lag} if self._next >= 0 else {}

    def close(self) -> None:
        """Close the connection."""
        pull, self._pull, self._next = self._pull, None, -1
        if pull is not None:
            pull.link.close()

    # ----------------------------------------------------------------------------------------------------------

    def _read(self, position: int, count_max: int) -> Read | None:
        if not self._places:
            self._places.append((0, self._beginning()))
            if position == 0:
                return Read([], time.monotonic_ns(), marks=[self._places[0][1]])
        if position != self._next:
            self._return_to(position)
        pull = self._opened()
        pull.turn(count_max + self._skips)
        return self._taken(pull, position, count_max) or self._looked(pull, position)

    def _beginning(self) -> int:
        with closing(self._stream.link()) as link:
            return beginnings_of(self._context).offset(
                self._partition,
                lambda: {number: self._stream.begin(link, each) for number, each in enumerate(self._stream.filters)},
                lambda: self._stream.begin(link, self._filter),
            )

    def _return_to(self, position: int) -> None:
        at = bisect_right(self._places, position, key=itemgetter(0)) - 1
        if at < 0:
            raise DeterminantsLost(f"{self._name}: position {position} was already released by a checkpoint")
        self.close()
        first, self._sequence = self._places[at]
        self._next, self._skips, self._pending = position, position - first, 0

    def _opened(self) -> Pull:
        """Return the consumer; a new one continues after the last message that was read."""
        if self._pull is not None and (self._pull.link.gone or self._pull.lost) and not self._pull.buffer:
            self._pull.link.close()
            self._pull = None
        if self._pull is None:
            link = self._stream.link()
            check_kept(self._stream.info(link)["state"], self._where, self._sequence)
            self._pull = Pull(link, self._stream.name, self._filter, self._sequence)
        return self._pull

    def _taken(self, pull: Pull, position: int, count_max: int) -> Read | None:
        records: list[Any] = []
        marks: list[int] = []
        gap = 0
        while pull.buffer and len(records) < count_max:
            arrived = pull.buffer[0]
            if arrived.sequence > self._sequence and (self._pending or not self._filter):
                gap = gap or self._sequence
            if not self._skips:
                records.append(self._stream.record(arrived))  # if a schema is unavailable, the message stays
                marks.append(arrived.sequence + 1)
            self._skips -= bool(self._skips)
            self._sequence, self._pending = arrived.sequence + 1, arrived.pending
            pull.buffer.popleft()
        if gap:
            try:
                check_kept(self._stream.info(pull.link)["state"], self._where, gap)
            except CausalError:
                self._next = -1  # what was taken is read again
                raise
        if not records:
            return None
        self._came_s = time.monotonic()
        self._next, self._lag = position + len(records), self._pending
        self._remember(self._next, self._sequence)
        return Read(records, time.monotonic_ns(), marks=marks)

    def _remember(self, position: int, sequence: int) -> None:
        if (position, sequence) > self._places[-1]:
            self._places.append((position, sequence))
            if len(self._places) > PLACES_MAX:
                del self._places[1::2]

    def _looked(self, pull: Pull, position: int) -> Read | None:
        """Ask how many messages are left, once in a while; with a filter, also return the mark after other messages."""
        now_s = time.monotonic()
        if now_s - self._looked_s < LOOK_S or pull.lost or pull.link.gone:
            return None
        self._looked_s = now_s
        self._lag = pull.undelivered() + len(pull.buffer)
        if not self._filter or self._skips or pull.buffer:
            return None
        last = int(self._stream.info(pull.link)["state"]["last_seq"])
        if last < self._sequence or self._stream.has(pull.link, self._filter, self._sequence):
            return None
        self._sequence = last + 1
        self._remember(position, self._sequence)
        return Read([], time.monotonic_ns(), marks=[self._sequence])


def check_kept(state: Mapping[str, Any], where: str, sequence: int) -> None:
    """Raise `DeterminantsLost` unless a stream in this state still has the messages from a sequence on."""
    first, last = int(state["first_seq"]), int(state["last_seq"])
    if sequence < first:
        raise DeterminantsLost(
            f"{where} has lost the messages from sequence {sequence} to {first - 1}, which the job has not processed: "
            "retention or a purge removed them; raise max_age, max_msgs or max_bytes, and start a new job, which "
            "begins at the first message that is left"
        )
    if sequence > last + 1:
        raise DeterminantsLost(
            f"{where} ends at sequence {last}, but the job has read up to {sequence - 1}: the stream was made again or "
            "lost messages; start a new job"
        )
