"""A job is stopped at a savepoint, and continues with more tasks."""

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
orders = pipeline.source("orders", GeneratedSource(lambda p, i: {"shop": i % 20}, count=count, rate=1000))
orders.key_by(lambda r: r["shop"]).count("total", parallelism=tasks).sink("out", SqliteSink("out.db"))
""")
causal, job = [sys.executable, "-m", "deploy"], ["--state-dir", "job"]
running = subprocess.Popen([*causal, "run", "shop.py", *job])
while not Path("job/status.json").exists():
    time.sleep(0.1)
subprocess.run([*causal, "savepoint", "--stop", *job], check=True)
assert running.wait() == 0
subprocess.run([*causal, "run", "shop.py", *job, "--resume", "--set", "tasks=3", "--set", "count=5000"], check=True)
