"""A generator of watermarks of your own: one per ten records."""

from operators import Pipeline, WatermarkGenerator
from operators.sinks import SqliteSink
from operators.sources import GeneratedSource
from operators.testing import run


class EveryTenth(WatermarkGenerator):
    def on_batch(self, times_ns):
        seen = self.state["seen"] = self.state.get("seen", 0) + len(times_ns)
        return max(times_ns) if seen % 10 == 0 else None


pipeline = Pipeline("sparse")
numbers = pipeline.source("numbers", GeneratedSource(lambda p, i: i, count=20))
numbers.watermarks("time", lambda n: n, generator=EveryTenth).sink("out", SqliteSink("out.db"))
assert run(pipeline)["out"] == list(range(20))
