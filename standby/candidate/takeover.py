"""The job's time on a new leader: hosts have kept the time while no supervisor ran, each with its own clock error.

A beat may be late but is never early, so the latest claim of each host counts; of the claims of all hosts, the earliest
counts, so that one host with a wrong clock cannot advance the job's time.
"""

from __future__ import annotations

import time
from dataclasses import replace

from standby.candidate.election import Led, boot
from standby.network.control import Inbox
from standby.network.gate import Gate
from standby.supervision import events

GATHER_S, MORE_S = 2.0, 0.3
"""The time to wait for the first beat of any host, and then for the beats of other hosts."""

POLL_MS = 20
"""The longest time for which a handshake waits in the meantime."""

RECEIVE_MAX = 1000


def take_time(led: Led, gate: Gate, inbox: Inbox) -> None:
    """Set the clock of a leader to the job's time, and save the offset for this supervisor's next process."""
    if not led.exact:
        claims_ns = _claims(gate, inbox)
        led.clock.offset_ns = max(led.clock.offset_ns, min(claims_ns.values(), default=led.clock.offset_ns))
    replace(led.identity, offset_ns=led.clock.offset_ns, boot=boot()).save(led.job)


def _claims(gate: Gate, inbox: Inbox) -> dict[str, int]:
    """Return, by host, the job's time minus this machine's clock, according to each host that beats."""
    claims_ns: dict[str, int] = {}
    until_s = time.monotonic() + GATHER_S
    while time.monotonic() < until_s:
        gate.socket.poll(POLL_MS)
        gate.authenticator.serve()
        for host, slot, data in gate.receive(RECEIVE_MAX):
            event = inbox.receive_from(host, slot, data, None)
            if isinstance(event, events.AgentBeat) and event.job_ns is not None:
                claim_ns = event.job_ns - time.monotonic_ns()
                if not claims_ns:
                    until_s = min(until_s, time.monotonic() + MORE_S)
                claims_ns[host] = max(claims_ns.get(host, claim_ns), claim_ns)
    return claims_ns
