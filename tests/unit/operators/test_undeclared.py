"""Values that user code keeps outside of its state are named; those that cannot change, or are no values, are not."""

from __future__ import annotations

import functools
import itertools
import logging
import random
import re
import threading
from collections import Counter, defaultdict, deque
from collections.abc import Callable
from decimal import Decimal
from typing import Any

import pytest

from causal.errors import ReplayDivergence
from operators import Operator, ValueState
from operators.runtime.undeclared import Witness, explained, words
from tests.unit.operators.scene import Services, chain_of, listed, planned

kept: dict[Any, Any] = {}


class Point:
    """A class of the user's, with methods, whose attributes are looked into."""

    def __init__(self) -> None:
        self.x = [1]

    def move(self) -> None:
        self.x.append(2)


class Quiet(Operator):
    """Has attributes of all kinds; `change` says which of them changes."""

    total = ValueState[int]()

    def __init__(self, change: Callable[[Any], Any]) -> None:
        self._change = change
        self.number, self.text, self.floating = 1, "a", 0.5
        self.nested: dict[Any, Any] = {"a": [{"b": (1, {2})}]}
        self.counter = Counter("ab")
        self.default: defaultdict[Any, list[Any]] = defaultdict(list)
        self.queue = deque([1])
        self.members, self.buffer = {1, 2}, bytearray(b"ab")
        self.point, self.chance, self.places = Point(), random.Random(4), itertools.count()
        self.me = self
        self.log, self.pattern, self.lock = logging.getLogger("x"), re.compile("a"), threading.Lock()
        self.cache = functools.lru_cache(maxsize=2)(abs)

    def process(self, record: Any, ctx: Any) -> list[Any]:
        self.total.value = 5
        self._change(self)
        return []


def witnessed(build: Callable[[Any], Any], name: str, records: list[Any]) -> list[tuple[str, str]]:
    """Return the changes that are found in a task that gets these records."""
    job_plan = planned(build)
    chain: Any = chain_of(job_plan, f"{name}/0")
    chain.open()
    witness = Witness(job_plan.nodes(job_plan.topology.named(f"{name}/0").index), chain)  # type: ignore[union-attr]
    assert witness.changed() == []
    chain.deliver(0, listed(records), 0, Services())
    return witness.changed()


def watched(change: Callable[[Any], Any]) -> list[str]:
    """Return the changes that are found in a task of one `Quiet`."""
    changes = witnessed(lambda s: s.key_by(lambda n: n).process("quiet", Quiet(change)), "quiet", [1, 2])
    return [what for what, _ in changes]


CHANGES: dict[str, Callable[[Any], Any]] = {
    "number": lambda op: setattr(op, "number", op.number + 1),
    "text": lambda op: setattr(op, "text", op.text + "b"),
    "floating": lambda op: setattr(op, "floating", op.floating * 2),
    "nested": lambda op: op.nested["a"][0].update(c=len(op.nested["a"][0])),
    "counter": lambda op: op.counter.update("a"),
    "default": lambda op: op.default["x"].append(1),
    "queue": lambda op: op.queue.append(2),
    "members": lambda op: op.members.add(len(op.members) + 1),
    "buffer": lambda op: op.buffer.append(1),
    "point": lambda op: op.point.move(),
    # Seeded here it keeps a state of its own, also where chance is captured.
    "chance": lambda op: op.chance.seed(5),
    "places": lambda op: next(op.places),
    "added": lambda op: setattr(op, "added", 1),
}


@pytest.mark.parametrize("name", CHANGES)
def test_an_attribute_that_changes_is_named(name: str) -> None:
    assert watched(CHANGES[name]) == [f"attribute `{name}` of Quiet changed in process()"]


class Raising(dict[str, int]):
    """A dict of the user's that cannot be walked."""

    def items(self) -> Any:
        raise RuntimeError("dictionary changed size during iteration")


UNUSUAL = [
    pytest.param(lambda: Raising(a=1), id="a subclass of dict that raises"),
    pytest.param(lambda: Decimal("sNaN"), id="a signaling NaN, which has no hash"),
    pytest.param(lambda: Decimal("NaN"), id="a NaN, each of which has a hash of its own"),
    pytest.param(lambda: complex("nan"), id="a complex NaN"),
    pytest.param(lambda: {"a": [float("nan")]}, id="a float NaN"),
    pytest.param(lambda: memoryview(b"abcd")[::2], id="a buffer with gaps"),
]


@pytest.mark.parametrize("value", UNUSUAL)
def test_an_unusual_value_that_is_kept_is_looked_at(value: Callable[[], Any]) -> None:
    kept["unusual"] = value()
    try:
        assert watched(lambda op: kept.update(unusual=value())) == []
    finally:
        del kept["unusual"]


