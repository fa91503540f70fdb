"""The connection of one sink task's store, and the steps that it can make: prepare the stream, read, append, purge.

    causal.<stream>           the runs that have begun to write the stream; only the last message counts
    causal.<stream>.<task>    the account of one sink task, as a log (`account_log`)

Both are subjects of the stream itself, because a batch is atomic within one stream only.
"""

from __future__ import annotations

import base64
import json
import os
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from causal.errors import CorruptData, PipelineError, Unavailable
from causal.records.values import decode, encode
from operators.nats.nats_errors import NO_MESSAGE, NO_STREAM, WRONG_LAST, Declined
from operators.nats.nats_link import Link
from operators.nats.nats_servers import Servers
from operators.nats.nats_subjects import overlaps, token_of
from operators.sinks.messages.account_log import PART_BYTES, AccountLog

BATCH_MAX = 1000
"""The most messages that a server takes as one batch, unless its administrator has set another number."""
BATCH_BYTES = 16 << 20
PAGE = 1000
BYTES_MIN = 4096
"""The smallest limit of messages with which a sink can keep its account."""
FOREVER = {"Nats-TTL": "never"}
Message = tuple[str, Mapping[str, str], bytes]
"""Subject, headers, body."""


@dataclass(frozen=True, slots=True)
class Target:
    """The stream and the options of a sink."""

    servers: Servers
    stream: str
    subject: str
    existing: str
    replicas: int
    timeout_ms: int

    @property
    def runs_subject(self) -> str:
        """The subject of the runs, and with a dot the prefix of those of accounts."""
        return f"causal.{self.stream}"

    @property
    def where(self) -> str:
        """The stream for messages."""
        return f"{self.servers.place}: stream {self.stream}"


@dataclass(frozen=True, slots=True)
class Runs:
    """The newest run that has begun to write a stream.

    Attributes:
        ready: whether it has dealt with the rows of earlier ones, so that its tasks may write.
        begin: the sequence from which on its rows are.
        sequence: the sequence of the message with this; 0 if there is none.
    """

    newest: str = ""
    ready: bool = False
    begin: int = 0
    sequence: int = 0


def checked(config: Mapping[str, Any], target: Target) -> Mapping[str, Any]:
    """Return the configuration of a stream.

    Raises:
        PipelineError: a sink cannot keep its promises there; the line says what to change.
    """
    wanted = [] if overlaps(f"{target.runs_subject}.>", config["subjects"]) else [f"{target.runs_subject}.>"]
    wanted += [] if overlaps(target.runs_subject, config["subjects"]) else [target.runs_subject]
    if target.subject and not overlaps(target.subject, config["subjects"]):
        wanted.insert(0, target.subject)
    bounded = config["discard"] == "old" and (config["max_msgs"] > 0 or config["max_bytes"] > 0)
    reasons = (
        (not config.get("allow_atomic"), "takes no atomic batches: set allow_atomic (NATS 2.12 or later)"),
        (not config.get("allow_direct"), "has no direct reads: set allow_direct"),
        (bool(wanted), f"lacks subjects: add {', '.join(wanted)}"),
        (config["storage"] != "file", "is in memory, so a restart of the server loses rows: use storage=file"),
        (config["retention"] != "limits", f"has retention={config['retention']}: use retention=limits"),
        (config["max_msgs_per_subject"] > 0, "keeps few messages per subject: set max_msgs_per_subject=-1"),
        (bounded, "may drop a sink's account: use max_age with allow_msg_ttl, or discard=new, as its bound"),
        (config["max_age"] > 0 and not config.get("allow_msg_ttl"), "has max_age: set allow_msg_ttl, too"),
        (0 < config["max_msg_size"] < BYTES_MIN, f"has max_msg_size below {BYTES_MIN:,}: raise it"),
    )
    for wrong, words in reasons:
        if wrong:
            raise PipelineError(f"{target.where} {words}; change it (nats stream edit), or let NatsSink make another")
    return config


