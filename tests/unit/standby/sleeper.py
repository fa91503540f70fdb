"""A worker that waits to be killed."""

from __future__ import annotations

import signal
import sys


def main() -> int:
    signal.pause()
    return 0


if __name__ == "__main__":
    sys.exit(main())
