"""Identities of runs: text whose order is the order in which the runs were started.

A store that several runs may use in turn compares these texts to know which run is the newest; it needs no clock and no
list of earlier runs. An identity is `s`, the start number in 16 hexadecimal digits, `-`, and a random token. The start
number is the time of the start in nanoseconds, or one more than that of the newest run that a store already knows,
whichever is higher, so a clock that was set back does not make a new run older than an earlier one.

Identities without a start number come from earlier versions: they consist of hexadecimal digits, so they are lower
than every identity that begins with `s`.
"""

from __future__ import annotations

import re

_FORM = re.compile(r"s([0-9a-f]{16})-([0-9a-f]+)")


def run_id(start: int, token: str) -> str:
    """Return the identity of a run; `token` distinguishes two runs that were started at the same time."""
    return f"s{start:016x}-{token}"


def start_of(run: str) -> int:
    """Return the start number of a run; 0 if its identity has none."""
    match = _FORM.fullmatch(run)
    return int(match[1], 16) if match else 0


def after(run: str, newest: str | None) -> str:
    """Return `run`, or the same run with a higher start number where `newest` is not lower."""
    match = _FORM.fullmatch(run)
    if newest is None or newest < run or match is None:
        return run
    return run_id(start_of(newest) + 1, match[2])
