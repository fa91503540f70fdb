"""A process of several hosts notes where its neighbours are, and forgets it when they move to its own host."""

from __future__ import annotations

from causal import commands
from operators.runtime.membership import Commanded, Membership, Place, Vitals
from tests.exhaustive.worlds import PAIR


def _placed(remote: str, *endpoints: str) -> list[str]:
    """Returns the places of its source that the sink notes, as that moves."""
    member = Membership("w2", 1, "ipc://w2", PAIR, 60, Vitals, remote)
    member.handle(Commanded(commands.Promote("sink", 1, 0, (), {})), 0)
    acts = []
    for incarnation, endpoint in enumerate(endpoints, 1):
        acts += member.handle(Commanded(commands.Peer("source", endpoint, incarnation)), 0)
    return [act.endpoint for act in acts if isinstance(act, Place)]


def test_a_neighbour_that_moves_to_this_host_is_heard_from_no_other_one_any_more() -> None:
    there, here = "tcp://b@10.0.0.2:7", "ipc://w3"
    assert _placed("tcp://10.0.0.1:6", there, here) == [there, here]


def test_on_one_machine_no_neighbour_has_a_place() -> None:
    assert _placed("", "ipc://w1", "ipc://w3") == []
