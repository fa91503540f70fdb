"""Run identifiers: strings whose order is the order in which the runs were started.

A store that several runs may use in turn compares these strings to determine which run is the newest, without a clock
or a list of earlier runs. An identifier consists of `s`, the start number in 16 hexadecimal digits, `-`, and a random
token. The start number is the start time in nanoseconds, or one more than the start number of the newest run known to a
store, whichever is higher. A clock that was set back therefore does not make a new run older than an earlier one.

Identifiers without a start number were created by earlier versions. They consist of hexadecimal digits, so they are
lower than every identifier that begins with `s`.
"""

from __future__ import annotations

import re

_FORM = re.compile(r"s([0-9a-f]{16})-([0-9a-f]+)")


def run_id(start: int, token: str) -> str:
    """Return the identifier of a run; `token` distinguishes two runs that were started at the same time."""
    return f"s{start:016x}-{token}"


def start_of(run: str) -> int:
    """Return the start number of a run, or 0 if its identifier has none."""
    match = _FORM.fullmatch(run)
    return int(match[1], 16) if match else 0


def after(run: str, newest: str | None) -> str:
    """Return `run`, with a higher start number if `newest` is not lower than `run`."""
    match = _FORM.fullmatch(run)
    if newest is None or newest < run or match is None:
        return run
    return run_id(start_of(newest) + 1, match[2])
