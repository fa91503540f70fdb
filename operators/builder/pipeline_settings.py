"""The `--set` values that a pipeline file reads, and the setting names that the file requested."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from causal.errors import PipelineError

PARALLELISM = "parallelism."
"""The prefix of a setting that replaces the parallelism of one operator, as in `--set parallelism.count=4`."""
PARTITIONS = "partitions."
"""The prefix of a setting that fixes the number of partitions of a source that asks the outside for it."""


def asking_again(settings: Mapping[str, str]) -> dict[str, str]:
    """Return the settings without numbers of partitions, so that sources ask for these once more."""
    return {name: value for name, value in settings.items() if not name.startswith(PARTITIONS)}


class Settings(Mapping[str, str]):
    """A read-only mapping from name to text that records every requested name, whether it exists or not."""

    def __init__(self, values: Mapping[str, str]) -> None:
        self._values = dict(values)
        self._asked: dict[str, None] = {}
        self._defaults: dict[str, str] = {}
        self._operators: dict[str, None] = {}
        """The operators whose parallelism can be set."""

    def __getitem__(self, name: str) -> str:
        self._asked[name] = None
        return self._values[name]

    def get(self, name: str, default: Any = None) -> Any:
        """Return the value of `name`; if it is not set, return `default`, which the method `default` then reports."""
        if default is not None:
            self._defaults.setdefault(name, str(default))
        return super().get(name, default)

    def parallelism(self, operator: str, declared: int) -> int:
        """Return the number of tasks of an operator: the one in these settings or, without one, the declared one.

        Raises:
            PipelineError: the setting is not a number.
        """
        self._operators[operator] = None
        number = self._number(PARALLELISM + operator)
        return declared if number is None else number

    def partitions(self, source: str) -> int | None:
        """Return the number of partitions that these settings fix for a source, or None.

        Raises:
            PipelineError: the setting is not a number.
        """
        return self._number(PARTITIONS + source)

    def _number(self, name: str) -> int | None:
        if name not in self._values:
            return None
        text = self[name]
        if not text.isdecimal() or len(text) > 9 or not int(text):
            raise PipelineError(f"setting {name} is {text!r:.40}; use a whole number from 1")
        return int(text)

    def default(self, name: str) -> str | None:
        """Return, as text, the default that the pipeline passed for this setting, or None if it passed no default."""
        return self._defaults.get(name)

    def __contains__(self, name: object) -> bool:
        if isinstance(name, str):
            self._asked[name] = None
        return name in self._values

    def __iter__(self) -> Iterator[str]:
        self._asked.update(dict.fromkeys(self._values))
        return iter(self._values)

    def __len__(self) -> int:
        return len(self._values)

    def __repr__(self) -> str:
        return repr(self._values)

    def unread(self, name: str) -> str:
        """Return why setting `name` is a mistake if the pipeline never requested that name; otherwise return ""."""
        if name in self._asked:
            return ""
        from difflib import get_close_matches  # imported here because only messages need it

        if name.startswith(PARALLELISM):
            operator, operators = name.removeprefix(PARALLELISM), list(self._operators)
            close = get_close_matches(operator, operators, n=1)
            hint = f"did you mean {close[0]!r}?" if close else f"its operators are {', '.join(operators)}"
            return f"the pipeline has no operator {operator!r}; {hint}"
        close = get_close_matches(name, self._asked, n=1)
        if close:
            return f"the pipeline reads no setting {name!r} while it is built; did you mean {close[0]!r}?"
        read = ", ".join(sorted(self._asked)) or "none"
        return f"the pipeline reads no setting {name!r} while it is built; it reads {read}"
