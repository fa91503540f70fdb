"""The process that receives messages: it connects, stores what comes, and connects again, for as long as the job runs.

* *Stored first.* What came within `GATHER_S` is a batch of the ingest log, published in one step with a `Note`.
* *The connection ends.* Another one is made, with pauses up to `PAUSE_S_MAX`. It resumes after the last stored message
  if the source and its server can do so. Otherwise messages may be missing: the gap is counted and reported.
* *The job is slow.* While more than `ingest_bytes_max` are unread, nothing is received, so that the server has to wait.
"""

from __future__ import annotations

import sys
import time
from abc import abstractmethod
from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager
from pathlib import Path
from typing import Any, Protocol
from urllib.parse import urlsplit

from causal.errors import PipelineError, Unavailable, invariant
from causal.network.addresses import check_headers
from operators.graph import caller
from operators.ingest.bound import LogBounds
from operators.ingest.ingest_log import IngestLog
from operators.ingest.ingested_source import IngestedSource
from operators.ingest.place import IngestPlace
from operators.source import PartitionReader, Source, SourceContext
from operators.sources.messages.message_log import Message, MessageReader, MessageWriter, Note
from operators.sources.payloads import Decode, plain_decoder
from operators.stage.unreadable import SET_ASIDE

BATCH_BYTES, BATCH_MESSAGES = 1 << 22, 10_000
GATHER_S = 0.02
"""The time for which more messages are waited for: a batch costs a few writes that reach the disk."""
IDLE_S = 60.0
"""The longest wait of one call for a message; another call follows."""
PAUSE_S, PAUSE_S_MAX = 0.1, 10.0
"""The first and the longest pause before the next connection."""


RETRIED = (408, 425, 429)
"""The statuses below 500 that may be different next time."""
_TOKEN, _PATH = "pass the right token in headers= or the url", "correct the path of the url"
_REMEDIES = {401: _TOKEN, 403: _TOKEN, 404: _PATH, 410: _PATH}


class Disconnected(Unavailable):
    """The connection has ended, or could not be made; another one can continue."""


class Refused(Disconnected):
    """The server refuses the request, and will probably refuse it again."""


class Ended(Exception):
    """The server has said that no message will follow."""


class Connection(Protocol):
    """A connection over which messages come."""

    @property
    def retry_s(self) -> float:
        """The least pause before the next connection that the server asks for."""
        ...

    def received(self, timeout_s: float) -> Message | None:
        """Return the next message, or None if none has come in time.

        Raises:
            Disconnected, Ended: no more messages come over this connection.
        """
        ...


class MessageSource(IngestedSource):
    """The base class of sources of messages, which a process next to the job receives."""

    records_name = "messages"
    may_be_unreadable = True
    bad_input_remedy = SET_ASIDE.replace("lines", "messages")
    schemes: tuple[str, ...] = ()
    fields: tuple[str, ...] = ("received_at",)
    """The fields of records with `with_metadata`, in addition to `value`."""

    def __init__(
        self,
        url: str,
        decode: str | Callable[[bytes], Any],
        headers: Mapping[str, str] | None,
        with_metadata: bool,
        message_bytes_max: int,
    ) -> None:
        self._where = f"{caller()}: {type(self).__name__}"
        self.url = url
        self.place = _place_of(self._where, url, self.schemes)
        self.headers = dict(headers or {})
        check_headers(self._where, self.headers)
        self._decode: Decode = plain_decoder(self._where, decode)
        self.with_metadata = with_metadata
        self.message_bytes_max = message_bytes_max
        if type(message_bytes_max) is not int or not 16 <= message_bytes_max <= 1 << 30:
            raise PipelineError(f"{self._where} has message_bytes_max {message_bytes_max!r}; use 16 to {1 << 30:,}")

    def continues(self, earlier: Source[Any]) -> bool:
        """Return whether both receive the same messages; their tasks may decode them otherwise."""
        return type(self) is type(earlier) and self._reception() == earlier._reception()

    def _reception(self) -> dict[str, Any]:
        """Return the options of the process that receives messages."""
        return {**vars(self), "_where": "", "_decode": None, "with_metadata": False}

    @abstractmethod
    def resumes(self, writer: MessageWriter, note: Note) -> bool:
        """Return whether a connection made now resumes after the last stored message."""

    @abstractmethod
    def connected(self, writer: MessageWriter | None, note: Note) -> AbstractContextManager[Connection]:
        """Return a connection, which resumes if it can; without a writer, one that is only tried.

        Raises:
            Disconnected: it cannot be made.
            PipelineError: a library is missing.
        """

    def check(self) -> None:
        """Raise `PipelineError` if a library is missing, or the server refuses the request.

        An unavailable server is no error here, only a line: the job will wait for it.
        """
        try:
            with self.connected(None, Note()):
                pass
        except Refused as problem:
            raise PipelineError(f"{self._where}: {problem}") from None
        except Disconnected as problem:
            print(f"{self._where}: {problem}; the job waits for it", file=sys.stderr, flush=True)
        except Ended:
            pass

    def open(self, partition: int, context: SourceContext) -> PartitionReader:
        """Return a reader of the log, which may not exist yet."""
        invariant(partition == 0, "a source of messages has one partition", partition=partition)
        log = IngestPlace(context.job_directory, context.name, 1).open_to_read(partition)
        return MessageReader(log, context, self.place, self._decode, self.fields if self.with_metadata else None)

    def store(self, log: IngestLog, bounds: LogBounds, job_directory: Path, root_pid: int) -> None:
        """Write messages to the log until the server says that none will follow."""
        writer = MessageWriter(log, bounds)
        if not writer.ended:
            Receiving(self, writer, log.name).run()


