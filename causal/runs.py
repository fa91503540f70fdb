"""Identities of runs: text whose order is the order in which the runs were started.

A store that several runs may use in turn compares these texts to know which run is the newest; it needs no clock and
no list of earlier runs.  An identity is `s`, the start number in 16 hexadecimal digits, `-`, and a random token.  The
start number is the time of the start in nanoseconds, or one more than that of the newest run that a store already
knows, whichever is higher, so that a clock that was set back does not make a new run older than an earlier one.

Identities without a start number come from earlier versions: they consist of hexadecimal digits, so they are lower
than every identity that begins with `s`.
"""

from __future__ import annotations

import re

_FORM = re.compile(r"s([0-9a-f]{16})-([0-9a-f]+)")


def run_id(start: int, token: str) -> str:
    """The identity of a run with that start number; `token` tells apart two runs that were started at the same time."""
    return f"s{start:016x}-{token}"


def start_of(run: str) -> int:
    """The start number of a run; 0 if its identity has none."""
    found = _FORM.fullmatch(run)
    return int(found[1], 16) if found else 0


def after(run: str, newest: str | None) -> str:
    """`run`, or the same run with a higher start number where `newest` is not lower."""
    found = _FORM.fullmatch(run)
    if newest is None or newest < run or found is None:
        return run
    return run_id(start_of(newest) + 1, found[2])
