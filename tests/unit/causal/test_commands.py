"""Commands: each equals its message, and nothing else is a command."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from causal import commands
from causal.commands import AnyCommand, read_command
from causal.errors import PeerViolation
from causal.records.values import decode, encode

NUMBERS, TEXTS = st.integers(0, 1 << 40), st.text(max_size=5)
PATHS = st.text("ab/", min_size=1, max_size=5).map("checkpoints/{}".format)
FILES = st.lists(st.tuples(PATHS, NUMBERS, TEXTS), max_size=3).map(tuple)
COMMANDS: st.SearchStrategy[AnyCommand] = st.one_of(
    st.builds(commands.Follow, TEXTS, NUMBERS, FILES),
    st.builds(
        commands.Promote, TEXTS, NUMBERS, NUMBERS, FILES, st.dictionaries(TEXTS, st.tuples(TEXTS, NUMBERS), max_size=2)
    ),
    st.builds(commands.Peer, TEXTS, TEXTS, NUMBERS),
    st.builds(commands.PeerDown, TEXTS, NUMBERS),
    st.builds(commands.Checkpoint, NUMBERS, st.booleans(), st.booleans()),
    st.builds(commands.Completed, NUMBERS),
    st.builds(commands.Inspect, TEXTS, TEXTS, st.tuples(TEXTS, NUMBERS) | st.lists(NUMBERS, max_size=2)),
    st.builds(commands.Inquire, NUMBERS, st.lists(st.tuples(NUMBERS, NUMBERS, NUMBERS), max_size=2).map(tuple)),
    st.builds(commands.Keep, st.none() | st.dictionaries(TEXTS, NUMBERS, max_size=2)),
    st.builds(commands.Stop, st.booleans()),
    st.builds(commands.Alive),
)


@given(COMMANDS)
def test_a_command_is_read_as_it_was_sent(command: AnyCommand) -> None:
    assert read_command(decode(encode(command.message()))) == command


def test_what_is_usual_is_not_sent() -> None:
    assert commands.Checkpoint(3).message() == {"kind": "checkpoint", "epoch": 3}
    assert commands.Checkpoint(3, hold=True).message() == {"kind": "checkpoint", "epoch": 3, "hold": True}
    assert commands.Stop(False).message() == {"kind": "stop", "finished": False}


def test_only_a_key_is_sent_as_a_tuple() -> None:
    follow = commands.Follow("count/0", 3, (("checkpoints/x", 5, "00"),))
    assert follow.message()["files"] == [["checkpoints/x", 5, "00"]]
    assert commands.Inspect("admin-1", "count", ("k", 1)).message()["key"] == ("k", 1)


@pytest.mark.parametrize(
    ("message", "reason"),
    [
        ({"kind": "dance"}, "'dance' is not a valid command"),
        ({}, "None is not a valid command"),
        ({"kind": "completed"}, "missing required field `epoch`"),
        ({"kind": "completed", "epoch": -1}, ">= 0"),
        ({"kind": "completed", "epoch": True}, "got `bool`"),
        ({"kind": "follow", "task": "t", "epoch": 1, "files": [["checkpoints/p", "5", "d"]]}, "files"),
        ({"kind": "follow", "task": "t", "epoch": 1, "files": [["checkpoints/../p", 5, "d"]]}, "files"),
        ({"kind": "follow", "task": "t", "epoch": 1, "files": [["/checkpoints/p", 5, "d"]]}, "files"),
    ],
)
def test_what_is_no_command_is_refused_with_its_place(message: dict[str, Any], reason: str) -> None:
    with pytest.raises(PeerViolation, match=reason):
        read_command(message)


@given(
    st.dictionaries(
        st.sampled_from(["kind", "task", "epoch", "files", "peers", "lost", "number", "rollback", "finished"]),
        st.none()
        | st.integers(-2, 2)
        | st.sampled_from(["follow", "promote", "inquire", "stop"])
        | st.lists(st.integers(), max_size=3),
    )
)
def test_no_map_raises_anything_else(message: dict[str, Any]) -> None:
    try:
        read_command(message)
    except PeerViolation:
        pass
