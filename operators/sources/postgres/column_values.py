"""The values of columns as records hold them, by the type of the column, from the texts that PostgreSQL writes.

The texts are those of a session with DateStyle ISO, TimeZone UTC and bytea_output hex. A value that no record can hold,
such as the timestamp `infinity`, a year after 9999 or a JSON number of 1e400, stays the text, as do values of all types
that are not listed here. Nothing here raises an error or depends on anything but its arguments.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from datetime import datetime
from decimal import Decimal, InvalidOperation
from typing import Any

import msgspec

from operators.sources.files.cutting_rows import json_of

Convert = Callable[[str], Any]

_ISO_YEAR_END = 4
_ITEM_END = re.compile("[,}]")
_NESTING_MAX = 6
"""The dimensions that an array of PostgreSQL can have."""


def _bool(text: str) -> Any:
    return text == "t" if text in ("t", "f") else text


def _int(text: str) -> Any:
    try:
        return int(text)
    except ValueError:
        return text


def _float(text: str) -> Any:
    try:
        return float(text)
    except ValueError:
        return text


def _decimal(text: str) -> Any:
    try:
        return Decimal(text)
    except InvalidOperation:
        return text


def _bytes(text: str) -> Any:
    try:
        return bytes.fromhex(text[2:]) if text.startswith("\\x") else text
    except ValueError:
        return text


def _time(text: str) -> Any:
    if text[_ISO_YEAR_END : _ISO_YEAR_END + 1] != "-" or text.endswith("C"):  # a longer year, infinity, or BC
        return text
    try:
        return datetime.fromisoformat(text)
    except ValueError:
        return text


def _json(text: str) -> Any:
    try:
        return json_of(text)
    except (ValueError, msgspec.MsgspecError):
        return text


_SCALARS: dict[int, Convert] = {
    16: _bool,
    17: _bytes,
    **dict.fromkeys((20, 21, 23, 26), _int),
    **dict.fromkeys((114, 3802), _json),
    **dict.fromkeys((700, 701), _float),
    **dict.fromkeys((1082, 1114, 1184), _time),
    1700: _decimal,
}
"""OID of the type → conversion: bool, bytea; int8, int2, int4, oid; json, jsonb; float4, float8; date, timestamp,
timestamptz; numeric."""
_TEXTS = (18, 19, 25, 1042, 1043, 2950)
"""OIDs of char, name, text, bpchar, varchar and uuid, which stay texts."""
_ARRAYS = {
    1000: 16, 1001: 17, 1016: 20, 1005: 21, 1007: 23, 1028: 26, 199: 114, 3807: 3802, 1021: 700, 1022: 701,
    1182: 1082, 1115: 1114, 1185: 1184, 1231: 1700, 1002: 18, 1003: 19, 1009: 25, 1014: 1042, 1015: 1043, 2951: 2950,
}  # fmt: skip
"""OID of the array type → OID of its elements' type."""


def conversion_of(type_oid: int) -> Convert | None:
    """Return the function from a value's text to the value in a record, or None if that is the text."""
    element = _ARRAYS.get(type_oid)
    if element is None:
        return _SCALARS.get(type_oid)
    convert = _SCALARS.get(element)

    def array(text: str) -> Any:
        try:
            return array_of(text, convert)
        except ValueError:
            return text

    return array


def array_of(text: str, convert: Convert | None) -> list[Any]:
    """Return the lists that an array's text stands for; the lowest indices, if the text states them, are left out.

    Raises:
        ValueError: the text is not an array.
    """
    begin = text.find("{")
    if begin < 0 or (begin and not text[:begin].endswith("=")):
        raise ValueError("the text has no braces")
    lists: list[list[Any]] = []
    at, whole = begin, None
    while whole is None:
        character = text[at : at + 1]
        if character == "{":
            if len(lists) == _NESTING_MAX:
                raise ValueError("the array has too many dimensions")
            lists.append([])
            at += 1
        elif character == "}" and lists:
            done = lists.pop()
            if lists:
                lists[-1].append(done)
            else:
                whole = done
            at += 1
        elif character == "," and lists:
            at += 1
        elif character and lists:
            item, at = _quoted(text, at + 1) if character == '"' else _bare(text, at)
            lists[-1].append(item if item is None or convert is None else convert(item))
        else:
            raise ValueError("the array has no end")
    if at != len(text):
        raise ValueError("text follows the array")
    return whole


def _bare(text: str, at: int) -> tuple[str | None, int]:
    end = _ITEM_END.search(text, at)
    if end is None:
        raise ValueError("the array has no end")
    item = text[at : end.start()]
    return (None if item == "NULL" else item), end.start()


def _quoted(text: str, at: int) -> tuple[str, int]:
    parts: list[str] = []
    while True:
        end = text.find('"', at)
        if end < 0:
            raise ValueError("a quoted element has no end")
        escape = text.find("\\", at, end)
        if escape < 0:
            return "".join([*parts, text[at:end]]), end + 1
        parts.append(text[at:escape] + text[escape + 1 : escape + 2])
        at = escape + 2
