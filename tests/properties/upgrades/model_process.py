"""Operators of the user: docs/guide/state.md.  Nothing grows old here."""

from __future__ import annotations

import copy
from typing import Any

from operators import ListState, MapState
from operators.state.declared import State
from tests.properties.upgrades.driving import Channel
from tests.properties.upgrades.model import END, Model, MustBeRefused, model, ns


class Context:
    """The `ctx` of an operator."""

    def __init__(self, of: Processing, key: Any, at: float | None) -> None:
        self._of, self.key, self._at = of, key, at

    @property
    def state(self) -> dict[Any, Any]:
        """The state of the key."""
        states: dict[Any, dict[Any, Any]] = self._of.kept.setdefault("states", {})
        return states.setdefault(self.key, {})

    @property
    def broadcast(self) -> dict[Any, Any]:
        """The rules."""
        rules: dict[Any, Any] = self._of.kept.setdefault("rules", {})
        for key in sorted(rules):
            rules[key] = rules.pop(key)
        return rules

    def aside(self, tag: str, record: Any) -> None:
        """See `Context.aside`."""
        self._of.aside(tag, record)

    def set_timer(self, at_s: float, name: str, clock: str = "processing") -> None:
        """See `Context.set_timer`."""
        self._of.kept.setdefault("timers", {})[clock, self.key, name] = ns(at_s)

    def clear_timer(self, name: str, clock: str = "processing") -> None:
        """See `Context.clear_timer`."""
        self._of.kept.setdefault("timers", {}).pop((clock, self.key, name), None)

    def event_time(self) -> float | None:
        """See `Context.event_time`: of a timer of event time, the time at which it was due."""
        return self._at


def declared(operator: Any) -> dict[str, Any]:
    """Return the declared states of an operator, by name."""
    names = {name: each for of in reversed(type(operator).__mro__) for name, each in vars(of).items()}
    return {name: each for name, each in names.items() if isinstance(each, State)}


class One:
    """The value of a `ValueState` or a `ReducingState`."""

    def __init__(self, state: Any, values: dict[Any, Any], place: Any) -> None:
        self._state, self._values, self._place = state, values, place

    @property
    def value(self) -> Any:
        """See `ValueState.value`."""
        default = getattr(self._state, "_default", None)
        return self._values.get(self._place, default() if callable(default) else default)

    @value.setter
    def value(self, value: Any) -> None:
        self._values[self._place] = value

    def add(self, value: Any) -> None:
        """See `ReducingState.add`."""
        known = self._values.get(self._place)
        self._values[self._place] = value if known is None else self._state._fn(known, value)


def bound(operator: Any, values: dict[Any, Any], key: Any) -> Any:
    """Return a copy of a user's operator whose declared states are those of a key."""
    copied = copy.copy(operator)
    for name, state in declared(operator).items():
        place = (name, key)
        if isinstance(state, (ListState, MapState)):
            vars(copied)[name] = values.setdefault(place, [] if isinstance(state, ListState) else {})
        else:
            vars(copied)[name] = One(state, values, place)
    return copied


@model("process")
class Processing(Model):
    """`process`, with `ctx.state` and timers."""

    def adopt(self, before: Model) -> None:
        both = [each.options.get("delivery") == "speculative" for each in (before, self)]
        if both[0] != both[1] and before.kept:
            raise MustBeRefused("delivery")
        for name, state in declared(before.node.subject).items():
            now = declared(self.node.subject).get(name)
            if now is not None and now.codec() != state.codec() and before.kept:
                raise MustBeRefused("values of another type")
        super().adopt(before)

    def operator(self, key: Any) -> Any:
        """Return the user's operator, as it sees the state of a key."""
        return bound(self.node.subject, self.kept.setdefault("declared", {}), key)

    def record(self, side: int, key: Any, record: Any, origin: Channel) -> None:
        time_of = self.node.edges[0].time_of
        at_s = None if time_of is None else float(time_of(record))
        self._give(self.operator(key).process(record, Context(self, key, at_s)))

    def _give(self, records: Any) -> None:
        for each in list(records or ()):
            self.emit(each, (self.name, 0))

    def advance(self, mark: int) -> None:
        self._fire("event", mark)

    def clock(self, now: int) -> None:
        self._fire("processing", now)

    def due(self) -> int:
        if self.mark == END:
            return END
        timers = self.kept.get("timers", {})
        return min((at for (clock, _, _), at in timers.items() if clock == "processing"), default=END)

    def _fire(self, clock: str, until: int) -> None:
        timers = self.kept.setdefault("timers", {})
        for name in sorted((each for each in timers if each[0] == clock), key=lambda each: timers[each]):
            at = timers.get(name)
            if at is not None and at <= until:
                del timers[name]
                at_s = at / 1e9 if clock == "event" else None
                self._give(self.operator(name[1]).on_timer(name[2], Context(self, name[1], at_s)))

    def finish(self) -> None:
        states = self.kept.get("states", {})
        finish = getattr(self.node.subject, "finish", None)
        if finish is not None:
            for key in list(states):
                self._give(self.operator(key).finish(Context(self, key, None)))


@model("broadcast")
class Broadcasting(Processing):
    """`broadcast`; with `wait`, records are held until the rules have ended."""

    def record(self, side: int, key: Any, record: Any, origin: Channel) -> None:
        if side == 1:
            self._give(self.operator(None).process_broadcast(record, Context(self, None, None)))
        elif self.options["wait"] and not self._over():
            self.kept.setdefault("waiting", []).append((key, record))
        else:
            super().record(side, key, record, origin)

    def _over(self) -> bool:
        return all(place in self.over for place, edge in enumerate(self.node.edges) if edge.side == 1)

    def input_ended(self, place: int) -> None:
        self.release()

    def continued(self) -> None:
        self.release()

    def release(self) -> None:
        """Process what waits, if the rules have ended, or nothing is to wait."""
        if self.kept.get("waiting") and not self.options["wait"]:
            self.left_behind()
            del self.kept["waiting"]
        if self._over():
            for key, record in self.kept.pop("waiting", []):
                super().record(0, key, record, ("", 0))
