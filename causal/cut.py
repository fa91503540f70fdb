"""A cut: the position of one task at a barrier, which is the core's own part of the task's snapshot."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from causal.errors import CorruptData, PeerViolation
from causal.records.values import decode, encode

Mark = int | str
"""The type of marks: a mark finds an element of a partition again, where its position alone does not (D23)."""


@dataclass(slots=True)
class Cut:
    """The position of a task at a barrier: the core's own part of a snapshot.

    Inputs: channel → (position, digest, ended). Outputs: channel → (position, digest). Marks: channel → (time in ns of
    the last watermark or None, idle), for channels that have delivered a watermark or are idle. Places: channel → the
    mark of a source's partition at that position, for readers that give marks.
    """

    epoch: int = 0
    inputs: Mapping[int, tuple[int, int, bool]] = field(default_factory=dict)
    outputs: Mapping[int, tuple[int, int]] = field(default_factory=dict)
    last_ns: int = 0
    finished: bool = False
    marks: Mapping[int, tuple[int | None, bool]] = field(default_factory=dict)
    places: Mapping[int, Mark] = field(default_factory=dict)

    def pack(self) -> bytes:
        inputs = [[channel, *where] for channel, where in self.inputs.items()]
        outputs = [[channel, *where] for channel, where in self.outputs.items()]
        marks = [[channel, *where] for channel, where in self.marks.items()]
        places = [[list(place) for place in self.places.items()]] if self.places else []
        return encode([self.epoch, inputs, outputs, self.last_ns, self.finished, marks, *places])

    @classmethod
    def unpack(cls, part: bytes) -> Cut:
        """Return the cut that `pack` encoded.

        Raises:
            CorruptData: the part is not a cut.
        """
        try:
            fields: Any = decode(part)
            epoch, inputs, outputs, last_ns, finished, marks, *rest = fields
            (places,) = rest or ([],)
            numbers = [
                epoch,
                last_ns,
                *(n for c, p, d, _ in inputs for n in (c, p, d)),
                *(n for o in outputs for n in o),
                *(n for c, mark, _ in marks for n in (c, mark) if n is not None),
                *(channel for channel, _ in places),
            ]
            flags = [finished, *(i[3] for i in inputs), *(m[2] for m in marks)]
            if {type(n) for n in numbers} != {int} or {type(flag) for flag in flags} != {bool}:
                raise ValueError("other types")
            if not {type(place) for _, place in places} <= {int, str}:
                raise ValueError("other types")
            return cls(
                epoch,
                {c: (p, d, e) for c, p, d, e in inputs},
                {c: (p, d) for c, p, d in outputs},
                last_ns,
                finished,
                {c: (mark, idle) for c, mark, idle in marks},
                dict(places),
            )
        except (PeerViolation, ValueError, TypeError) as problem:
            raise CorruptData(f"a snapshot does not begin with a valid cut: {problem}") from None
