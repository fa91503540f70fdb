"""`python -m tests.exhaustive [--world NAME] [--states-max N] [--audit]`: exit status 1 if anything does not hold.

`--sabotage NAME` breaks a rule of the protocol first, in the tiny job that must find it.
"""

from __future__ import annotations

import argparse
import gc
import sys
from collections.abc import Sequence
from time import process_time

from tests.exhaustive.explore import Exploration
from tests.exhaustive.sabotages import SABOTAGES, in_force
from tests.exhaustive.story import summary, told
from tests.exhaustive.world import Job
from tests.exhaustive.worlds import JOBS

STATES_MAX = 1_000_000


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.exhaustive", description=__doc__)
    parser.add_argument("--world", choices=sorted(JOBS), help="only this one; default: all")
    parser.add_argument("--states-max", type=int, default=STATES_MAX, help="stop a world there (default %(default)s)")
    parser.add_argument("--audit", action="store_true", help="check that states taken for one behave alike (slower)")
    parser.add_argument("--sabotage", choices=sorted(SABOTAGES), help="break this rule, and see it found")
    asked = parser.parse_args()
    gc.disable()  # nothing here is cyclic, and looking through millions of tuples again and again costs half the time
    if asked.sabotage:
        with in_force(SABOTAGES[asked.sabotage]):
            return explore([SABOTAGES[asked.sabotage].job], asked.states_max, asked.audit)
    jobs = [JOBS[asked.world]] if asked.world else list(JOBS.values())
    return explore(jobs, asked.states_max, asked.audit)


def explore(jobs: Sequence[Job], states_max: int, audit: bool) -> int:
    """Print what is found in each; the exit status."""
    states, broken = 0, 0
    for job in jobs:
        began_s = process_time()
        found = Exploration(job, states_max, audit).run()
        states += found.states
        print(f"{summary(found)}; {process_time() - began_s:.1f} s", flush=True)
        if found.breach is not None:
            broken += 1
            print("\n".join(told(found, found.breach)), flush=True)
    print(f"{states} distinct states in {len(jobs)} worlds, {broken} of which broken")
    return 1 if broken else 0


if __name__ == "__main__":
    sys.exit(main())
