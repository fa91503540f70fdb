"""Spark reads the orders, the job keeps totals, and Spark reads these back.

causal run spark_in_out.py                # orders/*.json → totals.db
python spark_in_out.py                    # Spark again: the largest total of each customer
"""

from pathlib import Path

from operators import Operator, Pipeline
from operators.sinks import SqliteSink
from operators.sources import SparkSource
from operators.spark.session import spark_session

OUT = Path("totals.db").absolute()  # absolute: Spark's processes have another working directory


def orders(spark):
    """Any streaming DataFrame; each of its rows becomes a dict."""
    return spark.readStream.schema("order long, customer string, cents long").json(str(Path("orders").absolute()))


class Total(Operator):
    def process(self, order, ctx):
        total = ctx.state["total"] = ctx.state.get("total", 0) + order["cents"]
        yield {"order": order["order"], "customer": ctx.key, "total": total}


pipeline = Pipeline("spark-in-out")
(
    pipeline.source("orders", SparkSource(orders, available_now=True))
    .key_by(lambda order: order["customer"])
    .process("total", Total(), parallelism=2)
    .sink("out", SqliteSink(OUT))
)

if __name__ == "__main__":
    with spark_session("local[1]") as spark:
        spark.read.format("causal").load(str(OUT)).groupBy("customer").max("total").orderBy("customer").show()
