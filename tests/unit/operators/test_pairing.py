"""The pairs of a join are converted in one call, and a pair on which the function raises leaves the others intact."""

from __future__ import annotations

from collections.abc import Callable
from copy import deepcopy
from typing import Any

import pytest

from causal.errors import OperatorFailed
from operators.kinds.joins.sides import Pairing
from operators.stage.failures import Failures


class Letters:
    """The encoder of dead letters in these tests."""

    def encode(self, records: Any) -> bytes:
        return b""


def divided(left: Any, right: Any) -> Any:
    return {"n": left["n"] // right["n"]}


def ended(left: Any, right: Any) -> Any:
    if right["n"] == 0:
        raise StopIteration
    return right


def paired(fn: Callable[[Any, Any], Any], failures: Failures) -> list[Any]:
    out: list[Any] = ["earlier"]
    lefts, rights = [{"n": 8}] * 4, [{"n": 2}, {"n": 0}, {"n": 0}, {"n": 4}]
    Pairing("joined", failures, fn).add_all(out, "abcd", lefts, rights)
    return out


@pytest.mark.parametrize(("fn", "first", "last"), [(divided, 4, 2), (ended, 2, 4)])
def test_only_the_pairs_on_which_the_function_raises_are_dead_letters(fn: Any, first: int, last: int) -> None:
    failures = Failures(Letters(), 1 << 20)
    assert paired(fn, failures) == ["earlier", {"n": first}, {"n": last}]
    assert [(letter["key"], letter["record"]["right"]) for letter in failures.letters] == [
        ("b", {"n": 0}),
        ("c", {"n": 0}),
    ]


def test_the_first_pair_on_which_the_function_raises_stops_the_job() -> None:
    with pytest.raises(OperatorFailed, match="key 'b'"):
        paired(divided, Failures(None, 0))


@pytest.mark.parametrize(
    "fn",
    [
        lambda left, right: right,
        lambda left, right: {"names": right["names"]},
        lambda left, right: (left["n"], right["names"]),
        lambda left, right: right["names"],
    ],
)
def test_no_result_shares_a_list_or_dict_with_a_row(fn: Any) -> None:
    row: dict[str, Any] = {"n": 1, "names": ["x"]}
    expected = deepcopy(fn({"n": 1}, row))
    out: list[Any] = []
    Pairing("joined", Failures(None, 0), fn).add_all(out, "a", [{"n": 1}], [row])
    row["names"].append("y")
    row["n"] = 2
    assert out == [expected]
