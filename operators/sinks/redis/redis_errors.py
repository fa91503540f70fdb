"""The translation of Redis errors: which ones may be retried, and the remedy for each."""

from __future__ import annotations

import redis

from causal.errors import CausalError, PipelineError, Unavailable

_WORDS_MAX = 400
_REMEDIES = (
    (
        "used memory > 'maxmemory'",
        "the server is out of memory and does not evict data: raise maxmemory, or bound the stream (rows_max)",
    ),
    ("MISCONF", "the server cannot write its files: check its disk"),
    ("read only replica", "the server is a replica: use the address of the primary"),
    ("MASTERDOWN", "the server is a replica that has lost its primary"),
    ("MasterDownError", "the server is a replica that has lost its primary"),
    ("NOREPLICAS", "the server has too few replicas to accept writes"),
    ("BusyLoadingError", "the server is loading its files: wait for it"),
    ("BUSY", "another script keeps the server busy: stop it (SCRIPT KILL)"),
    ("max number of clients", "the server has no free connection: raise maxclients or close some"),
)
_FOR_GOOD = (
    ("WRONGTYPE", "a key of this sink has another type: use another stream"),
    ("MovedError", "Redis Cluster is not supported: use a single server"),
    ("ClusterCrossSlotError", "Redis Cluster is not supported: use a single server"),
    ("ClusterDownError", "Redis Cluster is not supported: use a single server"),
    ("NOAUTH", "use a url with the password"),
    ("WRONGPASS", "use a url with the right user and password"),
    ("NOPERM", "grant the user the missing permission"),
    ("NoPermissionError", "grant the user the missing permission"),
    ("invalid password", "use a url with the right password"),
    ("without any password", "use a url without a password"),
    ("invalid DB index", "use a url with an existing database"),
    ("DB index is out of range", "use a url with an existing database"),
    ("unknown command", "Redis 6.2 or later is needed"),
)


def translated(problem: redis.RedisError, place: str) -> CausalError:
    """Return the project's error, with a remedy, for a Redis error."""
    words = " ".join(str(problem).split())[:_WORDS_MAX] or type(problem).__name__
    # The client replaces some of the server's error codes with exception classes and leaves others in the text.
    text = f"{type(problem).__name__} {words}"
    for start, remedy in _FOR_GOOD:
        if start in text:
            return PipelineError(f"{place}: {words}; {remedy}")
    if isinstance(problem, redis.AuthenticationError):
        return PipelineError(f"{place}: {words}; use a url with the right user and password")
    for start, remedy in _REMEDIES:
        if start in text:
            return Unavailable(f"{place}: {words}; nothing was written; {remedy}")
    if isinstance(problem, redis.TimeoutError):
        return Unavailable(f"{place} does not answer: {words}; check it, or raise timeout_ms")
    if isinstance(problem, redis.ConnectionError):
        return Unavailable(f"{place} cannot be reached: {words}; start it, or check the network and the url")
    return Unavailable(f"{place}: {words}")
