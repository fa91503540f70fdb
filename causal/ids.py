"""The identifier types: plain integers and strings, each with one meaning.

The topology numbers tasks and channels so that frames carry small integers. Users see a `TaskName` ("count/1").
"""

from __future__ import annotations

from typing import NewType

TaskName = NewType("TaskName", str)
"""`<operator name>/<index>`, in the form that is printed everywhere."""

TaskIndex = NewType("TaskIndex", int)
"""The task's index in `Topology.tasks`; -1 is the outside world."""

ChannelId = NewType("ChannelId", int)
"""The channel's index in `Topology.channels`."""

OUTSIDE = TaskIndex(-1)
"""The outside world, at the far end of a channel from a source's partition or to a sink's store."""

HOT_STANDBY = TaskIndex(-2)
"""The hot standby of a task, when it is the target of a frame."""
