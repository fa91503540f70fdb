"""Snapshots of a chain, which contain its stages' state, its turns, its watermarks, its counts and its numbers."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any

from causal.errors import PipelineError
from operators.graph import LEFT, RIGHT
from operators.stage.branch import Branch, Input, Numbers
from operators.stage.routing import TurnRoute
from operators.stage.scope import Arrival
from operators.stage.watermark_merge import Merge
from operators.state.keyed_tables import FragmentJob
from operators.state.snapshot_parts import ChainSnapshot, increment_from, read_part


class ChainState:
    """Writes and restores the snapshots of one chain."""

    def __init__(
        self, branches: Sequence[Branch], merge: Merge, arrival: Arrival, inputs: Sequence[Input], numbers: Numbers
    ) -> None:
        self._branches = branches
        self._stages = [branch.stage for branch in branches]
        self._turns = [route for branch in branches for route in branch.routes if isinstance(route, TurnRoute)]
        self._merge = merge
        self._arrival = arrival
        self._inputs = inputs
        self._numbers = numbers

    def snapshot(self, full: bool, behind: str) -> ChainSnapshot:
        """Freeze the state now, and encode the changes since the file `behind` (see `causal.ports.Chain.snapshot`)."""
        increment = increment_from(behind, self._frozen(False)) if behind else b""
        return self._frozen(full, increment)

    def _frozen(self, full: bool, increment: bytes = b"") -> ChainSnapshot:
        stages: dict[str, Any] = {}
        jobs: list[FragmentJob] = []
        for stage in self._stages:
            stages[stage.name], frozen = stage.freeze(full)
            jobs += frozen
        header = {
            "stages": {name: stage_header for name, stage_header in stages.items() if stage_header},
            "kinds": {stage.name: stage.kind for stage in self._stages if stages[stage.name] or stage.loaders()},
            "meanings": {stage.name: stage.meaning for stage in self._stages if stage.meaning},
            "before": {stage.name: list(map(dict, stage.before)) for stage in self._stages if stage.before},
            "keyless": [stage.name for stage in self._stages if stage.loaders() and not stage.keyed],
            "numbers": self._numbers.next,
            "generation": self._arrival.generation,
            "turns": [route.turn for route in self._turns],
            "merge": self._merge.header(),
            "senders": [each.sender for each in self._inputs],
            "marks": [[branch.received, branch.passed] for branch in self._branches],
            "names": [stage.name for stage in self._stages],
            "counts": {stage.name: dict(stage.counts) for stage in self._stages if stage.counts},
        }
        return ChainSnapshot(full, header, jobs, increment)

    def merge_rules(self) -> dict[str, str] | None:
        """Return how snapshots of each table are merged; None if some cannot be."""
        rules: dict[str, str] = {}
        for stage in self._stages:
            of_stage = stage.merge_rules()
            if of_stage is None:
                return None
            rules |= of_stage
        return rules

    def restoring(self, parts: Iterable[bytes]) -> Iterator[None]:
        """Load the parts of one snapshot; each step of the iterator loads one fragment.

        Raises:
            PipelineError: the snapshot belongs to another pipeline.
        """
        loaders = {name: load for stage in self._stages for name, load in stage.loaders().items()}
        for part in parts:
            header, tables = read_part(part)
            if header is not None:
                self._restore_header(header)
            for name, fragments in tables.items():
                if name not in loaders:
                    known = ", ".join(loaders) or "none"
                    raise PipelineError(
                        f"the checkpoint has state {name!r}, which this pipeline does not have (it has "
                        f"{known}); resume with the pipeline that wrote the checkpoint, or start a new job"
                    )
                for fragment in fragments:
                    loaders[name](fragment)
                    yield
        for stage in self._stages:
            stage.restored()

    def _restore_header(self, header: dict[str, Any]) -> None:
        turns, marks = header["turns"], header["marks"]
        inputs = len(header["merge"]["marks"])
        if (len(turns), len(marks), inputs) != (len(self._turns), len(self._branches), len(self._inputs)):
            raise PipelineError(
                "the checkpoint belongs to a different task graph; resume with the pipeline that wrote it"
            )
        for stage in self._stages:
            was = header["kinds"].get(stage.name, stage.kind)
            if was != stage.kind:
                raise PipelineError(
                    f"operator {stage.name!r} was a {was!r} when the checkpoint was taken and is a "
                    f"{stage.kind!r} now; its state has another meaning: give the operator a new name"
                )
            meant = header.get("meanings", {}).get(stage.name, stage.meaning)
            if meant != stage.meaning:
                what = "positions" if stage.kind == "source" else "state"
                raise PipelineError(
                    f"{stage.kind} {stage.name!r} was {meant} when the checkpoint was taken and is "
                    f"{stage.meaning} now; its {what} would have another meaning: give the "
                    f"{stage.kind} a new name and pass --allow-dropped-state"
                )
            if _swapped(header.get("before", {}).get(stage.name, ()), stage.before):
                raise PipelineError(
                    f"{stage.kind} {stage.name!r} keeps state for each of its inputs, and the inputs have "
                    f"changed places: restore their order, or give the {stage.kind} a new name and pass "
                    "--allow-dropped-state"
                )
            stage.load_header(header["stages"].get(stage.name, {}), header["full"])
            stage.counts = dict(header["counts"].get(stage.name, {}))
        for route, turn in zip(self._turns, turns, strict=True):
            route.turn = turn
        for branch, (received, passed) in zip(self._branches, marks, strict=True):
            branch.received, branch.passed = received, passed
        self._numbers.next = header["numbers"]
        self._arrival.generation = header.get("generation", 0)
        self._merge.load(header["merge"])


def _swapped(was: Sequence[Mapping[str, Sequence[str]]], now: Sequence[Mapping[str, Sequence[str]]]) -> bool:
    """Return whether the two inputs have swapped places, based on the sources and operators that precede them.

    If an operator is preceded by a source that exists in both versions, the source decides, not the operator's name.
    """
    if not (was and now):
        return False
    sources = [{name for side in version for name, before in side.items() if name in before} for version in (was, now)]
    known = sources[0] & sources[1]
    crossed = [set(now[side]).intersection(was[1 - side]) for side in (LEFT, RIGHT)]
    if any(known & names for names in crossed):
        return True
    for side, names in enumerate(crossed):
        names -= {name for name in names if not known.isdisjoint([*now[side][name], *was[1 - side][name]])}
    stayed = [set(now[side]).intersection(was[side]) for side in (LEFT, RIGHT)]
    return all(crossed) or any(crossed[side] and not stayed[side] for side in (LEFT, RIGHT))
