"""The text by which a sink with `upsert=True` stores a key of a table."""

from __future__ import annotations

import json
import re
from datetime import datetime
from decimal import Decimal
from math import isfinite
from typing import Any

_ODD = re.compile("[\x00-\x1f\ud800-\udfff]")
_MAYBE_JSON = re.compile(r'[ 0-9"\[{tfnNI-]')


def key_text(key: Any) -> str:
    """Return the text of a canonical key; different keys have different texts.

    A str is its own text, and any other key is JSON. A str is also written as JSON if it would be read as JSON, or
    contains control characters or half a surrogate pair. JSON has no bytes, times and decimals, so these are objects
    with one item.
    """
    if type(key) is str and not _ODD.search(key) and not (_MAYBE_JSON.match(key) and _is_json(key)):
        return key
    return json.dumps(_plain(key), ensure_ascii=False)


def _is_json(text: str) -> bool:
    try:
        json.loads(text)
    except json.JSONDecodeError:
        return False
    except (ValueError, RecursionError):  # it is too large to be parsed
        return True
    return True


def _plain(key: Any) -> Any:
    if isinstance(key, tuple):
        return [_plain(part) for part in key]
    if isinstance(key, bytes):
        return {"bytes": key.hex()}
    if isinstance(key, datetime):
        return {"datetime": key.isoformat()}
    if isinstance(key, Decimal):
        return {"decimal": str(key)}
    if isinstance(key, float) and not isfinite(key):
        return {"float": str(key)}
    return key
