r"""The SQL that converts a record's value to a column or refuses the row, where PostgreSQL would change the value.

PostgreSQL itself would round, truncate or convert a value to fit its column. A row is one line of JSON. For each
column, the server converts the text of its value (`taken`, by `json_populate_record`, which, unlike the `jsonb`
variant, keeps the sign of zero) and compares the result with the value (`doc.j`). If they differ, an expression that
cannot be evaluated raises an error that names the column, the type and the value.

Values for which JSON has no type are written as text (`encode_json`), and the column's type converts them back:
decimals, times, NaN, infinities, and bytes, which are spelled as in PostgreSQL (`\x` and hexadecimal digits).
"""

from __future__ import annotations

import re
from collections.abc import Mapping

_NUMBER = "jsonb_typeof({j}) = 'number'"
_STRING = "jsonb_typeof({j}) = 'string'"
_NAMED = "{t} IN ('NaN', 'Infinity', '-Infinity')"
_WHOLE = """CASE WHEN {t} ~ '[.]' OR length({t}) < 16 THEN true WHEN (each.line::json ->> {k}) ~ '[.eE]' THEN true
    WHEN length({t}) < 19 THEN ({v}::float8)::bigint = {t}::bigint
    ELSE ({v}::float8)::text::numeric = {t}::numeric END"""
"""An integer may have more digits than a float keeps; `jsonb` writes a float without a fraction as an integer."""
_CLOCK = "{t} ~ '[T ][0-9][0-9]:[0-9][0-9]'"
_ZONE = "{t} ~ '[T ][0-9][0-9]:.*([+-][0-9][0-9:.]*|Z)$'"
_FLOAT = f"CASE WHEN {_STRING} THEN {_NAMED} ELSE {_NUMBER} AND {{v}}::float8 = {{t}}::float8 AND {_WHOLE} END"
_TEXT = f"{_STRING} AND {{v}}::text = {{t}}"
_ELEMENTS = "to_jsonb({v}) = {j}"

_KEPT: Mapping[str, str] = {
    "boolean": "jsonb_typeof({j}) = 'boolean'",
    "smallint": _NUMBER,
    "integer": _NUMBER,
    "bigint": _NUMBER,
    "real": _FLOAT,
    "double precision": _FLOAT,
    "numeric": f"({_NUMBER} OR {_STRING}) AND {{v}} = {{t}}::numeric",
    "text": _TEXT,
    "character varying": _TEXT,
    "character": _TEXT,
    "name": _TEXT,
    "citext": _TEXT,
    "bytea": f"{_STRING} AND {{t}} ~ '^[\\\\]x'",
    "timestamp with time zone": f"{_STRING} AND {_ZONE} AND isfinite({{v}}) AND {{v}} = {{t}}::timestamptz",
    "timestamp without time zone": f"{_STRING} AND NOT {_ZONE} AND isfinite({{v}}) AND {{v}} = {{t}}::timestamp",
    "date": f"{_STRING} AND isfinite({{v}}) AND (NOT {_CLOCK} OR {{t}} ~ '[T ]00:00(:00([.]0+)?)?$')",
    **{
        f"{element}[]": _ELEMENTS
        for element in (
            "boolean", "smallint", "integer", "bigint", "real", "double precision", "text", "character varying",
        )
    },
}  # fmt: skip
"""The expression, by type without length or precision, for whether a value is kept; other types accept any text."""
_REFUSED = re.compile(r'invalid input syntax for type integer: "(column .* cannot keep .*)"$')

COLUMN_KINDS = """WITH RECURSIVE base AS (
        SELECT attname, atttypid AS type FROM pg_attribute
        WHERE attrelid = to_regclass(%(table)s) AND attnum > 0 AND NOT attisdropped
        UNION ALL
        SELECT base.attname, t.typbasetype FROM base JOIN pg_type t ON t.oid = base.type WHERE t.typtype = 'd')
    SELECT attname::text, format_type(type, NULL) FROM base JOIN pg_type t ON t.oid = base.type
    WHERE t.typtype <> 'd'"""
"""The query for columns and their types without length and precision; of a domain the type below it."""


def taken_by(column: str, kind: str | None, quoted: str) -> str:
    """Return an expression for the value of a column that raises an error if the column cannot keep the value.

    Args:
        kind: the column's type without length and precision, or None if it is unknown.
        quoted: the column's name as an identifier.
    """
    key = "'" + column.replace("'", "''").replace("%", "%%") + "'"
    value = f"taken.{quoted}"
    names = {"v": value, "j": f"(doc.j -> {key})", "t": f"(doc.j ->> {key})", "k": key}
    if kind is None or kind not in _KEPT:
        return value
    shown = f"left({names['j']}::text, 100)"
    said = f"'column ' || {key} || ' takes {kind}, which cannot keep ' || {shown}"
    return (
        f"CASE WHEN {names['t']} IS NULL OR ({_KEPT[kind].format(**names)}) THEN {value} "
        f"ELSE (({said})::integer)::text::{kind} END"
    )


def words_of(line: str) -> str:
    """Return the server's reason for refusing a row, without the words that only the refusing expression causes."""
    match = _REFUSED.match(line)
    return match[1].replace('""', '"') if match else line
