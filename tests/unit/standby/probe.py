"""A worker that writes down what it observes of its own start, and ends with the status in its arguments.

python -m tests.unit.standby.probe FILE STATUS
"""

from __future__ import annotations

import gc
import json
import locale
import os
import random
import resource
import signal
import sys
import threading
import uuid
from pathlib import Path
from typing import Any


def facts() -> dict[str, Any]:
    """Return the facts that must be the same however this process was started."""
    descriptors = {}
    for name in os.listdir("/proc/self/fd"):
        try:
            descriptors[name] = os.readlink(f"/proc/self/fd/{name}")
        except FileNotFoundError:  # the one that listed them
            continue
    mask = os.umask(0)
    os.umask(mask)
    status = Path("/proc/self/status").read_text().splitlines()
    return {
        "argv": sys.argv,
        "orig_argv": sys.orig_argv,
        "path": sys.path,
        "flags": list(sys.flags),
        "options": sys._xoptions,
        "warnings": sys.warnoptions,
        "environment": dict(os.environ),
        "cwd": os.getcwd(),
        "umask": mask,
        "handlers": {int(s): str(signal.getsignal(s)).partition(" at ")[0] for s in signal.valid_signals()},
        "signals": [
            line
            for line in status
            if line.startswith(("Sig", "Shd", "NoNewPrivs", "Seccomp:")) and not line.startswith("SigQ:")
        ],  # the queued signals of all processes of the user
        "wakeup": signal.set_wakeup_fd(-1),
        "descriptors": descriptors,
        "session_is_own": os.getsid(0) == os.getpid(),
        "group_is_own": os.getpgid(0) == os.getpid(),
        "threads": [threading.active_count(), threading.current_thread().name, len(os.listdir("/proc/self/task"))],
        "locale": [locale.setlocale(locale.LC_ALL), sys.stdout.encoding, sys.stderr.encoding],
        "streams": [sys.stdin.fileno(), sys.stdout.fileno(), sys.stderr.write_through],  # type: ignore[union-attr]
        "collector": [gc.isenabled(), gc.get_threshold(), gc.get_debug()],
        "limits": [resource.getrlimit(limit) for limit in range(16)],
        "priority": os.getpriority(os.PRIO_PROCESS, 0),
        "recursion": sys.getrecursionlimit(),
        "hash": hash("pinned"),
        "tracing": [str(sys.gettrace()), str(sys.getprofile())],
        "command_line": Path("/proc/self/cmdline").read_bytes().rstrip(b"\0").decode(),
    }


def main() -> int:
    observed = facts()
    observed["varying"] = [random.random(), str(uuid.uuid4()), random.SystemRandom().random()]
    place = Path(sys.argv[1])
    fresh = place.with_suffix(".new")
    fresh.write_text(json.dumps(observed))
    fresh.replace(place)
    print("said on stdout", flush=True)
    return int(sys.argv[2])


if __name__ == "__main__":
    sys.exit(main())
