"""`python -m tests.exhaustive [--world NAME] [--states-max N] [--audit]`: exit status 1 if anything does not hold.

`--sabotage NAME` breaks a rule of the protocol first, in the tiny job that must find it.
"""

from __future__ import annotations

import argparse
import gc
import sys
from collections.abc import Sequence
from functools import partial
from time import process_time

from tests.exhaustive.elections import Election, candidate
from tests.exhaustive.explore import Exploration
from tests.exhaustive.rescale import world as rescale
from tests.exhaustive.rescale.state import NEW, OLD
from tests.exhaustive.sabotages import SABOTAGES, in_force
from tests.exhaustive.story import breach_lines, summary
from tests.exhaustive.world import Job
from tests.exhaustive.worlds import JOBS

STATES_MAX = 1_000_000

ELECTIONS = (("ab", 2), ("abc", 0))
"""Supervisors that want to lead one job, and how many answers of the store are lost."""

CHANGES = (
    rescale.Job("rescale", 2),
    rescale.Job("rescale-three-records", 3),
    rescale.Job("rescale-to-one", 2, widths=(2, 1)),
    rescale.Job("rollback", 3, widths=(1, 1), returns=True),
)
"""A job that is changed while it runs."""


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.exhaustive", description=__doc__)
    parser.add_argument("--world", choices=sorted(JOBS), help="only this one; default: all")
    parser.add_argument("--states-max", type=int, default=STATES_MAX, help="stop a world there (default %(default)s)")
    parser.add_argument("--audit", action="store_true", help="check that states taken for one behave alike (slower)")
    parser.add_argument("--sabotage", choices=sorted(SABOTAGES), help="break this rule, and see it found")
    options = parser.parse_args()
    gc.disable()  # nothing here is cyclic, and looking through millions of tuples repeatedly costs half the time
    if options.sabotage:
        with in_force(SABOTAGES[options.sabotage]):
            return explore([SABOTAGES[options.sabotage].job], options.states_max, options.audit)
    jobs = [JOBS[options.world]] if options.world else list(JOBS.values())
    status = explore(jobs, options.states_max, options.audit)
    return status if options.world else max(status, elect(), change())


def elect() -> int:
    """Print the outcome of each world of supervisors, and return the exit status."""
    broken = 0
    for names, losses in ELECTIONS:
        began_s = process_time()
        verdict = Election({name: partial(candidate, name, 1) for name in names}, losses).explore()
        broken += bool(verdict.breach)
        facts = f"{len(names)} supervisors, {losses} answers lost: {verdict.states} states, {verdict.ends} ends"
        print(
            f"{facts}; {verdict.breach or 'every invariant holds in each'}; {process_time() - began_s:.1f} s",
            flush=True,
        )
    return 1 if broken else 0


def change() -> int:
    """Print the outcome of each world in which a job is changed, and return the exit status."""
    broken = 0
    for job in CHANGES:
        began_s = process_time()
        verdict = rescale.explore(job)
        broken += bool(verdict.breach)
        facts = f"{job.records} records, {job.crashes} death: {verdict.states} states, {verdict.deaths} deaths tried"
        ends = f"{verdict.ends[OLD]} ends as the old version, {verdict.ends[NEW]} as the new one"
        took = f"{process_time() - began_s:.1f} s"
        print(f"{job.name}, {facts}, {ends}; {verdict.breach or 'every invariant holds in each'}; {took}", flush=True)
        for action in verdict.path:
            print(f"    {' '.join(map(str, action))}")
    return 1 if broken else 0


def explore(jobs: Sequence[Job], states_max: int, audit: bool) -> int:
    """Print the outcome of each exploration, and return the exit status."""
    states, broken = 0, 0
    for job in jobs:
        began_s = process_time()
        outcome = Exploration(job, states_max, audit).run()
        states += outcome.states
        print(f"{summary(outcome)}; {process_time() - began_s:.1f} s", flush=True)
        if outcome.breach is not None:
            broken += 1
            print("\n".join(breach_lines(outcome, outcome.breach)), flush=True)
    print(f"{states} distinct states in {len(jobs)} worlds, {broken} of which broken")
    return 1 if broken else 0


if __name__ == "__main__":
    sys.exit(main())
