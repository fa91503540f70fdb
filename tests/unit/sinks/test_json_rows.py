"""The JSON that sinks write is what Python's own encoder says, whatever the record is."""

from __future__ import annotations

import json
import math
import sqlite3
from datetime import datetime
from decimal import Decimal
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from causal.records.values import NotCarried
from causal.records.vectors import Vectors
from operators.sinks.contract.json_columns import json_lines
from operators.sinks.contract.sink import encode_json

plain = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | st.text(),
    lambda inner: st.lists(inner) | st.dictionaries(st.text() | st.integers() | st.booleans(), inner),
)


@given(plain)
def test_it_is_what_python_says(record: Any) -> None:
    assert encode_json(record) == json.dumps(record, ensure_ascii=False)


def test_what_json_has_not_is_text() -> None:
    record = {"at": datetime(2026, 1, 2, 3, 4, 5), "price": Decimal("1.10"), "raw": b"\xff", "pair": (1, math.inf)}
    assert encode_json(record) == '{"at": "2026-01-02T03:04:05", "price": "1.10", "raw": "ff", "pair": [1, "Infinity"]}'


def test_what_cannot_be_written_is_refused_each_time() -> None:
    for _ in range(2):
        with pytest.raises(NotCarried, match="set cannot be written as JSON"):
            encode_json({"deep": [{1, 2}]})
        with pytest.raises(NotCarried, match="a key that is a tuple cannot be written as JSON; convert it to a string"):
            encode_json({"deep": [{(1, 2): math.nan}]})
    assert encode_json({"deep": [1]}) == '{"deep": [1]}'


def test_every_line_is_json_whatever_numbers_are_in_it() -> None:
    for number, text in ((math.nan, "NaN"), (math.inf, "Infinity"), (-math.inf, "-Infinity")):
        for record, read in (
            (number, text),
            ({"a": number}, {"a": text}),
            ({"a": [1, (number, {"b": number})]}, {"a": [1, [text, {"b": text}]]}),
            ({number: 1, 2: 3, True: 4, None: 5, 0.5: 6}, {text: 1, "2": 3, "true": 4, "null": 5, "0.5": 6}),
            ({"t": datetime(2020, 1, 1), "n": number}, {"t": "2020-01-01T00:00:00", "n": text}),
        ):
            decoded = json.loads(encode_json(record), parse_constant=lambda name: pytest.fail(f"{name} is not JSON"))
            assert decoded == read
        column = pa.array([number, 1.0, -0.0])
        assert json_lines(Vectors.of({"v": column}), encode_json).decode().splitlines() == [
            encode_json({"v": value}) for value in column.to_pylist()
        ]
        with sqlite3.connect(":memory:") as db:
            [(extracted,)] = db.execute("SELECT json_extract(?, '$.a')", (encode_json({"a": number}),))
            assert repr(float(extracted)) == repr(number)
