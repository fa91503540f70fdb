"""Finds the error that user code raised inside Spark, and where, in the text that Spark makes of it."""

from __future__ import annotations

import re

_TRACEBACK = "Traceback (most recent call last):"
_FRAME = re.compile(r'\s+File "([^"]+)", line (\d+), in (.+)')
_ERROR = re.compile(r"([A-Za-z_][\w.]*)(: .*)?$")
_NOT_THEIRS = re.compile(r"/(pyspark|py4j|site-packages|dist-packages)/|/lib/python3|pyspark\.zip|<frozen ")
_OURS = "causal.errors."
LINE_MAX = 500


class UserCodeFailed(Exception):
    """A function of the user raised in one of Spark's Python workers."""


def user_error(text: str) -> str | None:
    """The error of the last traceback, as `ValueError: … at file.py:12 in parse`; None where no user code raised."""
    lines = text[text.rfind(_TRACEBACK) :].splitlines() if _TRACEBACK in text else []
    where = ""
    for line in lines[1:]:
        frame = _FRAME.match(line)
        if frame is not None:
            if not _NOT_THEIRS.search(frame[1]):
                where = f" at {frame[1]}:{frame[2]} in {frame[3]}"
        elif line.strip() and not line[0].isspace():
            error = _ERROR.match(line)
            if error is None or error[1].startswith(_OURS):
                return None
            return line.strip()[:LINE_MAX] + where
    return None
