"""The outside service that requests are put to, and what it promises to notice about their keys.

It performs what a key asks for when it hears of the key first, and compares whatever comes under that key later. It may
fail before it has performed a request, or after that, and its answers may come late or twice.
"""

from __future__ import annotations

import random
from collections.abc import Iterable
from typing import Any

from causal.records.values import decode, encode
from tests.simulation.chains import KEY_CHARACTERS
from tests.simulation.peers import Store, Violated
from tests.simulation.twin import Requests

FAILURES_IN_A_ROW_MAX = 3
"""The service takes a request that has failed so often."""


class Service:
    """The one service that all tasks of a job ask.

    Attributes:
        performed: key → content of the request.
        answers: key → every answer that the service has given.
    """

    def __init__(self, rng: random.Random) -> None:
        self._rng = rng
        self.performed: dict[str, Any] = {}
        self.answers: dict[str, set[bytes]] = {}

    def put(self, body: bytes, failures: int) -> bytes | None:
        """A request has arrived: its answer, or None if that fails, as it has `failures` times in a row before.

        Raises:
            Violated: its key came with another content before.
        """
        content, key = decode(body)
        fails = self._rng.random() < 0.2 and failures < FAILURES_IN_A_ROW_MAX
        if fails and self._rng.random() < 0.5:
            return None
        known = self.performed.setdefault(key, content)
        if known != content:
            raise Violated(f"requests: key {key} asks for {content}, it has asked for {known}")
        if fails:
            return None
        answer = encode([True, self._rng.randbytes(6).hex()])
        self.answers.setdefault(key, set()).add(answer)
        return answer

    def check(self, requests: Requests, stores: Iterable[Store], lossless: bool) -> None:
        """Compare with what the twin has asked and was answered.

        Args:
            lossless: whatever was performed has happened in the end, but for what was taken back.

        Raises:
            Violated: two requests have one key, an answer comes from nowhere, or a request has lost its cause.
        """
        asked: dict[str, Any] = {}
        for body in requests.asked:
            content, key = decode(body)
            if key in asked:
                raise Violated(f"requests: {content} and {asked[key]} have the same key {key}")
            asked[key] = content
        for body, answer in requests.answered:
            content, key = decode(body)
            if answer not in self.answers.get(key, ()):
                raise Violated(f"requests: the answer to {content} that counts was never given under its key {key}")
            if self.performed[key] != content:
                raise Violated(f"requests: {content} counts under key {key}, {self.performed[key]} was performed")
        if lossless:
            rows = b"".join(row for store in stores if store.requests for row in store.taken_back).decode()
            taken_back = {rows[at : at + KEY_CHARACTERS] for at in range(0, len(rows), KEY_CHARACTERS)}
            lost = [key for key in self.performed if key not in asked and key not in taken_back]
            if lost:
                first = self.performed[lost[0]]
                raise Violated(f"requests: {len(lost)} were performed and never happened, the first asks for {first}")
