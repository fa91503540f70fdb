"""Addresses, options and errors of Kafka clients: what is refused, what is translated, and that no secret is shown."""

from __future__ import annotations

from typing import Any

import pytest

from causal.errors import PipelineError, Unavailable
from operators.kafka.kafka_cluster import check_topic, cluster_of
from operators.kafka.kafka_errors import translated

SAID = "KafkaSink('orders')"


@pytest.mark.parametrize(
    "servers", ["host:9092", "one:9092, two:9093", "[::1]:9092", "SASL_SSL://broker_1.example", "h"]
)
def test_addresses(servers: str) -> None:
    cluster = cluster_of(SAID, servers, None)
    assert cluster.place == f"Kafka at {servers.replace(' ', '')}"


@pytest.mark.parametrize(
    "servers", ["", "host:", "host:0", "host:99999", "a,,b", "kafka://app:secret@host:9092", "host/secret", 7, None]
)
def test_what_is_no_address_is_refused_without_being_shown(servers: Any) -> None:
    with pytest.raises(PipelineError, match='is not a list of addresses; use one like "host:9092"') as refused:
        cluster_of(SAID, servers, None)
    assert "secret" not in str(refused.value)


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"sasl.password": b"secret"}, "option 'sasl.password' is a bytes; use librdkafka's names"),
        ({7: "x"}, "option 7 is a str"),
        ({"bootstrap.servers": "x"}, "cannot be set: pass the addresses as servers"),
        ({"acks": "0"}, "option 'acks' cannot be set: because"),
    ],
)
def test_options_are_refused_by_name(options: Any, words: str) -> None:
    with pytest.raises(PipelineError, match=words) as refused:
        cluster_of(SAID, "host", options, {"acks": "because"})
    assert "secret" not in str(refused.value)


def test_the_text_of_a_cluster_has_no_secret_and_no_message_has_one() -> None:
    options = {"sasl.password": "hunter two", "ssl.key.pem": "BEGIN\nKEY", "sasl.username": "app"}
    cluster = cluster_of(SAID, "host", options)
    assert "hunter" not in repr(cluster)
    assert cluster.masked("wrong: hunter\n two of app, BEGIN KEY") == "wrong: *** of app, ***"
    assert "hunter" not in str(translated(ValueError('"hunter two" is invalid'), cluster))


@pytest.mark.parametrize("topic", ["", ".", "..", "a b", "a/b", "ü", "a" * 250, None])
def test_names_that_kafka_refuses_are_refused(topic: Any) -> None:
    with pytest.raises(PipelineError, match="use letters, digits, '.', '_' and '-', at most 249 of them"):
        check_topic(SAID, topic)


def test_names_that_kafka_accepts_are_accepted() -> None:
    check_topic(SAID, "a.B_c-9" * 35)


class Problem:
    """An error as librdkafka gives it."""

    def __init__(self, name: str, words: str = "words") -> None:
        self._name, self._words = name, words

    def name(self) -> str:
        return self._name

    def str(self) -> str:
        return self._words


@pytest.mark.parametrize(
    ("name", "kind", "words"),
    [
        ("UNKNOWN_TOPIC_OR_PART", PipelineError, "Kafka at h: topic t: words; create the topic first"),
        ("TOPIC_AUTHORIZATION_FAILED", PipelineError, "grant the user the missing permission"),
        ("UNSUPPORTED_VERSION", PipelineError, "the broker is too old or lacks this feature"),
        ("_AUTHENTICATION", PipelineError, "check security.protocol, sasl.mechanism"),
        ("_TRANSPORT", Unavailable, "Kafka at h: topic t cannot be reached: words; start it, or check the network"),
        ("NOT_ENOUGH_REPLICAS", Unavailable, "start the missing brokers"),
        ("_TIMED_OUT", Unavailable, "does not answer: words; check it, or raise timeout_ms"),
        ("SOMETHING_NEW", Unavailable, r"Kafka at h: topic t: words \(SOMETHING_NEW\)"),
    ],
)
def test_each_error_has_a_remedy(name: str, kind: type[Exception], words: str) -> None:
    error = translated(Problem(name), cluster_of(SAID, "h", None), what="topic t")
    assert type(error) is kind
    with pytest.raises(kind, match=words):
        raise error


def test_what_a_client_reported_explains_its_silence() -> None:
    cluster = cluster_of(SAID, "h", None)
    refused = Problem("_TRANSPORT", "Connect to 127.0.0.1:1 failed: Connection refused.")
    assert "cannot be reached: Connect to 127.0.0.1:1 failed: Connection refused;" in str(
        translated(Problem("_TIMED_OUT"), cluster, refused)
    )
    assert type(translated(Problem("_TIMED_OUT"), cluster, Problem("_AUTHENTICATION"))) is PipelineError
    verified = Problem("_SSL", "SSL handshake failed: certificate verify failed")
    broken = Problem("_SSL", "SSL handshake failed: Disconnected")  # as by a broker that is being restarted
    for reported, kind in ((verified, PipelineError), (broken, Unavailable)):
        error = translated(Problem("_TRANSPORT"), cluster, reported)
        assert type(error) is kind and "check security.protocol and the ssl.… options" in str(error)
    assert "words; create the topic" in str(translated(Problem("UNKNOWN_TOPIC_OR_PART"), cluster, refused))
    assert type(translated(Problem("_UNKNOWN_PARTITION"), cluster)) is Unavailable
