"""A job, and a reader that continues where it was."""

import json
import subprocess
import sys
from pathlib import Path

from operators.outputs import open_output

Path("counting.py").write_text("""
from operators import Pipeline
from operators.sinks import SqliteSink
from operators.sources import GeneratedSource

pipeline = Pipeline("numbers")
numbers = pipeline.source("numbers", GeneratedSource(lambda p, i: {"i": i}, count=1000))
numbers.sink("out", SqliteSink("counted.db"), parallelism=2)
""")
subprocess.run([sys.executable, "-m", "deploy", "run", "counting.py"], check=True, capture_output=True)

read_up_to = {}  # task -> position: keep it together with your results from the rows
output = open_output("counted.db")  # or the directory, or URL, of a JsonLinesSink or a ParquetSink
for time in ("first", "second"):
    numbers_read = []
    output.look()
    for task, end in output.ends(uncovered=False).items():
        for _, rows in output.rows(task, read_up_to.get(task, 0), end):
            numbers_read += [json.loads(row)["i"] for row in rows]
        read_up_to[task] = end
    print(f"the {time} time:", len(numbers_read), "rows,", len(set(numbers_read)), "different ones")
print("all read up to", sum(read_up_to.values()), "rows")
