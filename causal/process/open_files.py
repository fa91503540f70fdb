"""The number of descriptors that a process may open."""

from __future__ import annotations

import resource

DESCRIPTORS_MAX = 65_536
"""The highest limit that a process requests, because some libraries use time or memory for each possible descriptor."""


def raise_limit() -> None:
    """Raise this process's descriptor limit as far as the system allows; never lower it.

    Shells and service managers set a limit of 1,024, below a much higher hard limit, for the sake of `select`, which is
    not used in this project.
    """
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    wanted = DESCRIPTORS_MAX if hard == resource.RLIM_INFINITY else min(hard, DESCRIPTORS_MAX)
    if soft != resource.RLIM_INFINITY and soft < wanted:
        resource.setrlimit(resource.RLIMIT_NOFILE, (wanted, hard))
