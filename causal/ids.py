"""The types of identifiers: plain integers and strings with one meaning each.

Tasks and channels are numbered by the topology, so the wire carries small integers; people see
`TaskName` ("count/1").
"""

from __future__ import annotations

from typing import NewType

TaskName = NewType("TaskName", str)
"""`<operator name>/<index>`, as printed everywhere."""

TaskIndex = NewType("TaskIndex", int)
"""The task's place in `Topology.tasks`; -1 is the outside world."""

ChannelId = NewType("ChannelId", int)
"""The channel's place in `Topology.channels`."""

Position = NewType("Position", int)
"""The number of an element in its channel, from 0, without gaps, for ever (D2)."""

Epoch = NewType("Epoch", int)
"""The epoch e follows barrier e; checkpoint e is the state at barrier e.  Epoch 0 has no barrier."""

Incarnation = NewType("Incarnation", int)
"""The incarnation rises by one with each promotion of a task; processes with lower ones are zombies (D6)."""

OUTSIDE = TaskIndex(-1)
"""The far end of a channel that comes from a source's partition or goes to a sink's store."""

HOT_STANDBY = TaskIndex(-2)
"""The hot standby of a task, as the target of its frames."""
