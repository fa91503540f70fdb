"""The translation of errors of NATS: which ones may be retried, and the remedy for each, in one line."""

from __future__ import annotations

import ssl
from typing import Any

from causal.errors import CausalError, PipelineError, Unavailable
from operators.nats.nats_servers import Servers

_WORDS_MAX = 400
NO_STREAM, NO_MESSAGE, WRONG_LAST = 10059, 10037, (10071, 10164)
"""Codes of JetStream: there is no such stream or message; the last message is not the one that was expected."""
_USER = "check user, password, token or user_credentials in options"
_FOR_GOOD = {
    NO_STREAM: "create the stream first (nats stream add), or correct its name",
    10039: "enable JetStream for the account of this user",
    10076: "enable JetStream in the server (jetstream {})",
    10065: "another stream has this subject: use another one",
    10109: "the stream is sealed: use another one",
    10174: "set allow_atomic of the stream",
}
_REMEDIES = {
    10008: "JetStream has no leader at the moment: wait for it, or start the missing servers",
    10023: "raise the limits of the server or account",
    10047: "free space, or raise max_file of the server",
    10077: "the stream is full and takes no more (discard=new): raise its limits",
}


class Declined(Exception):
    """JetStream's answer is an error, with JetStream's code for it."""

    def __init__(self, code: int, words: str) -> None:
        super().__init__(words)
        self.code = code


def translated(problem: BaseException, servers: Servers, what: str = "") -> CausalError:
    """Return the project's error, with a remedy, for an exception of the client or of the connection.

    Args:
        what: the subject, such as "stream orders"; it precedes the client's words.
    """
    words = servers.masked(str(problem)).removeprefix("nats: ").strip("'.")[:_WORDS_MAX] or type(problem).__name__
    place = f"{servers.place}: {what}" if what else servers.place
    code: Any = getattr(problem, "code", 0) if isinstance(problem, Declined) else 0
    if remedy := _FOR_GOOD.get(code):
        return PipelineError(f"{place}: {words}; {remedy}")
    if remedy := _REMEDIES.get(code):
        return Unavailable(f"{place}: {words}; {remedy}")
    if isinstance(problem, Declined):
        return Unavailable(f"{place}: {words} ({code})")
    low = words.lower()
    if "permissions violation" in low:
        return PipelineError(f"{place}: {words}; grant the user this permission")
    if "authorization" in low or "authentication" in low:
        return PipelineError(f"{place}: {words}; {_USER}")
    if isinstance(problem, ssl.SSLError) or "tls" in low:
        return PipelineError(f"{place}: {words}; check tls and tls_hostname in options")
    if isinstance(problem, TimeoutError) or "timeout" in low:
        return Unavailable(f"{place} does not answer: {words}; check it, or raise timeout_ms")
    if "no responders" in low:
        return Unavailable(
            f"{place}: JetStream does not answer; enable it in the server (jetstream {{}}), check domain in options, "
            "or wait until it has started"
        )
    return Unavailable(f"{place} cannot be reached: {words}; start it, or check the network and servers")
