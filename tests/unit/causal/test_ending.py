"""A process that ends at once leaves no file half written, whatever writes into what."""

from __future__ import annotations

import gzip
import subprocess
import sys
from pathlib import Path

PROGRAM = """
import gc, gzip, io, os, socket, zipfile
from causal.shell.ending import end

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
    def close(self):
        raise LookupError("no end of it")


class Odd:
    __class__ = property(lambda self: print("asked"))


kept = [Twice(open("twice", "w")), open("text", "w"), gzip.open("packed.gz", "wt"), open("bytes", "wb"), Broken()]
kept += [open("closed", "w"), ours.makefile("w"), zipfile.ZipFile("zip.zip", "w").open("one", "w"), Odd(), kept]
kept[5].close()
for file in (*kept[:3], kept[6]):
    file.write("rows")
for file in (kept[3], kept[7]):
    file.write(b"rows")
gc.freeze()
if os.fork() == 0:
    end(7)
print(os.waitstatus_to_exitcode(os.wait()[1]), theirs.recv(9), flush=True)
os._exit(0)
"""


def test_what_waits_in_files_is_written_and_one_that_fails_is_reported(tmp_path: Path) -> None:
    ended = subprocess.run([sys.executable, "-c", PROGRAM], cwd=tmp_path, capture_output=True, text=True, check=True)
    assert ended.stdout == "7 b'rows'\n"
    assert ended.stderr.count("Traceback") == 1 and ended.stderr.endswith("LookupError: no end of it\n")
    assert (tmp_path / "twice").read_text() == "rowsrows"
    assert (tmp_path / "text").read_text() == (tmp_path / "bytes").read_text() == "rows"
    assert gzip.decompress((tmp_path / "packed.gz").read_bytes()) == b"rows"
    assert b"rows" in (tmp_path / "zip.zip").read_bytes()
