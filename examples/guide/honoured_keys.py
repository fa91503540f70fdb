"""A function as a sink: each row once, because it honours keys."""

import sqlite3
import subprocess
import sys
from pathlib import Path

Path("billing.py").write_text("""
import sqlite3

from operators import Pipeline
from operators.sinks import CallbackSink
from operators.sources import GeneratedSource


def book(delivery):
    with sqlite3.connect("billing.db") as db:  # one transaction
        db.execute("CREATE TABLE IF NOT EXISTS progress(task TEXT PRIMARY KEY, position INTEGER)")
        db.execute("CREATE TABLE IF NOT EXISTS booked(customer INTEGER, cents INTEGER)")
        done = db.execute("SELECT max(position) FROM progress WHERE task = ?", (delivery.task,)).fetchone()[0]
        for position, record in zip(delivery.positions, delivery.records):
            if done is None or position > done:
                db.execute("INSERT INTO booked VALUES(?, ?)", (record["customer"], record["cents"]))
        db.execute("INSERT OR REPLACE INTO progress VALUES(?, ?)", (delivery.task, delivery.positions[-1]))


pipeline = Pipeline("billing")
bills = pipeline.source("bills", GeneratedSource(lambda p, i: {"customer": i % 3, "cents": i}, count=2000, rate=1000))
bills.sink("book", CallbackSink(book, batch_rows=100, retried=(sqlite3.OperationalError,)))
""")
argv = [sys.executable, "-m", "deploy", "run", "billing.py", "--kill", "book/0@0.5", "--kill", "book/0@1.2"]
subprocess.run(argv, check=True, capture_output=True)
with sqlite3.connect("billing.db") as db:
    for customer, bills, cents in db.execute("SELECT customer, count(*), sum(cents) FROM booked GROUP BY customer"):
        print(f"customer {customer}: {bills} bills, {cents} cents")
