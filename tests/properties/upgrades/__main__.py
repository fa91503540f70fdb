"""`python -m tests.properties.upgrades`: performs upgrades, and says how to repeat one that fails."""

from __future__ import annotations

import argparse
import signal
import sys
import traceback
from collections import Counter
from collections.abc import Iterator
from itertools import count

from tests.properties.upgrades.examining import NAMES, examine, examine_in_two
from tests.properties.upgrades.judging import PASSED, REFUSED

PROGRESS = 500


def main(argv: list[str] | None = None) -> int:
    """Exit status: 0 if every upgrade passed or was refused, 1 if not."""
    parser = argparse.ArgumentParser(prog="python -m tests.properties.upgrades", description=__doc__)
    parser.add_argument("--examples", type=int, default=300, metavar="N", help="how many upgrades to perform (300)")
    parser.add_argument("--first", type=int, default=0, metavar="SEED", help="the first seed of each kind (0)")
    parser.add_argument("--soak", action="store_true", help="run until stopped with Ctrl-C")
    parser.add_argument("--only", metavar="NAME", help="one kind of upgrade, as a failure names it")
    parser.add_argument("--failures", type=int, default=5, metavar="N", help="stop after so many failures (5)")
    options = parser.parse_args(argv)
    if options.only is not None and options.only not in NAMES:
        parser.error(f"no kind of upgrade is called {options.only!r}; there are {', '.join(NAMES)}")
    for number in (signal.SIGINT, signal.SIGTERM):  # a shell starts what runs in the background deaf to Ctrl-C
        signal.signal(number, signal.default_int_handler)
    names = [options.only] if options.only else list(NAMES)
    results: Counter[str] = Counter()
    try:
        for name, seed in _examples(names, options.first, None if options.soak else options.examples):
            try:
                results[_performed(name, seed)] += 1
            except Exception as problem:
                results["failed"] += 1
                print(f"{name}, seed {seed}: {type(problem).__name__}: {problem}")
                print("".join(traceback.format_tb(problem.__traceback__)[-2:]), end="")
                print(f"repeat: python -m tests.properties.upgrades --only {name!r} --first {seed} --examples 1")
                if results["failed"] >= options.failures:
                    break
            if results.total() % PROGRESS == 0:
                print(f"… {_said(results)}", flush=True)
    except KeyboardInterrupt:
        pass
    print(_said(results))
    return 1 if results["failed"] else 0


def _performed(name: str, seed: int) -> str:
    """Perform an upgrade; the state of every second one is converted early, and its changes alone."""
    if seed % 2 == 0:
        return examine(name, seed)
    return REFUSED if examine_in_two(name, seed) == REFUSED else PASSED


def _said(results: Counter[str]) -> str:
    return ", ".join(f"{results[name]} {name}" for name in ("passed", "refused", "failed"))


def _examples(names: list[str], first: int, examples: int | None) -> Iterator[tuple[str, int]]:
    """Yield kinds of upgrades in turn, each with the next seed; some are several times among the names."""
    seeds = dict.fromkeys(names, first)
    for number in count():
        if examples is not None and number >= examples:
            return
        name = names[number % len(names)]
        yield name, seeds[name]
        seeds[name] += 1


if __name__ == "__main__":
    sys.exit(main())
