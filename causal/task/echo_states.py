"""The echo between a task and its hot standby as tables: the states of both ends and the handling of each frame.

The task numbers its echoes, and the frames within each echo. An echo is never repaired: if either end cannot continue,
it gives up the echo, and the task begins another one after a pause (D18, 0026). A dropped frame changes no state.
"""

from __future__ import annotations

from collections.abc import Mapping
from enum import Enum


class EchoState(Enum):
    """The state of the task's end."""

    ABSENT = "absent"  # no hot standby has been announced, so nothing is echoed
    ACTIVE = "active"  # the frames that the task accepts are forwarded at the end of each turn
    WAITING = "waiting"  # the last echo was given up, so nothing is echoed until the next one is due


class EchoStep(Enum):
    """An event that changes the state of the task's end."""

    ANNOUNCED = "announced"  # the supervisor has named a hot standby, and a new connection to it has been opened
    GONE = "gone"  # the supervisor no longer names a hot standby
    GIVEN_UP = "given up"  # the standby lags too far behind or has lost the echo, or the job has rolled back
    DUE = "due"  # the pause before the next echo is over


class ShadowState(Enum):
    """The state of the standby's end."""

    UNKNOWN = "unknown"  # no echo from the incarnation that the standby follows has arrived
    BUFFERING = "buffering"  # frames of an echo wait for a checkpoint after which everything has been echoed
    PERFORMING = "performing"  # a task restored from a checkpoint performs the frames
    LOST = "lost"  # part of the echo is missing; this is reported for each frame until another echo begins


class ShadowStep(Enum):
    """An event that changes the state of the standby's end."""

    ANNOUNCED = "announced"  # the supervisor has named another incarnation of the task
    BEGUN = "begun"  # the first frame of a later echo has arrived
    LOADED = "loaded"  # a checkpoint after which everything has been echoed has been loaded
    LOST = "lost"  # a frame is missing or does not fit, or the shadow cannot continue


ECHO: Mapping[EchoState, Mapping[EchoStep, EchoState]] = {
    EchoState.ABSENT: {
        EchoStep.ANNOUNCED: EchoState.ACTIVE,
        EchoStep.GONE: EchoState.ABSENT,
        EchoStep.GIVEN_UP: EchoState.ABSENT,
    },
    EchoState.ACTIVE: {
        EchoStep.ANNOUNCED: EchoState.ACTIVE,  # a different standby was announced, so a new echo begins for it
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
        ShadowStep.LOST: ShadowState.LOST,  # the first frame to arrive is not the first of its echo
    },
    ShadowState.BUFFERING: {
        ShadowStep.ANNOUNCED: ShadowState.UNKNOWN,
        ShadowStep.BEGUN: ShadowState.BUFFERING,
        ShadowStep.LOADED: ShadowState.PERFORMING,
        ShadowStep.LOST: ShadowState.LOST,
    },
    ShadowState.PERFORMING: {
        ShadowStep.ANNOUNCED: ShadowState.UNKNOWN,  # the new incarnation may perform different events than the shadow
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
    """The relation of an arriving ECHO frame to the frames that the receiver already has."""

    FOREIGN = "of another incarnation of the task"
    PAST = "of an earlier echo"
    REPEATED = "again"
    NEXT = "the next frame of the echo"
    AHEAD = "of the echo, after a gap"
    FIRST = "the first frame of a later echo"
    HEADLESS = "another frame of a later echo"


class Action(Enum):
    """The handling of an ECHO frame."""

    DROP = "dropped"
    TAKE = "taken"
    BEGIN = "taken; earlier frames are void"
    LOSE = "the echo is lost"
    ANSWER = "dropped; ECHOED reports the loss again"


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
"""State of the shadow → arrival → the handling of the ECHO frame."""

ANSWERS: Mapping[EchoState, bool] = {EchoState.ABSENT: False, EchoState.ACTIVE: True, EchoState.WAITING: False}
"""State of the task's end → whether an ECHOED frame for the most recent echo is accepted; others are dropped."""
