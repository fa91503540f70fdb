"""Ways to break what keys of requests rest on (design 0016), one rule each (see `sabotage`)."""

from __future__ import annotations

from typing import Any

import operators.kinds.process.outside_calls
from causal.effects import SendRequests
from causal.records.values import encode
from causal.task.row_writing import RowWriting
from tests.simulation.breaking import Patches, found_by


@found_by(322)
def _ask_before_its_bundle() -> Patches:
    """A request leaves before what it depends on is stored."""
    flush = RowWriting.flush

    def hasty(self: RowWriting, effects: list[Any], force: bool) -> None:
        if self._unsent:
            effects.append(SendRequests(self._unsent))
            self._unsent = []
        flush(self, effects, force)

    return {(RowWriting, "flush"): hasty}


@found_by(8)
def _keys_name_content_alone() -> Patches:
    """Two requests for the same are one request (before 0016)."""

    def unnumbered(value: Any) -> bytes:
        return encode([*value[:4], value[5]] if len(value) == 6 else value)

    return {(operators.kinds.process.outside_calls, "encode"): unnumbered}


@found_by(8)
def _keys_name_the_operator_alone() -> Patches:
    """A key says neither which request of its operator it is, nor its content."""

    def nameless(value: Any) -> bytes:
        return encode(value[:2] if len(value) == 6 else value)

    return {(operators.kinds.process.outside_calls, "encode"): nameless}
