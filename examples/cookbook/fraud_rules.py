"""Checks payments against rules that change while the job runs; each verdict names the version of the rules."""

from operators import BroadcastOperator, Pipeline
from operators.sinks import SqliteSink
from operators.sources import GeneratedSource


def payment(partition, number):
    return {"payment": number, "card": number * 7919 % 50, "at_s": number / 10, "cents": number * 613 % 10_000}


def rules(partition, number):
    """Return a version of the rules; the fraud team publishes four versions a second."""
    return {"version": number + 1, "cents_max": 9_000 - number * 200, "payments_per_minute_max": 12 + number % 3}


class Judge(BroadcastOperator):
    """Compares each payment with the rules, and with the card's payments of the last minute."""

    def process(self, payment, ctx):
        now_s = payment["at_s"]
        recent_s = ctx.state["recent_s"] = [at_s for at_s in ctx.state.get("recent_s", []) if at_s > now_s - 60] + [
            now_s
        ]
        rules = ctx.broadcast.get("rules")
        reasons = []
        if rules and payment["cents"] > rules["cents_max"]:
            reasons.append("amount")
        if rules and len(recent_s) > rules["payments_per_minute_max"]:
            reasons.append("frequency")
        yield {**payment, "rules": rules["version"] if rules else 0, "reasons": reasons}

    def process_broadcast(self, rules, ctx):
        ctx.broadcast["rules"] = rules  # one key from one source: every task sees the versions in the same order


pipeline = Pipeline("fraud-rules")
(
    pipeline.source("payments", GeneratedSource(payment, count=6_000, rate=3_000))
    .key_by(lambda payment: payment["card"])
    .broadcast("judge", pipeline.source("rules", GeneratedSource(rules, count=10, rate=4)), Judge(), parallelism=2)
    .sink("out", SqliteSink("fraud_rules.db"))
)
