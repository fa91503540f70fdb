"""A worker that ends with status 7 and leaves to whatever ends its process what is still to be done.

python -m tests.unit.standby.leaver DIRECTORY
"""

from __future__ import annotations

import atexit
import os
import sys
import threading
import time
from pathlib import Path

kept: list[object] = []


class Last:
    """An object that makes a directory in its finaliser."""

    def __init__(self, place: Path) -> None:
        self.make, self.place = os.mkdir, str(place)

    def __del__(self) -> None:
        self.make(self.place)


def main() -> int:
    place = Path(sys.argv[1])

    def late() -> None:
        time.sleep(0.1)
        (place / "thread").touch()

    atexit.register((place / "at_exit").touch)
    threading.Thread(target=late).start()
    file = open(place / "file", "w")
    file.write("whole")
    kept.extend([Last(place / "taken_apart"), file, kept])
    sys.stdout.write("no end of a line")
    return 7


if __name__ == "__main__":
    sys.exit(main())
