"""Control messages: what is well-formed becomes an event, everything else is counted and dropped."""

from __future__ import annotations

import math
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from causal.records.values import encode
from causal.task.activity import Activity
from causal.task.hot_keys import REPORTED_MAX, TEXT_MAX
from standby.network.control import MESSAGE_BYTES_MAX, Inbox, pack
from standby.supervision import events

BEAT: dict[str, Any] = {
    "slot": "w1",
    "pid": 1,
    "endpoint": "ipc:///x",
    "task": "count/0",
    "incarnation": 2,
    "state": "running",
    "epoch": 3,
    "acked": [3, [["checkpoints/count/0/e3-i2.snap", 5, "00"]]],
    "followed": None,
    "counters": {"sent_bytes": 5, "determinant_bytes": {"order": 3}},
    "first_record_ns": None,
    "last_output_ns": 9,
}


def test_a_beat_is_read() -> None:
    event = Inbox().receive(b"w1", pack("beat", **BEAT))
    assert isinstance(event, events.Beat)
    assert event.acked == (3, (("checkpoints/count/0/e3-i2.snap", 5, "00"),))
    assert (event.task, event.incarnation, event.followed, event.last_output_ns) == ("count/0", 2, None, 9)


def test_an_unknown_key_is_ignored_and_an_unknown_kind_is_no_event() -> None:
    inbox = Inbox()
    assert inbox.receive(b"w1", pack("beat", **BEAT, colour="red")) is not None
    assert inbox.receive(b"w1", pack("dance")) is None
    assert inbox.dropped == 0


def test_the_sender_is_who_the_socket_says_it_is() -> None:
    inbox = Inbox()
    assert inbox.receive(b"w2", pack("beat", **BEAT)) is None
    assert inbox.receive(b"w1", pack("exited", slot="w3", pid=1, at_ns=1)) is None
    assert inbox.dropped == 1


def test_a_pulse_is_of_the_slot_that_its_socket_is_named_after_and_says_nothing_else() -> None:
    inbox, doing = Inbox(), Activity("event", 5, "slow", key="7", at="p.py:3")
    message = pack("pulse", slot="w1", pid=4, endpoint="ipc:///x", doing=doing.message())
    assert inbox.receive(b"w1.pulse", message) == events.Pulse("w1", 4, "ipc:///x", doing=doing)
    assert inbox.receive(b"w1", message) is None and inbox.receive(b"w1.pulse", pack("beat", **BEAT)) is None
    assert inbox.dropped == 0
    assert inbox.receive(b"w2.pulse", message) is None
    for wrong in ({"kind": "dance"}, {"since_ns": "1"}, {"key": 7}, {"at": "x" * 1000}, {"colour": "red"}):
        assert inbox.receive(b"w1.pulse", pack("pulse", pid=4, doing={**doing.message(), **wrong})) is None
    assert inbox.dropped == 6


def test_hot_keys_are_few_short_and_shares_of_one_time() -> None:
    inbox = Inbox()
    said = [["7", 0.75], ["'a'", 0], ["x" * TEXT_MAX, 1.0]]
    event = inbox.receive(b"w1", pack("beat", **BEAT, hot_keys=said))
    assert isinstance(event, events.Beat) and event.hot_keys == tuple((key, share) for key, share in said)
    hostile: list[Any] = [
        None, "7", {"7": 0.5}, 7, [7], [["7"]], [["7", 0.5, 1]], [[7, 0.5]], [[None, 0.5]], [[["7"], 0.5]],
        [["7", "0.5"]], [["7", True]], [["7", None]], [["7", -0.01]], [["7", 1.01]], [["7", math.nan]],
        [["7", math.inf]], [["7", 10**30]], [["x" * (TEXT_MAX + 1), 0.5]], [["7", 0.1]] * (REPORTED_MAX + 1),
    ]  # fmt: skip
    for wrong in hostile:
        assert inbox.receive(b"w1", pack("beat", **BEAT, hot_keys=wrong)) is None, wrong
    assert inbox.dropped == len(hostile)


def test_an_agent_names_who_computes() -> None:
    inbox = Inbox()
    event = inbox.receive(b"agent", pack("agent_beat", slots={"w1": 5}, dead={}, computing=["w1"]))
    assert isinstance(event, events.AgentBeat) and event.computing == ("w1",)
    for wrong in ("w1", [1], {"w1": 1}):
        assert inbox.receive(b"agent", pack("agent_beat", slots={}, dead={}, computing=wrong)) is None
    assert inbox.dropped == 3


@pytest.mark.parametrize(
    "change",
    [
        {"pid": "1"},
        {"pid": True},
        {"incarnation": None},
        {"counters": {"x": "y"}},
        {"counters": [1]},
        {"acked": [3]},
        {"acked": [3, [["/etc/passwd", 1, "00"]]]},
        {"acked": [3, [["checkpoints/../../x", 1, "00"]]]},
        {"acked": [3, [["checkpoints/x", -1, "00"]]]},
    ],
)
def test_a_field_that_is_not_what_it_should_be_drops_the_message(change: dict[str, Any]) -> None:
    inbox = Inbox()
    assert inbox.receive(b"w1", pack("beat", **{**BEAT, **change})) is None
    assert inbox.dropped == 1


def test_a_missing_field_and_too_long_a_message_are_dropped() -> None:
    inbox = Inbox()
    assert inbox.receive(b"w1", pack("beat", pid=1)) is None
    assert inbox.receive(b"w1", encode({"kind": "beat", "x": b"0" * MESSAGE_BYTES_MAX})) is None
    assert inbox.dropped == 2


@given(st.binary(max_size=200), st.sampled_from([b"w1", b"w1.pulse", b"agent", b"admin-1", b"\xff"]))
def test_no_bytes_whatsoever_raise(data: bytes, sender: bytes) -> None:
    Inbox().receive(sender, data)


@given(
    st.sampled_from(["beat", "pulse", "phase", "snapshot", "failed", "exited", "agent_beat", "admin"]),
    st.dictionaries(
        st.sampled_from([*BEAT, "doing", "files", "slots", "dead", "verb", "arguments", "at_ns", "definite"]),
        st.none() | st.integers(-5, 5) | st.text(max_size=3) | st.lists(st.integers(), max_size=2),
    ),
    st.sampled_from([b"w1", b"w1.pulse", b"agent", b"admin-1"]),
)
def test_no_map_whatsoever_raises(kind: str, keys: dict[str, Any], sender: bytes) -> None:
    Inbox().receive(sender, encode({"kind": kind, **keys}))
