"""The logs of other hosts, stored in the job's own directory so that they can be read even if their host is dead.

Each host has one file, `logs/host-NAME.log`, whose size is limited like that of a process log: a full file becomes
`….log.1` and replaces the previous one.  Lines that cannot be written, for example because the disk is full, are
dropped and counted.
"""

from __future__ import annotations

import logging
import os
import re
from pathlib import Path

from causal.process.processlog import LOG_BYTES_MAX

_FILE = re.compile(r"host-([a-z0-9][a-z0-9-]{0,62})\.log(\.1)?")
_log = logging.getLogger("standby.logs")


def host_of(name: str) -> str:
    """Return the host whose lines a file with this name contains; empty for a log of this machine."""
    match = _FILE.fullmatch(name)
    return match[1] if match is not None else ""


class HostLogs:
    """Appends log lines from hosts to those hosts' files."""

    def __init__(self, directory: Path) -> None:
        self._directory = directory
        self.dropped = 0
        """The number of texts that could not be written, or whose host has a name that is not valid in a file name."""

    def take(self, host: str, text: str) -> None:
        """Append complete lines from a host."""
        path = self._directory / f"host-{host}.log"
        if not host_of(path.name):
            self.dropped += 1
            return
        data = text.encode(errors="backslashreplace")
        try:
            with open(os.open(path, os.O_WRONLY | os.O_APPEND | os.O_CREAT | os.O_CLOEXEC, 0o600), "ab") as file:
                if os.fstat(file.fileno()).st_size + len(data) > LOG_BYTES_MAX:
                    os.replace(path, path.with_name(path.name + ".1"))
                    self.take(host, text)
                    return
                file.write(data)
        except OSError as problem:
            if not self.dropped:
                _log.warning("%s cannot be written: %s", path, problem.strerror)
            self.dropped += 1
