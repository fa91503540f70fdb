"""Running totals within the groups of a batch, computed for all rows together; results equal row-by-row processing."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from operators.kinds.vectors.key_index import Slots
from operators.kinds.vectors.number_table import Values

_SHORT_MAX = 16
"""The maximum length of the groups that are processed together, one row of each group at a time."""
_WHOLE = 1 << 63


@dataclass(frozen=True, slots=True)
class Grouped:
    """Rows sorted by slot; rows of the same slot are in order of arrival.

    Attributes:
        order: the places of the sorted rows in the batch.
        starts: the place of each slot's first row among the sorted rows.
        lengths: the number of rows of each slot.
        slots: the distinct slots.
    """

    order: Slots
    starts: Slots
    lengths: Slots
    slots: Slots


def grouped(slots: Slots) -> Grouped:
    """Group rows by slot; there must be at least one row."""
    order = np.argsort((slots & 0xFFFF).astype(np.uint16), kind="stable")  # NumPy uses radix sort for 16-bit integers
    high = slots >> 16
    while high.max():  # slots are never negative
        order = order[np.argsort((high & 0xFFFF).astype(np.uint16)[order], kind="stable")]
        high = high >> 16
    ordered = slots.take(order)
    begins = np.empty(len(slots) + 1, np.bool_)
    begins[0] = begins[-1] = True
    np.not_equal(ordered[1:], ordered[:-1], out=begins[1:-1])
    bounds = np.flatnonzero(begins)
    return Grouped(order, bounds[:-1], bounds[1:] - bounds[:-1], ordered.take(bounds[:-1]))


def counted(rows: Grouped, states: Values) -> Values:
    """Return, in sorted order, the count at each row: its group's state plus 1 for the first row, 2 for the next, …"""
    return np.repeat(states - rows.starts + 1, rows.lengths) + np.arange(len(rows.order))


def unsorted(rows: Grouped, values: Values) -> Values:
    """Return the values of sorted rows in the order of the batch."""
    out = np.empty_like(values)
    out[rows.order] = values
    return out


def accumulate(fold: np.ufunc, values: Values, rows: Grouped, states: Values, known: npt.NDArray[np.bool_]) -> Values:
    """Return the state after each sorted row; `fold` is applied to rows in order of arrival.

    Args:
        values: the values of the sorted rows.
        states: each group's state before the batch where `known`; elsewhere, a group's first value is its first state.

    Raises:
        OverflowError: an integer sum exceeds a signed 64-bit integer.
    """
    running = values.copy()
    heads = rows.starts[known]
    if fold is np.add and values.dtype == np.int64:
        if _may_overflow(values, states[known]):
            return _checked_sum(running, rows, states, known)
        running[heads] += states[known]
        total = np.cumsum(running)
        return total - np.repeat(total[rows.starts] - running[rows.starts], rows.lengths)
    with np.errstate(over="ignore", invalid="ignore"):  # infinities and NaN are ordinary values, as in Python
        running[heads] = fold(states[known], running[heads])
        _in_rounds(fold, running, rows)
    if running.dtype == np.float64:  # NaN and zero each have one form, as defined by `operators.records.arithmetic`
        running += 0.0
        running[np.isnan(running)] = np.nan
    return running


def _in_rounds(fold: np.ufunc, running: Values, rows: Grouped) -> None:
    """Fold each group from its first row onwards, because floating-point sums depend on the order."""
    long = rows.lengths > _SHORT_MAX
    for start, length in zip(rows.starts[long].tolist(), rows.lengths[long].tolist()):
        running[start : start + length] = fold.accumulate(running[start : start + length])
    starts, lengths = rows.starts[~long], rows.lengths[~long]
    for step in range(1, _SHORT_MAX):
        left = lengths > step
        if not left.any():
            return
        starts, lengths = starts[left], lengths[left]
        at = starts + step
        running[at] = fold(running[at - 1], running[at])


def _may_overflow(values: Values, states: Values) -> bool:
    most = max(abs(int(values.min())), abs(int(values.max()))) * len(values)
    state = max(abs(int(states.min())), abs(int(states.max()))) if len(states) else 0
    return most + state >= _WHOLE


def _checked_sum(running: Values, rows: Grouped, states: Values, known: npt.NDArray[np.bool_]) -> Values:
    exact = running.astype(object)
    exact[rows.starts[known]] += states[known].astype(object)
    for start, length in zip(rows.starts.tolist(), rows.lengths.tolist()):
        exact[start : start + length] = np.add.accumulate(exact[start : start + length])
    if max(exact) >= _WHOLE or min(exact) < -_WHOLE:
        raise OverflowError("a sum exceeds a signed 64-bit integer; sum floats, or smaller numbers")
    return exact.astype(np.int64)
