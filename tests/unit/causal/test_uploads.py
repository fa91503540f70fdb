"""Uploads to the shared store: what takes long, and why, can be seen; nothing is acknowledged before it is there."""

from __future__ import annotations

import queue
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from causal.errors import Unavailable
from causal.storage import uploads
from causal.storage.uploads import Uploads
from tests.faults.job import wait_for


class Store:
    """A store that refuses everything until it is open."""

    def __init__(self) -> None:
        self.open = False
        self.stored: dict[str, bytes] = {}

    def create_own(self, name: str, data: bytes) -> None:
        if not self.open:
            raise Unavailable("store s3://b: no answer")
        self.stored[name] = data


def test_an_upload_that_waits_for_its_store_says_since_when_and_why(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(uploads, "SLOW_NS", 0)
    store: Any = Store()
    done: queue.SimpleQueue[object] = queue.SimpleQueue()
    put: Callable[[object], None] = done.put
    running = Uploads(store, put)
    try:
        assert running.waiting is None
        path = tmp_path / "e1.snap"
        path.write_bytes(b"state")
        running.put("e1.snap", path, "stored")
        wait_for("the problem is known", lambda: (running.waiting or (0, ""))[1] or None)
        assert running.waiting is not None and running.waiting[1] == "store s3://b: no answer"
        assert done.empty() and path.exists()
        store.open = True
        assert done.get(timeout=30) == "stored"
        wait_for("nothing waits", lambda: running.waiting is None)
        assert store.stored == {"e1.snap": b"state"} and not path.exists()
    finally:
        running.close()