class Receiving:
    """The only process that writes the messages of one source to its log."""

    def __init__(self, source: MessageSource, writer: MessageWriter, name: str) -> None:
        self._source = source
        self._writer = writer
        self._name = name
        self._note = Note.of(writer.note)
        self._pause_s = PAUSE_S

    def run(self) -> None:
        """Store messages until the server says that none will follow."""
        while True:
            retry_s = 0.0
            try:
                resumes = self._source.resumes(self._writer, self._note)
                with self._source.connected(self._writer, self._note) as connection:
                    self._begin(resumes)
                    try:
                        self._receive(connection)
                    finally:
                        retry_s = connection.retry_s
            except Disconnected as problem:
                pause_s = min(max(self._pause_s, retry_s), PAUSE_S_MAX)
                self._say(f"{problem}; another connection is made in {pause_s:.1f} s")
                time.sleep(pause_s)
                self._pause_s = min(2 * self._pause_s, PAUSE_S_MAX)
            except Ended:
                return self._writer.end()

    def _begin(self, resumes: bool) -> None:
        """Publish the note of a connection that does not resume, because messages may be missing."""
        if resumes:
            return
        if self._writer.batch:
            self._note = Note(self._note.gaps + 1, self._note.id)
            self._say(
                f"messages that {self._source.place} sent while there was no connection are missing (gap "
                f"{self._note.gaps}): it has no means to resume"
            )
        self._writer.publish_messages((), self._note)

    def _receive(self, connection: Connection) -> None:
        while True:
            message = connection.received(IDLE_S)
            if message is not None:
                self._store_from(message, connection)

    def _store_from(self, message: Message, connection: Connection) -> None:
        """Store a message together with those that follow soon."""
        batch, size, due_s = [message], len(message.payload), time.monotonic() + GATHER_S
        try:
            while size < BATCH_BYTES and len(batch) < BATCH_MESSAGES and (left_s := due_s - time.monotonic()) > 0:
                following = connection.received(left_s)
                if following is not None:
                    batch.append(following)
                    size += len(following.payload)
        finally:
            self._store(batch)

    def _store(self, batch: Sequence[Message]) -> None:
        note = Note(self._note.gaps, batch[-1].id)
        self._writer.publish_messages(batch, note)
        self._note = note
        self._pause_s = PAUSE_S

    def _say(self, line: str) -> None:
        print(f"source {self._name!r}: {line}", file=sys.stderr, flush=True)


def status_error(place: str, status: int) -> Disconnected:
    """Return the error for an answer with a status that is no success."""
    error = Refused if 300 <= status < 500 and status not in RETRIED else Disconnected
    return error(f"{place} answers with status {status}; {_REMEDIES.get(status, 'check the url and the headers')}")


def _place_of(said: str, url: object, schemes: Sequence[str]) -> str:
    """Return the name of the server for messages, which may show neither path nor query, for tokens may be there.

    Raises:
        PipelineError: no request can be sent to this URL.
    """
    use = f"use one like {schemes[-1]}://host/path"
    try:
        parts = urlsplit(url if isinstance(url, str) else "")
        port = parts.port
    except ValueError:
        raise PipelineError(f"{said}: url is not a URL; {use}") from None
    if parts.scheme not in schemes or not parts.hostname or port == 0:
        raise PipelineError(f"{said}: url is not a URL that begins with {' or '.join(schemes)}; {use}")
    if "@" in parts.netloc:
        raise PipelineError(f"{said}: url has a user name; pass headers= with an Authorization instead")
    if parts.fragment or not str(url).isascii() or any(each <= " " or each == "\x7f" for each in str(url)):
        raise PipelineError(
            f"{said}: url has characters that a request cannot have; encode them (urllib.parse.quote: a space is %20)"
        )
    return f"{parts.scheme}://{parts.netloc}"
