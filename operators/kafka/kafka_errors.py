"""The translation of librdkafka's errors: which ones may be retried, and the remedy for each, in one line."""

from __future__ import annotations

from typing import Any

from causal.errors import CausalError, PipelineError, Unavailable
from operators.kafka.kafka_cluster import Cluster

_WORDS_MAX = 400
FENCED = ("_FENCED", "PRODUCER_FENCED", "INVALID_PRODUCER_EPOCH")
"""Another producer has the same transactional.id, which is a hint that another process owns the output."""
OVERSIZED = ("MSG_SIZE_TOO_LARGE", "INVALID_MSG_SIZE", "RECORD_LIST_TOO_LARGE")
MISSING = ("UNKNOWN_TOPIC_OR_PART", "_UNKNOWN_TOPIC", "_UNKNOWN_PARTITION")
SILENT = ("_TIMED_OUT", "_MSG_TIMED_OUT", "_TIMED_OUT_QUEUE", "REQUEST_TIMED_OUT", "_ALL_BROKERS_DOWN")
"""Errors whose only news is that no answer came; the errors reported meanwhile have the reason."""

_PERMISSION = "grant the user the missing permission (kafka-acls --add)"
_SASL = "check security.protocol, sasl.mechanism, sasl.username and sasl.password in options"
_TOO_OLD = "the broker is too old or lacks this feature: Kafka 2.5 or later is needed"
_FOR_GOOD = {
    "UNKNOWN_TOPIC_OR_PART": "create the topic first (kafka-topics --create), or correct its name",
    "TOPIC_AUTHORIZATION_FAILED": _PERMISSION,
    "GROUP_AUTHORIZATION_FAILED": _PERMISSION,
    "CLUSTER_AUTHORIZATION_FAILED": _PERMISSION,
    "TRANSACTIONAL_ID_AUTHORIZATION_FAILED": _PERMISSION,
    "DELEGATION_TOKEN_AUTHORIZATION_FAILED": _PERMISSION,
    "SASL_AUTHENTICATION_FAILED": _SASL,
    "_AUTHENTICATION": _SASL,
    "UNSUPPORTED_SASL_MECHANISM": _SASL,
    "ILLEGAL_SASL_STATE": _SASL,
    "UNSUPPORTED_VERSION": _TOO_OLD,
    "_UNSUPPORTED_FEATURE": _TOO_OLD,
    "UNSUPPORTED_FOR_MESSAGE_FORMAT": _TOO_OLD,
    "INVALID_REQUEST": _TOO_OLD,
    "TOPIC_EXCEPTION": "use another name for the topic",
    "INVALID_REPLICATION_FACTOR": "the cluster has fewer brokers than the topic needs replicas",
    "POLICY_VIOLATION": "the cluster's policy refuses it: ask its administrator",
    "INVALID_TRANSACTION_TIMEOUT": "lower transaction.timeout.ms in options, or raise the broker's maximum",
    "INVALID_REQUIRED_ACKS": "remove acks from options",
    "_INVALID_ARG": "correct the options",
    "_CONFLICT": "correct the options",
    "_NOT_CONFIGURED": "correct the options",
}
_SSL = "check security.protocol and the ssl.… options"
_UNSEEN = "the brokers do not show the topic at the moment: wait for it, or create it again"
_REMEDIES = {
    "_UNKNOWN_TOPIC": _UNSEEN,  # a client that has just connected again may not know its topics yet
    "_UNKNOWN_PARTITION": _UNSEEN,
    "NOT_ENOUGH_REPLICAS": "too few replicas are in sync: start the missing brokers, or lower min.insync.replicas",
    "NOT_ENOUGH_REPLICAS_AFTER_APPEND": "too few replicas are in sync: start the missing brokers",
    "KAFKA_STORAGE_ERROR": "a broker cannot write its files: check its disk",
    "COORDINATOR_NOT_AVAILABLE": "the cluster has no coordinator for this task yet: wait for it, or start all brokers",
    "COORDINATOR_LOAD_IN_PROGRESS": "a broker is loading its files: wait for it",
    "NOT_COORDINATOR": "the coordinator is moving to another broker: wait for it",
    "LEADER_NOT_AVAILABLE": "the partition has no leader: start the missing brokers",
    "NOT_LEADER_FOR_PARTITION": "the leader is moving to another broker: wait for it",
    "CONCURRENT_TRANSACTIONS": "an earlier transaction is still being ended: wait for it",
    "THROTTLING_QUOTA_EXCEEDED": "the user's quota is exhausted: raise it",
    "_SSL": _SSL,  # also of a connection that a broker closes during the handshake because it is being restarted
    "_RESOLVE": "its name is unknown: check servers",
}


def error_of(problem: Any) -> Any:
    """Return librdkafka's error of an exception, or the error itself."""
    return problem.args[0] if isinstance(problem, Exception) and problem.args else problem


def name_of(problem: Any) -> str:
    """Return the name of an error, such as "_TIMED_OUT"; "" if it is none of librdkafka's."""
    error = error_of(problem)
    return str(error.name()) if hasattr(error, "name") else ""


def translated(problem: Any, cluster: Cluster, reported: Any = None, what: str = "") -> CausalError:
    """Return the project's error, with a remedy, for an exception or error of confluent-kafka.

    Args:
        reported: the last error that the client reported outside of a call, if any; it explains a time-out.
        what: the subject, such as "topic orders"; it precedes the client's words.
    """
    name = name_of(problem)
    if reported is not None and (not name or name in SILENT or name == "_TRANSPORT"):
        problem, name = reported, name_of(reported)
    error = error_of(problem)
    words = str(error.str()) if hasattr(error, "str") else str(error)
    words = cluster.masked(words).rstrip(".")[:_WORDS_MAX] or name or type(problem).__name__
    place = f"{cluster.place}: {what}" if what else cluster.place
    if name == "_SSL" and "certificate" in words:
        return PipelineError(f"{place}: {words}; {_SSL}")
    if remedy := _FOR_GOOD.get(name):
        return PipelineError(f"{place}: {words}; {remedy}")
    if remedy := _REMEDIES.get(name):
        return Unavailable(f"{place}: {words}; {remedy}")
    if name in ("_TRANSPORT", "_ALL_BROKERS_DOWN", "BROKER_NOT_AVAILABLE", "NETWORK_EXCEPTION"):
        return Unavailable(f"{place} cannot be reached: {words}; start it, or check the network and servers")
    if name in SILENT or isinstance(problem, BufferError):
        return Unavailable(f"{place} does not answer: {words}; check it, or raise timeout_ms")
    return Unavailable(f"{place}: {words}{f' ({name})' if name else ''}")
