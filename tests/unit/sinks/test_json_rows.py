"""The JSON that sinks write is what Python's own encoder says, whatever the record is."""

from __future__ import annotations

import json
import math
from datetime import datetime
from decimal import Decimal
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from causal.values import NotCarried
from operators.sinks.base import encode_json

plain = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | st.text(),
    lambda inner: st.lists(inner) | st.dictionaries(st.text() | st.integers() | st.booleans(), inner),
)


@given(plain)
def test_it_is_what_python_says(record: Any) -> None:
    assert encode_json(record) == json.dumps(record, ensure_ascii=False)


def test_what_json_has_not_is_text() -> None:
    record = {"at": datetime(2026, 1, 2, 3, 4, 5), "price": Decimal("1.10"), "raw": b"\xff", "pair": (1, math.inf)}
    assert encode_json(record) == '{"at": "2026-01-02T03:04:05", "price": "1.10", "raw": "ff", "pair": [1, Infinity]}'


def test_what_cannot_be_written_is_refused_each_time() -> None:
    for _ in range(2):
        with pytest.raises(NotCarried, match="set cannot be written as JSON"):
            encode_json({"deep": [{1, 2}]})
    assert encode_json({"deep": [1]}) == '{"deep": [1]}'
