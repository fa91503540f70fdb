"""The error families, each with a promise. Any other exception that escapes is a bug in the runtime.

Every message states what happened, where (operator, key, position) and what to do.
"""

from __future__ import annotations

NONDETERMINISTIC = "is nondeterministic: "
CURE = NONDETERMINISTIC + "use ctx.now, ctx.random, ctx.uuid and ctx.call, and keep what it remembers in ctx.state"
CURE_OF_SOURCE = "; or its source: make(partition, i) or read(position) must return the same result each time"


class CausalError(Exception):
    """The base class of all errors raised on purpose; never raised itself."""


class InvariantViolation(CausalError):
    """A bug in the runtime: the process stops immediately rather than continuing with a broken promise."""


class PeerViolation(CausalError):
    """A peer, a frame or a stored byte broke the protocol: that input is dropped, and no state has changed."""


class ReplayDivergence(CausalError):
    """User code did something nondeterministic that was not logged: the task stops, the job escalates (D7).

    Fix: the line names the task and the data that user code keeps outside `ctx.state`: make it deterministic; where the
    code was changed, `--code kept`.

    Args:
        where: the task, or a description if the task is not known exactly.
        difference: the difference between the first execution and the replay.
        cause: the remedy, or the detected cause; it precedes the difference in the message.
    """

    def __init__(self, where: str, difference: str, cause: str = CURE) -> None:
        self.where, self.difference = where, difference
        super().__init__(self.because(cause))

    def because(self, cause: str) -> str:
        """Return the message with another cause instead of the general advice."""
        return f"{self.where} {cause} (ReplayDivergence: {self.difference})"


class DeterminantsLost(CausalError):
    """A task or a row depends on determinants or elements that no surviving holder has, because a store was emptied or
    cannot withdraw rows (D9).

    Fix: restore the store; `--sharing-depth full`.
    """


class Fenced(CausalError):
    """A higher incarnation of this task exists: this process is a zombie and must exit (D6)."""


class Superseded(Fenced):
    """A newer run has begun to write the same output, so this run must not write it again, and its job ends (D15)."""


class Unavailable(CausalError):
    """An external system (store, disk, source) did not answer; no operation was half done, and a retry is safe."""


class RetriesExhausted(Unavailable):
    """A store has not answered for as long as the job waits (`sink_retry_timeout_s`).

    Fix: repair the store, then `--resume`; nothing is lost or doubled.
    """


class RowRefused(CausalError):
    """A sink's store will never take these rows (a constraint, a type, a schema that has changed).

    No row of the bundle was written, and other rows of the bundle may be refused as well.

    Args:
        position: the position of a refused row.
        reason: the store's own message, in one line.
        more: (position, reason) of other rows of the bundle that are known to be refused.
    """

    def __init__(self, position: int, reason: str, *more: tuple[int, str]) -> None:
        self.rows = tuple(sorted(dict([*more, (position, reason)]).items()))
        position, reason = self.rows[0]
        others = f" (and {len(self.rows) - 1} more rows of this bundle)" if len(self.rows) > 1 else ""
        super().__init__(f"the row at position {position} was refused: {reason}{others}")


class OperatorFailed(CausalError):
    """User code raised on a record, or returned something that cannot travel or be stored.

    Fix: the line names operator, key, position and record: correct the code and resume with `--code new`, or resume
    with `--on-error dead-letter`.
    """


class CorruptData(CausalError):
    """Stored bytes do not match their digest.  They are never used.

    Fix: restore the file that the line names from a copy, or start again.
    """


class PipelineError(CausalError):
    """The pipeline, its settings or the command line are wrong: one line, exit status 2."""


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
"""The errors after which another attempt would fail again."""

PASSING = (RetriesExhausted,)
"""The definite errors caused by an external system, after which the job may be started again without a change."""


def invariant(condition: object, message: str, **facts: object) -> None:
    """Raise `InvariantViolation` unless `condition` holds; cannot be switched off (unlike `assert`)."""
    if not condition:
        values = ", ".join(f"{name}={value!r}" for name, value in facts.items())
        raise InvariantViolation(f"{message} ({values})" if values else message)


def fenced(task: str, incarnation: int) -> Fenced:
    """Return the error for a zombie of a sink task that tries to write."""
    return Fenced(
        f"sink task {task}: a newer process than incarnation {incarnation} writes to its store; this process must exit"
    )
