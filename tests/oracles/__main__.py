"""`python -m tests.oracles`: compares operators with their oracles, and says how to repeat an example that fails."""

from __future__ import annotations

import argparse
import signal
import sys
import traceback
from collections.abc import Iterator
from itertools import count

from tests.oracles.all import ORACLES
from tests.oracles.frame import examine

PROGRESS = 500


def main(argv: list[str] | None = None) -> int:
    """Exit status: 0 if every example passed, 1 if not."""
    parser = argparse.ArgumentParser(prog="python -m tests.oracles", description=__doc__)
    parser.add_argument("--examples", type=int, default=300, metavar="N", help="how many examples to run (300)")
    parser.add_argument("--first", type=int, default=0, metavar="SEED", help="the first seed of each oracle (0)")
    parser.add_argument("--soak", action="store_true", help="run until stopped with Ctrl-C")
    parser.add_argument("--only", metavar="NAME", help=f"one oracle: {', '.join(ORACLES)}")
    parser.add_argument("--failures", type=int, default=5, metavar="N", help="stop after so many failures (5)")
    options = parser.parse_args(argv)
    if options.only is not None and options.only not in ORACLES:
        parser.error(f"no oracle is called {options.only}; there are {', '.join(ORACLES)}")
    for number in (signal.SIGINT, signal.SIGTERM):  # a shell starts what runs in the background deaf to Ctrl-C
        signal.signal(number, signal.default_int_handler)
    names = [options.only] if options.only else list(ORACLES)
    passed = failed = 0
    try:
        for name, seed in _examples(names, options.first, None if options.soak else options.examples):
            try:
                examine(name, seed)
                passed += 1
            except Exception as problem:
                failed += 1
                print(f"{name}, seed {seed}: {type(problem).__name__}: {problem}")
                print("".join(traceback.format_tb(problem.__traceback__)[-2:]), end="")
                print(f"repeat: python -m tests.oracles --only {name} --first {seed} --examples 1", flush=True)
                if failed >= options.failures:
                    break
            if (passed + failed) % PROGRESS == 0:
                print(f"… {passed} passed, {failed} failed", flush=True)
    except KeyboardInterrupt:
        pass
    print(f"{passed} passed, {failed} failed")
    return 1 if failed else 0


def _examples(names: list[str], first: int, examples: int | None) -> Iterator[tuple[str, int]]:
    """Oracles in turn, each with the next seed."""
    for number in count():
        if examples is not None and number >= examples:
            return
        yield names[number % len(names)], first + number // len(names)


if __name__ == "__main__":
    sys.exit(main())
