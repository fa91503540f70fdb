"""Clients of Redis, and the translation of their errors: which ones may be retried, and the remedy for each."""

from __future__ import annotations

import redis
from redis.backoff import NoBackoff
from redis.retry import Retry

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


def client_of(url: str, timeout_ms: int) -> redis.Redis:
    """Return a client whose calls never wait forever and that never retries a call."""
    timeout_s = timeout_ms / 1000
    client: redis.Redis = redis.Redis.from_url(
        url,
        socket_timeout=timeout_s,
        socket_connect_timeout=timeout_s,
        retry=Retry(NoBackoff(), 0),
        single_connection_client=False,
    )
    return client


def translated(problem: redis.RedisError, place: str, effect: str = "nothing was written; ") -> CausalError:
    """Return the project's error, with a remedy, for a Redis error.

    Args:
        effect: what the failed call has not done, for callers that write.
    """
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
            return Unavailable(f"{place}: {words}; {effect}{remedy}")
    if isinstance(problem, redis.TimeoutError):
        return Unavailable(f"{place} does not answer: {words}; check it, or raise timeout_ms")
    if isinstance(problem, redis.ConnectionError):
        return Unavailable(f"{place} cannot be reached: {words}; start it, or check the network and the url")
    return Unavailable(f"{place}: {words}")
