"""The conversation of a command that changes a running job with the job's supervisor.

Every request is repeated until it is answered, because the supervisor may die in between.  A second thread renews the
change, so that the supervisor recognizes a command that has died.
"""

from __future__ import annotations

import os
import secrets
import threading
import time
from pathlib import Path
from types import TracebackType
from typing import Any

from causal.errors import PipelineError, Unavailable
from causal.process.forks import close as close_lock
from causal.process.forks import keep_from_children, lock
from deploy.jobs.hints import not_running
from deploy.jobs.lookup import running
from standby.network.control import Requester
from standby.storage.change_files import CHANGE_LOCK
from standby.supervision.next_version import RENEW

RENEW_S = 1.0
AGAIN_S = 1.0
"""The time after which a request without an answer is repeated."""


class Refused(PipelineError):
    """The supervisor refuses a request, or has ended the change; the same change may succeed later."""


class Conversation:
    """The requests of one change; as a context manager, it renews the change until it is closed.

    It excludes other commands: a command that was suspended until its change ended would otherwise remove their files.

    Args:
        job: the job directory.
    """

    def __init__(self, job: Path) -> None:
        self._job = job
        self._change = secrets.token_hex(8)
        self._requests = 0
        self._over = threading.Event()
        self._renewing = threading.Thread(target=self._renew, daemon=True)
        self._requester = _Line(job, f"admin-{os.getpid()}-{self._change}")
        self._lock = -1

    def __enter__(self) -> Conversation:
        """Begin to renew the change.

        Raises:
            Refused: another command changes the job.
        """
        self._lock = keep_from_children(os.open(self._job / CHANGE_LOCK, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600))
        if not lock(self._lock, 0.0):
            self._requester.close()
            close_lock(self._lock)
            raise Refused(
                f"the job in {self._job} is not changed: another change of this job is under way; wait for its end"
            )
        self._renewing.start()
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        self._over.set()
        self._renewing.join()
        self._requester.close()
        close_lock(self._lock)

    def ask(self, step: str, within_s: float, **arguments: Any) -> dict[str, Any]:
        """Send a request and return its answer.

        Raises:
            Refused: the supervisor refuses the request, or has ended the change; or the job has ended meanwhile.
            Unavailable: there is no answer in time.
        """
        self._requests += 1
        facts = {"step": step, "change": self._change, "request": self._requests, **arguments}
        deadline_s = time.monotonic() + within_s
        while (left_s := deadline_s - time.monotonic()) > 0:
            answer = self._requester.ask(facts, min(left_s, AGAIN_S))
            if answer is None and not running(self._job):
                raise Refused(not_running(self._job))
            if answer is None or answer.get("request") != self._requests:  # it answers an earlier request, late
                continue
            if not answer.get("ok"):
                raise Refused(f"the job in {self._job} is not changed: {answer.get('error')}")
            return answer
        raise Unavailable(
            f"the supervisor of the job in {self._job} has not answered {step!r} within {within_s:.0f} s; see "
            f"{self._job}/logs/supervisor.log"
        )

    def _renew(self) -> None:
        requester = _Line(self._job, f"admin-{os.getpid()}-{self._change}-renewing")
        try:
            while not self._over.wait(RENEW_S):
                requester.ask({"step": RENEW, "change": self._change}, 0.0)
        finally:
            requester.close()


class _Line:
    """The connection to the supervisor, whose socket is in another directory once the job has been resumed.

    The tasks of a job on several hosts work on after its `causal run` has died, and so does a change when the next one
    takes them over.
    """

    def __init__(self, job: Path, identity: str) -> None:
        self._job = job
        self._identity = identity
        self._runtime = self._present()
        self._requester = Requester(self._runtime, identity)

    def _present(self) -> str:
        return (self._job / "runtime").read_text().strip()

    def ask(self, facts: dict[str, Any], within_s: float) -> dict[str, Any] | None:
        """Send a request about the change, as `Requester.ask` does."""
        if (runtime := self._present()) != self._runtime:
            self._requester.close()
            self._runtime, self._requester = runtime, Requester(runtime, self._identity)
        return self._requester.ask("change", facts, within_s)

    def close(self) -> None:
        self._requester.close()
