"""The echo between a task and its hot standby as tables: the states of both ends, and the handling of each frame.

The task numbers its echoes, and the frames of each.  An echo is never repaired: an end that cannot continue gives it
up, and the task begins another one after a while (D18, 0026).  A frame that is dropped changes nothing.
"""

from __future__ import annotations

from collections.abc import Mapping
from enum import Enum


class EchoState(Enum):
    """The state of the task's end."""

    ABSENT = "absent"  # no hot standby is announced: nothing is echoed
    ACTIVE = "active"  # what the task takes is sent at the end of each turn
    WAITING = "waiting"  # the last echo was given up: nothing is echoed until it is time for the next one


class EchoStep(Enum):
    """A step of the task's end."""

    ANNOUNCED = "announced"  # the supervisor names a hot standby, to which a new connection has been dialled
    GONE = "gone"  # the supervisor names none any more
    GIVEN_UP = "given up"  # the standby lags too far or has lost the echo, or the job has rolled back
    DUE = "due"  # the wait is over


class ShadowState(Enum):
    """The state of the standby's end."""

    UNKNOWN = "unknown"  # no echo of the incarnation that it follows has come
    BUFFERING = "buffering"  # the frames of an echo wait for a checkpoint since which everything was echoed
    PERFORMING = "performing"  # a task that has begun from a checkpoint performs the frames
    LOST = "lost"  # something of the echo is missing: its task hears so at each frame, until it begins another one


class ShadowStep(Enum):
    """A step of the standby's end."""

    ANNOUNCED = "announced"  # the supervisor names another incarnation of the task
    BEGUN = "begun"  # the first frame of a later echo has come
    LOADED = "loaded"  # a checkpoint is loaded since which everything was echoed
    LOST = "lost"  # a frame is missing or does not fit, or what is performed cannot be continued


ECHO: Mapping[EchoState, Mapping[EchoStep, EchoState]] = {
    EchoState.ABSENT: {
        EchoStep.ANNOUNCED: EchoState.ACTIVE,
        EchoStep.GONE: EchoState.ABSENT,
        EchoStep.GIVEN_UP: EchoState.ABSENT,
    },
    EchoState.ACTIVE: {
        EchoStep.ANNOUNCED: EchoState.ACTIVE,  # the next echo: another standby
        EchoStep.GONE: EchoState.ABSENT,
        EchoStep.GIVEN_UP: EchoState.WAITING,
    },
    EchoState.WAITING: {
        EchoStep.ANNOUNCED: EchoState.ACTIVE,
        EchoStep.GONE: EchoState.ABSENT,
        EchoStep.GIVEN_UP: EchoState.WAITING,
        EchoStep.DUE: EchoState.ACTIVE,
    },
}

SHADOW: Mapping[ShadowState, Mapping[ShadowStep, ShadowState]] = {
    ShadowState.UNKNOWN: {
        ShadowStep.ANNOUNCED: ShadowState.UNKNOWN,
        ShadowStep.BEGUN: ShadowState.BUFFERING,
        ShadowStep.LOST: ShadowState.LOST,  # the first frame of the first echo that came is not its first
    },
    ShadowState.BUFFERING: {
        ShadowStep.ANNOUNCED: ShadowState.UNKNOWN,
        ShadowStep.BEGUN: ShadowState.BUFFERING,
        ShadowStep.LOADED: ShadowState.PERFORMING,
        ShadowStep.LOST: ShadowState.LOST,
    },
    ShadowState.PERFORMING: {
        ShadowStep.ANNOUNCED: ShadowState.UNKNOWN,  # its events may differ from those that its task performs now
        ShadowStep.BEGUN: ShadowState.BUFFERING,
        ShadowStep.LOST: ShadowState.LOST,
    },
    ShadowState.LOST: {
        ShadowStep.ANNOUNCED: ShadowState.UNKNOWN,
        ShadowStep.BEGUN: ShadowState.BUFFERING,
        ShadowStep.LOST: ShadowState.LOST,
    },
}


class Arrival(Enum):
    """Names how an ECHO stands to what its receiver has of the echo."""

    FOREIGN = "of another incarnation of the task"
    PAST = "of an echo before"
    REPEATED = "again"
    NEXT = "the next of the echo"
    AHEAD = "of the echo, after a gap"
    FIRST = "the first of a later echo"
    HEADLESS = "another of a later echo"


class Action(Enum):
    """Names what becomes of an ECHO."""

    DROP = "dropped"
    TAKE = "taken"
    BEGIN = "taken; what was there is void"
    LOSE = "the echo is lost"
    ANSWER = "dropped, ECHOED says again that it is lost"


_LATER = {Arrival.FIRST: Action.BEGIN, Arrival.HEADLESS: Action.LOSE}
_NOT_OF_THIS = {Arrival.FOREIGN: Action.DROP, Arrival.PAST: Action.DROP}
_FOLLOWING = {
    **_NOT_OF_THIS,
    Arrival.REPEATED: Action.DROP,
    Arrival.NEXT: Action.TAKE,
    Arrival.AHEAD: Action.LOSE,
    **_LATER,
}
_OF_NO_ECHO = dict.fromkeys((Arrival.REPEATED, Arrival.NEXT, Arrival.AHEAD), Action.DROP)
_OF_A_LOST_ONE = dict.fromkeys((Arrival.REPEATED, Arrival.NEXT, Arrival.AHEAD), Action.ANSWER)

ARRIVALS: Mapping[ShadowState, Mapping[Arrival, Action]] = {
    ShadowState.UNKNOWN: {**_NOT_OF_THIS, **_OF_NO_ECHO, **_LATER},
    ShadowState.BUFFERING: _FOLLOWING,
    ShadowState.PERFORMING: _FOLLOWING,
    ShadowState.LOST: {**_NOT_OF_THIS, **_OF_A_LOST_ONE, **_LATER},
}
"""State of the shadow → what becomes of an ECHO."""

ANSWERS: Mapping[EchoState, bool] = {EchoState.ABSENT: False, EchoState.ACTIVE: True, EchoState.WAITING: False}
"""State of the task's end → whether it takes an ECHOED of the echo that it has begun last; others are dropped."""
