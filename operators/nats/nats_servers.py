"""NATS servers as a source or a sink names them: addresses and options of the client, checked before any is made.

Options are those of nats-py's `connect`, by their own names, and `domain`, the domain of JetStream:

    {"user": "app", "password": os.environ["NATS_PASSWORD"], "tls": ssl.create_default_context(cafile="ca.pem")}
    {"token": os.environ["NATS_TOKEN"]}
    {"user_credentials": "/etc/nats/app.creds"}

The code of a run is archived, so a password in the pipeline file would be archived with it; one that the file reads
from the environment is not. No message, plan or log has the value of an option that holds a secret.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from causal.errors import PipelineError

SERVERS_MAX = 100
DOMAIN = "domain"
NAMES = (
    "user", "password", "token", "user_credentials", "nkeys_seed", "nkeys_seed_str", "tls", "tls_hostname",
    "tls_handshake_first", "inbox_prefix", "name", DOMAIN,
)  # fmt: skip
"""The options that may be given."""
_ADDRESS = re.compile(r"(?:(?:nats|tls)://)?(?:\[[0-9A-Fa-f:.%]+\]|[A-Za-z0-9_.-]+)(?::([0-9]{1,5}))?")
_SECRET = re.compile(r"password|token|seed")
"""Names of options whose values are never shown."""
_HIDDEN = "***"


@dataclass(frozen=True, slots=True)
class Servers:
    """The servers of one NATS system, with the options of every client; its text has no option."""

    addresses: tuple[str, ...]
    options: Mapping[str, Any] = field(default_factory=dict, repr=False)

    @property
    def place(self) -> str:
        """The name of the servers for messages."""
        return f"NATS at {','.join(self.addresses)}"

    @property
    def api(self) -> str:
        """The prefix of JetStream's subjects."""
        domain = self.options.get(DOMAIN)
        return f"$JS.{domain}.API" if domain else "$JS.API"

    def masked(self, text: str) -> str:
        """Return `text` on one line and without any secret of the options."""
        text = " ".join(text.split())
        secrets = {str(value) for name, value in self.options.items() if _SECRET.search(name)}
        for secret in sorted(secrets, key=len, reverse=True):
            for spelled in {secret, " ".join(secret.split())} - {""}:
                text = text.replace(spelled, _HIDDEN)
        return text


def servers_of(said: str, servers: str, options: Mapping[str, Any] | None) -> Servers:
    """Return the servers at these addresses.

    Args:
        said: the source or sink, for messages.

    Raises:
        PipelineError: an address or an option is wrong; the line names it, without its value.
    """
    addresses = [address.strip() for address in servers.split(",")] if isinstance(servers, str) else [""]
    if len(addresses) > SERVERS_MAX or not all(map(_is_address, addresses)):
        raise PipelineError(
            f'{said}: servers is not a list of addresses; use one like "host:4222" or "tls://one:4222,tls://two:4222", '
            "and pass user, password or token in options"
        )
    chosen = dict(options or {})
    for name, value in chosen.items():
        if name not in NAMES:
            raise PipelineError(f"{said}: option {name!r} is unknown; use {', '.join(NAMES[:-1])} or {NAMES[-1]}")
        if not isinstance(value, bool if name == "tls_handshake_first" else object if name == "tls" else str):
            raise PipelineError(f"{said}: option {name!r} is a {type(value).__name__}; use text, as nats-py does")
    if not re.fullmatch(r"[A-Za-z0-9_-]*", chosen.get(DOMAIN, "")):
        raise PipelineError(f"{said}: option 'domain' is {chosen[DOMAIN]!r}; use letters, digits, '_' and '-'")
    return Servers(tuple(addresses), chosen)


def _is_address(address: str) -> bool:
    matched = _ADDRESS.fullmatch(address)
    return matched is not None and (matched[1] is None or 0 < int(matched[1]) < 1 << 16)
