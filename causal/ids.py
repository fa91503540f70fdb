"""The types of identifiers: plain integers and strings with one meaning each.

The topology numbers tasks and channels, so that frames carry small integers; users see a `TaskName` ("count/1").
"""

from __future__ import annotations

from typing import NewType

TaskName = NewType("TaskName", str)
"""`<operator name>/<index>`, as printed everywhere."""

TaskIndex = NewType("TaskIndex", int)
"""The task's place in `Topology.tasks`; -1 is the outside world."""

ChannelId = NewType("ChannelId", int)
"""The channel's place in `Topology.channels`."""

OUTSIDE = TaskIndex(-1)
"""The far end of a channel from a source's partition or to a sink's store."""

HOT_STANDBY = TaskIndex(-2)
"""The hot standby of a task, as the target of its frames."""
