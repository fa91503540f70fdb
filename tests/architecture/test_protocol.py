"""Agents of the version before may join: what is said under a number of the protocol never changes."""

from __future__ import annotations

from copy import deepcopy

import pytest

from standby.supervision import orders
from tests.architecture import protocol


def test_what_is_said_has_the_number_under_which_it_was_written() -> None:
    known = protocol.written()
    assert orders.PROTOCOL in known, f"PROTOCOL is {orders.PROTOCOL}: `python -m tests.architecture.protocol --write`"
    assert orders.PROTOCOL == max(known), "PROTOCOL only rises"
    changed = protocol.differences(known[orders.PROTOCOL], protocol.surface())
    assert not changed, f"{'; '.join(changed)}: {protocol.WHAT_TO_DO}"


def test_what_is_said_can_be_said_to_the_version_before() -> None:
    before = protocol.written().get(orders.PROTOCOL - 1)
    broken = protocol.breaks(before, protocol.surface()) if before is not None else []
    assert not broken, f"{'; '.join(broken)}, although agents of version {orders.PROTOCOL - 1} may join: raise by two"


@pytest.mark.parametrize(
    ("table", "kind", "keys", "lines"),
    [
        ("orders", "kill", ["slot", "why"], []),
        ("orders", "kill", ["why"], ["orders: kill lacks slot"]),
        ("orders", "spawn", ["slot"], []),
        ("from agents", "host_log", ["text", "from_ns"], ["from agents: host_log lacks from_ns"]),
        ("from agents", "host_log", ["text", "from_ns?"], []),
    ],
)
def test_a_change_that_the_version_before_cannot_take_is_found(
    table: str, kind: str, keys: list[str], lines: list[str]
) -> None:
    before = protocol.surface()
    now = deepcopy(before)
    now[table][kind] = keys
    assert protocol.differences(before, now)
    assert protocol.breaks(before, now) == lines


def test_a_change_of_frames_or_formats_is_for_no_version_before() -> None:
    before = protocol.surface()
    for name in protocol.APART:
        now = {**before, name: before[name] + 1}
        assert protocol.breaks(before, now) == [f"{name}: {before[name]} → {before[name] + 1}"]
        assert protocol.differences(before, now) == [f"{name}: {before[name]} → {before[name] + 1}"]


def test_a_difference_is_named() -> None:
    before = protocol.surface()
    now = deepcopy(before)
    now["orders"]["kill"] = ["pid", "slot"]
    del now["from agents"]["host_log"]
    now["settings"].append("new")
    assert protocol.differences(before, now) == [
        "from agents: host_log: ['text'] → nothing",
        "orders: kill: pid is new",
        "settings: new is new",
    ]
