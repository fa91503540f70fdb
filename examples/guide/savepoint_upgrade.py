"""A job is stopped at a savepoint, and continues with more tasks."""

import json
import sqlite3
import subprocess
import sys
import time
from pathlib import Path

Path("shop.py").write_text("""
from operators import Pipeline
from operators.sinks import SqliteSink
from operators.sources import GeneratedSource

pipeline = Pipeline("shop")
tasks, count = (int(pipeline.settings.get(name, default)) for name, default in (("tasks", 2), ("count", 1_000_000)))
orders = pipeline.source("orders", GeneratedSource(lambda p, i: {"shop": i % 20}, count=count, rate=250))
orders.key_by(lambda r: r["shop"]).count("total", parallelism=tasks).sink("out", SqliteSink("out.db"))
""")
causal, job = [sys.executable, "-m", "deploy"], ["--state-dir", "job"]
with open("first.txt", "w") as first:
    running = subprocess.Popen([*causal, "run", "shop.py", *job], stdout=first)
while not Path("job/status.json").exists():
    time.sleep(0.1)
subprocess.run([*causal, "savepoint", "--stop", *job], check=True, capture_output=True)
print("first version ended with status", running.wait())

upgrade = [*causal, "run", "shop.py", *job, "--resume", "--set", "tasks=3", "--set", "count=5000"]
print(subprocess.run(upgrade, check=True, capture_output=True, text=True).stderr.splitlines()[0])
with sqlite3.connect("out.db") as db:
    rows = [json.loads(record) for (record,) in db.execute("SELECT record FROM output")]
totals = dict(sorted(rows))  # the largest count of each shop
print(len(rows), "rows,", len(totals), "shops, each counted to", *set(totals.values()))
