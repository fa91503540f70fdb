"""Keeps the stock of each product as a table in a compacted topic of Kafka, from a topic of movements."""

from operators import Pipeline, Sum
from operators.sinks import KafkaSink
from operators.sources import KafkaSource

pipeline = Pipeline("from-kafka")
servers = pipeline.settings.get("servers", "localhost:9092")
stock = (
    pipeline.source("movements", KafkaSource(servers, "movements"))
    .key_by(lambda movement: movement["product"])
    .aggregate_table("stock", Sum(lambda movement: movement["pieces"]))
    .filter("in-stock", lambda product, pieces: pieces > 0)  # a product that is sold out has no row
)
stock.sink("out", KafkaSink(servers, "stock", upsert=True))
