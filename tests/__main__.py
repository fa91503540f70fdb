"""All tests, in two groups side by side: `python -m tests [argument of pytest]...`

Tests of whole jobs mostly wait for processes, the others mostly compute, so two cores do both in the time of one.  The
second group is shown as it runs, then the first, each with its ten slowest tests; the status is 0 when both have
passed.
"""

from __future__ import annotations

import compileall
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path
from typing import IO

HOME = Path(__file__).resolve().parents[1]
JOBS = ("tests/faults", "tests/servers", "tests/spark")
ELSEWHERE = ("tests/architecture",)
"""The tests that `make check` has run already."""
PACKAGES = ("causal", "operators", "standby", "deploy")
NOTHING_COLLECTED = 5
SLOWEST = ("--durations=10", "--durations-min=1")
FOLLOW_S = 0.5


def group(paths: Sequence[str], name: str, arguments: Sequence[str]) -> list[str]:
    """The command of one group; each has a cache of its own."""
    return [sys.executable, "-u", "-m", "pytest", "-o", f"cache_dir=.pytest_cache/{name}", *SLOWEST, *arguments, *paths]


def follow(process: subprocess.Popen[bytes], output: IO[str]) -> int:
    """Print what the process has written and writes, until it ends; returns its exit status."""
    while True:
        ended = process.poll()
        print(output.read(), end="", flush=True)
        if ended is not None:
            return ended
        time.sleep(FOLLOW_S)


def main(arguments: Sequence[str]) -> int:
    """Run both groups to their end; an interrupt goes to both, so that what they have started is ended."""
    for package in PACKAGES:  # the processes of jobs under test write no bytecode, and start in half the time with it
        compileall.compile_dir(HOME / package, quiet=1)
    others = [f"--ignore={path}" for path in (*JOBS, *ELSEWHERE)]
    began_s = time.monotonic()
    with tempfile.NamedTemporaryFile("w") as written, open(written.name) as output:
        # In process groups of their own: an interrupt from the terminal comes to them once, from here.
        jobs = subprocess.Popen(
            group(JOBS, "jobs", arguments), cwd=HOME, stdout=written, stderr=subprocess.STDOUT, process_group=0
        )
        rest = subprocess.Popen(group(["tests"], "rest", [*others, *arguments]), cwd=HOME, process_group=0)
        while True:
            try:
                status = rest.wait()
                print(f"\n{' '.join(JOBS)}, meanwhile:", flush=True)
                statuses = {status, follow(jobs, output)}
                break
            except KeyboardInterrupt:
                for each in (jobs, rest):
                    each.send_signal(signal.SIGINT)  # does nothing to one that has been waited for
    print(f"both groups together: {time.monotonic() - began_s:.0f} s")
    return 0 if statuses <= {0, NOTHING_COLLECTED} and 0 in statuses else 1


if __name__ == "__main__":
    signal.signal(signal.SIGTERM, signal.default_int_handler)
    sys.exit(main(sys.argv[1:]))
