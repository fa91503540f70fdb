"""Agents find the supervisor among several addresses, and obey the highest term."""

from __future__ import annotations

from typing import Any

import pytest

from causal.commands import HighestTerm
from causal.errors import PeerViolation, PipelineError
from causal.network.curve import new_key
from causal.network.roster import Roster, is_supervisor
from causal.network.seats import Seat, joined, seats_of

KEYS = {name: new_key(name).public for name in ("supervisor", "supervisor-b", "a")}


def roster(*names: str, **listen: str) -> Roster:
    """Return a roster with these names, some with an address; an underscore stands for the hyphen."""
    at = {name.replace("_", "-"): address for name, address in listen.items()}
    lines = [
        f'[{name}]\npublic = "{KEYS[name]}"\n' + (f'listen = "{at[name]}"\n' if name in at else "") for name in names
    ]
    return Roster.read("".join(lines), "hosts.toml")


def test_one_supervisor_needs_no_name() -> None:
    seats = seats_of("tcp://10.0.0.1:7700", roster("supervisor", "a"))
    assert seats == [Seat("supervisor", "tcp://10.0.0.1:7700", KEYS["supervisor"])]


def test_a_copied_key_may_be_at_several_addresses() -> None:
    seats = seats_of(joined(["tcp://x:1, tcp://y:2", "tcp://z:3"]), roster("supervisor", "a"))
    assert [(seat.name, seat.endpoint) for seat in seats] == [
        ("supervisor", "tcp://x:1"),
        ("supervisor", "tcp://y:2"),
        ("supervisor", "tcp://z:3"),
    ]


def test_the_roster_adds_successors_and_names_those_at_an_address() -> None:
    known = roster("supervisor", "supervisor-b", "a", supervisor="tcp://x:1", supervisor_b="tcp://y:2")
    assert [(seat.name, seat.public) for seat in seats_of("tcp://x:1", known)] == [
        ("supervisor", KEYS["supervisor"]),
        ("supervisor-b", KEYS["supervisor-b"]),
    ]
    assert [member.name for member in known.hosts] == ["a"]


def test_a_name_before_the_address_counts() -> None:
    known = roster("supervisor", "supervisor-b")
    seats = seats_of("supervisor@tcp://x:1,supervisor-b@tcp://y:2", known)
    assert [(seat.name, seat.endpoint) for seat in seats] == [
        ("supervisor", "tcp://x:1"),
        ("supervisor-b", "tcp://y:2"),
    ]


def test_without_keys_an_address_is_enough() -> None:
    assert seats_of("tcp://localhost:1", Roster({})) == [Seat("", "tcp://127.0.0.1:1")]


@pytest.mark.parametrize(
    ("join", "names", "line"),
    [
        (
            "tcp://x:1",
            ("supervisor", "supervisor-b"),
            "state which one is at tcp://x:1: supervisor@tcp://x:1, or listen =",
        ),
        ("tcp://x:1", ("a",), "hosts.toml lacks the public key of supervisor;"),
        ("a@tcp://x:1", ("a", "supervisor"), "hosts.toml lacks the public key of a;"),
    ],
)
def test_an_address_whose_supervisor_is_not_known_is_refused(join: str, names: tuple[str, ...], line: str) -> None:
    with pytest.raises(PipelineError) as refused:
        seats_of(join, roster(*names))
    assert line in str(refused.value) and "\n" not in str(refused.value)


def test_names_of_supervisors() -> None:
    assert [is_supervisor(name) for name in ("supervisor", "supervisor-b", "supervisors", "b")] == [
        True,
        True,
        False,
        False,
    ]


def test_messages_of_a_lower_term_are_refused() -> None:
    terms = HighestTerm(2)
    obeyed = [terms.admits({"kind": "kill", "term": term}) for term in (2, 1, 3, 2, 3)]
    assert obeyed == [True, False, True, False, True]
    assert (terms.term, terms.refused) == (3, 2)
    assert terms.admits({"kind": "alive"}), "on one machine messages have no term"
    assert not terms.admits({"kind": "alive", "term": "9"})


@pytest.mark.parametrize("message", [None, 5, "x", [1]])
def test_what_is_no_message_is_no_command(message: Any) -> None:
    with pytest.raises(PeerViolation):
        HighestTerm().admits(message)
