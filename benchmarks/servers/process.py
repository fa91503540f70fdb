"""A server in a directory of its own, which may be killed, stopped and started again; nothing of it stays.

Where a server refuses to run as root it runs as another user, in a directory that belongs to that user.
"""

from __future__ import annotations

import ctypes
import os
import pwd
import shutil
import signal
import subprocess
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Self

from benchmarks.harness.processes import children

READY_S = 120.0
"""Longer than any start takes; what it bounds is a hang."""
WITHOUT_RIGHTS = 65534
"""The user of Linux that owns nothing."""


class NoServer(Exception):
    """There is no such server here; says what to install."""


def user_for(name: str) -> pwd.struct_passwd | None:
    """Return the user to run as instead of root; None where that is not needed."""
    if os.geteuid() != 0:
        return None
    with suppress(KeyError):
        return pwd.getpwnam(name)
    with suppress(KeyError):
        return pwd.getpwuid(WITHOUT_RIGHTS)
    raise NoServer(f"there is neither a user {name} nor user {WITHOUT_RIGHTS}, and {name} does not run as root")


def runs(argv: Sequence[str], user: pwd.struct_passwd | None) -> bool:
    """Return whether that command can be executed, by that user."""
    try:
        process = subprocess.run(argv, **_as(user), capture_output=True, timeout=READY_S, check=False)  # type: ignore[call-overload]
    except (OSError, subprocess.SubprocessError):
        return False
    return bool(process.returncode == 0)


def _die_with_the_test() -> None:
    """SIGKILL, because a server that is stopped would sleep through anything milder."""
    ctypes.CDLL(None).prctl(1, signal.SIGKILL, 0, 0, 0)


def _as(user: pwd.struct_passwd | None) -> dict[str, object]:
    if user is None:
        return {}
    return {"user": user.pw_uid, "group": user.pw_gid, "extra_groups": [], "cwd": "/"}


class Server:
    """A running server.

    Args:
        argv: what is run; it must stay in the foreground.
        ready: whether it answers; called until it does.
        user: the user that it runs as; None for the user of the test.
    """

    def __init__(
        self, directory: Path, argv: Sequence[str], ready: Callable[[], bool], user: pwd.struct_passwd | None
    ) -> None:
        self.directory = directory
        self.argv = list(argv)
        self._ready = ready
        self._user = user
        self._process: subprocess.Popen[bytes] | None = None
        self._stopped: list[int] = []

    def start(self) -> Self:
        """Start it and wait until it answers; retried while remains of a killed one are there."""
        deadline = time.monotonic() + READY_S
        while time.monotonic() < deadline:
            if self._process is None or self._process.poll() is not None:
                self._launch()
            if self._ready():
                return self
            time.sleep(0.02)
        self.kill()
        raise AssertionError(f"{self.argv[0]} does not answer:\n{self.log.read_text(errors='replace')[-3000:]}")

    def _launch(self) -> None:
        with self.log.open("ab") as log:
            self._process = subprocess.Popen(  # type: ignore[call-overload]
                self.argv,
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                start_new_session=True,
                preexec_fn=_die_with_the_test,
                **_as(self._user),
            )

    @property
    def log(self) -> Path:
        """The file of its output."""
        return self.directory / "log"

    @property
    def pids(self) -> list[int]:
        """Its process and those that it started."""
        if self._process is None or self._process.poll() is not None:
            return []
        return [self._process.pid, *children(self._process.pid)]

    def kill(self) -> None:
        """SIGKILL all of it together."""
        process = self._process
        if process is None:
            return
        # Nothing new is started while its children are looked for.
        with suppress(ProcessLookupError):
            os.kill(process.pid, signal.SIGSTOP)
        for pid in [*children(process.pid), process.pid]:
            with suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
        process.wait(READY_S)
        self._process, self._stopped = None, []

    @contextmanager
    def away(self) -> Iterator[None]:
        """It is stopped: connections stay, nothing is answered."""
        pids = self.pids
        for pid in pids:
            with suppress(ProcessLookupError):
                os.kill(pid, signal.SIGSTOP)
        try:
            yield
        finally:
            for pid in pids:
                with suppress(ProcessLookupError):
                    os.kill(pid, signal.SIGCONT)

    @contextmanager
    def down(self) -> Iterator[None]:
        """It is killed, and started again after that."""
        self.kill()
        try:
            yield
        finally:
            self.start()


@contextmanager
def directory_of(user: pwd.struct_passwd | None, name: str) -> Iterator[Path]:
    """A short path (sockets are in it) that belongs to that user; gone afterwards."""
    path = Path(tempfile.mkdtemp(prefix=f"{name}-"))
    try:
        if user is not None:
            os.chown(path, user.pw_uid, user.pw_gid)
        yield path
    finally:
        shutil.rmtree(path, ignore_errors=True)
