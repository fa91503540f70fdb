"""A reader of the output of a `NatsSink`.

The account of a task has the position up to which rows can be read. The rows of a task are in the order of their
positions, among those of others and the messages of accounts.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Any

from causal.errors import PipelineError
from operators.nats.nats_errors import Declined, translated
from operators.nats.nats_link import require_nats
from operators.nats.nats_servers import servers_of
from operators.nats.nats_subjects import check_stream
from operators.outputs.output import Piece
from operators.sinks.messages.message_rows import POSITION, TASK
from operators.sinks.nats.nats_session import Session, Target

_WAIT_MS = 10_000


class NatsOutput:
    """A reader of one stream.

    Args:
        options: options of nats-py, as for `NatsSink`.
    """

    def __init__(self, servers: str, stream: str, options: Mapping[str, Any] | None = None) -> None:
        said = f"open_output of stream {stream!r}"
        require_nats(said)
        check_stream(said, stream)
        self._target = Target(servers_of(said, servers, options), stream, "", "append", 1, _WAIT_MS)
        self._run = ""
        self._begin = 1
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
        with self._session() as session:
            runs = session.runs()
            if not runs.sequence:
                raise PipelineError(
                    f"{self._target.where} has no rows of a NatsSink; use the stream of one whose job has started"
                )
            read = [session.account(subject).account for subject in session.account_subjects()]
        accounts = [each for each in read if each is not None and each.run == runs.newest and each.incarnation >= 0]
        self._run, self._begin = runs.newest, runs.begin
        self._ends = {account.task: account.next for account in accounts}
        self._ended = bool(accounts) and all(account.ended for account in accounts)

    def ends(self, uncovered: bool) -> dict[str, int]:
        """See `Output.ends`; rows are never withdrawn."""
        return dict(self._ends)

    def withdrawn(self) -> dict[str, int]:
        """See `Output.withdrawn`; rows are never withdrawn."""
        return dict.fromkeys(self._ends, 0)

    def hint(self, task: str, position: int) -> Any:
        """Return None: the stream is read from the beginning of the run."""
        return None

    def rows(self, task: str, start: int, stop: int, hint: Any = None) -> Iterator[Piece]:
        """See `Output.rows`."""
        sequence = max(1, self._begin)
        with self._session() as session:
            while page := session.messages(sequence, ">"):
                sequence = page[-1][0] + 1
                of_task = [(int(named[POSITION]), body) for _, _, named, body in page if named.get(TASK) == task]
                inside = [(position, body.decode()) for position, body in of_task if start <= position < stop]
                if inside:
                    positions, texts = zip(*inside, strict=True)
                    yield positions, list(texts)
                if any(position >= stop - 1 for position, _ in of_task):
                    return

    @contextmanager
    def _session(self) -> Iterator[Session]:
        session = Session(self._target, "")
        try:
            yield session
        except Declined as problem:
            raise translated(problem, self._target.servers, f"stream {self._target.stream}") from None
        finally:
            session.close()
