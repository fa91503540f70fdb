"""The source of messages of a NATS JetStream stream, `NatsSource`: read in place, each exactly once, in their order.

Nothing is copied, and nothing is acknowledged: checkpoints keep sequences. Consumers are in the server's memory, and
decide nothing.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from contextlib import closing
from datetime import UTC, datetime
from itertools import combinations
from pathlib import Path
from typing import Any

from causal.errors import DeterminantsLost, PipelineError
from operators.graph import caller
from operators.nats.nats_link import require_nats
from operators.nats.nats_servers import servers_of
from operators.nats.nats_subjects import check_stream, is_pattern, overlap, overlaps
from operators.source import PartitionReader, Source, SourceContext
from operators.sources.beginnings import lend_beginnings
from operators.sources.nats.nats_reader import NatsReader, Stream, check_kept
from operators.sources.payloads import plain_decoder
from operators.stage.unreadable import SET_ASIDE

STARTS = ("earliest", "latest")
VALUE_BYTES_MAX = 15 << 20
ASK_S = 5.0


class NatsSource(Source[Any]):
    """A source of the messages of a stream, each exactly once; each subject filter is a partition of the source.

    Args:
        servers: addresses, such as "host:4222" or "tls://one:4222,tls://two:4222".
        stream: the name of the stream, which must keep messages by limits: a work queue is not read.
        subject: a filter such as "orders.>"; a list of filters, which must not overlap, is read by as many tasks. By
            default, all messages of the stream.
        decode: "json", "text", "bytes", or a pure function of the payload.
        start: where a new job begins: "earliest", "latest", or a time (a datetime; UTC if naive).
        with_metadata: whether records are dicts of `value`, `subject`, `headers`, `timestamp` (seconds; when the server
            stored the message) and `sequence`.
        value_bytes_max: the maximum size of a payload; a larger one is not a record.
        options: options of nats-py for users and TLS, and `domain`, such as {"token": os.environ["NATS_TOKEN"]}.
    """

    may_be_unreadable = True
    bad_input_remedy = SET_ASIDE.replace("lines", "messages")

    def __init__(
        self,
        servers: str,
        stream: str,
        subject: str | Sequence[str] | None = None,
        decode: str | Callable[[bytes], Any] = "json",
        start: str | datetime = "earliest",
        *,
        with_metadata: bool = False,
        value_bytes_max: int = VALUE_BYTES_MAX,
        options: Mapping[str, Any] | None = None,
    ) -> None:
        said = self._said = f"{caller()}: NatsSource"
        require_nats(said)
        check_stream(said, stream)
        filters = ("",) if subject is None else (subject,) if isinstance(subject, str) else tuple(subject)
        if not filters or (subject is not None and not all(map(is_pattern, filters))):
            raise PipelineError(f'{said}: subject is {subject!r}; use a filter such as "orders.>", or a list of them')
        if pair := next((pair for pair in combinations(filters, 2) if overlap(*pair)), None):
            raise PipelineError(
                f"{said}: subjects {pair[0]} and {pair[1]} overlap; use filters without common subjects"
            )
        if start not in STARTS and not isinstance(start, datetime):
            raise PipelineError(f"{said}: start is {start!r}; use 'earliest', 'latest' or a datetime")
        if type(value_bytes_max) is not int or not 1 <= value_bytes_max <= 1 << 30:
            raise PipelineError(f"{said}: value_bytes_max is {value_bytes_max!r}; use 1 to {1 << 30:,}")
        self.stream = stream
        self.partitions = len(filters)
        self._stream = Stream(
            servers_of(said, servers, options), stream, filters, _start(start), plain_decoder(said, decode),
            with_metadata, value_bytes_max,
        )  # fmt: skip

    def check(self) -> None:
        """Raise `PipelineError` if there is no such stream, or if messages vanish from it at any moment."""
        with closing(self._stream.link(ASK_S)) as link:
            config = self._stream.info(link)["config"]
        where = f"{self._said}: stream {self.stream}"
        if config["retention"] != "limits":
            raise PipelineError(
                f"{where} has retention={config['retention']}, so messages vanish when others acknowledge them, before "
                "they could be read again after a failure; read a stream with retention=limits"
            )
        if config["max_msgs_per_subject"] > 0:
            raise PipelineError(
                f"{where} keeps {config['max_msgs_per_subject']} messages per subject, so messages vanish before they "
                "could be read again after a failure; read a stream with max_msgs_per_subject=-1, such as a mirror"
            )
        for each in filter(None, self._stream.filters if config.get("subjects") else ()):
            if not overlaps(each, config["subjects"]):
                raise PipelineError(f"{where} has no subject {each}; it has {', '.join(config['subjects'])}")

    def check_readable(self, partition: int, position: int, context: SourceContext) -> None:
        """Raise `PipelineError` if messages from `position` on were removed."""
        if context.mark is None:
            return
        where = f"source {context.name!r}, partition {partition}: stream {self.stream}"
        with closing(self._stream.link(ASK_S)) as link:
            try:
                check_kept(self._stream.info(link)["state"], where, int(context.mark))
            except DeterminantsLost as problem:
                raise PipelineError(str(problem)) from None

    def lend(self, name: str, job_directory: Path, elsewhere: Path) -> bool:
        """Copy the places at which the job began to read."""
        lend_beginnings(name, job_directory, elsewhere)
        return True

    def open(self, partition: int, context: SourceContext) -> PartitionReader:
        """Return a reader of one partition, which connects at its first read."""
        return NatsReader(self._stream, partition, context)


def _start(start: str | datetime) -> tuple[str, str]:
    if isinstance(start, str):
        return start, ""
    aware = start.replace(tzinfo=UTC) if start.tzinfo is None else start
    return "time", aware.astimezone(UTC).isoformat().replace("+00:00", "Z")
