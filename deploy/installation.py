"""The version of the installed package, as shown by its commands and reported by its hosts."""

from __future__ import annotations

from importlib import metadata


def installed() -> str:
    """Return the version of the installed package; a checkout that is not installed has none."""
    try:
        return metadata.version("causal-streams")
    except metadata.PackageNotFoundError:
        return "of a checkout that is not installed"


def version_line() -> str:
    """Return the line that `causal --version` prints."""
    return f"causal-streams {installed()}"
