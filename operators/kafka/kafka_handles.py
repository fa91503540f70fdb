"""Clients of librdkafka with their life in our hands: made late, closed in time, never used or freed after a fork.

A client has threads, which a forked process lacks: there its clean-up would wait for them forever or end the process. A
forked process therefore keeps the memory of inherited clients, and a `Handle` that was inherited says that it is gone.
An administrator must live until its answers have arrived, so `answered` keeps it until then.
"""

from __future__ import annotations

import ctypes
import logging
import os
import weakref
from collections.abc import Mapping
from concurrent.futures import Future
from typing import Any, Literal

from causal.errors import CausalError, PipelineError, invariant
from operators.kafka.kafka_cluster import Cluster
from operators.kafka.kafka_errors import MISSING, name_of, translated

Kind = Literal["consumer", "producer", "administrator"]
_QUIET = {"log_level": 0, "log.connection.close": False}
"""Logs are off, because librdkafka also reports each error that it logs, and the project's line has a remedy."""
_SILENT = logging.Logger("causal.kafka")
_SILENT.addHandler(logging.NullHandler())
_HASTE = {
    "enable.sparse.connections": False,
    "reconnect.backoff.ms": 10,
    "reconnect.backoff.max.ms": 500,
    "retry.backoff.ms": 20,
}
"""Connections are made immediately instead of at a tick of up to 500 ms, and again soon after a broker returns.

A consumer that is assigned OFFSET_BEGINNING waits for such a tick, too; one that is assigned a number does not.
"""

_DESCRIBE_S = 10.0


def require_kafka(said: str) -> None:
    """Raise `PipelineError`, with the remedy, unless confluent-kafka can be imported."""
    try:
        import confluent_kafka  # noqa: F401
    except ImportError as problem:
        raise PipelineError(
            f"{said} needs confluent-kafka ({problem}); run `pip install -e '.[kafka]'` in the checkout"
        ) from None


class Handle:
    """One client: a consumer, a producer or an administrator. Only one thread may use it at a time.

    Args:
        own: options of this client, which precede those of the cluster.
    State: `reported` is the last error that the client reported outside of a call, and explains a time-out.
    """

    def __init__(self, cluster: Cluster, kind: Kind, own: Mapping[str, Any] | None = None) -> None:
        import confluent_kafka
        from confluent_kafka.admin import AdminClient

        self.cluster = cluster
        self.reported: Any = None
        self._kind = kind
        kinds = {
            "consumer": confluent_kafka.Consumer,
            "producer": confluent_kafka.Producer,
            "administrator": AdminClient,
        }
        settings = {**_QUIET, **_HASTE, **cluster.options, **(own or {}), "bootstrap.servers": cluster.servers}
        settings |= {"error_cb": _reporting(weakref.ref(self)), "logger": _SILENT}
        try:
            self._client: Any = kinds[kind](settings)
        except (confluent_kafka.KafkaException, TypeError, ValueError) as problem:
            self._client = None
            raise translated(problem, cluster, what="the options of its clients") from None
        _OPEN.add(self)

    @property
    def client(self) -> Any:
        """The client of confluent-kafka."""
        invariant(self._client is not None, "a client is used where it was made, until it is closed", kind=self._kind)
        return self._client

    @property
    def gone(self) -> bool:
        """Whether the client is closed, or was inherited from another process."""
        return self._client is None

    def translated(self, problem: Any, what: str = "") -> CausalError:
        """Return the project's error for one of this client, with what the client has reported as its reason."""
        self.listen()
        return translated(problem, self.cluster, self.reported, what)

    def listen(self) -> None:
        """Take over the errors that the client has noticed; a consumer that has partitions reports them as it reads."""
        import confluent_kafka

        if self._client is not None and (self._kind != "consumer" or not self._client.assignment()):
            try:
                self._client.poll(0)
            except confluent_kafka.KafkaException as problem:  # a fatal error, after which it can only be closed
                self.reported = problem.args[0]

    def close(self) -> None:
        """Close the client; messages that are not delivered yet are dropped."""
        client, self._client = self._client, None
        _OPEN.discard(self)
        if client is None:
            return
        if self._kind == "consumer":
            client.close()
        elif self._kind == "producer":
            client.purge()
            self._client = client
            self.listen()
            self._client = None

    def _leave_to_parent(self) -> None:
        """Forget the client of the process that forked this one; its memory stays, because nothing could free it."""
        client, self._client = self._client, None
        if client is not None:
            ctypes.pythonapi.Py_IncRef(ctypes.py_object(client))


def _reporting(handle: weakref.ref[Handle]) -> Any:
    """Return the function that a client calls with its errors; it does not keep the handle alive."""

    def report(error: Any) -> None:
        owner = handle()
        if owner is not None and (owner.reported is None or name_of(error) != "_ALL_BROKERS_DOWN"):
            owner.reported = error

    return report


_OPEN: weakref.WeakSet[Handle] = weakref.WeakSet()


def _leave_all_to_parent() -> None:
    for handle in list(_OPEN):
        handle._leave_to_parent()
    _OPEN.clear()


os.register_at_fork(after_in_child=_leave_all_to_parent)


def answered(handle: Handle, futures: Mapping[Any, Future[Any]], timeout_s: float, what: str = "") -> dict[Any, Any]:
    """Return the answers of an administrator's call, which the handle outlives.

    Raises:
        CausalError: one of them is an error; the line has a remedy.
    """
    import confluent_kafka

    answers = {}
    try:
        for asked, future in futures.items():
            answers[asked] = future.result(timeout_s)
    except (confluent_kafka.KafkaException, TimeoutError) as problem:
        raise handle.translated(problem, what) from problem
    return answers


def partitions_of(handle: Handle, topic: str, timeout_s: float) -> list[int]:
    """Return the partitions of a topic, in order, without creating it; `handle` is a consumer.

    Raises:
        PipelineError: there is no such topic, or it may not be seen.
        Unavailable: the cluster does not answer.
    """
    import confluent_kafka

    try:
        seen = handle.client.list_topics(topic, timeout_s).topics.get(topic)
    except confluent_kafka.KafkaException as problem:
        raise handle.translated(problem, f"topic {topic}") from problem
    if seen is None or seen.error is not None or not seen.partitions:
        if seen is None or seen.error is None or name_of(seen.error) in MISSING:
            raise PipelineError(
                f"{handle.cluster.place}: there is no topic {topic}; create it first (kafka-topics --create), or "
                "correct its name"
            )
        raise handle.translated(seen.error, f"topic {topic}")
    return sorted(seen.partitions)


def policy_of(cluster: Cluster, topic: str) -> str | None:
    """Return the `cleanup.policy` of a topic; None if the user may not see it, or the broker does not say it.

    Raises:
        CausalError: there is no such topic, or the cluster does not answer.
    """
    import confluent_kafka
    from confluent_kafka.admin import RESOURCE_TOPIC, ConfigResource

    handle = Handle(cluster, "administrator")
    try:
        asked = handle.client.describe_configs([ConfigResource(RESOURCE_TOPIC, topic)], request_timeout=_DESCRIBE_S)
        (described,) = answered(handle, asked, _DESCRIBE_S).values()
    except PipelineError:
        return None  # a user may be allowed to use a topic, and not to see its settings
    except confluent_kafka.KafkaException as problem:
        raise handle.translated(problem, f"topic {topic}") from None
    finally:
        handle.close()
    policy = described.get("cleanup.policy")
    return None if policy is None else str(policy.value)
