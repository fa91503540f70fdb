"""Running totals within groups of a batch: what one record after the other would give, for all of them at once."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from operators.vectors.keys import Slots
from operators.vectors.state import Values

_SHORT_MAX = 16
"""Rows of a group up to which all groups go forward together, a row at a time."""
_WHOLE = 1 << 63


@dataclass(frozen=True, slots=True)
class Grouped:
    """Rows sorted by slot, those of one slot in order of arrival.

    Attributes:
        order: places of the sorted rows in the batch.
        starts: where each slot's rows begin among the sorted.
        lengths: how many they are.
        slots: the slots, each once.
    """

    order: Slots
    starts: Slots
    lengths: Slots
    slots: Slots


def grouped(slots: Slots) -> Grouped:
    """The rows of each slot together; there is at least one row."""
    order = np.argsort((slots & 0xFFFF).astype(np.uint16), kind="stable")  # NumPy sorts 16 bits by radix
    high = slots >> 16
    while high.max():  # slots are not negative
        order = order[np.argsort((high & 0xFFFF).astype(np.uint16)[order], kind="stable")]
        high = high >> 16
    ordered = slots.take(order)
    begins = np.empty(len(slots) + 1, np.bool_)
    begins[0] = begins[-1] = True
    np.not_equal(ordered[1:], ordered[:-1], out=begins[1:-1])
    bounds = np.flatnonzero(begins)
    return Grouped(order, bounds[:-1], bounds[1:] - bounds[:-1], ordered.take(bounds[:-1]))


def counted(rows: Grouped, states: Values) -> Values:
    """`states` of the groups, and 1, 2, 3 … more for their rows, in sorted order."""
    return np.repeat(states - rows.starts + 1, rows.lengths) + np.arange(len(rows.order))


def unsorted(rows: Grouped, values: Values) -> Values:
    """Values of the sorted rows in the order of the batch."""
    out = np.empty_like(values)
    out[rows.order] = values
    return out


def accumulate(fold: np.ufunc, values: Values, rows: Grouped, states: Values, known: npt.NDArray[np.bool_]) -> Values:
    """The state behind each sorted row, `fold` being applied in order of arrival.

    Args:
        values: of the sorted rows.
        states: of each group before the batch, where `known`; otherwise its first value is its first state.

    Raises:
        OverflowError: an integer sum leaves 64 bits, signed.
    """
    running = values.copy()
    heads = rows.starts[known]
    if fold is np.add and values.dtype == np.int64:
        if _may_overflow(values, states[known]):
            return _checked_sum(running, rows, states, known)
        running[heads] += states[known]
        total = np.cumsum(running)
        return total - np.repeat(total[rows.starts] - running[rows.starts], rows.lengths)
    with np.errstate(over="ignore", invalid="ignore"):  # infinities and NaN are values, as they are to Python
        running[heads] = fold(states[known], running[heads])
        _in_rounds(fold, running, rows)
    if running.dtype == np.float64:  # one NaN and one zero, as `operators.arithmetic` says
        running += 0.0
        running[np.isnan(running)] = np.nan
    return running


def _in_rounds(fold: np.ufunc, running: Values, rows: Grouped) -> None:
    """Floating-point sums depend on the order of adding, so each group is gone through from its first row."""
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
    held = max(abs(int(states.min())), abs(int(states.max()))) if len(states) else 0
    return most + held >= _WHOLE


def _checked_sum(running: Values, rows: Grouped, states: Values, known: npt.NDArray[np.bool_]) -> Values:
    exact = running.astype(object)
    exact[rows.starts[known]] += states[known].astype(object)
    for start, length in zip(rows.starts.tolist(), rows.lengths.tolist()):
        exact[start : start + length] = np.add.accumulate(exact[start : start + length])
    if max(exact) >= _WHOLE or min(exact) < -_WHOLE:
        raise OverflowError("a sum is beyond 64 bits, signed; add up floats, or smaller numbers")
    return exact.astype(np.int64)
