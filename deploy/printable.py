"""Text of user code as a terminal shows it: control characters, which would move its cursor or hide text, escaped."""

from __future__ import annotations

_ESCAPED = {code: f"\\x{code:02x}" for code in (*range(0x20), *range(0x7F, 0xA0)) if chr(code) != "\t"}


def printable(line: str) -> str:
    """Return a line with its control characters as Python writes them in a string, except tabs."""
    return line.translate(_ESCAPED)


def one_line(text: str) -> str:
    """Return a text in one line, its white space folded, as `printable` shows it."""
    return printable(" ".join(text.split()))
