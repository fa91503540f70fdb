"""Flow control of both ends: what a sender has outstanding, and how much of it a receiver allows.

A sender may have `allowance_bytes` under way.  The receiver fits them to the pace at which it delivers, because a
barrier waits after the elements under way, and credits the elements delivered.
"""

from __future__ import annotations

from collections import deque

ALLOWANCE_BYTES_MIN = 1 << 16
"""The bytes that a sender may have under way at first, and at least."""
ALLOWANCE_NS = 10_000_000
"""The time within which what is under way should be delivered."""
CREDIT_WITHIN_NS = 200_000_000
"""Little is credited after this long; much immediately."""
SHARE_AT_ONCE = 8
"""A share of the allowance of one in this many is much."""
_MEASURED_NS = 50_000_000


class Credit:
    """The bytes that a sender has under way, and may have.

    Args:
        window_bytes: the most that it may have under way, whatever the receiver allows.
    """

    def __init__(self, window_bytes: int) -> None:
        self.window_bytes = window_bytes
        self.allowance_bytes = min(window_bytes, ALLOWANCE_BYTES_MIN)
        self.outstanding_bytes = 0
        self._outstanding: deque[tuple[int, int]] = deque()
        """Frames that are not credited: the position after each, and its size."""

    def begin(self) -> None:
        """Another process may be the receiver: nothing is outstanding, and it allows the least."""
        self.forget()
        self.allowance_bytes = min(self.window_bytes, ALLOWANCE_BYTES_MIN)

    def forget(self) -> None:
        """Forget the receiver, and what was outstanding with it."""
        self._outstanding.clear()
        self.outstanding_bytes = 0

    def allow(self, allowance_bytes: int) -> None:
        """Adopt the receiver's allowance, within the bounds."""
        self.allowance_bytes = max(min(allowance_bytes, self.window_bytes), min(ALLOWANCE_BYTES_MIN, self.window_bytes))

    def charge(self, position: int, size: int) -> None:
        """Record that a frame up to `position` has been sent."""
        self._outstanding.append((position, size))
        self.outstanding_bytes += size

    def pay(self, position: int) -> bool:
        """Everything below `position` is delivered; returns whether a frame that was outstanding is."""
        outstanding = self._outstanding
        paid = False
        while outstanding and outstanding[0][0] <= position:
            self.outstanding_bytes -= outstanding.popleft()[1]
            paid = True
        return paid

    def settle(self, delivered: int, following: int) -> None:
        """Pay for what is delivered, forget what the receiver lacks; what waits there is outstanding."""
        self.pay(delivered)
        while self._outstanding and self._outstanding[-1][0] > following:
            self._outstanding.pop()
        self.outstanding_bytes = sum(size for _, size in self._outstanding)


class Allowance:
    """The bytes that a receiver allows its sender to have under way, and those that it owes it of credit.

    Args:
        window_bytes: the most that it allows.
        hoarding: elements are credited as they arrive, up to a bound: the allowance does not follow their delivery.
    """

    def __init__(self, window_bytes: int, hoarding: bool) -> None:
        self.window_bytes = window_bytes
        self.hoarding = hoarding
        self.allowance_bytes = min(window_bytes, ALLOWANCE_BYTES_MIN)
        """Much where delivery is fast, little where it is slow."""
        self.uncredited_bytes = 0
        """Bytes that were delivered, or taken for a hoard, since the last CREDIT."""
        self.credit_due_ns = 0
        """The time at which little is credited; 0 while nothing waits for that."""
        self.grant_due_ns = 0
        self._measured_from_ns = 0
        self._measured_bytes = 0
        """Bytes that were delivered from there to the last CREDIT."""

    def credit(self, now_ns: int) -> bool:
        """Return whether CREDIT is due: immediately when much was delivered, a little later when little."""
        uncredited_bytes = self.uncredited_bytes
        if not uncredited_bytes:
            return False
        if uncredited_bytes < self.allowance_bytes // SHARE_AT_ONCE:
            if not self.credit_due_ns:
                self.credit_due_ns = now_ns + CREDIT_WITHIN_NS
            if now_ns < self.credit_due_ns:
                return False
        self._credited()
        self.resize(now_ns)
        return True

    def grant(self, now_ns: int) -> bool:
        """Return whether CREDIT for the whole allowance is due: a replay waits for more elements than have arrived.

        The log has an event with more elements than have arrived; what was delivered together may come together. Live,
        the allowance had grown until that much was here; a sender to a successor begins with the least. It is repeated
        while the replay waits: the frame may be lost, and the sender be replaced.
        """
        if now_ns < self.grant_due_ns:
            return False
        self.grant_due_ns = now_ns + CREDIT_WITHIN_NS
        self.allowance_bytes = self.window_bytes
        self._credited()
        return True

    def _credited(self) -> None:
        self._measured_bytes += self.uncredited_bytes
        self.uncredited_bytes = self.credit_due_ns = 0

    def resize(self, now_ns: int) -> None:
        """Fit the allowance to the pace of delivery: outstanding elements should be delivered within `ALLOWANCE_NS`.

        A fast receiver has taken everything whenever it credits, so an empty queue means nothing. An allowance that
        bounds the pace still grows, because the allowed elements are delivered and credited in less than that time.
        """
        took_ns = now_ns - self._measured_from_ns
        most = min(self.window_bytes, 2 * self.allowance_bytes)
        if self.hoarding:
            self.allowance_bytes = most
        elif took_ns < _MEASURED_NS:
            return
        else:
            fitting = self._measured_bytes * ALLOWANCE_NS // took_ns
            self.allowance_bytes = min(most, max(ALLOWANCE_BYTES_MIN, fitting))
        self._measured_from_ns, self._measured_bytes = now_ns, 0
