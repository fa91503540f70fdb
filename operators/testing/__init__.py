"""A kit for the tests of pipelines and operators: the real tasks in this process, on virtual time, killed and replayed.

from operators.testing import run

def test_counts():
    told = run(pipeline, {"numbers": [1, 2, 3]}, crash={"count/0": 2})
    assert told["out"] == [("a", 1), ("a", 2), ("b", 1)] and told.recoveries == 1
"""

from operators.testing.inputs import At
from operators.testing.running import Told, every_crash, run
from operators.testing.trial import OperatorTrial

__all__ = ["At", "OperatorTrial", "Told", "every_crash", "run"]
