"""The canonical form of a chain's state; it does not depend on history, so that two chains can be compared."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import Any

from causal.ports import Chain
from causal.records.values import decode, encode
from operators.state.fragments import unpacked
from operators.state.snapshot_parts import cell_in, read_part

KEYS_PER_STEP = 10_000


def whole(chain: Chain) -> Sequence[bytes]:
    """Return the parts of a full snapshot of the chain."""
    job = chain.snapshot(True)
    while not job.step(KEYS_PER_STEP):
        continue
    return job.parts()


def canonical(chain: Chain, fresh: Chain) -> list[Any]:
    """Restore the state of `chain` into `fresh`, a chain of the same task, and return it with sorted keys."""
    fresh.restore(whole(chain))
    return [ordered_part(part) for part in whole(fresh)]


def ordered_part(part: bytes) -> Any:
    """Return a part of a snapshot with its keys in sorted order."""
    progress = cell_in(part)
    if progress is not None:
        return encode([[name, reached] for name, _, reached in progress["subtasks"]])
    header, tables = read_part(part)
    if header is not None:
        return encode(header)
    return {name: sorted(entries_of(fragments)) for name, fragments in tables.items()}


def entries_of(fragments: Iterable[bytes]) -> Iterator[bytes]:
    """Yield the entries in a table's fragments; a fragment of another form is yielded unchanged."""
    for fragment in fragments:
        decoded = decode(fragment)
        if type(decoded) is list and len(decoded) >= 3 and all(type(each) is list for each in decoded[:3]):
            keys, values, gone = unpacked(fragment)
            yield from (encode([key, value]) for key, value in zip(keys, values, strict=True))
            yield from (encode([key]) for key in gone)
        else:
            yield fragment
