"""All tests, in two groups side by side: `python -m tests [--campaign] [argument of pytest]...`

With `--campaign`, those instead that are too long for every run (tests/members.py), and the property tests with many
more examples, new ones each time.

Tests of whole jobs have a group of their own, because the others take temporary files in memory.  The second group is
shown as it runs, then the first, each with its ten slowest tests; the status is 0 when both have
passed.

A few tests that failed are run once more with nothing else running, because a machine that is shared may stall for
longer than any limit.  Those that pass then are named at the end, with their first output above: a name that comes
back is a fault to find.
"""

from __future__ import annotations

import compileall
import json
import os
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import IO

HOME = Path(__file__).resolve().parents[1]
JOBS = ("tests/faults", "tests/guarantees", "tests/servers", "tests/spark")
ELSEWHERE = ("tests/architecture",)
"""The tests that `make check` has run already."""
PACKAGES = ("causal", "operators", "standby", "deploy", "examples", "benchmarks")
SOME_FAILED, NOTHING_COLLECTED = 1, 5
SLOWEST = ("--durations=10", "--durations-min=1")
FILES = ("--dist", "loadfile", "--no-loadscope-reorder")
BESIDE = {"jobs": ("-n", "2", *FILES), "rest": ("-n", "3", *FILES)}
"""The number of files of each group that run at the same time: two cores have hardly a moment without work."""
FOLLOW_S = 0.5
IN_MEMORY, ROOM_MIN = Path("/dev/shm"), 1 << 30
"""The place of the temporary files of the second group, whose tests check written files, not the speed of a disk."""
CAMPAIGN = ("-m", "campaign or hypothesis", "--hypothesis-profile=campaign", "-o", "timeout=3600")
AGAIN_MAX = 8
"""More failures than these are no accident, and are not run again."""


def group(paths: Sequence[str], name: str, arguments: Sequence[str]) -> list[str]:
    """Return the command of one group; each has a cache of its own."""
    return [sys.executable, "-u", "-m", "pytest", "-o", f"cache_dir=.pytest_cache/{name}", *SLOWEST, *arguments, *paths]


def failures(name: str) -> Path:
    """Return the file in which pytest keeps the names of a group's tests that failed."""
    return HOME / ".pytest_cache" / name / "v" / "cache" / "lastfailed"


def pass_alone(groups: Mapping[str, Sequence[str]], arguments: Sequence[str]) -> bool:
    """Run the few tests that failed in these groups once more, alone; whether all of them passed then."""
    if not all(failures(name).exists() for name in groups):  # `-p no:cacheprovider` keeps no names
        return False
    names = [test for name in groups for test in json.loads(failures(name).read_text())]
    if not 0 < len(names) <= AGAIN_MAX:
        return False
    print(f"\nonce more, alone: {', '.join(names)}", flush=True)
    for name, paths in groups.items():
        again = group(paths, name, [*arguments, "--last-failed", "--last-failed-no-failures", "none"])
        if subprocess.run(again, cwd=HOME).returncode:
            return False
    print(f"\nfailed next to other tests and passed alone: {', '.join(names)}", flush=True)
    return True


def environment_in_memory() -> dict[str, str]:
    """Return an environment in which temporary files are in memory, if there is room for them."""
    if not os.access(IN_MEMORY, os.W_OK) or shutil.disk_usage(IN_MEMORY).free < ROOM_MIN:
        return dict(os.environ)
    return {**os.environ, "PYTEST_DEBUG_TEMPROOT": str(IN_MEMORY)}


def follow(process: subprocess.Popen[bytes], output: IO[str]) -> int:
    """Print what the process has written and writes, until it ends; returns its exit status."""
    while True:
        ended = process.poll()
        print(output.read(), end="", flush=True)
        if ended is not None:
            return ended
        time.sleep(FOLLOW_S)


def main(arguments: Sequence[str]) -> int:
    """Run both groups to their end; an interrupt goes to both, so that the state they have started is ended."""
    campaign = CAMPAIGN if "--campaign" in arguments else ()
    arguments = [*campaign, *(each for each in arguments if each != "--campaign")]
    for package in PACKAGES:  # the processes of jobs under test write no bytecode, and start in half the time with it
        compileall.compile_dir(HOME / package, quiet=1)
    groups = {"rest": ("tests", *(f"--ignore={path}" for path in (*JOBS, *ELSEWHERE))), "jobs": JOBS}
    for name in groups:
        failures(name).unlink(missing_ok=True)
    began_s, statuses = time.monotonic(), dict[str, int]()
    with tempfile.NamedTemporaryFile("w") as written, open(written.name) as output:
        # In process groups of their own: an interrupt from the terminal comes to them once, from here.
        jobs = subprocess.Popen(
            group(groups["jobs"], "jobs", (*BESIDE["jobs"], *arguments)),
            cwd=HOME,
            stdout=written,
            stderr=subprocess.STDOUT,
            process_group=0,
        )
        rest = subprocess.Popen(
            group(groups["rest"], "rest", (*BESIDE["rest"], *arguments)),
            cwd=HOME,
            env=environment_in_memory(),
            process_group=0,
        )
        while len(statuses) < len(groups):
            try:
                statuses["rest"] = rest.wait()
                print(f"\n{' '.join(JOBS)}, meanwhile:", flush=True)
                statuses["jobs"] = follow(jobs, output)
            except KeyboardInterrupt:
                for each in (jobs, rest):
                    each.send_signal(signal.SIGINT)  # does nothing to one that has been waited for
    print(f"both groups together: {time.monotonic() - began_s:.0f} s", flush=True)
    failed = {name: groups[name] for name, status in statuses.items() if status == SOME_FAILED}
    passed = set(statuses.values()) <= {0, NOTHING_COLLECTED, SOME_FAILED} and {*statuses.values()} & {0, SOME_FAILED}
    return 0 if passed and (not failed or pass_alone(failed, campaign)) else 1


if __name__ == "__main__":
    for number in (signal.SIGINT, signal.SIGTERM):  # also where a shell without jobs has SIGINT ignored, for the groups
        signal.signal(number, signal.default_int_handler)
    sys.exit(main(sys.argv[1:]))
