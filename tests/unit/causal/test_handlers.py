"""Each event of a task, and of the supervision, has a handler with its name."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

import pytest

from causal.task import task
from standby.supervision.supervision import Supervision


def handler_name(event: type) -> str:
    return "_" + re.sub(r"(?<!^)(?=[A-Z])", "_", event.__name__).lower()


@pytest.mark.parametrize(
    ("handlers", "shared"),
    [(task._HANDLERS, {}), (Supervision._handlers, {"Replied": "_admin"})],
    ids=["task", "supervision"],
)
def test_a_handler_is_named_after_its_event(handlers: Mapping[type, Any], shared: Mapping[str, str]) -> None:
    names = {event.__name__: handler.__name__ for event, handler in handlers.items()}
    assert names == {event.__name__: shared.get(event.__name__, handler_name(event)) for event in handlers}
