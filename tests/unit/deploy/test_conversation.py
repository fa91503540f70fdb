"""A command that changes a job excludes others, and takes no answer for that of another request."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
import zmq

from causal.records.values import decode, encode
from deploy.changes.conversation import Conversation, Refused


def test_a_second_command_is_refused_until_the_first_has_ended(tmp_path: Path) -> None:
    (tmp_path / "runtime").write_text(str(tmp_path))
    with Conversation(tmp_path):
        with pytest.raises(Refused, match="another change of this job is under way"), Conversation(tmp_path):
            pass
    with Conversation(tmp_path):
        pass


@contextmanager
def answering(directory: Path, answers: list[list[dict[str, Any]]]) -> Iterator[None]:
    """A supervisor that answers the first request with the first list, which may be empty, and so on."""
    (directory / "runtime").write_text(str(directory))
    context: zmq.Context[Any] = zmq.Context()
    socket = context.socket(zmq.ROUTER)
    socket.bind(f"ipc://{directory}/supervisor")

    def serve() -> None:
        left = list(answers)
        while left:
            sender, data = socket.recv_multipart()
            if b"-renewing" not in sender:
                request = decode(data)["arguments"]["request"]
                for answer in left.pop(0):
                    number = request + int(answer.get("later", 0))
                    socket.send_multipart([sender, encode({"kind": "answer", **answer, "request": number})])

    thread = threading.Thread(target=serve, daemon=True)
    thread.start()
    try:
        yield
        thread.join(10)
    finally:
        socket.close(0)
        context.term()


def test_answers_of_earlier_requests_are_passed_over(tmp_path: Path) -> None:
    late = {"ok": True, "step": "follow", "epoch": 1, "later": -1}
    refusal = {"ok": False, "error": "of an earlier step", "later": -1}
    right = {"ok": True, "step": "follow", "epoch": 2}
    with answering(tmp_path, [[{"ok": True, "step": "follow", "epoch": 1}], [late, refusal, right]]):
        with Conversation(tmp_path) as conversation:
            assert conversation.ask("follow", 10.0)["epoch"] == 1
            assert conversation.ask("follow", 10.0)["epoch"] == 2


def test_a_request_to_a_job_that_has_ended_is_refused(tmp_path: Path) -> None:
    (tmp_path / "runtime").write_text(str(tmp_path))
    (tmp_path / "lock").touch()  # without a lock on it, as after the end of `causal run`
    with Conversation(tmp_path) as conversation, pytest.raises(Refused, match="is not running"):
        conversation.ask("follow", 60.0)
