"""Rows that a store refuses are put aside."""

import json
import sqlite3
import subprocess
import sys
from pathlib import Path

causal = [sys.executable, "-m", "deploy"]
Path("orders.py").write_text("""
from operators import Pipeline
from operators.sinks import SqliteSink
from operators.sources import GeneratedSource

pipeline = Pipeline("orders")
orders = pipeline.source("orders", GeneratedSource(lambda p, i: {"id": i % 8}, count=10))
orders.sink("out", SqliteSink("orders.db", existing="replace"))
""")
subprocess.run([*causal, "run", "orders.py"], check=True, capture_output=True)

with sqlite3.connect("orders.db") as db:  # from now on an id may occur once
    db.execute("DELETE FROM output WHERE position > 0")
    db.execute("CREATE UNIQUE INDEX once ON output(json_extract(record, '$.id')) WHERE position > 0")
ended = subprocess.run([*causal, "run", "orders.py"], capture_output=True, text=True)
print(ended.stderr, end="")
subprocess.run([*causal, "run", "orders.py", "--on-error", "dead-letter"], check=True, capture_output=True)

with sqlite3.connect("orders.db") as db:
    print("rows:", *db.execute("SELECT count(*) FROM output").fetchone())
    print("refused positions:", [position for _, position, _ in db.execute("SELECT * FROM causal_refused")])
[letters] = Path(".causal/orders/dead-letters").glob("refused-*.jsonl")
print("put aside:", [json.loads(line)["record"] for line in letters.read_text().splitlines()])
