"""Dead letters of rows that a sink's store refuses, in a shared store: one object each, created if absent."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from xxhash import xxh3_64_hexdigest

from causal.ports import Bundle
from causal.shell.depot import Depot
from operators.sinks.contract.refusals import letter_of
from operators.sinks.contract.sink import encode_json
from operators.sinks.objects import object_place
from operators.sinks.objects.object_place import stem_of

FOLDER = "refused"


class RefusedObjects:
    """The letters of one sink task; see `operators.sinks.contract.refusals.Letters`.

    Args:
        url: of the dead letters; connected to when the first row is refused.
        run: of the job.
    """

    def __init__(self, url: str, task: str, run: str) -> None:
        self._url = url
        self._task = task
        self._run = run
        self._depot: Depot | None = None

    def put(self, operator: str, bundle: Bundle, rows: Mapping[int, tuple[Any, str]]) -> None:
        """Create an object for each of these rows, named after position and record; one that is there stays."""
        depot = self._depot = self._depot or object_place.connected(self._url)
        for position, (record, reason) in rows.items():
            digest = xxh3_64_hexdigest(encode_json(record).encode("utf-8", "backslashreplace"))
            name = f"{FOLDER}/{stem_of(self._task)}-{position:012d}-{digest}.jsonl"
            depot.create(name, letter_of(operator, self._task, self._run, position, record, reason))
