"""One operator, tried by hand."""

from operators import Operator
from operators.testing import OperatorTrial


class Total(Operator):
    def process(self, record, ctx):
        ctx.state["total"] = ctx.state.get("total", 0) + record["cents"]
        ctx.set_timer(record["day"] * 86_400, "day is over", clock="event")

    def on_timer(self, name, ctx):
        yield {"shop": ctx.key, "total": ctx.state["total"]}


def test_totals():
    trial = OperatorTrial(Total(), key=lambda r: r["shop"], time=lambda r: r["at_s"])
    assert (
        trial.give({"shop": 7, "cents": 100, "day": 1, "at_s": 10}, {"shop": 7, "cents": 5, "day": 1, "at_s": 9}) == []
    )
    trial.crash()
    assert trial.watermark(86_400) == [{"shop": 7, "total": 105}]
    assert trial.finish() == []
