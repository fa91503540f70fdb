"""Patches this process, once, before the pipeline's file is loaded, as the job's `hidden_nondeterminism` says.

Outside of operators, and on other threads, everything stays as it was.
"""

from __future__ import annotations

from operators.capture.active import RUNNING
from operators.capture.chance import of_entropy, of_random
from operators.capture.clock import of_datetime, of_time
from operators.capture.collector import spare_collections
from operators.capture.replacing import replace, spare_imports


def install(how: str) -> None:
    """Route the clock and chance of operators to the causal services, or have them refused.

    Args:
        how: "capture", "refuse", or "allow", which leaves the process as it is.
    """
    if how == "allow":
        return
    RUNNING.refuses = how == "refuse"
    replace([*of_time(), *of_random(), *of_entropy(), *of_datetime()])
    spare_imports()
    spare_collections()
