"""New files for what does not outlive its process: their names are numbers, and are unlinked once they are open."""

from __future__ import annotations

import os
from itertools import count

_NUMBERS = count()


def numbered_file(directory: str, kind: str) -> str:
    """Create an empty file, and its directory; a random name would be drawn in the running operator, and logged.

    Args:
        kind: ends the name.

    Raises:
        OSError: it cannot be created.
    """
    os.makedirs(directory, exist_ok=True)
    while True:
        path = os.path.join(directory, f"state-{os.getpid()}-{next(_NUMBERS)}.{kind}")
        try:
            os.close(os.open(path, os.O_CREAT | os.O_EXCL | os.O_RDWR, 0o600))
        except FileExistsError:  # of a process with the same id that died before it unlinked its file
            continue
        return path
