"""Flow control at both ends: the bytes that a sender has outstanding, and the bytes that a receiver allows.

A sender may have `allowance_bytes` outstanding. The receiver credits delivered elements. It also adjusts the allowance
to its delivery rate, because a barrier has to wait for all outstanding elements before it.
"""

from __future__ import annotations

from collections import deque

ALLOWANCE_BYTES_MIN = 1 << 16
"""The initial and minimum number of bytes that a sender may have outstanding."""
ALLOWANCE_NS = 10_000_000
"""The time within which the outstanding elements should be delivered."""
CREDIT_WITHIN_NS = 200_000_000
"""The delay after which a small number of bytes is credited. A large number is credited immediately."""
SHARE_AT_ONCE = 8
"""The divisor of the allowance that yields the number of bytes from which credit is sent immediately."""
_MEASURED_NS = 50_000_000


class Credit:
    """The sender's view of credit: the bytes that are outstanding, and the bytes that may be outstanding.

    Args:
        window_bytes: the maximum number of outstanding bytes, regardless of what the receiver allows.
    """

    def __init__(self, window_bytes: int) -> None:
        self.window_bytes = window_bytes
        self.allowance_bytes = min(window_bytes, ALLOWANCE_BYTES_MIN)
        self.outstanding_bytes = 0
        self._outstanding: deque[tuple[int, int]] = deque()
        """The end position and size of each frame that has not been credited yet."""

    def begin(self) -> None:
        """Reset to no outstanding bytes and the minimum allowance, because the receiver may be another process."""
        self.forget()
        self.allowance_bytes = min(self.window_bytes, ALLOWANCE_BYTES_MIN)

    def forget(self) -> None:
        """Forget all outstanding frames."""
        self._outstanding.clear()
        self.outstanding_bytes = 0

    def allow(self, allowance_bytes: int) -> None:
        """Adopt the receiver's allowance, limited to the permitted range."""
        self.allowance_bytes = max(min(allowance_bytes, self.window_bytes), min(ALLOWANCE_BYTES_MIN, self.window_bytes))

    def charge(self, position: int, size: int) -> None:
        """Record that a frame of `size` bytes, whose elements end before `position`, has been sent."""
        self._outstanding.append((position, size))
        self.outstanding_bytes += size

    def pay(self, position: int) -> bool:
        """Record that everything below `position` is delivered; return whether that includes an outstanding frame."""
        outstanding = self._outstanding
        paid = False
        while outstanding and outstanding[0][0] <= position:
            self.outstanding_bytes -= outstanding.popleft()[1]
            paid = True
        return paid

    def settle(self, delivered: int, following: int) -> None:
        """Reduce the outstanding frames to those waiting at the receiver, between `delivered` and `following`."""
        self.pay(delivered)
        while self._outstanding and self._outstanding[-1][0] > following:
            self._outstanding.pop()
        self.outstanding_bytes = sum(size for _, size in self._outstanding)


class Allowance:
    """The number of bytes that a receiver allows to be outstanding, and the credit that it has not sent yet.

    Args:
        window_bytes: the maximum allowance.
        hoarding: whether elements are credited on arrival, up to a limit, so that the allowance does not depend on
            their delivery.
    """

    def __init__(self, window_bytes: int, hoarding: bool) -> None:
        self.window_bytes = window_bytes
        self.hoarding = hoarding
        self.allowance_bytes = min(window_bytes, ALLOWANCE_BYTES_MIN)
        """The current allowance: large if delivery is fast, and small if it is slow."""
        self.uncredited_bytes = 0
        """The number of bytes delivered, or hoarded, since the last CREDIT."""
        self.credit_due_ns = 0
        """The time at which a small number of bytes is credited; 0 if no bytes are waiting for credit."""
        self.grant_due_ns = 0
        self._measured_from_ns = 0
        self._measured_bytes = 0
        """The number of bytes delivered from `_measured_from_ns` to the last CREDIT."""

    def credit(self, now_ns: int) -> bool:
        """Return whether CREDIT is due: immediately after many delivered bytes, and after a delay after few."""
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
        """Return whether CREDIT with the maximum allowance is due, because a replay waits for elements of one event.

        The next event in the log has more elements than have arrived, and they must all arrive before it is performed.
        In the live run, the allowance had grown to that size, but a sender starts with the minimum allowance after a
        recovery. CREDIT is repeated while the replay waits, because the frame may be lost or the sender replaced.
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
        """Adjust the allowance to the delivery rate: outstanding elements should be delivered within `ALLOWANCE_NS`.

        The queue length is not a suitable measure, because a fast receiver has already delivered everything whenever it
        sends credit. The allowance can still grow when it is what limits the rate, because the allowed elements are
        then delivered and credited in less than that time.
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
