"""The number of descriptors that a process may have."""

from __future__ import annotations

import resource

DESCRIPTORS_MAX = 65_536
"""The highest limit that a process asks for: some libraries take time or memory for each descriptor there could be."""


def raise_limit() -> None:
    """Raise this process's limit on descriptors as far as the system allows; it is never lowered.

    Shells and service managers give 1,024 with a much higher hard limit, the limit of `select`, which nothing here
    uses.
    """
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    wanted = DESCRIPTORS_MAX if hard == resource.RLIM_INFINITY else min(hard, DESCRIPTORS_MAX)
    if soft != resource.RLIM_INFINITY and soft < wanted:
        resource.setrlimit(resource.RLIMIT_NOFILE, (wanted, hard))
