"""Rows that a store of `DeltaSink` and of `IcebergSink` takes per second and per second of CPU, ÷ `ParquetSink`.

    python -m benchmarks.costs.lakehouses [PAIRS]

A pair is two stores that take the same bundles one after the other, in this process, from the first write to the end of
`close`; which one is first alternates. What tasks do before (encoding, sending) is not counted, so the ratios of whole
jobs are nearer to 1.
"""

from __future__ import annotations

import sys
import tempfile
import time
from collections.abc import Callable, Mapping
from functools import cache
from itertools import count, islice
from pathlib import Path
from statistics import median
from typing import Any

from causal.ports import Bundle
from operators.sinks import DeltaSink, IcebergSink, ParquetSink
from operators.sinks.parquet.blocks import block

BUNDLES, ROWS = 800, 2_500
OPTIONS: Mapping[str, Any] = {"compression": "snappy"}


def parquet(directory: Path) -> ParquetSink:
    return ParquetSink(directory / "rows", **OPTIONS)


def delta(directory: Path) -> DeltaSink:
    return DeltaSink(directory / "rows", **OPTIONS)


def iceberg(directory: Path) -> IcebergSink:
    from pyiceberg.catalog import load_catalog

    properties = {"type": "sql", "uri": f"sqlite:///{directory}/catalog.db", "warehouse": f"file://{directory}/rows"}
    load_catalog("causal", **properties).create_namespace("shop")
    return IcebergSink("shop.orders", properties, **OPTIONS)


@cache
def encoded() -> list[bytes]:
    """Return the rows of each bundle."""
    records = ({"order": n, "customer": f"c{n % 997}", "cents": n * 37 % 5000, "at": n / 7} for n in count())
    return [block(list(islice(records, ROWS))) for _ in range(BUNDLES)]


def measured(make: Callable[[Path], Any]) -> tuple[float, float]:
    """Return the rows per second, and per second of the processor, of a new store."""
    with tempfile.TemporaryDirectory() as directory:
        sink = make(Path(directory))
        store = sink.open_store("out/0", Path(directory))
        store.open("out/0", "run-1", 1)
        bundles = [Bundle(place * ROWS, ROWS, rows, place, 0, 1, ()) for place, rows in enumerate(encoded())]
        begin_s, begin_cpu_s = time.perf_counter(), time.process_time()
        for bundle in bundles:
            store.write(bundle)
        store.close()
        count = BUNDLES * ROWS
        return count / (time.perf_counter() - begin_s), count / (time.process_time() - begin_cpu_s)


def ratios(make: Callable[[Path], Any], number: int) -> tuple[float, float]:
    """Return ÷ `ParquetSink` by time and by CPU, of the pair with this number."""
    order = (parquet, make) if number % 2 else (make, parquet)
    rates = {each: measured(each) for each in order}
    return rates[make][0] / rates[parquet][0], rates[make][1] / rates[parquet][1]


def main() -> None:
    """Print each pair, and the median ratio of each format."""
    pairs = int(sys.argv[1]) if len(sys.argv) > 1 else 5
    for make in (delta, iceberg):
        measured(make)  # what is loaded and compiled once
        every = [ratios(make, number) for number in range(pairs)]
        for name, values in zip(("time", "CPU"), zip(*every, strict=True), strict=True):
            low, high = min(values), max(values)
            print(f"{make.__name__} ÷ parquet, by {name}: {median(values):.2f} [{low:.2f}–{high:.2f}], n={pairs}")


if __name__ == "__main__":
    main()
