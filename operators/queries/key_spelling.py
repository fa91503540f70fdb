"""The spelling of keys as text and of values as JSON, in URLs, answers and on the command line.

A key is plain text, or JSON in which a list stands for a tuple and an object such as `{"decimal": "1.1"}` for a type
that JSON lacks. In values, such objects mean the same, lists and tuples are both lists, and a dict whose keys are not
all texts, or that could be mistaken for such an object, is `{"dict": [[key, value], …]}`.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from datetime import datetime
from decimal import Decimal
from math import isfinite
from typing import Any

from causal.errors import PipelineError
from operators.records.keys import Unroutable, canonical_key

BEGINNINGS = ('"', "[", "{")
"""The beginnings of JSON other than a number or constant; plain text that begins like this needs double quotes."""
_DICT, _FLOAT = "dict", "float"
_KINDS: Mapping[str, Callable[[str], Any]] = {
    "bytes": bytes.fromhex,
    "decimal": Decimal,
    "datetime": datetime.fromisoformat,
    _FLOAT: float,
}
"""Parsers for the kinds of keys that JSON lacks, as in `{"decimal": "1.1"}`."""
_TAGS = frozenset((*_KINDS, _DICT))
"""The only keys of objects that stand for something other than a dict."""
_UNCHANGED = frozenset((str, int, bool, type(None)))


def key_of(text: str) -> Any:
    """Parse a key: plain text, or JSON in which a list stands for a tuple and an object for a type that JSON lacks.

    Raises:
        PipelineError: the text is empty, looks like JSON but is not valid JSON, or is not a key.
    """
    try:
        if _plain(text):
            return text
        return canonical_key(_meant(json.loads(text)))
    except (ValueError, ArithmeticError, RecursionError) as problem:
        fix = "use text, a number, or other JSON: a string in double quotes, a list for a tuple"
        raise PipelineError(f"the key {text:.80} cannot be used ({problem}); {fix}") from None


def text_of_key(key: Any) -> str:
    """Return a text that `key_of` parses as this key: the key itself if it is plain text, otherwise JSON."""
    if type(key) is str and _plain(key):
        return key
    return json.dumps(_spelled(key), ensure_ascii=False)


def json_of(value: Any) -> Any:
    """Return a value in its JSON form.

    Raises:
        RecursionError: the value is nested too deeply.
    """
    kind = type(value)
    if kind in _UNCHANGED:
        return value
    if kind is float:
        return _spelled(value)
    if kind is list or kind is tuple:
        return [json_of(item) for item in value]
    if isinstance(value, Mapping):
        if all(type(key) is str for key in value) and not (len(value) == 1 and next(iter(value)) in _TAGS):
            return {key: json_of(inner) for key, inner in value.items()}
        return {_DICT: [[json_of(key), json_of(inner)] for key, inner in value.items()]}
    if isinstance(value, (list, tuple)):  # for example a window's bounds
        return [json_of(item) for item in value]
    return _spelled(value)


def _plain(text: str) -> bool:
    """Return whether a text neither is JSON nor looks as if it was meant to be JSON."""
    if not text.strip() or text.lstrip().startswith(BEGINNINGS):
        return False
    try:
        json.loads(text, parse_constant=_refused)
    except ValueError:
        return True
    return False


def _refused(name: str) -> Any:
    raise ValueError(f"{name} is not JSON")


def _meant(value: Any) -> Any:
    if type(value) is list:
        return tuple(map(_meant, value))
    if type(value) is dict:
        [(kind, text)] = value.items() if len(value) == 1 else [("", "")]
        if kind not in _KINDS or type(text) is not str:
            raise Unroutable(f"the value of an object must be a string, after one of {', '.join(_KINDS)}")
        return _KINDS[kind](text)
    return value


def _spelled(value: Any) -> Any:
    """Return `value` in its JSON form; this is the inverse of `_meant`."""
    if isinstance(value, tuple):
        return list(map(_spelled, value))
    if isinstance(value, bytes):
        return {"bytes": value.hex()}
    if isinstance(value, Decimal):
        return {"decimal": str(value)}
    if isinstance(value, datetime):
        return {"datetime": value.isoformat()}
    if isinstance(value, float) and not isfinite(value):
        return {_FLOAT: repr(value)}
    return value
