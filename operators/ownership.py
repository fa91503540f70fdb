"""Records of one's own: what an operator yields must not change when its state changes later.

Operators run batch by batch, and a batch is encoded at the end of its event.  Without a copy, a
record that holds a list out of `ctx.state` would show what later records of the same batch did to it.
"""

from __future__ import annotations

from datetime import datetime
from decimal import Decimal
from typing import Any

SCALARS = frozenset((int, str, float, bool, bytes, type(None), datetime, Decimal))
"""Types whose values never change."""

all_scalar = SCALARS.issuperset


def own(value: Any) -> Any:
    """`value`, with every dict and list in it copied; anything else is shared, also objects that cannot be carried."""
    kind = type(value)
    if kind in SCALARS:
        return value
    if kind is dict:
        copied = value.copy()
        for key, inner in value.items():
            if type(inner) not in SCALARS:
                copied[key] = own(inner)
        return copied
    if kind is list:
        return value.copy() if all_scalar(map(type, value)) else [own(inner) for inner in value]
    if kind is tuple:
        return value if all_scalar(map(type, value)) else tuple([own(inner) for inner in value])
    return value
