"""`causal ui` as a process of its own, and requests to it as a browser or an attacker would send them.

It is forked from one that has loaded `causal` (`tests.faults.roots`).
"""

from __future__ import annotations

import http.client
import json
import select
import signal
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

from tests.faults.job import WAIT_S, environment
from tests.faults.roots import ROOTS

pytest.importorskip("starlette", reason="the dashboard needs the extra `ui`")
pytest.importorskip("uvicorn", reason="the dashboard needs the extra `ui`")


class Dashboard:
    """A running `causal ui`; use it as a context."""

    def __init__(self, job: Path, *arguments: str) -> None:
        command = ["ui", "--state-dir", job.name, *arguments]
        self._process = ROOTS.start(command, job.parent, environment())  # one that names the directory is of the job
        assert select.select([self._process.stdout], [], [], WAIT_S)[0], "`causal ui` prints no address"
        line = self._process.stdout.readline()
        self.url = line.rpartition(" ")[2].strip()
        if not self.url:
            raise AssertionError(self._process.communicate(timeout=WAIT_S)[1])
        self.port = int(self.url.split(":")[2].partition("/")[0])
        self.token = self.url.partition("#")[2]
        self.ours = {"x-causal-token": self.token, "Origin": f"http://127.0.0.1:{self.port}"}

    def __enter__(self) -> Dashboard:
        return self

    def __exit__(self, *ending: object) -> None:
        """End it as Ctrl-C would; what it printed on standard error is a mistake."""
        self._process.send_signal(signal.SIGTERM)
        try:
            _, said = self._process.communicate(timeout=WAIT_S)
        finally:
            self._process.kill()
        assert not said, said

    def hang(self, hangs: bool) -> None:
        """Stop the process where it is, or let it continue."""
        self._process.send_signal(signal.SIGSTOP if hangs else signal.SIGCONT)

    def request(
        self, method: str, path: str, headers: Mapping[str, str] | None = None, body: bytes | None = None
    ) -> tuple[int, dict[str, str], bytes]:
        """(status, headers, body) of the answer to exactly this request."""
        connection = http.client.HTTPConnection("127.0.0.1", self.port, timeout=WAIT_S)
        try:
            connection.request(method, path, body, self.ours if headers is None else dict(headers))
            answer = connection.getresponse()
            return answer.status, {name.lower(): value for name, value in answer.getheaders()}, answer.read()
        finally:
            connection.close()

    def get(self, path: str) -> dict[str, Any]:
        """Return the JSON of an answer that must succeed."""
        status, _, body = self.request("GET", path)
        assert status == 200, body
        content: dict[str, Any] = json.loads(body)
        return content

    def kill(self, kind: str, name: str = "") -> tuple[int, dict[str, Any]]:
        """Return the answer to a kill."""
        status, _, body = self.request("POST", "/api/break", body=json.dumps({"kind": kind, "name": name}).encode())
        return status, json.loads(body)
