"""The end of a process: all that an interpreter does for others, and nothing that it does for itself.

An interpreter takes its objects apart, which copies the memory that forked processes share: 20 ms and 11 MB for each,
in the moment when all of a job end.  And what waits to be written to a file that is part of a cycle can be lost in it
(https://github.com/python/cpython/issues/62052), as always where the collector leaves it alone
(`gc.freeze`).
"""

from __future__ import annotations

import atexit
import gc
import os
import sys
import threading
import traceback
from _io import _BufferedIOBase, _IOBase, _TextIOBase  # those of `io` ask each class that they do not know
from typing import Any, NoReturn

STANDARD_ERROR = 2


def end(status: int) -> NoReturn:
    """Ends this process: waits for its threads, calls what `atexit` has, writes its files; leaves its objects alone.

    No finaliser (`__del__`) runs, as where a process is killed.
    """
    of_threads: Any = threading
    try:
        of_threads._shutdown()
        atexit._run_exitfuncs()
        if _has_open_files():
            _write_files()
        for stream in (sys.stdout, sys.stderr):
            if stream is not None:
                stream.flush()
    except BaseException as problem:
        traceback.print_exception(problem)
        status = status or 1
    finally:
        os._exit(status)


def _has_open_files() -> bool:
    for name in os.listdir("/proc/self/fd"):
        if int(name) > STANDARD_ERROR:
            try:
                os.fstat(int(name))
            except OSError:
                continue  # it was that of the list
            return True
    return False


def _write_files() -> None:
    """Writes what is in memory: of text, then of what encodes it (`gzip`), which may have to add an end, then bytes."""
    gc.unfreeze()
    standard = {id(stream) for stream in (sys.stdin, sys.stdout, sys.stderr)}
    files = [each for each in gc.get_objects() if issubclass(type(each), _IOBase) and id(each) not in standard]
    for file in sorted(files, key=lambda each: (not issubclass(type(each), _TextIOBase), _is_built_in(each))):
        try:
            if file.closed:
                continue
            if issubclass(type(file), _BufferedIOBase) and not _is_built_in(file):
                file.close()
            else:
                file.flush()
        except Exception as problem:  # of this one: the others are written all the same
            traceback.print_exception(problem)


def _is_built_in(file: object) -> bool:
    return type(file).__module__ == "_io"