@pytest.mark.parametrize(
    "change",
    [
        lambda op: None,
        lambda op: setattr(op, "number", 1),
        lambda op: op.log.debug("x"),
        lambda op: op.pattern.match("a"),
        lambda op: op.cache(3),
        lambda op: setattr(op, "lock", threading.Lock()),
        lambda op: setattr(op, "nested", {"a": [{"b": (1, {2})}]}),
    ],
    ids=["nothing", "the same value", "a logger", "a pattern", "a cache of functools", "a lock", "an equal value"],
)
def test_what_is_the_same_or_says_nothing_is_not(change: Callable[[Any], Any]) -> None:
    assert watched(change) == []


def test_globals_of_the_module_of_the_code_are_looked_at() -> None:
    try:
        changes = watched(lambda op: kept.update({len(kept): 1}))
    finally:
        kept.clear()
    assert changes == ["global `kept` of test_undeclared.py changed while operators ran"]


def test_variables_of_closures_and_defaults_are_looked_at() -> None:
    seen: list[int] = []

    def remembering(record: Any, items: list[int] = [], *, more: dict[int, int] = {}) -> Any:  # noqa: B006
        seen.append(record)
        items.append(record)
        more[record] = 1
        return record

    changes = witnessed(lambda s: s.map("remember", remembering), "remember", [1])
    assert [re.findall("`(.*)`", what) for what, _ in changes] == [["seen"], ["items"], ["more"]]
    assert words(changes).endswith("keep it in ctx.state") and words([]) == ""
    assert words(changes * 2).endswith("; and 3 more")


def test_what_is_too_much_is_not_looked_at() -> None:
    assert watched(lambda op: op.nested.update(big=list(range(1_000_000)))) == [
        "attribute `nested` of Quiet changed in process()"
    ]


def counting(record: Any, items: list[Any] = []) -> int:  # noqa: B006
    items.append(record)
    return len(items)


@functools.lru_cache(maxsize=4)
def cached(number: int, items: list[Any] = []) -> int:  # noqa: B006
    items.append(number)
    return number


def tallied(record: Any) -> None:
    vars(tallied)["calls"] = vars(tallied).get("calls", 0) + 1


class Registry:
    """A class of the user's that is not an operator."""

    entries = 0

    @classmethod
    def enter(cls) -> None:
        cls.entries += 1

    @staticmethod
    def note(record: Any, items: list[Any] = []) -> None:  # noqa: B006
        items.append(record)


class Keeping(Operator):
    """Calls one of the places above, or keeps the record in a default of its own."""

    def __init__(self, where: Callable[[Any], Any] | None) -> None:
        self._where = where

    def process(self, record: Any, ctx: Any, items: list[Any] = []) -> list[Any]:  # noqa: B006
        if self._where is None:
            items.append(record)
        else:
            self._where(record)
        return []


@pytest.mark.parametrize(
    ("where", "named"),
    [
        (None, "variable `items` that Keeping.process closes over"),
        (lambda record: counting(record), "variable `items` that counting closes over"),
        (lambda record: cached(record), "variable `items` that cached closes over"),
        (lambda record: tallied(record), "attribute `calls` of the function tallied"),
        (lambda record: Registry.enter(), "attribute `entries` of class Registry"),
        (lambda record: Registry.note(record), "variable `items` that Registry.note closes over"),
    ],
    ids=["a method", "a function", "a cached function", "an attribute", "a class", "a static method"],
)
def test_what_methods_and_callees_keep_is_named(where: Callable[[Any], Any] | None, named: str) -> None:
    changes = witnessed(lambda s: s.process("keep", Keeping(where)), "keep", [1])
    assert [what for what, _ in changes] == [f"{named} changed while operators ran"]


def test_only_the_line_of_a_task_that_reads_names_its_source() -> None:
    topology = planned(lambda stream: stream.key_by(str).count("count")).topology
    lines = [explained(ReplayDivergence(task, "its output differed"), [], topology) for task in ("in/0", "count/0")]
    assert ["; or its source: make(partition, i) or read(position)" in line for line in lines] == [True, False]
    commutes = explained(ReplayDivergence("count/0", "its output differed"), [], topology, {"count/0"})
    assert "set commutes = False" in commutes and "its output differed" in commutes
    place = explained(ReplayDivergence("in/0", "its output differed"), [("global `n` changed", "keep it")], topology)
    assert place == "in/0 is nondeterministic: global `n` changed; keep it (ReplayDivergence: its output differed)"
