"""The address of a Redis server, as sinks and sources name it: checked early, and shown without its secrets."""

from __future__ import annotations

from urllib.parse import urlsplit

from causal.errors import PipelineError

_SCHEMES = ("redis", "rediss", "unix")


def check_address(said: str, url: object) -> None:
    """Raise `PipelineError` unless `url` is the address of a server; the line does not show it.

    Args:
        said: the sink or source, for messages.
    """
    if not _is_address(url):
        raise PipelineError(f'{said}: url is not an address; use one like "redis://host:6379/0"')
    if urlsplit(str(url)).scheme not in _SCHEMES:
        raise PipelineError(f'{said}: url must begin with one of {", ".join(_SCHEMES)}, as in "redis://host:6379/0"')


def _is_address(url: object) -> bool:
    try:
        return isinstance(url, str) and urlsplit(url).port != 0
    except ValueError:
        return False


def place_of(url: str) -> str:
    """Return the name of the server for messages, without the password."""
    parts = urlsplit(url)
    at = (
        parts.path
        if parts.scheme == "unix"
        else f"{parts.hostname}{f':{parts.port}' if parts.port else ''}{parts.path}"
    )
    return f"Redis at {at}"


def require_redis(who: str) -> None:
    """Raise `PipelineError` unless redis-py is installed."""
    try:
        import redis  # noqa: F401
    except ImportError as problem:
        raise PipelineError(
            f"{who} needs redis-py ({problem}); run `pip install -e '.[redis]'` in the checkout"
        ) from None
