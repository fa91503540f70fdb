"""`python -m tests.transcripts [NN ...] [--update]`: replays transcripts and compares, or rewrites them."""

from __future__ import annotations

import argparse
import sys

from tests.transcripts.files import chosen, difference, update
from tests.transcripts.interpreter import Unmet


def main(arguments: list[str]) -> int:
    """Return 0 if every transcript is what its commands cause now."""
    parser = argparse.ArgumentParser(prog="python -m tests.transcripts", description=__doc__)
    parser.add_argument("numbers", nargs="*", metavar="NN", help="which ones; all if none is given")
    parser.add_argument("--update", action="store_true", help="write the conversations that the commands cause now")
    options = parser.parse_args(arguments)
    paths = chosen(options.numbers)
    if not paths:
        print(f"there is no transcript {' '.join(options.numbers)}; see tests/transcripts/*.txt", file=sys.stderr)
        return 2
    differ = 0
    for path in paths:
        try:
            changed = update(path) if options.update else difference(path)
        except Unmet as problem:
            print(f"{path.name}: {problem}", file=sys.stderr)
            differ += 1
            continue
        if options.update:
            print(f"{path.name}: {'written' if changed else 'as it was'}")
        else:
            print(changed or f"{path.name}: as written")
            differ += bool(changed)
    return 1 if differ else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
