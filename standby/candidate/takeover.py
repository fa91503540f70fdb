"""Determines the job's time on a new leader, from hosts that have tracked it while no supervisor was running.

Each host's clock has its own error.  A beat may arrive late but never early, so the latest claim of each host counts.
Of the claims of all hosts, the earliest counts, so that one host with a wrong clock cannot advance the job's time.
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
"""The longest time for which a handshake waits while the beats are gathered."""

RECEIVE_MAX = 1000


def take_time(led: Led, gate: Gate, inbox: Inbox) -> None:
    """Set a leader's clock to the job's time, and save the offset for the next process of this supervisor."""
    if not led.exact:
        claims_ns = _claims(gate, inbox)
        led.clock.offset_ns = max(led.clock.offset_ns, min(claims_ns.values(), default=led.clock.offset_ns))
    replace(led.identity, offset_ns=led.clock.offset_ns, boot=boot()).save(led.job)


def _claims(gate: Gate, inbox: Inbox) -> dict[str, int]:
    """Return, for each host that sends beats, the job's time minus this machine's clock according to that host."""
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
