"""Creation of files that do not outlive their process; their names are removed once the files are open."""

from __future__ import annotations

import os
from itertools import count

_NUMBERS = count()


def numbered_file(directory: str, kind: str) -> str:
    """Create an empty file, and its directory if necessary, and return the path of the file.

    The name is not random, because a random draw would be captured and logged for the running operator.

    Args:
        kind: the extension of the file name.

    Raises:
        OSError: the file or its directory cannot be created.
    """
    os.makedirs(directory, exist_ok=True)
    while True:
        path = os.path.join(directory, f"state-{os.getpid()}-{next(_NUMBERS)}.{kind}")
        try:
            os.close(os.open(path, os.O_CREAT | os.O_EXCL | os.O_RDWR, 0o600))
        except FileExistsError:  # left by a process with the same id that died before it unlinked the file
            continue
        return path
