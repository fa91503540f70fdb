"""Rows that a store refuses are put aside."""

import json
import sqlite3
from pathlib import Path

from deploy.cli import main

Path("orders.py").write_text("""
from operators import Pipeline
from operators.sinks import SqliteSink
from operators.sources import GeneratedSource

pipeline = Pipeline("orders")
orders = pipeline.source("orders", GeneratedSource(lambda p, i: {"id": i % 8}, count=10))
orders.sink("out", SqliteSink("orders.db", existing="replace"))
""")
assert main(["run", "orders.py"]) == 0

with sqlite3.connect("orders.db") as db:  # from now on an id may occur once
    db.execute("DELETE FROM output WHERE position > 0")
    db.execute("CREATE UNIQUE INDEX once ON output(json_extract(record, '$.id')) WHERE position > 0")
assert main(["run", "orders.py"]) == 1  # orders: sink 'out', position 9 of out/0: its store refuses the row: UNIQUE …
assert main(["run", "orders.py", "--on-error", "dead-letter"]) == 0

with sqlite3.connect("orders.db") as db:
    assert db.execute("SELECT count(*) FROM output").fetchone() == (9,)
    assert [position for _, position, _ in db.execute("SELECT * FROM causal_refused")] == [9]
[letters] = Path(".causal/orders/dead-letters").glob("refused-*.jsonl")
assert [json.loads(line)["record"] for line in letters.read_text().splitlines()] == [{"id": 1}]
