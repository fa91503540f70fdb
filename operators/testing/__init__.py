"""A kit for testing pipelines and operators: real tasks in this process, on virtual time, killed and replayed.

from operators.testing import run

def test_counts():
    result = run(pipeline, {"numbers": [1, 2, 3]}, crash={"count/0": 2})
    assert result["out"] == [("a", 1), ("a", 2), ("b", 1)] and result.recoveries == 1
"""

from operators.testing.inputs import At
from operators.testing.replaying import Replayed, StillRaises, replay
from operators.testing.running import TrialResult, every_crash, run
from operators.testing.trial import OperatorTrial

__all__ = ["At", "OperatorTrial", "Replayed", "StillRaises", "TrialResult", "every_crash", "replay", "run"]
