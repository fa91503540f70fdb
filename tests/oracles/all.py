"""Every oracle there is: a module is listed here, or its oracles do not run."""

from __future__ import annotations

from tests.oracles import alike, joins, letters, ordered, outside, per_record, state, tables, windows
from tests.oracles.frame import ORACLES

__all__ = ["ORACLES", "alike", "joins", "letters", "ordered", "outside", "per_record", "state", "tables", "windows"]
