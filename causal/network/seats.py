"""The addresses at which a job's supervisor may be found: its own, and those of its successors."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from causal.errors import PipelineError
from causal.network.roster import SUPERVISOR, Roster, is_supervisor


@dataclass(frozen=True, slots=True)
class Seat:
    """The address of one supervisor, and its public key, which is empty for unencrypted loopback connections."""

    name: str
    endpoint: str
    public: str = ""


def joined(texts: Iterable[str]) -> str:
    """Join the values of `--join`, each with one or more addresses, into the text that `seats_of` reads."""
    return ",".join(part.strip() for text in texts for part in text.split(",") if part.strip())


def seats_of(join: str, roster: Roster) -> list[Seat]:
    """Return the addresses in a comma-separated text, and the addresses of the other supervisors in a roster.

    `NAME@tcp://…` names the supervisor explicitly. Otherwise it is the supervisor with that address in the roster, or
    the only supervisor in the roster.

    Raises:
        PipelineError: it is unclear which supervisor is at an address.
    """
    at = {member.listen: member.name for member in roster.supervisors if member.listen}
    seats: dict[str, Seat] = {}
    for part in [*filter(None, join.split(",")), *at]:
        name, marked, endpoint = part.rpartition("@")
        endpoint = endpoint.replace("localhost", "127.0.0.1")
        if endpoint not in seats:
            seats[endpoint] = _seat(name if marked else at.get(endpoint, ""), endpoint, roster)
    return list(seats.values())


def _seat(name: str, endpoint: str, roster: Roster) -> Seat:
    supervisors = [member.name for member in roster.supervisors]
    if not roster.members:
        return Seat(name, endpoint)
    if not name and len(supervisors) > 1:
        raise PipelineError(
            f"hosts.toml has {' and '.join(supervisors)}; state which one is at {endpoint}: "
            f'{supervisors[0]}@{endpoint}, or listen = "{endpoint}" in its table'
        )
    name = name or SUPERVISOR
    member = roster.members.get(name)
    if member is None or not is_supervisor(name):
        raise PipelineError(f"hosts.toml lacks the public key of {name}; copy it from the supervisor's machine")
    return Seat(name, endpoint, member.public)
