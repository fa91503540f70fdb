"""A process that ends abruptly leaves no file half written, whatever writes into what."""

from __future__ import annotations

import bz2
import gzip
import signal
import subprocess
import sys
from pathlib import Path

PROGRAM = """
import bz2, ctypes, gc, gzip, io, os, socket, zipfile
from causal.process.ending import end

ours, theirs = socket.socketpair()


class Twice(io.TextIOBase):
    def __init__(self, text):
        self.text, self.waiting = text, ""

    def write(self, text):
        self.waiting += text + text

    def flush(self):
        self.text.write(self.waiting)
        self.waiting = ""


class Broken(io.BufferedIOBase):
    def writable(self):
        return True

    def close(self):
        raise SystemExit("no end of it")


class Undecided(io.RawIOBase):
    closed = property(lambda self: {}["it"])


class Unwilling(io.BufferedIOBase):
    writable = fileno = lambda self: {}["it"]


class Odd:
    __class__ = property(lambda self: print("asked"))


kept = [Twice(open("twice", "w")), open("text", "w"), gzip.open("packed.gz", "wt"), open("bytes", "wb"), Broken()]
kept += [open("closed", "w"), ours.makefile("w"), zipfile.ZipFile("zip.zip", "w").open("one", "w"), Odd(), kept]
inner = bz2.BZ2File("nested", "wb")
kept += [io.TextIOWrapper(gzip.GzipFile("x", "wb", fileobj=inner)), Undecided(), gzip.open("packed.gz"), Unwilling()]
kept[5].close()
io.TextIOWrapper(open("detached", "wb")).detach()
for file in (*kept[:3], kept[6], kept[10]):
    file.write("rows")
for file in (kept[3], kept[7]):
    file.write(b"rows")
libc = ctypes.CDLL(None)
libc.fopen.restype = ctypes.c_void_p
libc.fputs(b"rows", ctypes.c_void_p(libc.fopen(b"of_c", b"w")))
gc.freeze()
if os.fork() == 0:
    end(7)
print(os.waitstatus_to_exitcode(os.wait()[1]), theirs.recv(9), flush=True)
os._exit(0)
"""


def test_what_waits_in_files_is_written_and_one_that_fails_is_reported(tmp_path: Path) -> None:
    ended = subprocess.run([sys.executable, "-c", PROGRAM], cwd=tmp_path, capture_output=True, text=True, check=True)
    assert ended.stdout == "7 b'rows'\n"
    assert ended.stderr.count("Traceback") == 1 and ended.stderr.endswith("SystemExit: no end of it\n")
    assert (tmp_path / "twice").read_text() == "rowsrows"
    assert (tmp_path / "text").read_text() == (tmp_path / "bytes").read_text() == "rows"
    assert gzip.decompress((tmp_path / "packed.gz").read_bytes()) == b"rows"
    assert b"rows" in (tmp_path / "zip.zip").read_bytes() and (tmp_path / "of_c").read_text() == "rows"
    assert gzip.decompress(bz2.decompress((tmp_path / "nested").read_bytes())) == b"rows"


UNREAD = """
import os, time
from causal.process import ending

ending.PIPES_WITHIN_S = 0.1
read, write = os.pipe()
pipe, file = open(write, "wb", 1 << 20), open("file", "w")
pipe.write(bytes(1 << 19))
file.write("rows")
ending.end(0)
"""


def test_a_pipe_that_nobody_reads_holds_up_neither_files_nor_the_end(tmp_path: Path) -> None:
    ended = subprocess.run(
        [sys.executable, "-c", UNREAD], cwd=tmp_path, capture_output=True, text=True, check=True, timeout=60
    )
    assert (tmp_path / "file").read_text() == "rows"
    assert ended.stderr.endswith("the data of all open pipes and sockets could be written\n")


STUCK = """
import ctypes
from causal.process import ending

ending.EXIT_WITHIN_S = 0.1
libc = ctypes.CDLL(None)
assert libc.__cxa_atexit(ctypes.cast(libc.pause, ctypes.c_void_p), None, None) == 0
ending.end(0)
"""


def test_a_library_that_waits_at_its_exit_does_not_hold_it_up(tmp_path: Path) -> None:
    ended = subprocess.run([sys.executable, "-c", STUCK], cwd=tmp_path, check=False, timeout=60)
    assert ended.returncode == signal.SIGALRM


STEPS = """
import atexit, os, sys, threading
from causal.process.ending import end, run

file = open("file", "w")
file.write("rows")


def broken():
    raise LookupError


def forks():
    if os.fork() == 0:
        return 1
    os.wait()
    return 7


threading._register_atexit(broken)
atexit.register(lambda: file.write(" and more"))
sys.stdout.close()
run(forks)
"""


def test_each_step_of_the_end_is_taken_whatever_the_others_do_and_by_no_child(tmp_path: Path) -> None:
    ended = subprocess.run([sys.executable, "-c", STEPS], cwd=tmp_path, capture_output=True, text=True, check=False)
    assert ended.returncode == 7 and ended.stderr.count("Traceback") == 1
    assert (tmp_path / "file").read_text() == "rows and more"
