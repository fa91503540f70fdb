"""The inverted index on a Spark cluster: sources that any host can read, tasks in executors, the sink at home.

All hosts have the documents as files; each partition reads every other one, at a pace until a file lets it end.
"""

from __future__ import annotations

from pathlib import Path

from examples.corpus import STANDARD_LIBRARY, documents_of
from examples.hosts.gated import GatedSource
from examples.inverted_index import Index, words
from operators import Pipeline
from operators.sinks import SqliteSink
from operators.sources import GeneratedSource

PARTITIONS = 2

pipeline = Pipeline("index-on-spark")
settings = pipeline.settings
corpus = Path(settings.get("corpus", STANDARD_LIBRARY))
documents = documents_of(corpus)
if len(documents) % PARTITIONS:
    documents.append("")  # the last one is empty: partitions have one length


def document(partition: int, index: int) -> dict[str, str]:
    """Return the name and the text of a document."""
    name = documents[PARTITIONS * index + partition]
    return {"name": name, "text": (corpus / name).read_bytes().decode("utf-8", "replace") if name else ""}


files = GeneratedSource(
    document, count=len(documents) // PARTITIONS, partitions=PARTITIONS, rate=float(settings.get("rate", "10"))
)
(
    pipeline.source("documents", GatedSource(files, Path(settings["gate"])), parallelism=PARTITIONS)
    .flat_map("words", words)
    .key_by(lambda record: record[0])
    .process("index", Index(), parallelism=2)
    .sink("changes", SqliteSink(settings["out"]), host="home")
)
for operator in ("documents", "index"):
    pipeline.place(operator, spark="yes")
