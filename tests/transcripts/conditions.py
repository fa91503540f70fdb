"""The conditions that a transcript may expect, and wait for: each a sentence that can be false.

rows a1 b2 | rows D a1 b2      what the only store, or the store of that sink, shows
B running                      the state of the youngest incarnation; `B dead` if none lives
B* performing                  the state of the hot standby of B; `B echo waiting` that of B's end
B1 failed Fenced               how an incarnation ended
B waits                        it may not continue: a neighbour does not keep up
A->B in flight 2               frames on that link
B queued 3                     elements accepted and not yet delivered
B performed 4                  elements delivered on all inputs
complete 1                     the last complete checkpoint
asked 2                        how often the outside world has been called
withdrawn 2                    rows taken back by all stores
above TEXT | never TEXT        whether the conversation has that text, since the `expect` before the last command
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from tests.transcripts.stage import Stage


def mismatch(stage: Stage, condition: str, above: Sequence[str]) -> str:
    """Return an empty text if the condition holds, else what holds instead.

    Raises:
        ValueError: not a condition.
    """
    words = condition.split()
    first, rest = words[0], words[1:]
    if first in ("above", "never"):
        text = " ".join(rest)
        there = any(text in " ".join(line.split()) for line in above)
        return "" if there == (first == "above") else f"it is {'there' if there else 'not there'}"
    if first == "rows":
        return _rows(stage, rest)
    count = _COUNTS.get(first)
    if count is not None:
        return _differs(str(count(stage)), rest[0])
    if "->" in first:
        source, target = (stage.words.names.index(name) for name in first.split("->"))
        frames = sum(len(each) for ends, each in stage.links.items() if (ends[0], ends[2]) == (source, target))
        return _differs(str(frames), rest[-1])
    if len(rest) == 2 and rest[0] == "failed":
        return _differs(stage.ended.get(first, "nothing"), rest[1])
    if first.endswith("*"):
        return _differs(stage.standbys[stage.words.names.index(first[:-1])].shadow.state.value, " ".join(rest))
    return _of_task(stage, first, rest)


def _rows(stage: Stage, rest: list[str]) -> str:
    sinks = {stage.words.names[c.source]: c.id for c in stage.topology.channels if c.id in stage.outside.stores}
    name = rest.pop(0) if rest and rest[0] in sinks else next(iter(sinks))
    return _differs(" ".join(stage.outside.stores[sinks[name]].words()), " ".join(rest))


def _of_task(stage: Stage, name: str, rest: list[str]) -> str:
    if name not in stage.words.names:
        raise ValueError(f"{' '.join([name, *rest])!r} is not a condition; see tests/transcripts/conditions.py")
    process = stage.current(stage.words.names.index(name))
    if rest == ["dead"] or process is None:
        return _differs("dead" if process is None else "alive", " ".join(rest))
    protocol = process.protocol
    if rest == ["waits"]:
        congested = any(output.congested for output in protocol.channels.downstream.values())
        return "" if congested else "it does not wait"
    if rest[0] == "echo":
        return _differs(protocol.echo.state.value, rest[1])
    if rest[0] == "queued":
        return _differs(str(sum(channel.queued for channel in protocol.inputs)), rest[1])
    if rest[0] == "performed":
        return _differs(str(sum(channel.delivered for channel in protocol.inputs)), rest[1])
    return _differs(protocol.recovery.state.value, " ".join(rest))


def _differs(there: str, wanted: str) -> str:
    return "" if there == wanted else f"it is {there or 'nothing'}"


_COUNTS: dict[str, Callable[[Stage], int]] = {
    "complete": lambda stage: stage.complete,
    "asked": lambda stage: stage.asked_outside,
    "withdrawn": lambda stage: sum(store.account.withdrawn for store in stage.outside.stores.values()),
}
