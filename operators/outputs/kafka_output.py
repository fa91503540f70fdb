"""A reader of the output of a `KafkaSink`, as `read_committed` readers see it.

The account of a task has the position up to which rows can be read. The rows of a task are spread over the partitions
of the topic, in the order of their positions within each, so that reading merges the partitions.
"""

from __future__ import annotations

import heapq
import time
from collections.abc import Iterator, Mapping
from contextlib import closing
from itertools import islice
from typing import Any

from causal.errors import PipelineError
from operators.kafka.kafka_cluster import Option, check_topic, cluster_of
from operators.kafka.kafka_handles import Handle, require_kafka
from operators.outputs.output import Piece
from operators.sinks.contract.account import Account

ROWS_AT_ONCE = 5000
_WAIT_S = 10.0
_AT_ONCE = 500


class KafkaOutput:
    """A reader of one topic.

    Args:
        options: options of librdkafka, as for `KafkaSink`.
    """

    def __init__(self, servers: str, topic: str, options: Mapping[str, Option] | None = None) -> None:
        said = f"open_output of topic {topic!r}"
        require_kafka(said)
        check_topic(said, topic)
        self._cluster = cluster_of(said, servers, options)
        self._topic = topic
        self._run = ""
        self._begins: dict[int, int] = {}
        self._ends: dict[str, int] = {}
        self._ended = False

    @property
    def run(self) -> str:
        """See `Output.run`."""
        return self._run

    @property
    def ended(self) -> bool:
        """See `Output.ended`."""
        return self._ended

    def look(self) -> None:
        """See `Output.look`."""
        import confluent_kafka

        from operators.sinks.kafka.side_topics import RunLog, read_to_end, runs_topic
        from operators.sinks.messages.account_log import AccountLog

        runs_name = runs_topic(self._topic)
        with closing(self._reader()) as reader:
            try:
                topics = sorted(reader.client.list_topics(timeout=_WAIT_S).topics)
                if runs_name not in topics:
                    raise PipelineError(
                        f"{self._cluster.place}: topic {self._topic} has no rows of a KafkaSink; use the topic of a "
                        "KafkaSink whose job has started"
                    )
                runs = RunLog(f"{self._cluster.place}: topic {runs_name}")
                read_to_end(reader, {runs_name: runs.take}, _WAIT_S)
                accounts: list[Account] = []
                for name in topics:
                    if name.startswith(f"{runs_name}."):
                        log = AccountLog(name, f"{self._cluster.place}: topic {name}")
                        read_to_end(reader, {name: log.take}, _WAIT_S)
                        if log.account is not None and log.account.run == runs.newest and log.account.incarnation >= 0:
                            accounts.append(log.account)
            except confluent_kafka.KafkaException as problem:
                raise reader.translated(problem) from problem
        self._run, self._begins = runs.newest, runs.begins
        self._ends = {account.task: account.next for account in accounts}
        self._ended = bool(accounts) and all(account.ended for account in accounts)

    def ends(self, uncovered: bool) -> dict[str, int]:
        """See `Output.ends`; rows are never withdrawn."""
        return dict(self._ends)

    def withdrawn(self) -> dict[str, int]:
        """See `Output.withdrawn`; rows are never withdrawn."""
        return dict.fromkeys(self._ends, 0)

    def hint(self, task: str, position: int) -> Any:
        """Return None: the partitions are read from the beginning of the run."""
        return None

    def rows(self, task: str, start: int, stop: int, hint: Any = None) -> Iterator[Piece]:
        """See `Output.rows`."""
        parts = [self._in_partition(partition, begin, task) for partition, begin in self._begins.items()]
        wanted = (row for row in heapq.merge(*parts) if row[0] >= start)
        while piece := list(islice(wanted, ROWS_AT_ONCE)):
            inside = [row for row in piece if row[0] < stop]
            if inside:
                positions, texts = zip(*inside, strict=True)
                yield positions, list(texts)
            if len(inside) < len(piece):
                return

    def _in_partition(self, partition: int, begin: int, task: str) -> Iterator[tuple[int, str]]:
        """Yield the rows of a task in one partition, up to its current end."""
        from confluent_kafka import TopicPartition

        from operators.kafka.kafka_errors import name_of
        from operators.sinks.messages.message_rows import POSITION, TASK

        with closing(self._reader()) as reader:
            low, _ = reader.client.get_watermark_offsets(TopicPartition(self._topic, partition), _WAIT_S)
            reader.client.assign([TopicPartition(self._topic, partition, max(low, begin))])
            deadline_s = time.monotonic() + _WAIT_S
            while True:
                one = reader.client.poll(max(deadline_s - time.monotonic(), 0))
                if one is None:
                    raise reader.translated(TimeoutError("the topic was not read in time"), f"topic {self._topic}")
                for message in [one, *reader.client.consume(_AT_ONCE, 0)]:
                    problem = message.error()
                    if problem is None:
                        headers = dict(message.headers() or ())
                        if headers.get(TASK) == task.encode():
                            yield int(headers[POSITION]), (message.value() or b"null").decode()
                    elif name_of(problem) == "_PARTITION_EOF":
                        return
                    else:
                        raise reader.translated(problem, f"topic {self._topic}")
                deadline_s = time.monotonic() + _WAIT_S

    def _reader(self) -> Handle:
        from operators.sinks.kafka.kafka_session import READS

        return Handle(self._cluster, "consumer", READS)
