"""The number of descriptors that a process may have."""

from __future__ import annotations

import resource

DESCRIPTORS_MAX = 65_536
"""The highest limit that a process requests, because some libraries use time or memory for each possible descriptor."""


def raise_limit() -> None:
    """Raise this process's limit on descriptors as far as the system allows; it is never lowered.

    Shells and service managers set 1,024 with a much higher hard limit, because of `select`, which is not used here.
    """
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    wanted = DESCRIPTORS_MAX if hard == resource.RLIM_INFINITY else min(hard, DESCRIPTORS_MAX)
    if soft != resource.RLIM_INFINITY and soft < wanted:
        resource.setrlimit(resource.RLIMIT_NOFILE, (wanted, hard))
