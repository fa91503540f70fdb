"""The error families, each with a promise.  Any other exception that escapes is a bug of ours.

Every message says what happened, where (operator, key, position) and what to do.
"""

from __future__ import annotations

NONDETERMINISTIC = "is nondeterministic: "
CURE = NONDETERMINISTIC + "use ctx.now, ctx.random, ctx.uuid and ctx.call, and keep what it remembers in ctx.state"


class CausalError(Exception):
    """Base of all errors raised on purpose; never raised itself."""


class InvariantViolation(CausalError):
    """Our own bug: the process stops at once rather than go on with a broken promise."""


class PeerViolation(CausalError):
    """A peer, a frame or a stored byte broke the protocol: that input is dropped, nothing of ours has changed."""


class ReplayDivergence(CausalError):
    """User code did something nondeterministic behind our back: the task stops, the job escalates (D7).

    Args:
        where: the task, or what is known of it.
        difference: between what was done before and the replay.
        cause: what to do, or what was found; it comes before the difference.
    """

    def __init__(self, where: str, difference: str, cause: str = CURE) -> None:
        self.where, self.difference = where, difference
        super().__init__(self.because(cause))

    def because(self, cause: str) -> str:
        """The line with another cause: what was found takes the place of general advice."""
        return f"{self.where} {cause} (ReplayDivergence: {self.difference})"


class Lost(CausalError):
    """Somebody depends on determinants or elements that no living holder has (D9)."""


class Fenced(CausalError):
    """A younger incarnation of this task exists: this process is a zombie and must exit (D6)."""


class Superseded(Fenced):
    """A newer run has begun to write the same output: this run must not touch it again, and its job ends (D15)."""


class Unavailable(CausalError):
    """Something outside did not answer (store, disk, source); nothing was half done, trying again is safe."""


class OutOfPatience(Unavailable):
    """It has not answered for as long as the job is told to wait: somebody must see to it first."""


class RowRefused(CausalError):
    """A sink's store will never take these rows (a constraint, a type, a schema that has changed).

    Nothing of their bundle was written, and other rows of it may be refused as well.

    Args:
        position: of a row that is refused.
        reason: the store's own words, in one line.
        more: (position, reason) of other rows of the bundle that are known to be refused, too.
    """

    def __init__(self, position: int, reason: str, *more: tuple[int, str]) -> None:
        self.rows = tuple(sorted(dict([*more, (position, reason)]).items()))
        position, reason = self.rows[0]
        others = f" (and {len(self.rows) - 1} more rows of this bundle)" if len(self.rows) > 1 else ""
        super().__init__(f"the row at position {position} is refused: {reason}{others}")


class OperatorFailed(CausalError):
    """User code raised on a record: names operator, key, position and record.  Trying again would fail again."""


class CorruptData(CausalError):
    """Stored bytes do not match their digest: names the file.  They are never used."""


class PipelineError(CausalError):
    """The pipeline, its settings or the command line are wrong: one line, exit status 2."""


def invariant(condition: object, message: str, **facts: object) -> None:
    """Stop with `InvariantViolation` unless `condition` holds; cannot be switched off (unlike `assert`)."""
    if not condition:
        told = ", ".join(f"{name}={value!r}" for name, value in facts.items())
        raise InvariantViolation(f"{message} ({told})" if told else message)
