"""Clients of a real broker: their errors in one line, and what becomes of them in a forked process."""

from __future__ import annotations

import gc
import os

import pytest

from benchmarks.servers.kafka import Broker, Topics
from causal.errors import CausalError, InvariantViolation, PipelineError, Unavailable
from deploy import doctor
from operators.kafka.kafka_cluster import cluster_of
from operators.kafka.kafka_handles import Handle, partitions_of

SAID = "KafkaSink('orders')"
READS = {"group.id": "test"}


def test_partitions_of_a_topic_and_of_a_missing_one(shared_kafka: Topics) -> None:
    cluster = cluster_of(SAID, shared_kafka.servers, None)
    shared_kafka.create("three", 3)
    reader = Handle(cluster, "consumer", READS)
    try:
        assert partitions_of(reader, "three", 5) == [0, 1, 2]
        for _ in range(2):
            with pytest.raises(PipelineError, match="there is no topic nothing; create it first"):
                partitions_of(reader, "nothing", 5)
    finally:
        reader.close()


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"security.protocol": "hunter2", "sasl.password": "hunter2"}, "correct the options"),
        ({"no.such": "x"}, 'No such configuration property: "no.such"; correct the options'),
        ({"socket.timeout.ms": "soon"}, "correct the options"),
    ],
)
def test_wrong_options_are_named_without_secrets(options: dict[str, str], words: str) -> None:
    pytest.importorskip("confluent_kafka", reason="confluent_kafka is not installed (extra kafka)")
    with pytest.raises(PipelineError, match=words) as refused:
        Handle(cluster_of(SAID, "127.0.0.1:1", options), "producer")
    assert "hunter2" not in str(refused.value)


def test_a_cluster_that_is_not_there_is_named_with_the_reason() -> None:
    pytest.importorskip("confluent_kafka", reason="confluent_kafka is not installed (extra kafka)")
    reader = Handle(cluster_of(SAID, "127.0.0.1:1", None), "consumer", READS)
    with pytest.raises(Unavailable, match="Kafka at 127.0.0.1:1.*cannot be reached"):
        partitions_of(reader, "orders", 0.3)
    reader.close()


def test_the_doctor_asks_a_cluster(shared_kafka: Topics) -> None:
    assert doctor.kafka(shared_kafka.servers) == (
        "ok",
        "Kafka",
        f"Kafka at {shared_kafka.servers}: 1 broker, with transactions",
    )
    state, _, text = doctor.kafka("127.0.0.1:1")
    assert state == "wrong" and "cannot be reached" in text
    assert doctor.kafka("kafka://app:secret@h")[0] == "wrong"


def test_inherited_clients_are_left_to_the_parent(own_kafka: Broker) -> None:
    cluster = cluster_of(SAID, own_kafka.servers, None)
    own_kafka.topics.create("t")
    handles = [Handle(cluster, "consumer", READS), Handle(cluster, "producer"), Handle(cluster, "administrator")]
    assert partitions_of(handles[0], "t", 5) == [0]
    pid = os.fork()
    if pid == 0:
        try:
            gone = all(handle.gone for handle in handles)
            try:
                print(handles[0].client)
            except InvariantViolation:
                gone = gone and True
            for handle in handles:
                handle.close()
            del handle, handles
            gc.collect()
            own = Handle(cluster, "consumer", READS)
            able = partitions_of(own, "t", 5) == [0]
            own.close()
            os._exit(0 if gone and able else 1)
        except CausalError:
            os._exit(2)
    assert os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) == 0
    assert partitions_of(handles[0], "t", 5) == [0]
    for handle in handles:
        handle.close()
