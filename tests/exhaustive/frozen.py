"""Core objects at rest: to bytes and back, and the canonical form by which equal ones are recognised.

The canonical form is all that can be reached from the object but for `WRITE_ONLY`, by value, in order, with
sharing as it is: a field that is added to the core needs no change here for the merging of states to stay sound.
"""

from __future__ import annotations

import io
import pickle
from collections import Counter, deque
from collections.abc import Callable
from enum import Enum
from hashlib import blake2b
from marshal import dumps
from types import BuiltinFunctionType, FunctionType, MethodType
from typing import Any

import xxhash

from causal.channels.rolling import RollingDigest
from causal.config import JobConfig
from causal.topology import Topology

_HASH = type(xxhash.xxh3_64())

WRITE_ONLY: dict[str, frozenset[str]] = {
    "Recovery": frozenset(("story",)),
    "Exchange": frozenset(("faults",)),
    "Receiver": frozenset(("received_bytes",)),
    "Sender": frozenset(("sent_bytes", "sent_frames", "delta_bytes")),
    "SinkChannel": frozenset(("bundle_delta_bytes",)),
    "DeterminantCursor": frozenset(("bytes_by_kind",)),
    "Schedule": frozenset(("replayed_elements",)),
    "BatchSizer": frozenset(("turn_elements", "turn_bytes")),
    "TaskProtocol": frozenset(("_rows_visible",)),
}
"""Fields that the core writes for the reader of a report alone, which `--audit` verifies.

So are the counts of a turn, as long as batches are as tiny as here: a task's pace is at its limit from the beginning.
"""

_constants: dict[int, Any] = {}
_hashes: dict[int, Any] = {}


def _constant(place: int) -> Any:
    return _constants[place]


def _hash_at(value: int) -> Any:
    return _hashes[value].copy()


def _reduce_constant(value: Any) -> tuple[Callable[[int], Any], tuple[int]]:
    _constants.setdefault(id(value), value)  # held permanently, so that its id stays its own
    return _constant, (id(value),)


def _reduce_hash(value: Any) -> tuple[Callable[[int], Any], tuple[int]]:
    digest = value.intdigest()
    if digest not in _hashes:
        _hashes[digest] = value.copy()
    return _hash_at, (digest,)


class _Pickler(pickle.Pickler):
    dispatch_table = {_HASH: _reduce_hash, Topology: _reduce_constant, JobConfig: _reduce_constant}


def freeze(value: object) -> bytes:
    """Return the bytes of a value for `thaw`, in this process."""
    out = io.BytesIO()
    _Pickler(out, pickle.HIGHEST_PROTOCOL).dump(value)
    return out.getvalue()


def thaw(frozen: bytes) -> Any:
    """Return a copy that shares nothing that can change with the original."""
    return pickle.loads(frozen)


def canonical(value: object) -> bytes:
    """Return 16 bytes: equal for values that cannot be distinguished, different for others (128 bits of a hash)."""
    out: list[Any] = []
    _walk(value, out, {})
    return digest_of(out)


def digest_of(value: Any) -> bytes:
    """Return 16 bytes for any value that consists of plain values alone."""
    return blake2b(dumps(value, 2), digest_size=16).digest()  # version 2: by value, not by identity


_ATOMS = frozenset((int, str, bytes, bool, float, type(None)))
_SKIPPED = (Topology, JobConfig, FunctionType, BuiltinFunctionType, MethodType)
_fields: dict[tuple[type, tuple[str, ...]], tuple[str, ...]] = {}


def _fields_of(value: object) -> tuple[str, ...]:
    kind, own = type(value), tuple(getattr(value, "__dict__", ()))
    if (kind, own) not in _fields:
        named = set(own)
        for base in kind.__mro__:
            slots = base.__dict__.get("__slots__", ())
            named |= {slots} if isinstance(slots, str) else set(slots)
        left_out = WRITE_ONLY.get(kind.__name__, frozenset())
        _fields[kind, own] = tuple(sorted(name for name in named - left_out if not name.startswith("__")))
    return _fields[kind, own]


def forget_fields() -> None:
    """Drop the cache of fields, as `WRITE_ONLY` has changed."""
    _fields.clear()


def _walk(value: Any, out: list[Any], met: dict[int, tuple[int, Any]]) -> None:
    kind = type(value)
    if kind in _ATOMS:
        out.append(value)
    elif isinstance(value, tuple):  # named ones, too, which have no fields of their own
        out.append((kind.__name__, len(value)))
        for each in value:
            _walk(each, out, met)
    elif kind is bytearray:
        out.append(bytes(value))
    elif kind is RollingDigest:
        out.append(("digest", value.value, value._hash.intdigest()))
    elif isinstance(value, Enum):
        out.append(("enum", value.name))
    elif isinstance(value, (*_SKIPPED, type)):
        out.append("constant")
    elif id(value) in met:
        out.append(("again", met[id(value)][0]))
    else:
        met[id(value)] = (len(met), value)  # held, so that its id stays its own
        _walk_parts(value, kind, out, met)


def _walk_parts(value: Any, kind: type, out: list[Any], met: dict[int, tuple[int, Any]]) -> None:
    if kind in (list, deque):
        out.append((kind.__name__, len(value)))
        for each in value:
            _walk(each, out, met)
    elif kind in (dict, Counter):
        out.append((kind.__name__, len(value)))
        for key, each in value.items():
            _walk(key, out, met)
            _walk(each, out, met)
    elif kind in (set, frozenset):
        out.append((kind.__name__, *sorted(value)))
    else:
        out.append(kind.__name__)
        for name in _fields_of(value):
            try:
                field = getattr(value, name)
            except AttributeError:
                out.append("unset")
                continue
            _walk(field, out, met)
