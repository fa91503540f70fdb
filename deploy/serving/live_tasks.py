"""Asks running tasks for their present state, through the supervisor and between two events of the task.

The answer is that of the task's process at some moment during the request. Below full sharing depth, the job may still
roll it back. Each question costs the task one event, so few are asked at the same time.
"""

from __future__ import annotations

import itertools
import os
import threading
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from causal.errors import Unavailable
from deploy.jobs.lookup import running
from deploy.serving.refused import CONFLICT, TOO_MANY, Refused
from standby.network.control import Requester

WITHIN_S = 2.0
"""The time for which a question waits for a task that is recovering."""
ANSWER_S = 1.0
AGAIN_S = 0.05
AT_ONCE_MAX = 8
"""The number of questions under way; others are refused."""


class LiveTasks:
    """The running tasks of a job; methods may be called from several threads."""

    def __init__(self, job: Path) -> None:
        self._job = job
        self._numbers = itertools.count()
        self._lock = threading.Lock()
        self._idle: list[tuple[str, Requester]] = []
        """Clients without an open question, each with the directory of the supervisor's sockets."""
        self._asking = 0

    def ask(self, task: str, operator: str, key: Any) -> Mapping[str, Any]:
        """Return the task's answer: its epoch, its incarnation, and its state for the key by table.

        Raises:
            Refused: the job does not run, or too many questions are under way.
            Unavailable: the task is recovering, or does not answer in time.
        """
        deadline_s, why = time.monotonic() + WITHIN_S, "no answer"
        while time.monotonic() < deadline_s:
            if not running(self._job):
                raise Refused(CONFLICT, f"the job in {self._job} is not running; use as_of=checkpoint")
            reply = self._asked({"task": task, "operator": operator, "key": key})
            if reply is not None and "tables" in reply:
                return reply
            why = "no answer" if reply is None else str(reply.get("error") or f"{task} is {reply.get('state')}")
            if "without --live" in why:  # it exceeds the size of a message
                raise Refused(CONFLICT, why.replace("ask without --live", "use as_of=checkpoint"))
            time.sleep(AGAIN_S)
        raise Unavailable(f"{task} cannot be asked: {why}; repeat the request, or use as_of=checkpoint")

    def close(self) -> None:
        """Close all clients; nothing may be asked afterwards."""
        with self._lock:
            idle, self._idle = self._idle, []
        for _, client in idle:
            client.close()

    def _asked(self, arguments: Mapping[str, Any]) -> dict[str, Any] | None:
        with self._client() as (sockets, client):
            reply = client.ask("inspect", arguments, ANSWER_S)
            if reply is None:  # it may still come, so another question must not use this client
                client.close()
                return None
            with self._lock:
                self._idle.append((sockets, client))
            return reply

    @contextmanager
    def _client(self) -> Iterator[tuple[str, Requester]]:
        try:
            sockets = (self._job / "runtime").read_text().strip()
        except FileNotFoundError:
            raise Unavailable("the job is starting; repeat the request in a moment") from None
        with self._lock:
            if self._asking >= AT_ONCE_MAX:
                raise Refused(TOO_MANY, f"{AT_ONCE_MAX} questions to running tasks are under way; repeat the request")
            self._asking += 1
            usable = [each for each in self._idle if each[0] == sockets]
            over = [client for where, client in self._idle if where != sockets]
            chosen = usable.pop() if usable else None
            self._idle = usable
        try:
            for client in over:  # clients of a supervisor that ran before
                client.close()
            yield chosen or (sockets, Requester(sockets, f"admin-serve-{os.getpid()}-{next(self._numbers)}"))
        finally:
            with self._lock:
                self._asking -= 1
