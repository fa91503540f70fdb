"""A generator of watermarks of your own: one per ten records."""

from operators import Operator, Pipeline, WatermarkGenerator
from operators.sinks import SqliteSink
from operators.sources import GeneratedSource
from operators.testing import run


class EveryTenth(WatermarkGenerator):
    def on_batch(self, times_ns):
        before = self.state.get("seen", 0)
        self.state["seen"] = before + len(times_ns)
        return max(times_ns) if self.state["seen"] // 10 > before // 10 else None


class Seen(Operator):
    def process(self, number, ctx):
        yield number, ctx.watermark()


pipeline = Pipeline("sparse")
numbers = pipeline.source("numbers", GeneratedSource(lambda p, i: i, count=20))
timed = numbers.watermarks("time", lambda n: n, generator=EveryTenth).key_by(lambda n: 0)
timed.process("seen", Seen()).sink("out", SqliteSink("out.db"))

for number, watermark in run(pipeline)["out"][::5]:
    print(f"number {number} saw the watermark {watermark}")
