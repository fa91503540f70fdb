"""The rules by which the value of a key in a later snapshot follows the value in an earlier one."""

from __future__ import annotations

WHOLE, LIST, MAP = "value", "list", "map"
"""The later value counts instead of the earlier one, contains more items of a list, or changes entries of a map."""
BY_PAIR = "-by-pair"
"""The end of the rule of a table whose keys are pairs, of which the first part determines the key group."""
