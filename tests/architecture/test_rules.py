"""The code keeps the house rules, and the rules bite."""

from __future__ import annotations

import pytest

from tests.architecture import rules
from tests.architecture.source import modules, parsed


@pytest.mark.parametrize("rule", rules.RULES, ids=lambda rule: rule.__name__)
def test_every_shipped_module_keeps_the_rule(rule: rules.Rule) -> None:
    broken = [f"{module.place}:{line}: {what}" for module in modules() for line, what in rule(module)]
    assert not broken, "\n".join([rule.__doc__ or "", *broken])


BREAKS = [
    (rules.pure_imports, "import time"),
    (rules.pure_imports, "from os import path"),
    (rules.pure_imports, "def f():\n    import zmq"),
    (rules.pure_imports, "from causal.process.clock import Clock"),
    (rules.pure_imports, "from causal import shell"),
    (rules.pure_calls, "open('x')"),
    (rules.pure_calls, "def f(x):\n    return hash(x)"),
    (rules.no_set_order, "for x in {1, 2}: f(x)"),
    (rules.no_set_order, "y = list(set(x))"),
    (rules.no_set_order, "y = [f(x) for x in set(z)]"),
    (rules.no_set_order, "def f(z: set[int]):\n    for x in z: g(x)"),
    (rules.no_set_order, "def f():\n    z = {1}\n    return dict.fromkeys(z)"),
    (rules.no_set_order, "class A:\n    def __init__(self):\n        self.z: set[int] = set()\n"
                         "    def f(self):\n        for x in self.z: g(x)"),
    (rules.no_set_order, "class A:\n    z: set[int]\n    def f(self):\n        for x in self.z - other: g(x)"),
    (rules.no_mutable_defaults, "def f(x=[]): ..."),
    (rules.no_mutable_defaults, "def f(*, x=dict()): ..."),
    (rules.errors_are_not_swallowed, "try: f()\nexcept Exception: pass"),
    (rules.errors_are_not_swallowed, "try: f()\nexcept: g()"),
    (rules.errors_are_not_swallowed, "try: f()\nexcept Exception as e: log.warning('%s', e)"),
    (rules.no_asserts, "assert x"),
    (rules.nothing_is_unpickled, "import pickle"),
    (rules.sizes, "x = 1\n" * 601),
    (rules.sizes, "def f():\n" + "    x = 1\n" * 70),
    (rules.docstrings, "x = 1"),
    (rules.docstrings, '"""M."""\nclass A: ...'),
    (rules.nothing_is_left_to_do, "x = 1  # TO" + "DO later"),
    (rules.nothing_is_opened_to_others, "path.chmod(0o755)"),
    (rules.nothing_is_opened_to_others, "path.mkdir(mode=0o750)"),
]  # fmt: skip


@pytest.mark.parametrize(("rule", "text"), BREAKS)
def test_a_rule_finds_what_breaks_it(rule: rules.Rule, text: str) -> None:
    assert list(rule(parsed("causal.example", text)))


KEEPS = [
    (rules.pure_imports, "import struct\nfrom causal.ids import TaskIndex"),
    (rules.pure_calls, "self.open('x')"),
    (rules.pure_calls, "def f(x):\n    hash(x)"),
    (rules.no_set_order, "for x in sorted({1, 2}): f(x)"),
    (rules.no_set_order, "y = len({f(x) for x in set(z)})"),
    (rules.no_set_order, "def f(z: set[int]):\n    return any(x > 1 for x in z)"),
    (rules.no_set_order, "def f(z: dict[int, int]):\n    for x in z: g(x)"),
    (rules.errors_are_not_swallowed, "try: f()\nexcept Exception as e: raise X from e"),
    (rules.errors_are_not_swallowed, "try: f()\nexcept Exception as e: return Failed(e)"),
    (rules.errors_are_not_swallowed, "try: f()\nexcept KeyError: pass"),
    (rules.docstrings, '"""M."""\nclass _A: ...'),
    (rules.sizes, "def f():\n" + "    x = 1\n" * 69),
    (rules.nothing_is_opened_to_others, "path.chmod(0o700)\nos.read(file, 65)"),
]


@pytest.mark.parametrize(("rule", "text"), KEEPS)
def test_a_rule_lets_pass_what_keeps_it(rule: rules.Rule, text: str) -> None:
    assert not list(rule(parsed("causal.example", text)))


@pytest.mark.parametrize("text", ["x = at_ns / 1e9", "x = round(at_s * 1e6) * 1000", "x = 1_000_000_000 * at_s"])
def test_operators_convert_times_in_one_place(text: str) -> None:
    assert list(rules.one_conversion_of_time(parsed("operators.example", text)))
    assert not list(rules.one_conversion_of_time(parsed("operators.records.seconds", text)))
    assert not list(rules.one_conversion_of_time(parsed("operators.example", "x = seconds_of(at_ns)")))


def test_every_import_that_is_allowed_is_made() -> None:
    imported = {(module.name, name.split(".")[0]) for module in modules() for _, name in module.imports()}
    assert rules.ALLOWED <= imported


def test_the_shell_may_touch_the_world() -> None:
    text = "import time\nfrom causal.process.clock import Clock\nopen('x')"
    for rule in (rules.pure_imports, rules.pure_calls):
        assert not list(rule(parsed("causal.shell.example", text)))


OVERLOADS = "    @overload\n    def f(self) -> int: ...\n\n" * 200
DECLARING = 'class A:\n    """A."""\n' + OVERLOADS + "    def f(self):\n"


def test_an_interface_is_counted_without_overloads_and_may_only_declare() -> None:
    [interface] = rules.INTERFACES
    assert list(rules.sizes(parsed("causal.example", DECLARING + "        x = 1\n")))
    assert not list(rules.sizes(parsed(interface, DECLARING + "        x = 1\n" * 12)))
    assert list(rules.sizes(parsed(interface, DECLARING + "        x = 1\n" * 13)))
