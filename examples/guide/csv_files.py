"""Totals per customer from CSV files."""

import sqlite3
import subprocess
import sys
from pathlib import Path

Path("orders").mkdir()
Path("orders/a.csv").write_text("customer,amount\nann,3\nbob,4\n")
Path("orders/b.csv").write_text("customer,amount\nann,5\n")
Path("spent.py").write_text("""
from operators import Pipeline
from operators.sinks import SqliteSink
from operators.sources import FilesSource

pipeline = Pipeline("spent")
orders = pipeline.source("orders", FilesSource("orders/*.csv"))
customers = orders.key_by(lambda row: row["customer"])
spent = customers.reduce("spent", lambda total, row: total + int(row["amount"]), initial=0)
spent.sink("out", SqliteSink("spent.db"))
""")
subprocess.run([sys.executable, "-m", "deploy", "run", "spent.py"], check=True, capture_output=True)
with sqlite3.connect("spent.db") as db:
    for (record,) in sorted(db.execute("SELECT record FROM output")):
        print(record)
