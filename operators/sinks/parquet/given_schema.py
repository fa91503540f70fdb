"""The schema and the names of columns that the user of a sink specifies."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from causal.errors import PipelineError

if TYPE_CHECKING:
    import pyarrow as pa


def names_of(sink: str, columns: Sequence[str]) -> list[str]:
    """Return the names of columns; raise `PipelineError` unless they are distinct."""
    names = [columns] if isinstance(columns, str) else list(columns)
    if not names or not all(type(name) is str and name for name in names) or len(dict.fromkeys(names)) < len(names):
        raise PipelineError(f"{sink}: columns are {columns!r}; use a list of distinct names")
    return names


def schema_of(sink: str, schema: pa.Schema | Mapping[str, Any]) -> pa.Schema:
    """Return the schema, which may be a dict that maps each column name to its Arrow type."""
    import pyarrow as pa

    if isinstance(schema, Mapping):
        try:
            schema = pa.schema(
                [(name, pa.type_for_alias(kind) if isinstance(kind, str) else kind) for name, kind in schema.items()]
            )
        except (TypeError, ValueError, pa.ArrowException) as problem:
            raise PipelineError(
                f"{sink}: the schema is invalid ({problem}); use a dict from names to types, or a pyarrow.Schema"
            ) from None
    if not isinstance(schema, pa.Schema) or not schema.names:
        raise PipelineError(f"{sink}: {schema!r} is not a schema; use a pyarrow.Schema or a dict from names to types")
    names_of(sink, schema.names)
    return schema.remove_metadata()
