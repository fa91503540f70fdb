"""A consumer of the messages of a stream from a sequence on: it acknowledges nothing, and vanishes when it is left.

The consumer is in the server's memory and belongs to one connection. Requests for messages are open in advance, so that
a message is sent as soon as it is published, and bounded by number and size. If the consumer is gone, because the
server was restarted or no request came for a minute, there is a new one from the next sequence on.
"""

from __future__ import annotations

import json
from collections import deque
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from operators.nats.nats_link import Link

ASKED_MAX, ASKED_BYTES = 1000, 8 << 20
"""The most messages that are requested in advance, and the bytes that they may have at the size of the last ones."""
FIRST = 32
EXPIRES_S, LEFT_S = 30, 60
"""The time that a request stays open, and after which a consumer without requests is removed."""
_NS = 1_000_000_000


@dataclass(frozen=True, slots=True)
class Arrived:
    """A message that has arrived.

    Attributes:
        at_ns: when the server has stored it, in nanoseconds since 1970.
        pending: how many further messages the consumer had then.
    """

    sequence: int
    at_ns: int
    pending: int
    subject: str
    headers: dict[str, str] | None
    payload: bytes


class Pull:
    """The messages of one filter that have arrived. Only one thread may use it.

    Args:
        sequence: the sequence from which on messages are wanted.

    State: `lost` is true once the server no longer has the consumer.
    """

    def __init__(self, link: Link, stream: str, subject: str, sequence: int) -> None:
        self.link = link
        self.sequence = sequence
        self.buffer: deque[Arrived] = deque()
        self.lost = False
        self._stream = stream
        self._number = 0
        self._open = 0
        self._largest = 1
        self._inbox, self._name = link.call(lambda: self._begun(subject), f"stream {stream}")

    async def _begun(self, subject: str) -> tuple[str, str]:
        inbox, _ = await self.link.listen(self._take)
        policy = {"deliver_policy": "by_start_sequence", "opt_start_seq": max(1, self.sequence)}
        answer = await consumer(self.link, self._stream, subject, policy)
        return inbox, str(answer["name"])

    def _take(self, message: Any) -> None:
        if message.headers is not None and "Status" in message.headers:
            left = int(message.headers.get("Nats-Pending-Messages", 0))
            if message.headers["Status"] == "408":  # the request is over, and so many of its messages did not come
                self._open = max(0, self._open - left)
            else:
                self.lost = True
            return
        sequence, number, at_ns, pending = map(int, message.reply.split(".")[_FIELDS[message.reply.count(".")]])
        self._open -= 1
        if self.lost or number != self._number + 1:  # what follows a gap is requested again
            self.lost = True
            return
        self._number, self.sequence = number, sequence + 1
        self._largest = max(len(message.data), self._largest - self._largest // 64)
        self.buffer.append(Arrived(sequence, at_ns, pending, message.subject, message.headers, message.data))

    def turn(self, count_max: int) -> None:
        """Take what has arrived, and request more in time."""
        wanted = FIRST if not self._number else max(1, min(ASKED_MAX, ASKED_BYTES // self._largest))
        if not self.lost and self._open + len(self.buffer) <= wanted // 2:
            count = wanted - self._open - len(self.buffer)
            self._open += count
            asked = json.dumps({"batch": count, "expires": EXPIRES_S * _NS}).encode()
            subject = f"{self.link.servers.api}.CONSUMER.MSG.NEXT.{self._stream}.{self._name}"
            self.link.call(lambda: self.link.send(subject, asked, reply=self._inbox))
        self.link.turn(lambda: len(self.buffer) >= count_max)

    def undelivered(self) -> int:
        """Return how many messages the server has not sent yet, or that have not arrived.

        Raises:
            Declined: the consumer is gone.
        """
        info = self.link.call(lambda: self.link.api(f"CONSUMER.INFO.{self._stream}.{self._name}"))
        return int(info["num_pending"]) + int(info["delivered"]["consumer_seq"]) - self._number


_FIELDS = {8: slice(5, 9), 10: slice(7, 11), 11: slice(7, 11)}
"""The number of dots in a message's reply subject → its tokens with sequence, number, time and pending messages."""


async def consumer(link: Link, stream: str, subject: str, policy: Mapping[str, Any]) -> Any:
    """Make a consumer in the server's memory, which acknowledges nothing, and return the server's answer; for `call`.

    Args:
        subject: the filter; empty for all messages.
        policy: where the consumer begins.
    """
    own = {"ack_policy": "none", "mem_storage": True, "num_replicas": 1, "inactive_threshold": LEFT_S * _NS}
    filtered = {"filter_subject": subject} if subject else {}
    return await link.api(f"CONSUMER.CREATE.{stream}", stream_name=stream, config={**own, **filtered, **policy})
