"""Finds the line in a process's log that explains how the process ended."""

from __future__ import annotations

import os
from pathlib import Path

from causal.process.processlog import BEGINS, parsed

BYTES_MAX = 1 << 15
"""The size of the end of a log that is examined; it has room for the output of `faulthandler` about a crash."""

CRASH = "Fatal Python error: "
"""The beginning of the line in which `faulthandler` names a crash; stack traces and modules follow that line."""

ABORTED = CRASH + "Aborted"
"""The line for a process that C code aborted on purpose; the line before it states the reason if C code wrote one."""

TOO_MANY_FILES = "Too many open files"
REMEDY = "raise the limit on open files with `ulimit -n 4096`, the hard limit as well"


def last_line(log: Path) -> str:
    """Return the line that reports a crash in C code at the end of a log, or else the last line that is not empty."""
    try:
        with open(log, "rb") as file:
            file.seek(max(0, os.fstat(file.fileno()).st_size - BYTES_MAX))
            lines = file.read().decode(errors="replace").split("\n")
    except OSError:
        return ""
    line = _reason([line for line in lines if line.strip()])
    return f"{line}; {REMEDY}" if TOO_MANY_FILES in line else line


def _reason(lines: list[str]) -> str:
    crash = next((place for place in reversed(range(len(lines))) if lines[place].startswith(CRASH)), None)
    if crash is None or any(parsed(line)[0] for line in lines[crash:]):  # no crash, or a crash of an earlier process
        texts = (parsed(line)[2].strip() for line in reversed(lines))
        return next((text for text in texts if text and not text.startswith(BEGINS)), "")
    before = lines[crash - 1].strip() if crash else ""
    return before if lines[crash].startswith(ABORTED) and before and not parsed(before)[0] else lines[crash].strip()
