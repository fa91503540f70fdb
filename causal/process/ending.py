"""The end of a process: the exit steps on which others depend, without those that only free memory.

At exit, an interpreter destroys its objects, which copies the memory that forked processes share. This takes 20 ms and
11 MB per process when all processes of a job end. Data buffered for a file that is part of a reference cycle can be
lost (https://github.com/python/cpython/issues/62052), and is always lost if the collector ignores the file
(`gc.freeze`).
"""

from __future__ import annotations

import atexit
import ctypes
import gc
import os
import signal
import stat
import sys
import threading
import traceback

# `issubclass` with a class of `io` calls methods of arbitrary other classes, so the base classes in `_io` are used
# instead.
from _io import _BufferedIOBase, _IOBase, _TextIOBase
from collections.abc import Callable, Sequence
from typing import Any, NoReturn

from causal.process.forks import open_descriptors

STANDARD_ERROR = 2
OUTPUT_LOST = 120
"""The exit status of an interpreter that cannot write to its standard output."""
FILES_WITHIN_S, PIPES_WITHIN_S = 5.0, 0.5
"""The time limits for writing files, and for writing pipes and sockets, which may have no reader."""
EXIT_WITHIN_S = 1.0
"""The time limit for the exit handlers of libraries."""
NESTED_MAX = 8


def run(main: Callable[[], int]) -> NoReturn:
    """Run `main` and end the process with the status that `main` returns; exceptions of `main` propagate.

    If user code has forked a child and the child returns from `main`, the child ends with `os._exit`.
    """
    own = os.getpid()
    status = main()
    if os.getpid() != own:
        os._exit(status)
    end(status)


def end(status: int) -> NoReturn:
    """End this process: wait for its threads, call the `atexit` functions and write its files, but destroy no objects.

    As in a process that is killed, no finaliser (`__del__`) runs. The exit handlers of the C library do run, and write
    the files of C code.
    """
    of_threads: Any = threading
    try:
        for step in (of_threads._shutdown, atexit._run_exitfuncs, write_files):
            _attempt(step)
        for stream in (sys.stdout, sys.stderr):
            if stream is not None and not _is_closed(stream) and not _attempt(stream.flush):
                status = status or OUTPUT_LOST
        _exit(status)
    finally:
        os._exit(status)


def _exit(status: int) -> NoReturn:
    """Exit through the C library while this thread holds the interpreter lock.

    An exit handler may wait for a thread that is busy or is itself waiting for that lock. In this case, SIGALRM ends
    the process with the signal number as its status, through a handler that does not need the lock.
    """
    library = ctypes.PyDLL(None)
    library.signal.argtypes = (ctypes.c_int, ctypes.c_void_p)
    library.signal(signal.SIGALRM, ctypes.cast(library._exit, ctypes.c_void_p))
    signal.pthread_sigmask(signal.SIG_UNBLOCK, (signal.SIGALRM,))
    signal.setitimer(signal.ITIMER_REAL, EXIT_WITHIN_S)
    library.exit(status)
    os._exit(status)


def _attempt(step: Callable[[], object]) -> bool:
    """Perform a step, and return whether it succeeded, so that a failed step does not prevent the next one."""
    try:
        step()
    except BaseException as problem:
        traceback.print_exception(problem)
        return False
    return True


def write_files() -> None:
    """Write buffered data on threads: first to files on disk, and then to other files as far as they are being read."""
    if not _has_open_files():
        return
    gc.unfreeze()
    standard = {id(stream) for stream in (sys.stdin, sys.stdout, sys.stderr)}
    files: list[Any] = [each for each in gc.get_objects() if issubclass(type(each), _IOBase)]
    places = {id(each): _is_on_disk(each) for each in files if id(each) not in standard and not _is_closed(each)}
    for on_disk, within_s in ((True, FILES_WITHIN_S), (False, PIPES_WITHIN_S)):
        group = sorted((each for each in files if places.get(id(each)) is on_disk), key=_order)
        writing = threading.Thread(target=_write, args=(group,), daemon=True)
        writing.start()
        writing.join(within_s)
        if writing.is_alive():
            what = "files" if on_disk else "pipes and sockets"
            print(f"the process exits before the data of all open {what} could be written", file=sys.stderr)


def _write(files: Sequence[Any]) -> None:
    for file in files:
        if not _is_closed(file):
            _attempt(file.close if _encodes(file) else file.flush)


def _order(file: Any) -> tuple[bool, bool, int]:
    """Return the sort key that determines when a file is written: text, then encoders (`gzip`), then bytes.

    Among encoders, those that write into another encoder are first.
    """
    return not issubclass(type(file), _TextIOBase), not _encodes(file) and _is_built_in(file), -_depth(file, NESTED_MAX)


def _depth(file: Any, most: int) -> int:
    """Return the number of nested encoders, starting with this file."""
    if not most or not _encodes(file):
        return 0
    kept = gc.get_referents(file)
    kept += [value for each in kept if type(each) is dict for value in each.values()]
    return 1 + max((_depth(each, most - 1) for each in kept if issubclass(type(each), _IOBase)), default=0)


def _encodes(file: Any) -> bool:
    """Return whether the file must be closed; a file that is only read may be in use by another thread."""
    return (
        issubclass(type(file), _BufferedIOBase) and not _is_built_in(file) and _answer(lambda: file.writable()) is True
    )


def _is_built_in(file: object) -> bool:
    return type(file).__module__ == "_io"


def _is_closed(file: Any) -> bool:
    """Return whether nothing can be written because the file is closed, detached, or does not report its state."""
    return _answer(lambda: bool(file.closed)) is not False


def _is_on_disk(file: Any) -> bool:
    """Return whether writing never waits for a reader, which is also the case for files in memory."""
    mode = _answer(lambda: os.fstat(file.fileno()).st_mode)
    return not isinstance(mode, int) or stat.S_ISREG(mode)


def _answer(ask: Callable[[], Any]) -> Any:
    """Return the result of calling `ask` on a file, or the exception raised by its class, which may be user-defined."""
    try:
        return ask()
    except Exception as problem:
        return problem


def _has_open_files() -> bool:
    return any(descriptor > STANDARD_ERROR for descriptor in open_descriptors())
