"""Compares what an upgrade gave with what the model gives."""

from __future__ import annotations

import copy
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from random import Random
from typing import Any

from causal.errors import PipelineError
from causal.records.values import encode
from operators import Pipeline
from operators.graph import Node, ancestors
from tests.properties.upgrades import model_process, model_tables, model_windows
from tests.properties.upgrades.driving import START_S, Outcome, Scene, check_plan, moment_s, performed
from tests.properties.upgrades.model import Graph, MustBeRefused

SHOWN_MAX = 1500
PARTS = (model_process, model_tables, model_windows)
REFUSED, PASSED = "refused", "passed"


class Mismatch(AssertionError):
    """The rows are not those of the model, or what has no meaning was accepted."""


def judged(scene: Scene, chance: Random, perform: Callable[..., Outcome] = performed) -> str:
    """Perform an upgrade; returns whether it passed or was refused.

    Args:
        perform: performs it as `performed` does.

    Raises:
        Invalid: one of the pipelines cannot run on its own.
        Mismatch: the rows are others; any other exception is a failure as well.
    """
    pipelines = scene.before(), scene.after()
    for pipeline in pipelines:
        check_plan(pipeline)
    expected = modelled(scene, *pipelines)
    at_savepoint = False

    def ready() -> None:
        nonlocal at_savepoint
        at_savepoint = True

    try:
        outcome = perform(scene, chance, ready)
    except PipelineError as refusal:
        if not at_savepoint:
            raise
        if len(str(refusal).splitlines()) != 1:
            raise Mismatch(f"refused with several lines: {refusal}{_scene_shown(scene)}") from refusal
        return REFUSED
    if isinstance(expected, MustBeRefused):
        raise Mismatch(f"accepted, though {expected}: {outcome}{_scene_shown(scene)}")
    folding = {node.name for pipeline in pipelines for node in pipeline.nodes if node.kind == "sink" and _folds(node)}
    for version, pipeline, actual, modelled_rows in zip(
        ("before", "after"), pipelines, (outcome.before, outcome.after), expected, strict=True
    ):
        for node in pipeline.nodes:
            if node.kind == "sink" and node.name not in folding:
                rows = actual.get(node.name, []), modelled_rows.get(node.name, [])
                _compare(f"{version}, {node.name}", node, pipelines[0], version, *rows, scene)
    for node in pipelines[1].nodes:
        if node.name in folding:
            got = [row for rows_of in outcome.both() for row in rows_of.get(node.name, [])]
            wanted = [row for modelled_rows in expected for row in modelled_rows.get(node.name, [])]
            speculative = any(each.options.get("delivery") == "speculative" for each in ancestors(node))
            _same(f"{node.name}, in the end", *_amounts(got, wanted, speculative), scene)
    _check_chains(*pipelines, outcome.before, outcome.after, scene)
    return PASSED


def modelled(
    scene: Scene, before: Pipeline, after: Pipeline
) -> tuple[Mapping[str, Sequence[Any]], Mapping[str, Sequence[Any]]] | MustBeRefused:
    """Return the rows of both versions."""
    first = Graph(before, START_S)
    _fed(first, scene, 0, scene.barrier)
    first.until(moment_s(scene.barrier - 1))
    try:
        second = Graph(after, moment_s(scene.barrier - 1), first, scene.allow_dropped)
    except MustBeRefused as problem:
        return problem
    _fed(second, scene, scene.barrier, len(scene.events))
    return first.rows, second.rows


def _fed(graph: Graph, scene: Scene, start: int, stop: int) -> None:
    for number in range(start, stop):
        event = scene.events[number]
        if event.ends:
            graph.end(event.channel, moment_s(number))
        else:
            graph.give(event.channel, copy.deepcopy(event.record), moment_s(number))


def _compare(
    what: str, sink: Node, before: Pipeline, version: str, actual: Sequence[Any], wanted: Sequence[Any], scene: Scene
) -> None:
    known = {node.name for node in before.nodes}
    ends = [node for node in ancestors(sink) if node.kind in ("revisions", "to_stream")]
    fresh = version == "after" and any(node.name not in known for node in ends)
    _same(what, *((_last(actual), _last(wanted)) if fresh else (actual, wanted)), scene)


def _folds(sink: Node) -> bool:
    """Return whether only the sum of what a sink receives is defined."""
    if sink.options.get("of_table"):
        return True
    return any(node.kind == "suppress" or node.options.get("delivery") == "speculative" for node in ancestors(sink))


def _same(what: str, actual: Sequence[Any], wanted: Sequence[Any], scene: Scene) -> None:
    if Counter(map(encode, actual)) != Counter(map(encode, wanted)):
        raise Mismatch(f"{what}\n got      {_cut(actual)}\n expected {_cut(wanted)}{_scene_shown(scene)}")


def _amounts(got: Sequence[Any], wanted: Sequence[Any], speculative: bool) -> tuple[Sequence[Any], Sequence[Any]]:
    """Return what rows amount to; of what is speculative the model gives the rows themselves."""
    return ([new for _, new in _last(got)], [row[2] for row in wanted]) if speculative else (_last(got), _last(wanted))


def _last(rows: Sequence[Any]) -> list[Any]:
    """Return the last (key, new) of each key; a key without a row is left out."""
    last: dict[bytes, Any] = {}
    for key, *_, new in rows:
        last[encode(key)] = (key, new)
    return [each for each in last.values() if each[1] is not None]


def _check_chains(
    before: Pipeline, after: Pipeline, first: Mapping[str, Any], second: Mapping[str, Any], scene: Scene
) -> None:
    """A revision says what was sent before it."""
    known_ends = _ends_of_tables(before)
    for name, end in _ends_of_tables(after).items():
        standing: dict[bytes, Any] = {}
        fresh = known_ends.get(name) != end
        for key, old, new in [*([] if fresh else first.get(name, [])), *second.get(name, [])]:
            known = standing.get(encode(key))
            if encode(known) != encode(old) and not (fresh and encode(key) not in standing):
                raise Mismatch(f"{name}: {(key, old, new)!r} though {known!r} was sent last{_scene_shown(scene)}")
            standing[encode(key)] = new


def _ends_of_tables(pipeline: Pipeline) -> dict[str, str]:
    """Return by sink the operator whose revisions it receives, where it receives nothing else."""
    sinks = [node for node in pipeline.nodes if node.kind == "sink" and len(node.edges) == 1]
    return {node.name: node.edges[0].source.name for node in sinks if node.edges[0].source.kind == "revisions"}


def _cut(rows: Sequence[Any]) -> str:
    return repr(list(rows))[:SHOWN_MAX]


def _scene_shown(scene: Scene) -> str:
    events = [
        f"{event.channel[0]}[{event.channel[1]}] " + ("ends" if event.ends else repr(event.record))
        for event in scene.events
    ]
    before, after = "; ".join(events[: scene.barrier]), "; ".join(events[scene.barrier :])
    return f"\n {scene.shown}\n before   {before}\n after    {after}"[: 3 * SHOWN_MAX]
