"""The log of an epoch is read as it was written, whatever LZ4 makes of it."""

from __future__ import annotations

from random import Random

import lz4.block

from causal.cut import Cut
from causal.recorded_files import EpochLog


def tied() -> bytes:
    """Return a log that is as long compressed as it is uncompressed."""
    chance = Random(1)
    for size in range(20, 400):
        for repeated in range(4, 12):
            log = chance.randbytes(size) + bytes(repeated) + chance.randbytes(13)
            if len(lz4.block.compress(log, store_size=False)) == len(log):
                return log
    raise AssertionError("no such log")


def test_a_log_that_is_as_long_compressed_is_read_as_it_was_written() -> None:
    for log in (b"", b"a" * 100, Random(2).randbytes(100), tied()):
        written = EpochLog(log, Cut(3), 5)
        assert EpochLog.of(written.parts(), "here") == written
