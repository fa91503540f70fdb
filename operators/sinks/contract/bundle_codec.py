"""A bundle as the plain values of a journal's record, and back."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from causal.logs.log import LogDelta
from causal.ports import Bundle


def bundle_fields(bundle: Bundle) -> list[Any]:
    """The bundle as plain values, which `bundle_of` reads."""
    deltas = [[delta.task, delta.epoch, delta.offset, delta.bytes] for delta in bundle.logs]
    depends = None if bundle.depends is None else [list(extent) for extent in bundle.depends]
    refused = [list(row) for row in bundle.refused]
    placed = [bundle.first, bundle.count, bundle.rows, bundle.digest, bundle.epoch, bundle.incarnation]
    return [*placed, deltas, bundle.ended, depends, bundle.rollback, refused]


def bundle_of(fields: Sequence[Any]) -> Bundle:
    """The bundle of these fields.

    Raises:
        TypeError, ValueError: these are no fields of one.
    """
    first, count, rows, digest, epoch, incarnation, deltas, ended, depends, rollback, refused = fields
    logs = tuple(LogDelta(*delta) for delta in deltas)
    on = None if depends is None else tuple((owner, at, extent) for owner, at, extent in depends)
    out = tuple((position, reason) for position, reason in refused)
    return Bundle(first, count, rows, digest, epoch, incarnation, logs, ended, on, rollback, out)
