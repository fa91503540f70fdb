"""Text of user code in a form that is safe for a terminal: control characters are escaped."""

from __future__ import annotations

_ESCAPED = {code: f"\\x{code:02x}" for code in (*range(0x20), *range(0x7F, 0xA0)) if chr(code) != "\t"}


def printable(line: str) -> str:
    """Return a line with its control characters, except tabs, escaped as in a Python string."""
    return line.translate(_ESCAPED)


def one_line(text: str) -> str:
    """Return a text on one line, with white space folded and control characters escaped."""
    return printable(" ".join(text.split()))
