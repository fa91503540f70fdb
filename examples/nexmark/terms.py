"""Definitions that the three computations of the answers share: the queries, their constants, the side table."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, fields
from typing import Any

from causal.errors import PipelineError

QUERIES: dict[int, str] = {
    0: "every event as it is",
    1: "the price of each bid in another currency",
    2: "the bids on every auction_skip-th auction",
    3: "persons of three states who sell in category 10, as their auctions come",
    4: "mean winning price per category, sliding",
    5: "the auctions with most bids, sliding",
    6: "mean winning price of a seller's last auctions_mean auctions",
    7: "the highest bids, tumbling",
    8: "persons who opened auctions in the window in which they came",
    9: "the winning bid of each auction",
    11: "bids of a bidder in one session",
    12: "bids of a bidder in windows of the wall clock",
    13: "bids with what a side table says of their auction",
    14: "sessions with what a side table says of their bidder",
}
"""The queries by number.  Query 10 is absent, because it writes files to a cloud store."""

STATES = ("OR", "ID", "CA")
CATEGORY = 10


@dataclass(frozen=True, slots=True)
class Terms:
    """Constants of the queries; the defaults are Beam's.

    Attributes:
        window_s: the size of windows.
        every_s: the interval at which sliding windows begin.
        gap_s: the time without a bid that ends a session.
        clock_s: the size of the windows of query 12.
        waiting_s: the largest difference of time between a person and an auction, or between a bid and its auction.
        side_rows: the number of rows of the side table.
    """

    window_s: int = 10
    every_s: int = 5
    gap_s: int = 10
    clock_s: float = 10.0
    auction_skip: int = 123
    auctions_mean: int = 10
    waiting_s: int = 600
    side_rows: int = 500

    @classmethod
    def of_settings(cls, settings: Mapping[str, str]) -> Terms:
        """Return the terms that `--set` names; the others have their defaults.

        Raises:
            PipelineError: a value is not a number.
        """
        numbers: dict[str, Any] = {}
        for each in fields(cls):
            if each.name in settings:
                number = float if each.type == "float" else int
                try:
                    numbers[each.name] = number(settings[each.name])
                except ValueError:
                    raise PipelineError(
                        f"setting {each.name} is {settings[each.name]!r}; use a number ({each.type})"
                    ) from None
        return cls(**numbers)


def side_value(key: int) -> str:
    """Return the value of the side table for `key`, 0 to side_rows - 1."""
    return f"side {key}"


def euros(price: int) -> int:
    """Query 1's currency, as Beam computes it."""
    return price * 89 // 100