class Session:
    """A connection, and the known state of the stream. Only one thread may use it at a time.

    State: `end` is the sequence of the last message of the account, as far as this process has seen or written it.
    """

    def __init__(self, target: Target, task: str) -> None:
        self._target = target
        self._task = task
        self.account_subject = f"{target.runs_subject}.{token_of(task)}"
        self.link = Link(target.servers, target.timeout_ms / 1000)
        self.config: Mapping[str, Any] = {}
        self.end = 0

    @property
    def gone(self) -> bool:
        """Whether the connection has ended, or belongs to the process that forked this one."""
        return self.link.gone

    @property
    def bytes_max(self) -> int:
        """The largest message, with headers, that server and stream take."""
        of_stream = self.config.get("max_msg_size", -1)
        return min(self.link.payload_max, of_stream if of_stream > 0 else self.link.payload_max)

    @property
    def part_bytes(self) -> int:
        """The size of the parts of a record of the account."""
        return min(PART_BYTES, self.bytes_max // 2)

    def close(self) -> None:
        """Close the connection."""
        self.link.close()

    def _api(self, call: str, /, **fields: Any) -> Any:
        return self.link.call(lambda: self.link.api(call, **fields), f"stream {self._target.stream}")

    # -- the stream ---------------------------------------------------------------------------------------------

    def look(self) -> bool:
        """Read and check the stream's configuration; return False if there is no such stream."""
        try:
            self.config = checked(self._api(f"STREAM.INFO.{self._target.stream}")["config"], self._target)
        except Declined as problem:
            if problem.code != NO_STREAM:
                raise
            return False
        return True

    def prepare_stream(self) -> None:
        """Check the stream, and make it if it is missing."""
        if self.config or self.look():
            return
        target = self._target
        subjects = [f"{target.stream}.>", target.runs_subject, f"{target.runs_subject}.>"]
        if target.subject and not overlaps(target.subject, subjects):
            subjects.insert(0, target.subject)
        answer = self._api(
            f"STREAM.CREATE.{target.stream}",
            name=target.stream,
            subjects=subjects,
            storage="file",
            num_replicas=target.replicas,
            allow_direct=True,
            allow_atomic=True,
        )
        self.config = checked(answer["config"], target)

    def _last(self, subject: str) -> tuple[int, bytes]:
        """Return the sequence and body of the last message of a subject, as the leader has it; 0 if there is none."""
        try:
            message = self._api(f"STREAM.MSG.GET.{self._target.stream}", last_by_subj=subject)["message"]
        except Declined as problem:
            if problem.code in (NO_MESSAGE, NO_STREAM):
                return 0, b""
            raise
        return int(message["seq"]), base64.b64decode(message.get("data", ""))

    def runs(self) -> Runs:
        """Return the newest run that has begun to write the stream."""
        sequence, body = self._last(self._target.runs_subject)
        if not sequence:
            return Runs()
        try:
            newest, ready, begin = decode(body)
        except (TypeError, ValueError) as problem:
            where = f"{self._target.where}, subject {self._target.runs_subject}"
            raise CorruptData(f"{where} does not hold the runs of a sink: {problem}") from None
        return Runs(newest, ready, begin, sequence)

    def account(self, subject: str = "") -> AccountLog:
        """Return the account of this task, or that in another subject; `end` becomes its last sequence."""
        subject = subject or self.account_subject
        log = AccountLog(self._task, f"{self._target.where}, subject {subject}")
        last, _ = self._last(subject)
        reached = 0
        while reached < last:
            page = self.messages(reached + 1, subject)
            for sequence, _, _, body in page:
                log.take(body)
                reached = sequence
            if not page:  # a replica answers that has not received everything yet
                raise Unavailable(f"{self._target.where}: a replica lacks the last messages of {subject}; retry")
        self.end = reached
        return log

    def messages(self, sequence: int, subject: str) -> list[tuple[int, str, Mapping[str, str], bytes]]:
        """Return a page of messages (sequence, subject, headers, body) from a sequence on; empty at the end."""
        return self.link.call(lambda: self._page(sequence, subject), f"stream {self._target.stream}")

    async def _page(self, sequence: int, subject: str) -> list[tuple[int, str, Mapping[str, str], bytes]]:
        inbox, answers = await self.link.listen()
        page: list[tuple[int, str, Mapping[str, str], bytes]] = []
        asked = json.dumps({"batch": PAGE, "seq": sequence, "next_by_subj": subject}).encode()
        try:
            await self.link.send(f"{self.link.servers.api}.DIRECT.GET.{self._target.stream}", asked, reply=inbox)
            while True:
                message = await answers.next_msg(timeout=self._target.timeout_ms / 1000)
                headers = message.headers or {}
                if "Status" in headers:
                    if headers["Status"] not in ("204", "404"):
                        raise Unavailable(f"{self._target.where}: direct reads: {headers['Status']}; retry")
                    return page
                page.append((int(headers["Nats-Sequence"]), headers["Nats-Subject"], headers, message.data))
        finally:
            await answers.unsubscribe()

    def account_subjects(self) -> list[str]:
        """Return the subjects of all accounts, of any run."""
        asked = f"{self._target.runs_subject}.>"
        state = self._api(f"STREAM.INFO.{self._target.stream}", subjects_filter=asked)["state"]
        return sorted(state.get("subjects") or {})

    # -- writing ------------------------------------------------------------------------------------------------

    def note(self, expected: int, run: str, ready: bool, begin: int) -> int:
        """Write which run owns the stream; return the sequence, or 0 unless the last note is still the expected one."""
        return self._appended([], self._target.runs_subject, [encode([run, ready, begin])], expected)

    def append(self, messages: Sequence[bytes], rows: Sequence[Message] = ()) -> bool:
        """Append rows and then messages of the account as one batch; return False if the account is not at `end`."""
        end = self._appended(rows, self.account_subject, messages, self.end)
        self.end = end or self.end
        return bool(end)

    def seize(self, subject: str, messages: Sequence[bytes]) -> bool:
        """Append messages to the account in another subject, which was read last; return False if it has changed."""
        return bool(self._appended([], subject, messages, self.end))

    def _appended(self, rows: Sequence[Message], subject: str, messages: Sequence[bytes], expected: int) -> int:
        first = {"Nats-Expected-Last-Subject-Sequence": str(expected)}
        kept = FOREVER if self.config.get("allow_msg_ttl") else {}
        own = [(subject, kept | (first if number == 0 else {}), body) for number, body in enumerate(messages)]
        try:
            return self.link.call(lambda: self._sent([*rows, *own]), f"stream {self._target.stream}")
        except Declined as problem:
            if problem.code not in WRONG_LAST:
                raise
            return 0

    async def _sent(self, batch: Sequence[Message]) -> int:
        """Send a batch, which the server takes as a whole when its last message is there; return its last sequence."""
        name = os.urandom(16).hex()
        for number, (subject, headers, body) in enumerate(batch, 1):
            numbered = {"Nats-Batch-Id": name, "Nats-Batch-Sequence": str(number), **headers}
            if number < len(batch):
                await self.link.send(subject, body, numbered)
        answer = await self.link.ask(subject, body, {**numbered, "Nats-Batch-Commit": "1"})
        return int(answer["seq"])

    def purge(self, before: int, subject: str = "") -> None:
        """Delete the messages before a sequence: those of one subject, or all."""
        if not subject or not self.config.get("deny_purge"):
            only = {"filter": subject} if subject else {}
            self._api(f"STREAM.PURGE.{self._target.stream}", seq=before, **only)


def batches(rows: Iterable[Message], last: int) -> list[list[Message]]:
    """Return rows in batches, the last of which has room for that many further messages."""
    cut: list[list[Message]] = [[]]
    size = 0
    for row in rows:
        size += len(row[2])
        if len(cut[-1]) + last >= BATCH_MAX or (size > BATCH_BYTES and cut[-1]):
            cut.append([])
            size = len(row[2])
        cut[-1].append(row)
    return cut
