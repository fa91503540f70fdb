"""Writers that run in their own processes, where checks can kill or fence them (Linux)."""

from __future__ import annotations

import os
import signal
import sys
import time
import traceback
from collections.abc import Callable, Iterator
from random import Random

from causal.errors import Fenced
from operators.sinks.conformance.subject import expect

FENCED_STATUS, FAILED_STATUS = 3, 4


def forked(step: Callable[[], None]) -> int:
    """Fork a process that runs `step`, and return the id of that process.

    Its exit status is 0 (success), 3 (fenced) or 4 (another error).
    """
    pid = os.fork()
    if pid:
        return pid
    status = FAILED_STATUS
    try:
        step()
        status = 0
    except Fenced:
        status = FENCED_STATUS
    except Exception:
        traceback.print_exc(file=sys.stderr)
        raise
    finally:
        os._exit(status)


def begun(step: Callable[[Callable[[], object]], None]) -> int:
    """Fork a process as `forked` does, and return once `step` has called its argument or has ended."""
    receiving, sending = os.pipe()
    pid = forked(lambda: step(lambda: os.write(sending, b"!")))
    os.close(sending)
    os.read(receiving, 1)
    os.close(receiving)
    return pid


def killed_writers(writer: Callable[[int], int], kills: int, seed: int) -> Iterator[int]:
    """Start processes with `writer`, kill each one at a random moment, and yield its number."""
    chance = Random(seed)
    for number in range(1, kills + 1):
        pid = writer(number)
        time.sleep(chance.uniform(0.0, 0.02))
        os.kill(pid, signal.SIGKILL)
        expect(os.waitpid(pid, 0)[1] == signal.SIGKILL, "a writer runs until it is killed", "it ended on its own")
        yield number
