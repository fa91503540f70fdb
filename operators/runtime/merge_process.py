"""The process that merges snapshot files of one task (`causal.storage.merges`).

It reads one request, a line of JSON, from its standard input, and writes its answer to its standard output. It runs
with the lowest priority in the session of the task. It ends when its standard input ends, because the task that asked
for it is then gone.
"""

from __future__ import annotations

import json
import os
import sys
import threading
from pathlib import Path
from typing import Any

from causal.errors import CorruptData, Unavailable
from causal.storage.files import each_part, write_parts
from operators.engine.merged import MergedParts

NICE = 19


def main() -> None:
    """Perform the request on standard input."""
    os.nice(NICE)
    request = json.loads(sys.stdin.readline())
    threading.Thread(target=_end_with_input, daemon=True).start()
    try:
        answer: dict[str, Any] = merge(request)
    except (CorruptData, Unavailable) as problem:
        answer = {"error": str(problem), "corrupt": isinstance(problem, CorruptData)}
    sys.stdout.write(json.dumps(answer))
    sys.stdout.flush()


def merge(request: dict[str, Any]) -> dict[str, Any]:
    """Merge the files of a request into one; return its size and digest.

    Raises:
        CorruptData: a file is damaged, or the files do not belong together.
        Unavailable: the disk is full or fails.
    """
    sources = [each_part(Path(path), digest) for path, digest in request["sources"]]
    parts = MergedParts(sources, request["rules"], request["key_groups"], request["complete"])
    size, digest = write_parts(Path(request["target"]), parts, request["durable"], paced=True)
    return {"size": size, "digest": digest}


def _end_with_input() -> None:
    sys.stdin.read()
    os._exit(1)


if __name__ == "__main__":
    main()
