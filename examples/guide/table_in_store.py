"""Views per page and minute, one row per key, read with SQL while the job runs or later."""

import sqlite3
import subprocess
import sys
from pathlib import Path

Path("views.py").write_text("""
from operators import Count, Pipeline, Tumbling
from operators.sinks import SqliteSink
from operators.sources import GeneratedSource

pipeline = Pipeline("views")
views = pipeline.source("views", GeneratedSource(lambda p, i: {"page": "ab"[i % 2], "at": i % 90}, count=1000))
views = views.timed(lambda r: r["at"]).key_by(lambda r: r["page"])
counts = views.window_table("counts", Tumbling(60), Count(), grace_s=100)
counts.sink("out", SqliteSink("views.db", upsert=True))
""")
subprocess.run([sys.executable, "-m", "deploy", "run", "views.py"], check=True, capture_output=True)

with sqlite3.connect("views.db") as db:
    for key, record in db.execute("SELECT key, record FROM output ORDER BY key"):
        print(key, record)
