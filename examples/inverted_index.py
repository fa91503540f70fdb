"""An incremental inverted index over the Python standard library, on real input, while its processes are killed.

The documents are the `*.py` files of the standard library of the Python that runs this, read by Spark as a
file stream.  Each is split into (word, positions); the index keeps the posting list of each word, document → positions,
as its state, and emits a change record for each (word, document) into SQLite (the benchmark job of "Delivery,
consistency, and determinism", and of FlameStream).

    python -m examples.inverted_index          # what `make demo` runs: with kills, then checked
    causal run examples/inverted_index.py      # the job alone
"""

from __future__ import annotations

import sys
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))  # `causal run` puts only this file's directory there

from examples.corpus import STANDARD_LIBRARY, document_of, postings, stage
from operators import MapState, Operator, Pipeline, ValueState
from operators.sinks import SqliteSink
from operators.sources import SparkSource


class Index(Operator):
    """The inverted index: the posting list of each word; each (word, document) that enters it is one change record."""

    postings = MapState[str, list[int]]()
    occurrences = ValueState[int](default=0)

    def process(self, record: Any, ctx: Any) -> Iterator[dict[str, Any]]:
        term, document, positions = record
        self.occurrences.value += len(positions) - len(self.postings.get(document, ()))
        self.postings[document] = positions
        yield {
            "word": term,
            "document": document,
            "positions": positions,
            "documents": len(self.postings),
            "occurrences": self.occurrences.value,
        }


def words(document: dict[str, str]) -> Iterable[tuple[str, str, list[int]]]:
    """Return one record per word of a document."""
    name = document_of(document["name"])
    return [(term, name, places) for term, places in postings(document["text"]).items()]


pipeline = Pipeline("inverted-index")
settings = pipeline.settings
out = Path(settings.get("out", "index.db")).absolute()
corpus = Path(settings.get("corpus", STANDARD_LIBRARY))
per_batch = int(settings.get("files_per_batch", "100"))


def documents(spark: Any) -> Any:
    """Return the corpus as a stream of (name, text)."""
    from pyspark.sql import functions as F

    files = (
        spark.readStream.format("text")
        .option("wholetext", True)
        .option("maxFilesPerTrigger", per_batch)
        .load(str(stage(corpus, out.with_suffix(".corpus"))))
    )
    return files.select(F.col("_metadata.file_name").alias("name"), F.col("value").alias("text"))


(
    pipeline.source("documents", SparkSource(documents, partitions=2, available_now=True, trigger="0 seconds"))
    .flat_map("words", words)
    .key_by(lambda record: record[0])
    .process("index", Index(), parallelism=2)
    .sink("changes", SqliteSink(out))
)

if __name__ == "__main__":
    from examples.survive import main

    sys.exit(main())
