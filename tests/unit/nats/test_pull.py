"""The messages of a consumer: their numbers, what follows a gap, and what is requested."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

from operators.nats.nats_servers import servers_of
from operators.sources.nats.nats_pull import ASKED_BYTES, ASKED_MAX, FIRST, Pull


class Message:
    """A message as nats-py gives it."""

    def __init__(self, reply: str, data: bytes = b"", headers: dict[str, str] | None = None) -> None:
        self.reply, self.data, self.headers, self.subject = reply, data, headers, "orders.a"


class Server:
    """A connection that answers, and notes each message."""

    def __init__(self) -> None:
        self.servers = servers_of("a test", "host", None)
        self.requests: list[int] = []
        self.take: Callable[[Any], None] = lambda message: None

    def call(self, act: Callable[[], Any], what: str = "") -> Any:
        """Perform a coroutine that waits for nothing."""
        try:
            act().send(None)
        except StopIteration as answer:
            return answer.value
        raise AssertionError("it waits")

    async def listen(self, take: Callable[[Any], None]) -> tuple[str, None]:
        self.take = take
        return "inbox", None

    async def api(self, call: str, **fields: Any) -> dict[str, str]:
        assert (call, fields["config"]["opt_start_seq"], fields["config"]["ack_policy"]) == (
            "CONSUMER.CREATE.orders", 5, "none",
        )  # fmt: skip
        return {"name": "c1"}

    async def send(self, subject: str, body: bytes, headers: Any = None, reply: str = "") -> None:
        assert (subject, reply) == ("$JS.API.CONSUMER.MSG.NEXT.orders.c1", "inbox")
        self.requests.append(json.loads(body)["batch"])

    def turn(self, enough: Callable[[], bool]) -> None:
        """No message arrives without a request."""

    def give(self, number: int, size: int = 1) -> None:
        """Deliver the message with this number."""
        reply = f"$JS.ACK.domain.hash.orders.c1.1.{10 * number}.{number}.1700000000000000001.{9 - number}"
        self.take(Message(reply, b"x" * size))


def test_messages_arrive_with_their_numbers() -> None:
    server = Server()
    pull = Pull(server, "orders", "", 5)  # type: ignore[arg-type]
    server.take(Message("$JS.ACK.orders.c1.1.7.1.1700000000000000001.2", b"a"))
    server.take(Message("$JS.ACK.domain.hash.orders.c1.1.9.2.1700000000000000001.1.token", b"b"))
    assert [(each.sequence, each.pending, each.payload) for each in pull.buffer] == [(7, 2, b"a"), (9, 1, b"b")]
    assert pull.buffer[0].at_ns == 1700000000000000001 and pull.sequence == 10 and not pull.lost


def test_nothing_is_taken_after_a_gap() -> None:
    server = Server()
    pull = Pull(server, "orders", "", 5)  # type: ignore[arg-type]
    for number in (1, 3, 2, 4):
        server.give(number)
    assert pull.lost and [each.sequence for each in pull.buffer] == [10] and pull.sequence == 11


def test_requests_are_bounded_by_number_and_size_and_made_in_time() -> None:
    server = Server()
    pull = Pull(server, "orders", "", 5)  # type: ignore[arg-type]
    pull.turn(1)
    pull.turn(1)
    assert server.requests == [FIRST], "one request is open"
    for number in range(1, FIRST + 1):
        server.give(number)
    pull.buffer.clear()
    pull.turn(1)
    assert server.requests[1:] == [ASKED_MAX]
    server.take(Message("", headers={"Status": "408", "Nats-Pending-Messages": str(ASKED_MAX - 1)}))
    server.give(FIRST + 1, ASKED_BYTES // 4)
    pull.turn(1)
    assert server.requests[2:] == [3], "the buffer holds one of four"
    server.take(Message("", headers={"Status": "409"}))
    assert pull.lost
