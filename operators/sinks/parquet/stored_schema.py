"""The schema of all Parquet objects of a run, in an object that only the first writer can create."""

from __future__ import annotations

import pyarrow as pa

from causal.errors import CorruptData
from causal.storage.objects import Missing, Objects
from operators.sinks.objects.object_place import SCHEMAS


def stored_schema(depot: Objects, run: str) -> pa.Schema | None:
    """Return the run's schema, or None while there are no rows.

    Raises:
        CorruptData: the object is not a valid schema.
    """
    try:
        stored = depot.read(f"{SCHEMAS}/{run}")
    except Missing:
        return None
    try:
        return pa.ipc.read_schema(pa.py_buffer(stored))
    except (pa.ArrowException, OSError, ValueError) as problem:
        raise CorruptData(f"{depot.url}: {SCHEMAS}/{run} is not a schema ({problem}); restore it") from None


def agreed_schema(depot: Objects, run: str, schema: pa.Schema) -> pa.Schema:
    """Make `schema` the run's schema unless there already is one, and return the run's schema."""
    if depot.create(f"{SCHEMAS}/{run}", schema.serialize().to_pybytes()):
        return schema
    return stored_schema(depot, run)
