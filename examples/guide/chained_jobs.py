"""A job that writes clicks, and a second job that reads its rows and sums them up."""

import subprocess
import sys
from pathlib import Path

from operators.outputs import open_output

Path("clicks.py").write_text("""
from operators import Pipeline
from operators.sinks import SqliteSink
from operators.sources import GeneratedSource

pipeline = Pipeline("clicks")
clicks = pipeline.source("clicks", GeneratedSource(lambda p, i: {"page": "abc"[i % 3], "n": 1}, count=600))
clicks.sink("out", SqliteSink("clicks.db"))
""")
Path("totals.py").write_text("""
from operators import Operator, Pipeline
from operators.sinks import SqliteSink
from operators.sources import OutputSource

class Total(Operator):
    def process(self, row, ctx):
        sign = -1 if row.get("_withdrawn") else 1     # the other job has taken the row back
        ctx.state["n"] = ctx.state.get("n", 0) + sign * row["n"]
        yield {"page": ctx.key, "total": ctx.state["n"]}

pipeline = Pipeline("totals")
rows = pipeline.source("rows", OutputSource("clicks.db"))
rows.key_by(lambda row: row["page"]).process("total", Total()).sink("out", SqliteSink("totals.db"))
""")
totals = subprocess.Popen([sys.executable, "-m", "deploy", "run", "totals.py"], stdout=subprocess.DEVNULL)
subprocess.run([sys.executable, "-m", "deploy", "run", "clicks.py"], check=True, capture_output=True)
totals.wait()

output = open_output("totals.db")
output.look()
rows = [
    row for task, end in output.ends(uncovered=False).items() for _, rows in output.rows(task, 0, end) for row in rows
]
print(len(rows), "rows; the last ones:")
print(*sorted(rows[-3:]), sep="\n")
