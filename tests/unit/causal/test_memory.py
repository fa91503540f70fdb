"""The C library returns large blocks that are freed."""

from __future__ import annotations

import subprocess
import sys

import pytest

from causal.process.memory import give_large_blocks_back

PROGRAM = """
import sys
from pathlib import Path
from causal.process.memory import give_large_blocks_back

def resident_mib():
    return int(Path("/proc/self/statm").read_text().split()[1]) * 4096 >> 20

if sys.argv[1] == "given back":
    give_large_blocks_back()
before = resident_mib()
for turn in range(3):  # giants, with something small behind each that stays
    giants, small = [], []
    for _ in range(6):
        giants.append(b"x" * (16 << 20))
        small.append([bytes(2000) for _ in range(200)])
    globals()[f"kept{turn}"] = small
    del giants
print(resident_mib() - before)
"""


def kept_mib(how: str) -> int:
    ended = subprocess.run([sys.executable, "-c", PROGRAM, how], capture_output=True, text=True, check=True)
    return int(ended.stdout)


@pytest.mark.skipif(not give_large_blocks_back(), reason="the C library is not glibc")
def test_giants_leave_nothing_behind() -> None:
    assert kept_mib("given back") < 16 < kept_mib("left as it is")
