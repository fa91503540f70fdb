"""The exit statuses of `causal` commands, and the line that explains one.

This module imports little, because `causal run` keeps it loaded.
"""

from __future__ import annotations

import sys

from deploy.printable import one_line

DONE, FAILED, WRONG = 0, 1, 2


def say(line: str, status: int) -> int:
    """Print one line to standard error, and return the exit status."""
    print(f"causal: {one_line(line)}", file=sys.stderr)
    return status
