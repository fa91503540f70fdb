from operators import Operator, Pipeline
from operators.sinks import SqliteSink
from operators.sources import GeneratedSource

CUSTOMERS = ["Ada", "Ben", "Cleo", "Dan", "Eve"]


def parcel(partition, number):
    return {"parcel": number, "customer": CUSTOMERS[number % 5], "cents": 300 + number * 37 % 500}


class Account(Operator):
    def process(self, parcel, ctx):
        paid = ctx.state.get("paid", 0) + parcel["cents"]
        bonus = ctx.random.choice([0] * 30 + [50])
        if bonus:
            paid = paid - bonus * 100
        ctx.state["paid"] = paid
        yield {**parcel, "paid": paid, "bonus": bonus, "at": ctx.now()}


pipeline = Pipeline("parcels")
(
    pipeline.source("parcels", GeneratedSource(parcel, count=8_000, rate=4_000))
    .key_by(lambda parcel: parcel["customer"])
    .process("account", Account(), parallelism=2)
    .sink("out", SqliteSink("parcels.db"))
)
