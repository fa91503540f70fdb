"""A real S3 server (moto, from PyPI) with an empty bucket, here or in the network of another host."""

from __future__ import annotations

import importlib.util
import socket
import subprocess
import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from urllib.parse import quote
from urllib.request import Request, urlopen

from benchmarks.servers.process import NoServer, Server, directory_of

BUCKET = "causal-test"
ASK_S = 30.0
_MAKE_BUCKET = """
import sys, urllib.request
urllib.request.urlopen(urllib.request.Request(f"{sys.argv[1]}/{sys.argv[2]}", method="PUT"), timeout=5).read()
"""


class S3(Server):
    """A server with the bucket `BUCKET`, whose objects are in its memory.

    Args:
        address: to listen at.
        within: makes of a command line the one that runs it where that address is.
    """

    def __init__(self, directory: Path, address: str, port: int, within: Callable[[Sequence[str]], list[str]]) -> None:
        if importlib.util.find_spec("moto") is None:
            raise NoServer("moto[s3,server] is not installed")
        argv = within([sys.executable, "-m", "moto.server", "-H", address, "-p", str(port)])
        super().__init__(directory, argv, self._answers, None)
        self._within = within
        self.endpoint = f"http://{address}:{port}"

    @property
    def environment(self) -> dict[str, str]:
        """The variables with which a client finds it."""
        return {
            "AWS_ENDPOINT": self.endpoint,
            "AWS_ALLOW_HTTP": "true",
            "AWS_ACCESS_KEY_ID": "test",
            "AWS_SECRET_ACCESS_KEY": "test",
            "AWS_REGION": "us-east-1",
        }

    def put(self, key: str, data: bytes) -> None:
        """Put an object into the bucket."""
        self._ask("PUT", key, data)

    def delete(self, key: str) -> None:
        """Delete an object of the bucket."""
        self._ask("DELETE", key)

    def _ask(self, method: str, key: str, data: bytes | None = None) -> None:
        # Not by the library that is under test.
        url = f"{self.endpoint}/{BUCKET}/{quote(key)}"
        # It reads a form without a type, and lets only users with a name replace and delete.
        headers = {
            "Content-Type": "application/octet-stream",
            "Authorization": "AWS4-HMAC-SHA256 Credential=test/1/x/s3/",
        }
        urlopen(Request(url, data, headers, method=method), timeout=ASK_S).close()

    def _answers(self) -> bool:
        asked = self._within([sys.executable, "-c", _MAKE_BUCKET, self.endpoint, BUCKET])
        return subprocess.run(asked, capture_output=True, timeout=ASK_S).returncode == 0


def _here(argv: Sequence[str]) -> list[str]:
    return list(argv)


@contextmanager
def s3_server(
    address: str = "127.0.0.1", port: int = 0, within: Callable[[Sequence[str]], list[str]] = _here
) -> Iterator[S3]:
    """Yield a fresh, empty server; by default on this machine, at a free port."""
    with directory_of(None, "s3") as directory:
        server = S3(directory, address, port or _free_port(), within)
        try:
            yield server.start()
        finally:
            server.kill()


def _free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])
