"""`causal serve` as a process of its own, and requests to it."""

from __future__ import annotations

import http.client
import json
import select
import signal
from collections.abc import Mapping
from pathlib import Path
from typing import Any
from urllib.parse import quote

import pytest

from tests.faults.job import WAIT_S, environment
from tests.faults.roots import ROOTS

pytest.importorskip("uvicorn", reason="the query server needs the extra `ui`")

Answer = tuple[int, dict[str, Any]]


class Serving:
    """A running `causal serve`; use it as a context."""

    def __init__(self, job: Path, *arguments: str) -> None:
        command = ["serve", "--state-dir", job.name, *arguments]
        self._process = ROOTS.start(command, job.parent, environment())
        assert select.select([self._process.stdout], [], [], WAIT_S)[0], "`causal serve` prints no address"
        line = self._process.stdout.readline()
        address, _, self.token = line.rpartition(" ")[2].strip().partition("#")
        if not address:
            raise AssertionError(self._process.communicate(timeout=WAIT_S)[1])
        self.port = int(address.split(":")[2].partition("/")[0])
        self.ours = {"Authorization": f"Bearer {self.token}"}

    def __enter__(self) -> Serving:
        return self

    def __exit__(self, *ending: object) -> None:
        """End it as Ctrl-C would; what it printed on standard error is a mistake."""
        self._process.send_signal(signal.SIGTERM)
        try:
            _, said = self._process.communicate(timeout=WAIT_S)
        finally:
            self._process.kill()
        assert not said, said

    def request(self, path: str, headers: Mapping[str, str] | None = None, method: str = "GET") -> Answer:
        """Return (status, content) of the answer to exactly this request."""
        connection = http.client.HTTPConnection("127.0.0.1", self.port, timeout=WAIT_S)
        try:
            connection.request(method, path, headers=self.ours if headers is None else dict(headers))
            answer = connection.getresponse()
            body = answer.read()
            assert (answer.getheader("Retry-After") is None) == (answer.status not in (429, 503)), answer.status
            content: dict[str, Any] = json.loads(body)
            assert answer.status == 200 or (list(content) == ["problem"] and "\n" not in content["problem"]), content
            return answer.status, content
        finally:
            connection.close()

    def get(self, path: str) -> dict[str, Any]:
        """Return the content of an answer that must succeed."""
        status, content = self.request(path)
        assert status == 200, content
        return content

    def state(self, operator: str, key: str, arguments: str = "") -> dict[str, Any]:
        """Return what the one task that owns a key keeps for it, with the epoch of the answer."""
        content = self.get(f"/state/{operator}/{quote(key, safe='')}{arguments}")
        [task] = content["tasks"]
        return {"epoch": content.get("epoch"), **task}
