"""A sink that posts rows to a web service, in batches, in order, with idempotency keys."""

from __future__ import annotations

import json
from collections.abc import Collection, Mapping
from pathlib import Path
from time import monotonic
from typing import TYPE_CHECKING

from causal.errors import PipelineError, Unavailable
from causal.network.addresses import check_headers, check_url
from causal.ports import SinkStore
from operators.sinks.contract.options import check_durability, check_range
from operators.sinks.contract.sink import Sink
from operators.sinks.delivery.callback import BATCH_ROWS_MAX, DELIVERIES
from operators.sinks.delivery.outward import Delivery, DeliveryRefused, OutwardStore

if TYPE_CHECKING:
    import http.client

RETRIED = (408, 425, 429, 500, 502, 503, 504)
REFUSED = (400, 409, 413, 415, 422)
ANSWER_BYTES_MAX = 1 << 20
ANSWER_SHOWN_MAX = 200
RETRY_AFTER_S_MAX = 60.0


class WebhookSink(Sink):
    """A sink that posts `{"run", "task", "rows": [{"position", "record"}, …]}` to `url`.

    The header `Idempotency-Key` is the same whenever the same rows are posted again. Each task has only one request in
    progress at a time, so rows arrive in order. A 2xx status means that all rows of the request were accepted. After a
    status in `retried`, an incomplete answer or a broken connection, the same request is sent again, but not before the
    time in `Retry-After`. A status in `refused` means that no row was accepted: the request is halved until the refused
    row is isolated, and that row stops the job or is set aside (`on_error`). Any other status, including a redirection,
    ends the job.

    Each row is posted at least once. It takes effect exactly once if the service ignores rows that it has already
    accepted. The service can recognise them by the request's key. It can also store the highest position of each run
    and task together with the effects of the rows, and ignore rows at or below that position; this works however the
    rows are divided into requests.

    Needs: nothing.
    Readers: what your service does with rows.
    Step: as `CallbackSink`.
    Fence: as `CallbackSink`.
    Server: as `CallbackSink`.
    Power: as `CallbackSink`.
    Limits: as `CallbackSink`.

    Args:
        url: an http or https URL; no proxy is used, and certificates are checked.
        batch_rows: the maximum number of rows per request.
        timeout_s: the time limit for connecting and for each wait for the answer.
        headers: headers to send with each request, for example for authorisation.
        durability: "process", or "os", which writes the journal to disk before rows are sent; by default, the job's.
    """

    def __init__(
        self,
        url: str,
        batch_rows: int = 100,
        timeout_s: float = 10.0,
        headers: Mapping[str, str] | None = None,
        retried: Collection[int] = RETRIED,
        refused: Collection[int] = REFUSED,
        durability: str | None = None,
    ) -> None:
        check_range("WebhookSink", "batch_rows", batch_rows, 1, BATCH_ROWS_MAX)
        check_durability("WebhookSink", durability)
        parts = check_url("WebhookSink posts to", url)
        check_headers("WebhookSink", headers or {})
        for name, statuses in (("retried", retried), ("refused", refused)):
            odd = [each for each in statuses if type(each) is not int or not 300 <= each <= 599]
            if odd:
                raise PipelineError(f"WebhookSink: {name} has {odd[0]!r}; use statuses from 300 to 599")
        if not 0 < timeout_s <= 600:
            raise PipelineError(f"WebhookSink: timeout_s is {timeout_s!r}; use seconds above 0, at most 600")
        self.place = f"{parts.scheme}://{parts.hostname}{'' if parts.port is None else f':{parts.port}'}{parts.path}"
        """The URL without what may be secret in it."""
        self.secure, self.host, self.port = parts.scheme == "https", parts.hostname or "", parts.port
        self.target = (parts.path or "/") + (f"?{parts.query}" if parts.query else "")
        self.batch_rows = batch_rows
        self.timeout_s = timeout_s
        self.headers = {"Content-Type": "application/json", **(headers or {})}
        self.retried = frozenset(retried)
        self.refused = frozenset(refused)
        self.durability = durability

    def open_store(self, task: str, job_directory: Path) -> SinkStore:
        """Return the store of one sink task, with a journal in the job directory."""
        courier = Courier(self)
        sync = self.durability == "os"
        return OutwardStore(task, job_directory / DELIVERIES, courier.post, courier.close, self.batch_rows, sync)


class Courier:
    """A client that posts the deliveries of one task over one persistent connection."""

    def __init__(self, sink: WebhookSink) -> None:
        self._sink = sink
        self._connection: http.client.HTTPConnection | None = None
        self._not_before_s = 0.0

    def post(self, delivery: Delivery) -> None:
        """Post a delivery, as the argument `carry` of `OutwardStore` requires."""
        import http.client  # this import takes longer than the rest of a worker's start, and few jobs need it

        if monotonic() < self._not_before_s:
            raise Unavailable(f"{self._sink.place} asked for a pause before the next call")
        rows = ", ".join(map('{{"position": {}, "record": {}}}'.format, delivery.positions, delivery.lines))
        body = f'{{"run": {json.dumps(delivery.run)}, "task": {json.dumps(delivery.task)}, "rows": [{rows}]}}\n'
        try:
            answer, content = self._asked(body.encode("utf-8", "backslashreplace"), delivery.key)
        except (OSError, http.client.HTTPException) as problem:
            self.close()
            raise Unavailable(f"{self._sink.place}: {type(problem).__name__}: {problem}") from problem
        self._judge(answer, content)

    def _asked(self, body: bytes, key: str) -> tuple[http.client.HTTPResponse, bytes]:
        from operators.sinks.delivery.final_answer import PlainConnection, SecureConnection, content_of

        if self._connection is None:
            kind = SecureConnection if self._sink.secure else PlainConnection
            self._connection = kind(self._sink.host, self._sink.port, timeout=self._sink.timeout_s)
        self._connection.request("POST", self._sink.target, body, {**self._sink.headers, "Idempotency-Key": key})
        answer = self._connection.getresponse()
        content = content_of(answer, ANSWER_BYTES_MAX)
        if answer.isclosed() is False or answer.will_close:
            self.close()  # the answer exceeds the limit, or the service asks to close the connection
        return answer, content

    def _judge(self, answer: http.client.HTTPResponse, content: bytes) -> None:
        if 200 <= answer.status < 300:
            return
        words = " ".join(content[: 4 * ANSWER_SHOWN_MAX].decode("utf-8", "replace").split())[:ANSWER_SHOWN_MAX]
        line = f"{self._sink.place} answers {answer.status} {answer.reason}{': ' if words else ''}{words}"
        if answer.status in self._sink.retried:
            after = answer.headers.get("Retry-After", "")
            if after.isdecimal():
                self._not_before_s = monotonic() + min(float(after), RETRY_AFTER_S_MAX)
            raise Unavailable(line)
        if answer.status in self._sink.refused:
            raise DeliveryRefused(line)
        raise PipelineError(f"{line}; correct the address or its access, then resume (--resume)")

    def close(self) -> None:
        """Close the connection."""
        connection, self._connection = self._connection, None
        if connection is not None:
            connection.close()
