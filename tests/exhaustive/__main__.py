"""`python -m tests.exhaustive [--world NAME] [--states-max N] [--audit]`: exit status 1 if anything does not hold."""

from __future__ import annotations

import argparse
import gc
import sys

from tests.exhaustive.explore import Exploration
from tests.exhaustive.story import summary, told
from tests.exhaustive.worlds import JOBS

STATES_MAX = 1_000_000


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.exhaustive", description=__doc__)
    parser.add_argument("--world", choices=sorted(JOBS), help="only this one; default: all")
    parser.add_argument("--states-max", type=int, default=STATES_MAX, help="stop a world there (default %(default)s)")
    parser.add_argument("--audit", action="store_true", help="check that states taken for one behave alike (slower)")
    asked = parser.parse_args()
    gc.disable()  # nothing here is cyclic, and looking through millions of tuples again and again costs half the time
    states, status = 0, 0
    for name in [asked.world] if asked.world else JOBS:
        found = Exploration(JOBS[name], asked.states_max, asked.audit).run()
        states += found.states
        print(summary(found), flush=True)
        if found.breach is not None:
            status = 1
            print("\n".join(told(found, found.breach)), flush=True)
    print(f"{states} distinct states in all; {'every invariant holds' if not status else 'broken'}")
    return status


if __name__ == "__main__":
    sys.exit(main())
