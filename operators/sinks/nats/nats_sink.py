"""A sink that writes rows to a stream of NATS JetStream, each exactly once, visible immediately and never provisional.

A bundle is one atomic batch (NATS 2.12): rows, and one record of the account in the subject `causal.<stream>.<task>` of
the same stream, with position, digest and determinants. A row has the headers `task` and `position`. Readers see all
rows of a batch or none. The record names the last record that its writer has seen
(`Nats-Expected-Last-Subject-Sequence`), and the server compares it in the same step, so that of two writers of a task
one is refused, however late its messages arrive. No duplicate window is involved: an attempt whose answer was lost is
found in the account, after any time.

A bundle above 1,000 messages, or 16 MiB, is several batches. The first one has the determinants on which all its rows
depend, and each notes how far the rows are. The next process leaves these rows out, so each is there once; readers see
such a bundle in parts.

What the server acknowledges must last. It writes to its files before it answers, but to the disk only every
`sync_interval` (two minutes by default): rows survive `kill -9` of the server, and a loss of power with
`sync_interval: always` or three replicas. If acknowledged rows are gone, the job ends with an error.

Needs nats-py (extra `nats`) and a server of NATS 2.12 or later. Tried with one server, not with a cluster.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from contextlib import closing
from pathlib import Path
from typing import TYPE_CHECKING, Any

from causal.errors import PipelineError, Unavailable
from causal.ports import SinkStore
from causal.records.values import NotCarried
from operators.nats.nats_link import require_nats
from operators.nats.nats_servers import servers_of
from operators.nats.nats_subjects import check_stream, is_subject
from operators.sinks.contract.options import WAIT_MS_MAX, check_choice, check_range
from operators.sinks.contract.sink import Sink
from operators.sinks.messages.message_rows import encode_all, row_encoder, rows_in, shown, value_encoder

if TYPE_CHECKING:
    from operators.sinks.nats.nats_session import Session, Target

EXISTING = ("refuse", "replace", "append")
REPLICAS_MAX = 5


class NatsSink(Sink):
    """A sink that writes rows as messages to a stream of NATS JetStream.

    Needs: extra `nats`, NATS 2.12 or later (tried: one server).
    Readers: the stream; headers `task` and `position`.
    Step: one atomic batch with the account.
    Fence: the server compares the last message of the account in the batch.
    Server: rows survive `kill -9` of the server.
    Power: `sync_interval: always` in the server, or three replicas.
    Limits: rows cannot be withdrawn; below full sharing depth, the job ends when it would have to; readers see a bundle
    above 1,000 messages in parts; `existing="replace"` deletes every message of the stream.

    Args:
        servers: addresses, such as "host:4222" or "tls://one:4222,tls://two:4222".
        stream: the stream, which is made if it is missing, with the subjects `<stream>.>` and `causal.<stream>.>`. One
            that exists must have `causal.<stream>` and `causal.<stream>.>` among its subjects, and `allow_atomic` and
            `allow_direct` set.
        subject: the subject of rows, or a function from a record to its subject; by default `<stream>.rows`.
        encode: "json", "text", "bytes", "avro" (with `schema`), or a function from a record to bytes or text.
        headers: a function from a record to a dict of further headers, with text as values.
        schema: the Avro schema, for encode="avro".
        existing: what to do with rows of an earlier run: "refuse" to start, "replace" them (deletes every message of
            the stream), or "append" to them.
        options: options of nats-py for users and TLS, and `domain`, such as {"token": os.environ["NATS_TOKEN"]}.
        replicas: the number of replicas of a stream that the sink makes.
        timeout_ms: the time limit for each call; a call that exceeds it raises `Unavailable` and is retried.
    """

    everywhere = True

    def __init__(
        self,
        servers: str,
        stream: str,
        subject: str | Callable[[Any], str] | None = None,
        encode: str | Callable[[Any], Any] = "json",
        headers: Callable[[Any], Mapping[str, str]] | None = None,
        schema: Any = None,
        existing: str = "refuse",
        options: Mapping[str, Any] | None = None,
        replicas: int = 1,
        timeout_ms: int = 5000,
    ) -> None:
        said = f"NatsSink({stream!r})"
        check_stream(said, stream)
        check_choice(said, "existing", existing, EXISTING)
        check_range(said, "replicas", replicas, 1, REPLICAS_MAX)
        check_range(said, "timeout_ms", timeout_ms, 1, WAIT_MS_MAX)
        if headers is not None and not callable(headers):
            raise PipelineError(f"{said}: headers is {headers!r}; use a function of a record")
        subject = f"{stream}.rows" if subject is None else subject
        if not callable(subject) and not is_subject(subject):
            raise PipelineError(f"{said}: subject is {subject!r}; use one without wildcards, or a function of a record")
        self.servers = servers_of(said, servers, options)
        self.stream = stream
        self.existing: str = existing
        self.place = f"{self.servers.place}, stream {stream}"
        self._form = encode
        self._subject = "" if callable(subject) else subject
        of_record = subject if callable(subject) else lambda _: self._subject
        named = None if headers is None else _named(headers)
        self._encode = row_encoder(_full(value_encoder(said, encode, schema)), _subject_of(of_record), named)
        self._options = (replicas, timeout_ms)

    def encode(self, records: Sequence[Any]) -> bytes:
        """Return the rows for these records: subject, value and headers of each message."""
        return encode_all(self._encode, records)

    def shown_row(self, rows: bytes, index: int) -> Any:
        """See `Sink.shown_row`; the key is the subject."""
        for number, row in enumerate(rows_in(rows)):
            if number == index:
                return shown(row, self._form)
        return None

    def open_store(self, task: str, job_directory: Path) -> SinkStore:
        """Return the store of one sink task; the store connects only when it is opened."""
        require_nats("NatsSink")
        from operators.sinks.nats.nats_store import NatsStore

        return NatsStore(self._target(), task)

    def check(self) -> None:
        """Raise `PipelineError` for mistakes in addresses, options or the stream, or a missing permission.

        A server that is unavailable is not an error here: the job will wait for it.
        """
        try:
            self._asked(lambda session: session.look())
        except Unavailable:
            return

    def newest_run(self) -> str | None:
        """Return the newest run that has begun to write the stream."""
        return self._asked(lambda session: session.runs().newest) or None

    def _asked(self, ask: Callable[[Session], Any]) -> Any:
        require_nats("NatsSink")
        from operators.nats.nats_errors import Declined, translated
        from operators.sinks.nats.nats_session import Session

        with closing(Session(self._target(), "")) as session:
            try:
                return ask(session)
            except Declined as problem:
                raise translated(problem, self.servers, f"stream {self.stream}") from None

    def _target(self) -> Target:
        from operators.sinks.nats.nats_session import Target

        return Target(self.servers, self.stream, self._subject, self.existing, *self._options)


def _full(encode: Callable[[Any], bytes | None]) -> Callable[[Any], bytes]:
    """Return `encode`, which must give a value: NATS has no message without one."""

    def encoded(record: Any) -> bytes:
        value = encode(record)
        if value is None:
            raise NotCarried("encode gave None; return bytes or text")
        return value

    return encoded


def _subject_of(subject: Callable[[Any], Any]) -> Callable[[Any], str]:
    def checked(record: Any) -> str:
        of_record = subject(record)
        if not is_subject(of_record):
            raise NotCarried(f"the subject is {of_record!r}; use text without spaces, wildcards and empty tokens")
        return str(of_record)

    return checked


def _named(headers: Callable[[Any], Any]) -> Callable[[Any], Any]:
    """Return `headers` with a check that readers get each header as it is."""

    def checked(record: Any) -> Any:
        named = headers(record)
        for name, value in named.items() if isinstance(named, Mapping) else ():
            plain = isinstance(name, str) and name.isascii() and name.isprintable() and ":" not in name
            if not plain or name != name.strip() or not name or name.lower().startswith("nats-"):
                raise NotCarried(f"a header is named {name!r}; use plain text, not beginning with Nats-")
            if not isinstance(value, str) or not value.isprintable() or value != value.strip():
                raise NotCarried(f"header {name!r} is {value!r:.100}; use printable text without spaces at its ends")
        return named

    return checked
