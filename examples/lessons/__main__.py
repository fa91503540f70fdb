"""Runs the lessons that are named, or all of them; the status is 0 if each promise was kept."""

from __future__ import annotations

import argparse
import sys

from examples.lessons import (
    a_change_is_tried_first,
    a_forgetful_till,
    a_sink_dies,
    a_task_dies,
    an_upgrade_is_rolled_back,
    everything_dies,
    the_dice_of_yesterday,
)

LESSONS = {
    module.__name__.rpartition(".")[2]: module
    for module in (
        a_task_dies,
        a_sink_dies,
        everything_dies,
        a_forgetful_till,
        an_upgrade_is_rolled_back,
        the_dice_of_yesterday,
        a_change_is_tried_first,
    )
}


def main() -> int:
    """Return the number of lessons whose promise was not kept."""
    parser = argparse.ArgumentParser(prog="python -m examples.lessons", description=__doc__)
    parser.add_argument("lessons", nargs="*", metavar="LESSON", help=", ".join(LESSONS))
    chosen = parser.parse_args().lessons or list(LESSONS)
    unknown = [name for name in chosen if name not in LESSONS]
    if unknown:
        parser.error(f"there is no lesson {', '.join(unknown)}; there are {', '.join(LESSONS)}")
    broken = [name for name in chosen if LESSONS[name].main()]
    left = f"; not: {', '.join(broken)}" if broken else ""
    print(f"\n{len(chosen) - len(broken)} of {len(chosen)} promises kept{left}")
    return len(broken)


if __name__ == "__main__":
    sys.exit(main())
