"""Routes or refuses, in a test as in a worker, the clock and chance that operators use without `ctx`.

What a worker patches in its process is patched in that of the tests, once, by the first run that asks for it.  Outside
of operators nothing changes.
"""

from __future__ import annotations

from causal.errors import PipelineError
from operators.capture.active import RUNNING
from operators.capture.install import install

_INSTALLED: list[str] = []


def capture(how: str) -> None:
    """Route or refuse the clock and chance of operators, as `hidden_nondeterminism` says.

    Raises:
        PipelineError: "allow", in a process in which a run before has captured: that cannot be undone.
    """
    if how == "allow":
        if _INSTALLED:
            raise PipelineError(
                'hidden_nondeterminism="allow" comes too late: a run before in this process has captured; '
                "give it to all runs, or run this test in a process of its own"
            )
        return
    if not _INSTALLED:
        install(how)
        _INSTALLED.append(how)
    RUNNING.refuses = how == "refuse"
