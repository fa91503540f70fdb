"""The version of the installed package, which commands show and hosts report."""

from __future__ import annotations


def installed() -> str:
    """Return the installed package's version; a checkout that is not installed has no version."""
    from importlib import metadata  # imported here because most commands do not need it

    try:
        return metadata.version("causal-streams")
    except metadata.PackageNotFoundError:
        return "of a checkout that is not installed"


def version_line() -> str:
    """Return the line that `causal --version` prints."""
    return f"causal-streams {installed()}"
