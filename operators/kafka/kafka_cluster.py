"""A Kafka cluster as a source or a sink names it: addresses and options of its clients, checked before any is made.

Options are those of librdkafka, the C library below confluent-kafka, by their own names:

    {"security.protocol": "SASL_SSL", "sasl.mechanism": "SCRAM-SHA-512", "sasl.username": "app",
     "sasl.password": os.environ["KAFKA_PASSWORD"], "ssl.ca.location": "/etc/ssl/kafka.pem"}

The code of a run is archived, so a password in the pipeline file would be archived with it; one that the file reads
from the environment is not. No message, plan or log has the value of an option that holds a secret.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field

from causal.errors import PipelineError

SERVERS_MAX = 100
TOPIC_CHARS_MAX = 249
_ADDRESS = re.compile(r"(?:[A-Za-z][A-Za-z0-9_+]*://)?(?:\[[0-9A-Fa-f:.%]+\]|[A-Za-z0-9_.-]+)(?::([0-9]{1,5}))?")
_TOPIC = re.compile(r"[A-Za-z0-9._-]+")
_SECRET = re.compile(r"password|secret|pem|token|oauthbearer|jaas|credential|assertion", re.IGNORECASE)
"""Names of options whose values are never shown."""
_HIDDEN = "***"

Option = str | int | float | bool


@dataclass(frozen=True, slots=True)
class Cluster:
    """The brokers of one Kafka cluster, with the options of every client; its text has no option."""

    servers: str
    options: Mapping[str, Option] = field(default_factory=dict, repr=False)

    @property
    def place(self) -> str:
        """The name of the cluster for messages."""
        return f"Kafka at {self.servers}"

    def masked(self, text: str) -> str:
        """Return `text` on one line and without any secret of the options."""
        text = " ".join(text.split())
        secrets = {str(value) for name, value in self.options.items() if _SECRET.search(name)}
        for secret in sorted(secrets, key=len, reverse=True):
            for spelled in {secret, " ".join(secret.split())} - {""}:
                text = text.replace(spelled, _HIDDEN)
        return text


def cluster_of(
    said: str, servers: str, options: Mapping[str, Option] | None, reserved: Mapping[str, str] | None = None
) -> Cluster:
    """Return the cluster at these addresses.

    Args:
        said: the source or sink, for messages.
        reserved: the options that the user must not set → what to do instead.

    Raises:
        PipelineError: an address or an option is wrong; the line names it, without its value.
    """
    addresses = [address.strip() for address in servers.split(",")] if isinstance(servers, str) else [""]
    if len(addresses) > SERVERS_MAX or not all(map(_is_address, addresses)):
        raise PipelineError(
            f'{said}: servers is not a list of addresses; use one like "host:9092" or "one:9092,two:9092", and pass '
            "user and password in options (sasl.username, sasl.password)"
        )
    chosen = dict(options or {})
    for name, value in chosen.items():
        if not isinstance(name, str) or not isinstance(value, (str, int, float, bool)):
            raise PipelineError(
                f"{said}: option {name!r} is a {type(value).__name__}; use librdkafka's names, with text, numbers or "
                "booleans as values"
            )
        if instead := (_RESERVED | dict(reserved or {})).get(name):
            raise PipelineError(f"{said}: option {name!r} cannot be set: {instead}")
    return Cluster(",".join(addresses), chosen)


_RESERVED = {
    "bootstrap.servers": "pass the addresses as servers",
    "metadata.broker.list": "pass the addresses as servers",
    "error_cb": "errors of a client are in the job's messages",
    "logger": "errors of a client are in the job's messages",
}


def _is_address(address: str) -> bool:
    matched = _ADDRESS.fullmatch(address)
    return matched is not None and (matched[1] is None or 0 < int(matched[1]) < 1 << 16)


def check_topic(said: str, topic: object) -> None:
    """Raise `PipelineError` unless Kafka accepts `topic` as the name of a topic."""
    good = isinstance(topic, str) and _TOPIC.fullmatch(topic) and len(topic) <= TOPIC_CHARS_MAX
    if not good or topic in (".", ".."):
        raise PipelineError(
            f"{said}: topic is {topic!r}; use letters, digits, '.', '_' and '-', at most {TOPIC_CHARS_MAX} of them"
        )
