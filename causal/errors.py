"""The error families, each of which makes a promise. Any other exception that escapes is a bug in the runtime.

Every message states what happened, where it happened (operator, key, position) and what to do.
"""

from __future__ import annotations

NONDETERMINISTIC = "is nondeterministic: "
CURE = (
    NONDETERMINISTIC
    + "use ctx.now, ctx.random, ctx.uuid and ctx.call, and keep what it remembers in ctx.state"
    + ("; `causal explain-divergence` names the line of a job with --record")
)
CURE_OF_SOURCE = "; or its source: make(partition, i) or read(position) must return the same result each time"


class CausalError(Exception):
    """The base class of all errors that are raised deliberately; it is never raised itself."""


class InvariantViolation(CausalError):
    """A bug in the runtime: the process stops immediately instead of continuing with a broken promise."""


class PeerViolation(CausalError):
    """A peer, a frame or a stored byte violated the protocol: that input is dropped, and no state has changed."""


class ReplayDivergence(CausalError):
    """User code did something nondeterministic that was not logged: the task stops, and the job escalates (D7).

    Fix: the message names the task and the data that user code keeps outside `ctx.state`: make it deterministic; if the
    code was changed, use `--code kept`. `causal explain-divergence` names the line, if the job was run with `--record`.

    Args:
        where: the task, or a description if the task is not known exactly.
        difference: the difference between the first execution and the replay.
        cause: the remedy, or the detected cause; it precedes the difference in the message.
    """

    def __init__(self, where: str, difference: str, cause: str = CURE) -> None:
        self.where, self.difference = where, difference
        super().__init__(self.because(cause))

    def because(self, cause: str) -> str:
        """Return the message with the given cause instead of the general advice."""
        return f"{self.where} {cause} (ReplayDivergence: {self.difference})"


class DeterminantsLost(CausalError):
    """A task or a row depends on determinants or elements that no surviving holder has, and a store was emptied or
    cannot withdraw rows (D9).

    Fix: restore the store, or use `--sharing-depth full`.
    """


class Fenced(CausalError):
    """A higher incarnation of this task exists: this process is a zombie and must exit (D6)."""


class Superseded(Fenced):
    """A newer run has begun to write the same output, so this run must stop writing it, and its job ends (D15)."""


class Unavailable(CausalError):
    """An external system (store, disk, source) did not answer; no operation was left half done, and a retry is safe."""


class RetriesExhausted(Unavailable):
    """A store has not answered for the maximum time that the job waits (`sink_retry_timeout_s`).

    Fix: repair the store, then use `--resume`; nothing is lost or duplicated.
    """


class RowRefused(CausalError):
    """A sink's store will never accept these rows, because of a constraint, a type or a changed schema.

    No row of the bundle was written, and other rows of the bundle may also be refused.

    Args:
        position: the position of a refused row.
        reason: the store's own message, on one line.
        more: (position, reason) of each other row of the bundle that is known to be refused.
    """

    def __init__(self, position: int, reason: str, *more: tuple[int, str]) -> None:
        self.rows = tuple(sorted(dict([*more, (position, reason)]).items()))
        position, reason = self.rows[0]
        more_rows = "row" if len(self.rows) == 2 else "rows"
        others = f" (and {len(self.rows) - 1} more {more_rows} of this bundle)" if len(self.rows) > 1 else ""
        super().__init__(f"the row at position {position} was refused: {reason}{others}")


class OperatorFailed(CausalError):
    """User code raised an exception for a record, or returned a value that cannot be sent or stored.

    Fix: the message names the operator, key, position and record: correct the code and resume with `--code new`, or
    resume with `--on-error dead-letter`.
    """


class CorruptData(CausalError):
    """Stored bytes do not match their digest, so they are never used.

    Fix: restore the file that the message names from a copy, or start again.
    """


class PipelineError(CausalError):
    """The pipeline, its settings or the command line are invalid: the error is one line, and the exit status is 2."""


DEFINITE = (
    OperatorFailed,
    ReplayDivergence,
    DeterminantsLost,
    CorruptData,
    PipelineError,
    InvariantViolation,
    RetriesExhausted,
    Superseded,
)
"""The errors after which another attempt would fail in the same way."""

PASSING = (RetriesExhausted,)
"""The definite errors that an external system causes; the job may be started again without any change."""


def invariant(condition: object, message: str, **facts: object) -> None:
    """Raise `InvariantViolation` unless `condition` holds; unlike `assert`, this cannot be switched off."""
    if not condition:
        values = ", ".join(f"{name}={value!r}" for name, value in facts.items())
        raise InvariantViolation(f"{message} ({values})" if values else message)


def fenced(task: str, incarnation: int) -> Fenced:
    """Return the error for a zombie of a sink task that tries to write."""
    return Fenced(
        f"sink task {task}: a newer process than incarnation {incarnation} writes to its store; this process must exit"
    )
