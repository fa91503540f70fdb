"""The gate's roster: some files together, read again when one changes."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import zmq

from causal.errors import PipelineError
from causal.network.curve import new_key
from causal.network.roster import ROSTER, mark_of, save_key
from standby.network.gate import Gate


@pytest.fixture
def context() -> Iterator[zmq.Context[Any]]:
    context: zmq.Context[Any] = zmq.Context()
    yield context
    context.term()


def opened(context: zmq.Context[Any], *rosters: Path) -> Gate:
    return Gate(context, "tcp://127.0.0.1:0", None, rosters, {}, 1)


def test_two_files_are_one_roster_and_a_host_that_leaves_either_is_revoked(
    tmp_path: Path, context: zmq.Context[Any]
) -> None:
    for folder, name in (("a", "supervisor"), ("a", "edge"), ("b", "first")):
        save_key(tmp_path / folder, new_key(name))
    one, other = tmp_path / "a" / ROSTER, tmp_path / "b" / ROSTER
    gate = opened(context, one, other)
    try:
        assert set(gate.authenticator.roster.members) == {"supervisor", "edge", "first"}
        before = gate.roster_mark
        assert before == mark_of(one.read_text() + "\n" + other.read_text())
        save_key(tmp_path / "b", new_key("second"))
        assert gate.revoked() == []
        assert "second" in gate.authenticator.roster.members and gate.roster_mark != before
        other.write_text("")
        assert gate.revoked() == ["first", "second"]
    finally:
        gate.close()


def test_a_roster_that_becomes_unreadable_stays_as_it_was(tmp_path: Path, context: zmq.Context[Any]) -> None:
    path = save_key(tmp_path, new_key("edge")).with_name(ROSTER)
    gate = opened(context, path)
    try:
        path.write_text("[edge")
        assert gate.revoked() == [] and set(gate.authenticator.roster.members) == {"edge"}
        path.unlink()
        assert gate.revoked() == [] and set(gate.authenticator.roster.members) == {"edge"}
    finally:
        gate.close()


@pytest.mark.parametrize("address", ["0.0.0.0", "[::]", "192.0.2.1"])
def test_without_a_key_nothing_but_loopback_is_bound(context: zmq.Context[Any], address: str) -> None:
    with pytest.raises(PipelineError, match="can be reached from the network; use --key and --hosts"):
        Gate(context, f"tcp://{address}:0", None, (), {}, 1)


def test_two_files_with_one_host_are_refused(tmp_path: Path, context: zmq.Context[Any]) -> None:
    for folder in ("a", "b"):
        save_key(tmp_path / folder, new_key("edge"))
    with pytest.raises(PipelineError, match="is not valid TOML"):
        opened(context, tmp_path / "a" / ROSTER, tmp_path / "b" / ROSTER)
